"""A file of which any bit was changed, or any part is missing, is rejected with a sentence, or reads as before."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from parallelrnn import SequenceRegressor
from parallelrnn.cli.app import app
from parallelrnn.errors import CheckpointError, FileError, ModelFileError
from parallelrnn.io import MODEL_FILE, load_tensors, save_tensors
from parallelrnn.lab.runs import RunStore
from parallelrnn.training.checkpoint import FILE
from tests.faults.small_models import KIND, load, names, save, save_old
from tests.lab.samples import make_run
from tests.support import raises
from tests.training.samples import hourly

METADATA = {"of": 'a "quoted" word', "progress": [1, 2.5, None], "nested": {"sha256": "0" * 64}}
TENSORS = {"weights": torch.arange(6.0).view(2, 3), "count": torch.tensor(7)}


def damages(file: Path) -> Iterator[str]:
    """Change each bit of a file in turn, then cut it off after each of its bytes; afterwards it is as it was.

    In place, since to write it anew each time would wait for the disk.
    """
    data = file.read_bytes()
    with file.open("r+b", buffering=0) as opened:
        for place, byte in enumerate(data):
            for bit in range(8):
                os.pwrite(opened.fileno(), bytes([byte ^ 1 << bit]), place)
                yield f"bit {bit} of byte {place}"
            os.pwrite(opened.fileno(), bytes([byte]), place)
        for length in reversed(range(len(data))):
            opened.truncate(length)
            yield f"the first {length} bytes"
    file.write_bytes(data)


def is_rejected(read: Callable[[], Any], kind: type[Exception], *phrases: str) -> bool:
    """Return whether an error of this kind contains one of these phrases; any other error fails the test."""
    try:
        read()
    except kind as error:
        if not any(phrase in str(error) for phrase in phrases):
            raise
        return True
    return False


def test_metadata_and_tensors_come_back(tmp_path: Path) -> None:
    save_tensors(tmp_path / "file", TENSORS, METADATA)
    metadata, tensors = load_tensors(tmp_path / "file")
    assert metadata == METADATA
    assert tensors.keys() == TENSORS.keys()
    assert all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)


def test_every_bit_of_a_file_counts(tmp_path: Path) -> None:
    file = save_tensors(tmp_path / "file", TENSORS, METADATA)
    for damage in damages(file):
        assert is_rejected(lambda: load_tensors(file), FileError, "checksum"), damage
    load_tensors(file)
    file.write_bytes(file.read_bytes() + b"\0")
    with raises(FileError, file, "checksum"):
        load_tensors(file)


def test_every_bit_of_a_model_counts(tmp_path: Path) -> None:
    file = save(tmp_path, 3, size=2) / MODEL_FILE
    for damage in damages(file):
        assert is_rejected(lambda: load(tmp_path), ModelFileError, "checksum"), damage
    assert load(tmp_path) == 3


def test_every_bit_of_a_model_of_0_1_0_counts(tmp_path: Path) -> None:
    save_old(tmp_path, 3)
    for file in list(tmp_path.iterdir()):
        for damage in damages(file):
            assert is_rejected(lambda: load(tmp_path), ModelFileError, file.name, KIND), f"{file.name}: {damage}"
    assert load(tmp_path) == 3


def test_files_of_others_stay_where_a_model_is_saved(tmp_path: Path) -> None:
    others = ("weights-best.safetensors", "weights-0123456789abcdef.json", "weights-epoch_10.safetensors")
    others += ("model.json.1.part", "training.safetensors")
    for name in others:
        (tmp_path / name).touch()
    for model_json in ("{}", "{", "[]"):
        (tmp_path / "model.json").write_text(model_json)
        save(tmp_path, 1)
        assert names(tmp_path) == {*others, "model.json", MODEL_FILE}
    save_old(tmp_path, 1)
    save(tmp_path, 2)
    assert names(tmp_path) == {*others, MODEL_FILE}


def test_every_bit_of_a_run_counts(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    run = make_run("adding", {"mse": 0.25}, model="GRU", details={"3": [1, 2]})
    file = store.save(run)
    rejected = 0
    for damage in damages(file):
        try:
            assert store.find(run.key) == run, damage  # a changed space, or the end of a line, say
        except FileError:
            rejected += 1
    assert rejected > 8 * len(file.read_bytes())
    assert store.load("adding") == [run]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a training after its first epoch."""
    directory = tmp_path_factory.mktemp("checkpoint")
    regressor(max_time=1e-9).fit(*examples(), checkpoint=directory)
    return directory / FILE


def regressor(**more: Any) -> SequenceRegressor:
    return SequenceRegressor(hidden_size=4, max_epochs=2, epoch_steps=(2, 2), batch_size=8, random_state=0, **more)


def examples() -> tuple[Any, Any]:
    x = np.random.default_rng(0).normal(size=(20, 5, 1))
    return x, x.sum((1, 2))


def test_a_damaged_checkpoint_is_rejected_when_training_resumes(checkpoint: Path, tmp_path: Path) -> None:
    data, file = checkpoint.read_bytes(), tmp_path / FILE
    header = 8 + int.from_bytes(data[:8], "little")
    for place in (0, 9, header // 2, header - 1, header, (header + len(data)) // 2, len(data) - 1):
        changed = bytearray(data)
        changed[place] ^= 16
        for damaged in (bytes(changed), data[:place]):
            file.write_bytes(damaged)
            with raises(CheckpointError, FILE, "checksum", hint="delete it to start over"):
                regressor().fit(*examples(), checkpoint=tmp_path, resume=True)
            assert file.read_bytes() == damaged, "it is left to who may know better"
    regressor().fit(*examples(), checkpoint=tmp_path)  # anew


def test_a_checkpoint_that_does_not_fit_is_rejected(checkpoint: Path, tmp_path: Path) -> None:
    metadata, tensors = load_tensors(checkpoint)
    save_tensors(tmp_path / FILE, {name: tensor for name, tensor in tensors.items() if "random" not in name}, metadata)
    with raises(CheckpointError, FILE, "random.cpu", hint="delete it to start over"):
        regressor().fit(*examples(), checkpoint=tmp_path, resume=True)


def test_the_command_reports_it_and_keeps_the_checkpoint(checkpoint: Path, tmp_path: Path) -> None:
    data, model = tmp_path / "series.csv", tmp_path / "model"
    hourly(ids=("a",)).to_csv(data, index=False)
    model.mkdir()
    (model / FILE).write_bytes(checkpoint.read_bytes())
    fit = ["fit", str(data), "--horizon", "3", "--out", str(model)]
    result = CliRunner().invoke(app, fit)
    assert result.exit_code == 3
    assert "--resume" in result.output
    assert (model / FILE).read_bytes() == checkpoint.read_bytes()
    (model / FILE).write_bytes(checkpoint.read_bytes()[:-1])
    result = CliRunner().invoke(app, [*fit, "--resume"])
    assert result.exit_code == 3
    assert "checksum is wrong; delete it to start over" in " ".join(result.output.split())
    (model / MODEL_FILE).write_text("{")
    result = CliRunner().invoke(app, ["forecast", str(model)])
    assert result.exit_code == 4
    assert "no checksum" in result.output

"""Saved models whose checksums are right and whose words are not: nothing runs, and no memory is taken for a word."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save

from parallelrnn import Forecaster, SequenceClassifier
from parallelrnn.errors import ModelFileError
from parallelrnn.training.model_files import MANIFEST

HUGE = 10**9
Words = dict[str, Any]
Tensors = dict[str, torch.Tensor]
WEIGHTS = "weights-0123456789abcdef.safetensors"


@pytest.fixture(scope="module")
def forecaster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    hours = pd.date_range("2024-01-01", periods=80, freq="h")
    table = pd.concat([pd.DataFrame({"unique_id": name, "ds": hours, "y": np.sin(np.arange(80) / 4)}) for name in "ab"])
    small: dict[str, Any] = {"hidden_size": 4, "num_waves": 2, "num_decays": 1, "max_epochs": 1, "epoch_steps": (1, 1)}
    return Forecaster(4, 8, gate=True, **small).fit(table).save(tmp_path_factory.mktemp("forecaster"))


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    small: dict[str, Any] = {"hidden_size": 4, "max_epochs": 1, "epoch_steps": (1, 1), "random_state": 0}
    model = SequenceClassifier(**small).fit(np.zeros((4, 6, 2)), np.array(["no", "yes"] * 2))
    return model.save(tmp_path_factory.mktemp("classifier"))


def changed(directory: Path, into: Path, change: Callable[[Words, Tensors], None]) -> Path:
    """A copy of a model in which something was changed, sealed again."""
    words = json.loads((directory / MANIFEST).read_text())
    tensors = load_file(directory / words["weights"])
    change(words, tensors)
    return seal(into, words, save(tensors))


def seal(into: Path, words: Words, weights: bytes) -> Path:
    words = {name: value for name, value in words.items() if name != "words_sha256"}
    words["sha256"] = hashlib.sha256(weights).hexdigest()
    words["words_sha256"] = hashlib.sha256(json.dumps(words, sort_keys=True).encode()).hexdigest()
    (into / words["weights"]).write_bytes(weights)
    (into / MANIFEST).write_text(json.dumps(words))
    return into


def test_a_model_that_was_sealed_again_loads(forecaster: Path, classifier: Path, tmp_path: Path) -> None:
    assert len(Forecaster.load(changed(forecaster, tmp_path, lambda words, tensors: None)).predict()) == 8
    again = tmp_path / "classifier"
    again.mkdir()
    loaded = SequenceClassifier.load(changed(classifier, again, lambda words, tensors: None))
    assert loaded.classes_.tolist() == ["no", "yes"]
    assert loaded.classes_.dtype == "<U3"


def grow_hidden(words: Words, tensors: Tensors) -> None:
    """Of a tensor without numbers, which takes no room in the file."""
    words["architecture"] |= {"hidden_size": HUGE, "segment": 0}
    tensors["network.encoder.weight_ih_l0"] = torch.empty(HUGE, 0)


def grow_horizon(words: Words, tensors: Tensors) -> None:
    words["architecture"]["horizon"] = words["arguments"]["horizon"] = HUGE
    tensors["calibration.table"] = torch.empty(3, 0, HUGE, 1)


def grow_layers(words: Words, tensors: Tensors) -> None:
    words["architecture"]["num_layers"] = HUGE
    tensors[f"network.encoder.weight_ih_l{HUGE - 1}"] = torch.zeros(1)


def grow_blocks(words: Words, tensors: Tensors) -> None:
    """A file of 80 kB that speaks of matrices of 1.6 GB."""
    words["architecture"] |= {"hidden_size": 20_000, "block_size": 20_000}
    tensors["network.encoder.weight_ih_l0"] = torch.zeros(20_000, 1)


def grow_gate(words: Words, tensors: Tensors) -> None:
    words["architecture"] |= {"hidden_size": 20_000}
    tensors["network.encoder.weight_ih_l0"] = torch.zeros(20_000, 1)


def put(part: str, name: Any, value: Any) -> Callable[[Words, Tensors], None]:
    def change(words: Words, tensors: Tensors) -> None:
        words[part][name] = value

    change.__name__ = f"{part}-{name}-{value}"
    return change


def shorten(name: str) -> Callable[[Words, Tensors], None]:
    def change(words: Words, tensors: Tensors) -> None:
        tensors[name] = tensors[name][:-1].clone()

    change.__name__ = f"shorten-{name}"
    return change


CHANGES = [
    *(grow_hidden, grow_horizon, grow_layers, grow_blocks, grow_gate),
    *(put("architecture", name, HUGE) for name in ("lookback", "segment", "channels", "past", "quantiles")),
    put("architecture", "horizon", 4.0),
    put("architecture", "num_layers", True),
    put("architecture", "cell", "other"),
    put("architecture", "normalize", "other"),
    put("architecture", "dropout", 1e308),
    put("arguments", "lookback", -1),
    put("arguments", "past_covariates", ["x"] * 1000),
    put("arguments", "quantiles", [0.1, 0.9]),
    put("columns", "targets", [["y"]]),
    put("columns", "targets", ["ds"]),
    put("series", 0, {"name": "b", "position": 0, "trained": 0, "cycles": []}),
    put("series", 0, {"name": {"a": 1}, "position": 0, "trained": 0, "cycles": []}),
    put("series", 1, {"name": "b", "position": 10**30, "trained": 0, "cycles": []}),
    put("series", 1, {"name": "b", "position": 2**52, "trained": 0, "cycles": []}),
    put("series", 1, {"name": "b", "position": 0.5, "trained": 0, "cycles": []}),
    put("sample", "series", [-1]),
    put("sample", "series", [HUGE]),
    put("sample", "positions", [0]),
    shorten("series.0.past"),
    shorten("series.1.observed"),
    shorten("series.0.mean"),
    shorten("calibration.counts"),
    shorten("sample.state"),
    shorten("sample.added"),
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_words_that_do_not_fit_are_refused_before_memory_is_taken(
    change: Callable[[Words, Tensors], None], forecaster: Path, tmp_path: Path, little_memory: None
) -> None:
    with pytest.raises(ModelFileError):
        Forecaster.load(changed(forecaster, tmp_path, change))


@pytest.mark.parametrize(
    "kind", ["<U999999999", "V999999999", "S2147483647", "O8,O8", "c16", [["a", "O"]], 7, "M8[as]"]
)
def test_classes_are_of_a_kind_that_they_fill(kind: Any, classifier: Path, tmp_path: Path, little_memory: None) -> None:
    with pytest.raises(ModelFileError, match="not whole"):
        SequenceClassifier.load(changed(classifier, tmp_path, put("seen", "kind", kind)))


@pytest.fixture
def little_memory() -> Any:
    """No more than 1 GB on top of what is there: nothing here needs a hundredth of it."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * os.sysconf("SC_PAGE_SIZE") + (1 << 30), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"format": ' * 100_000,
        '{"format": NaN}',
        '{"format": "parallelrnn forecaster", "version": Infinity}',
        '{"format": ' + "9" * 100_000 + "}",
        '"\\ud800"',
        "null",
        "\x00",
    ],
)
def test_a_manifest_that_is_no_manifest_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(ModelFileError, match=r"model\.json"):
        Forecaster.load(tmp_path)


def test_a_manifest_has_the_numbers_of_json_alone(forecaster: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="is no JSON: NaN is no number of JSON"):
        Forecaster.load(changed(forecaster, tmp_path, put("history", 0, {"training": float("nan")})))


@pytest.mark.parametrize(
    "name",
    [
        *(f"../{WEIGHTS}", f"a/{WEIGHTS}", f"{WEIGHTS}\n", f"..\\{WEIGHTS}", f"C:{WEIGHTS}", f"{WEIGHTS}:a", [WEIGHTS]),
        *("weights-../../0123456789abcdef.safetensors", "weights-\x00.safetensors", "weights-best.safetensors"),
        *("/etc/passwd", "..", "", ".", "model.json", "NUL", None, 1),
    ],
)
def test_weights_are_inside_of_the_directory(name: Any, forecaster: Path, tmp_path: Path) -> None:
    words = json.loads((forecaster / MANIFEST).read_text())
    words["weights"] = name
    del words["words_sha256"]
    words["words_sha256"] = hashlib.sha256(json.dumps(words, sort_keys=True).encode()).hexdigest()
    (tmp_path / MANIFEST).write_text(json.dumps(words))
    with pytest.raises(ModelFileError, match="names no weights of its own"):
        Forecaster.load(tmp_path)


@pytest.mark.parametrize(
    "weights",
    [
        b"",
        struct.pack("<Q", 10 * 2**30) + b"{}",  # a header of 10 GB
        struct.pack("<Q", 2**64 - 1),
        struct.pack("<Q", 8) + b"[[[[[[[[",
        struct.pack("<Q", 60) + b'{"a":{"dtype":"F32","shape":[1000000000],"data_offsets":[0,4]}}'[:60],
        struct.pack("<Q", 61) + b'{"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}}',
    ],
)
def test_tensors_that_are_none_are_refused(
    weights: bytes, forecaster: Path, tmp_path: Path, little_memory: None
) -> None:
    words = json.loads((forecaster / MANIFEST).read_text())
    with pytest.raises(ModelFileError, match="holds no tensors"):
        Forecaster.load(seal(tmp_path, words, weights))


def test_a_pipe_in_the_place_of_weights_is_not_waited_for(forecaster: Path, tmp_path: Path) -> None:
    words = json.loads((forecaster / MANIFEST).read_text())
    seal(tmp_path, words, b"")
    (tmp_path / words["weights"]).unlink()
    os.mkfifo(tmp_path / words["weights"])
    with pytest.raises(ModelFileError, match="cannot be read: a pipe or a device, and no file"):
        Forecaster.load(tmp_path)


def test_a_link_to_another_file_tells_nothing_of_it(forecaster: Path, tmp_path: Path) -> None:
    words = json.loads((forecaster / MANIFEST).read_text())
    (tmp_path / "secret").write_text("the password")
    (tmp_path / MANIFEST).write_text((forecaster / MANIFEST).read_text())
    (tmp_path / words["weights"]).symlink_to(tmp_path / "secret")
    with pytest.raises(ModelFileError, match="is not what was saved") as refused:
        Forecaster.load(tmp_path)
    assert "password" not in str(refused.value)

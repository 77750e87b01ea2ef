"""Forged models, with checksums that are right: nothing runs, and nothing is allocated for what metadata say."""

from __future__ import annotations

import hashlib
import math
import os
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from parallelrnn import Forecaster, SequenceClassifier
from parallelrnn.errors import ModelFileError
from parallelrnn.io import MODEL_FILE, encode_tensors, load_tensors, save_tensors
from tests.faults.limits import no_more_memory_than
from tests.faults.small_models import load, save_old
from tests.support import raises

HUGE = 10**9
Metadata = dict[str, Any]
Tensors = dict[str, torch.Tensor]
WEIGHTS = "weights-0123456789abcdef.safetensors"


@pytest.fixture(scope="module")
def forecaster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    hours = pd.date_range("2024-01-01", periods=80, freq="h")
    table = pd.concat([pd.DataFrame({"unique_id": name, "ds": hours, "y": np.sin(np.arange(80) / 4)}) for name in "ab"])
    small: dict[str, Any] = {"hidden_size": 4, "num_waves": 2, "num_decays": 1, "max_epochs": 1, "epoch_steps": (1, 1)}
    return Forecaster(4, 8, gate=True, cycles=[8.0], **small).fit(table).save(tmp_path_factory.mktemp("forecaster"))


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    small: dict[str, Any] = {"hidden_size": 4, "max_epochs": 1, "epoch_steps": (1, 1), "random_state": 0}
    model = SequenceClassifier(**small).fit(np.zeros((4, 6, 2)), np.array(["no", "yes"] * 2))
    return model.save(tmp_path_factory.mktemp("classifier"))


def changed(directory: Path, into: Path, change: Callable[[Metadata, Tensors], None]) -> Path:
    """Return a copy of a model in which something was changed, with a right checksum."""
    metadata, tensors = load_tensors(directory / MODEL_FILE)
    change(metadata, tensors)
    return save_tensors(into / "changed.safetensors", tensors, metadata)


def test_a_copy_without_changes_loads(forecaster: Path, classifier: Path, tmp_path: Path) -> None:
    assert len(Forecaster.load(changed(forecaster, tmp_path, lambda metadata, tensors: None)).predict()) == 8
    loaded = SequenceClassifier.load(changed(classifier, tmp_path, lambda metadata, tensors: None))
    assert loaded.classes_.tolist() == ["no", "yes"]
    assert loaded.classes_.dtype == "<U3"


# What may be wrong with a model; the last two arguments are what is changed.


def grow(architecture: Metadata, name: str, tensor: torch.Tensor, metadata: Metadata, tensors: Tensors) -> None:
    metadata["architecture"] |= architecture
    tensors[name] = tensor


def grow_horizon(metadata: Metadata, tensors: Tensors) -> None:
    metadata["architecture"]["horizon"] = metadata["arguments"]["horizon"] = HUGE
    tensors["calibration.table"] = torch.empty(3, 0, HUGE, 1)


def leave_64_bits(metadata: Metadata, tensors: Tensors) -> None:
    metadata.update(freq=1, origin=2**63)


def put(part: str, name: Any, value: Any, metadata: Metadata, tensors: Tensors) -> None:
    metadata[part][name] = value


def fill(name: str, place: Any, value: Any, metadata: Metadata, tensors: Tensors) -> None:
    tensors[name][place] = value


def halve(name: str, metadata: Metadata, tensors: Tensors) -> None:
    tensors[name] = tensors[name] / 2  # of integers, numbers that are none


def shorten(name: str, metadata: Metadata, tensors: Tensors) -> None:
    tensors[name] = tensors[name][:-1].clone()


def label(change: Any) -> str:
    words = [change.func.__name__, *change.args[:3]] if isinstance(change, partial) else [change.__name__]
    return "-".join(str(word)[:20] for word in words if not isinstance(word, torch.Tensor))


INPUT = "network.encoder.weight_ih_l0"
WIDE = torch.zeros(20_000, 1)
CHANGES = [
    partial(grow, {"hidden_size": HUGE, "segment": 0}, INPUT, torch.empty(HUGE, 0)),  # which takes no room in the file
    partial(grow, {"num_layers": HUGE}, f"network.encoder.weight_ih_l{HUGE - 1}", torch.zeros(1)),
    partial(grow, {"hidden_size": 20_000, "block_size": 20_000}, INPUT, WIDE),  # 80 kB speak of matrices of 1.6 GB
    partial(grow, {"hidden_size": 20_000}, INPUT, WIDE),  # of the gate
    grow_horizon,
    leave_64_bits,
    *(partial(put, "architecture", name, HUGE) for name in ("lookback", "segment", "channels", "past", "quantiles")),
    partial(put, "architecture", "horizon", 4.0),
    partial(put, "architecture", "num_layers", True),
    partial(put, "architecture", "cell", "other"),
    partial(put, "architecture", "normalize", "other"),
    partial(put, "architecture", "dropout", 1e308),
    partial(put, "arguments", "lookback", -1),
    partial(put, "arguments", "past_covariates", ["x"] * 1000),
    partial(put, "arguments", "quantiles", [0.1, 0.9]),
    partial(put, "columns", "targets", [["y"]]),
    partial(put, "columns", "targets", ["ds"]),
    partial(put, "names", 0, "b"),
    partial(put, "names", 0, {"a": 1}),
    *(
        partial(fill, "series.steps", (1, 1), position) for position in (2**62, 2**52)
    ),  # in which no calendar has a year
    *(partial(fill, "series.steps", (0, 0), length) for length in (-1, 0, 9, HUGE)),
    *(partial(fill, "sample.origins", (0, 0), index) for index in (-1, 2, HUGE)),
    *(partial(fill, "cycle.series", 0, index) for index in (-1, 2, HUGE)),
    partial(fill, "cycle.period", 0, 1.0),
    *(partial(fill, "calibration.scale", 0, value) for value in (-1.0, 0.0, math.nan, math.inf)),
    *(partial(fill, "calibration.size", 0, value) for value in (-1.0, math.nan)),
    *(partial(fill, "calibration.table", (0, -1), value) for value in (-1.0, 0.0, math.nan)),
    *(partial(fill, "calibration.row", 0, index) for index in (-1, HUGE)),
    partial(fill, "calibration.counts", 0, -1),
    partial(halve, "calibration.row"),
    partial(fill, "scaler", (0, 1), 0.0),
    *(partial(halve, name) for name in ("series.steps", "cycle.series", "sample.origins")),
    *(partial(shorten, f"series.{name}") for name in ("values", "observed", "past", "static", "steps")),
    *(
        partial(shorten, name)
        for name in ("scaler", "cycle.waves", "calibration.counts", "sample.state", "sample.exog_effect")
    ),
]


@pytest.mark.parametrize("change", CHANGES, ids=label)
def test_forged_metadata_is_rejected_before_memory_is_allocated(
    change: Callable[[Metadata, Tensors], None], forecaster: Path, tmp_path: Path, little_memory: None
) -> None:
    with pytest.raises(ModelFileError):
        Forecaster.load(changed(forecaster, tmp_path, change))


@pytest.mark.parametrize(
    "kind", ["<U999999999", "V999999999", "S2147483647", "O8,O8", "c16", [["a", "O"]], 7, "M8[as]"]
)
def test_classes_have_a_dtype_that_they_fill(kind: Any, classifier: Path, tmp_path: Path, little_memory: None) -> None:
    with raises(ModelFileError, "changed.safetensors"):
        SequenceClassifier.load(changed(classifier, tmp_path, partial(put, "fitted", "kind", kind)))


@pytest.fixture
def little_memory() -> Any:
    """No more than 1 GB on top of what is there: nothing here needs a hundredth of it."""
    with no_more_memory_than(1 << 30):
        yield


NESTED = "[" * 100_000
HEADER = b'{"__metadata__":{"parallelrnn":"{\\"sha256\\": \\"' + b"0" * 64 + b'\\"'


@pytest.mark.parametrize(
    "header",
    [
        HEADER + b'}"},"a":{"dtype":"F32","shape":[1000000000],"data_offsets":[0,4]}}',
        HEADER + b'}"},"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}}',
        HEADER + b'}"},"a":{"dtype":"F8_E8M0","shape":[0],"data_offsets":[0,0]}}',
        HEADER + b'}"},"a":' + NESTED.encode(),
        HEADER + b', \\"a\\": ' + NESTED.encode() + b'"}}',
        HEADER + b', \\"a\\": NaN}"}}',
        HEADER + b', \\"a\\": -Infinity}"}}',
        HEADER + b', \\"a\\": ' + b"9" * 100_000 + b'}"}}',
        HEADER + b', \\"a\\": 1"}}',
        HEADER + b'}"},"__metadata__":{"parallelrnn":"[]"}}',
        HEADER + b'}"},"__metadata__":{}}',
        HEADER + b'}"}}',  # no format
    ],
    ids=range(12),
)
def test_a_forged_header_is_rejected(header: bytes, tmp_path: Path, little_memory: None) -> None:
    data = struct.pack("<Q", len(header)) + header
    digest = hashlib.sha256(data).hexdigest().encode()
    (tmp_path / MODEL_FILE).write_bytes(data.replace(b"0" * 64, digest))
    with raises(ModelFileError, MODEL_FILE):
        load(tmp_path)


@pytest.mark.parametrize(
    "data", [b"", struct.pack("<Q", 10 * 2**30) + b"{}", struct.pack("<Q", 2**64 - 1), struct.pack("<Q", 8) + b"[" * 8]
)
def test_a_file_without_a_checksum_is_rejected(data: bytes, tmp_path: Path, little_memory: None) -> None:
    (tmp_path / MODEL_FILE).write_bytes(data)
    with raises(ModelFileError, MODEL_FILE, "no checksum"):
        load(tmp_path)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_metadata_has_the_numbers_of_json_alone(value: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        encode_tensors({}, {"value": value})


@pytest.mark.parametrize("text", [NESTED, '{"format": ' * 100_000, '{"format": NaN}', '"\\ud800"', "null", "\x00"])
def test_a_damaged_manifest_of_0_1_0_is_rejected(tmp_path: Path, text: str) -> None:
    (tmp_path / "model.json").write_text(text)
    with raises(ModelFileError, "model.json"):
        load(tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        *(f"../{WEIGHTS}", f"a/{WEIGHTS}", f"{WEIGHTS}\n", f"..\\{WEIGHTS}", f"C:{WEIGHTS}", f"{WEIGHTS}:a", [WEIGHTS]),
        *("weights-../../0123456789abcdef.safetensors", "weights-\x00.safetensors", "weights-best.safetensors"),
        *("/etc/passwd", "..", "", ".", "model.json", "NUL", None, 1),
    ],
)
def test_weights_of_0_1_0_are_inside_the_directory(name: Any, tmp_path: Path) -> None:
    save_old(tmp_path, 1, weights=name)
    with raises(ModelFileError, "model.json", repr(name)):
        load(tmp_path)


@pytest.mark.parametrize("weights", [b"", struct.pack("<Q", 2**64 - 1)])
def test_weights_of_0_1_0_that_are_no_tensors_are_rejected(weights: bytes, tmp_path: Path) -> None:
    (tmp_path / WEIGHTS).write_bytes(weights)
    save_old(tmp_path, 1, weights=WEIGHTS, sha256=hashlib.sha256(weights).hexdigest())
    with raises(ModelFileError, WEIGHTS):
        load(tmp_path)


def test_a_pipe_in_place_of_a_model_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / MODEL_FILE)
    with raises(ModelFileError, MODEL_FILE):
        load(tmp_path)


def test_a_link_to_another_file_does_not_show_its_content(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("the password")
    (tmp_path / MODEL_FILE).symlink_to(tmp_path / "secret")
    with raises(ModelFileError, MODEL_FILE) as rejected:
        load(tmp_path)
    assert "password" not in str(rejected.value)

"""Saved models, also those of version 0.1.0. Mutated files get valid checksums, to reach the code that follows."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fuzz_targets import grammar
from fuzz_targets.target import Target
from fuzz_targets.tensors import NOT_BUILT, Values
from parallelrnn import Forecaster, SequenceClassifier, SequenceRegressor, io
from parallelrnn.errors import ModelFileError
from parallelrnn.io import MODEL_FILE, json_checksum

_KINDS = (SequenceClassifier, SequenceClassifier, SequenceRegressor)
_KIND_BY_FORMAT: dict[str, Any] = {f"parallelrnn {kind.__name__}": kind for kind in _KINDS}
_X = np.random.default_rng(0).normal(size=(12, 6, 2))
_values = Values()
_SAVED_BY_0_1_0 = Path(__file__).parents[2] / "tests" / "data" / "0.1.0"


def _forecasters() -> list[Forecaster]:
    hours = pd.date_range("2024-01-01", periods=120, freq="h")
    wave = np.sin(np.arange(120) / 4)
    table = pd.concat([pd.DataFrame({"unique_id": name, "ds": hours, "y": wave}) for name in "ab"])
    small: dict[str, Any] = {"hidden_size": 4, "num_waves": 2, "num_decays": 1, "max_epochs": 1, "epoch_steps": (2, 2)}
    covariates: dict[str, Any] = {"past_covariates": ["p"], "static_covariates": ["s"]}
    integers = table[table["unique_id"] == "a"].drop(columns="unique_id").assign(ds=range(120))
    return [
        Forecaster(4, 8, **small).fit(table),
        Forecaster(4, 8, cell="gru", quantiles=[0.1, 0.9], **small, **covariates).fit(table.assign(p=1.0, s=2.0)),
        Forecaster(4, 8, cell="lstm", decoder="linear", gate=True, num_layers=2, **small).fit(integers),
    ]


def _estimators() -> list[Any]:
    y = np.arange(12) % 2
    small: dict[str, Any] = {"hidden_size": 4, "max_epochs": 1, "epoch_steps": (1, 1), "random_state": 0}
    return [
        SequenceClassifier(**small).fit(_X, np.array(["no", "yes"])[y]),
        SequenceClassifier(cell="rnn", class_weight={0: 1.0, 1: 2.0}, bidirectional=True, **small).fit(_X, y),
        SequenceRegressor(cell="linear", **small).fit(_X, y.astype(float)),
    ]


def _inputs(fit: Callable[[], list[Any]], folder: Path) -> list[bytes]:
    """Return the metadata of each model and the description of its tensors."""
    saved = [model.save(folder / str(index)) for index, model in enumerate(fit())]
    return [_values.describe(index, directory / MODEL_FILE) for index, directory in enumerate(saved)]


def _load_built(kinds: tuple[Any, ...], data: bytes, folder: Path) -> None:
    try:
        kind = kinds[_values.build(data, folder / MODEL_FILE)]
    except NOT_BUILT:
        return
    _load_and_use(kind, folder)


def _load_and_use(kind: Any, folder: Path) -> None:
    """Load a model; one that loads has to forecast and to explain itself, or raise."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = kind.load(folder)
        if kind is Forecaster:
            model.predict(level=[80])
            model.explain().summary()
        else:
            model.predict(_X[:2])
            model.explain()


def _old_seeds(folder: Path) -> list[bytes]:
    return [manifest.read_bytes() for manifest in sorted(_SAVED_BY_0_1_0.glob("*/model.json"))]


def _load_old(data: bytes, folder: Path) -> None:
    """Load a mutated manifest of version 0.1.0 with its checksum corrected, and weights that are unchanged."""
    kind: Any = Forecaster
    try:
        manifest = json.loads(data)
        manifest.pop("words_sha256", None)
        data = json.dumps({**manifest, "words_sha256": json_checksum(manifest)}).encode()
        kind = _KIND_BY_FORMAT.get(manifest.get("format"), Forecaster)
    except (AttributeError, RecursionError, TypeError, ValueError):
        pass  # not an object, and rejected as such
    for weights in _SAVED_BY_0_1_0.glob("*/weights-*"):
        shutil.copy(weights, folder)
    (folder / "model.json").write_bytes(data)
    _load_and_use(kind, folder)


def _file_seeds(folder: Path) -> list[bytes]:
    return [(_forecasters()[0].save(folder / "model") / MODEL_FILE).read_bytes()]


def _load_file(data: bytes, folder: Path) -> None:
    """Put the right checksum into a file that was changed byte by byte."""
    place = io._CHECKSUM.match(data, 8)
    if place is not None:
        data = data[: place.start(1)] + io._checksum(data, place) + data[place.end(1) :]
    (folder / MODEL_FILE).write_bytes(data)
    Forecaster.load(folder)


def _target(name: str, fit: Callable[[], list[Any]], kinds: tuple[Any, ...]) -> Target:
    return Target(name=name, seeds=partial(_inputs, fit), read=partial(_load_built, kinds), mutate=grammar.mutate)


TARGETS = [
    _target("forecaster", _forecasters, (Forecaster,) * 3),
    _target("sequence-estimators", _estimators, _KINDS),
    Target(name="model-bytes", seeds=_file_seeds, read=_load_file, errors=(ModelFileError,)),
    Target(name="model-0.1.0", seeds=_old_seeds, read=_load_old, mutate=grammar.mutate),
]

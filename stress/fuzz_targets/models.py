"""Saved models: words and tensors are changed, and sealed again, so that what is behind the checksums is reached."""

from __future__ import annotations

import hashlib
import json
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from safetensors.torch import load_file, save

from fuzz_targets import grammar
from fuzz_targets.target import Target
from fuzz_targets.tensors import NOT_BUILT, Numbers
from parallelrnn import Forecaster, SequenceClassifier, SequenceRegressor
from parallelrnn.errors import ModelFileError
from parallelrnn.training.model_files import MANIFEST

_KINDS = (SequenceClassifier, SequenceClassifier, SequenceRegressor)
_X = np.random.default_rng(0).normal(size=(12, 6, 2))
_numbers = Numbers()
_words: dict[str, Any] = {}  # of the model whose weights are changed byte by byte


def _forecasters() -> list[Forecaster]:
    hours = pd.date_range("2024-01-01", periods=120, freq="h")
    wave = np.sin(np.arange(120) / 4)
    table = pd.concat([pd.DataFrame({"unique_id": name, "ds": hours, "y": wave}) for name in "ab"])
    small: dict[str, Any] = {"hidden_size": 4, "num_waves": 2, "num_decays": 1, "max_epochs": 1, "epoch_steps": (2, 2)}
    covariates: dict[str, Any] = {"past_covariates": ["p"], "static_covariates": ["s"]}
    whole = table[table["unique_id"] == "a"].drop(columns="unique_id").assign(ds=range(120))
    return [
        Forecaster(4, 8, **small).fit(table),
        Forecaster(4, 8, cell="gru", quantiles=[0.1, 0.9], **small, **covariates).fit(table.assign(p=1.0, s=2.0)),
        Forecaster(4, 8, cell="lstm", decoder="linear", gate=True, num_layers=2, **small).fit(whole),
    ]


def _estimators() -> list[Any]:
    y = np.arange(12) % 2
    small: dict[str, Any] = {"hidden_size": 4, "max_epochs": 1, "epoch_steps": (1, 1), "random_state": 0}
    return [
        SequenceClassifier(**small).fit(_X, np.array(["no", "yes"])[y]),
        SequenceClassifier(cell="rnn", class_weight={0: 1.0, 1: 2.0}, bidirectional=True, **small).fit(_X, y),
        SequenceRegressor(cell="linear", **small).fit(_X, y.astype(float)),
    ]


def _inputs(fitted: list[Any], folder: Path) -> list[bytes]:
    """What each model says of itself and of its tensors."""
    found = []
    for index, model in enumerate(fitted):
        directory = model.save(folder / str(index))
        words = json.loads((directory / MANIFEST).read_text())
        tensors = _numbers.describe(index, load_file(directory / words["weights"]))
        found.append(json.dumps({"from": index, "words": words, "tensors": tensors}).encode())
    return found


def _seal(words: dict[str, Any], weights: bytes, folder: Path) -> None:
    """A directory whose checksums are right."""
    unsealed = {name: value for name, value in words.items() if name != "words_sha256"}
    unsealed["sha256"] = hashlib.sha256(weights).hexdigest()
    seal = hashlib.sha256(json.dumps(unsealed, sort_keys=True).encode()).hexdigest()
    (folder / words["weights"]).write_bytes(weights)
    (folder / MANIFEST).write_text(json.dumps({**unsealed, "words_sha256": seal}))


def _load_and_use(kinds: tuple[Any, ...], data: bytes, folder: Path) -> None:
    """What loads can be forecast with and explained, or refuses."""
    try:
        document = json.loads(data)
        kind = kinds[document["from"]]
        _seal(document["words"], save(_numbers.build(document["from"], document["tensors"])), folder)
    except NOT_BUILT:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = kind.load(folder)
        finally:
            for file in folder.glob("weights-*"):
                file.unlink()
        if kind is Forecaster:
            model.predict(level=[80])
            model.explain().summary()
        else:
            model.predict(_X[:2])
            model.explain()


def _weights_seeds(folder: Path) -> list[bytes]:
    directory = _forecasters()[0].save(folder / "model")
    _words.update(json.loads((directory / MANIFEST).read_text()))
    return [(directory / _words["weights"]).read_bytes()]


def _load_weights(data: bytes, folder: Path) -> None:
    _seal(_words, data, folder)
    Forecaster.load(folder)


def _manifest_seeds(folder: Path) -> list[bytes]:
    return [(_forecasters()[0].save(folder / "model") / MANIFEST).read_bytes()]


def _load_manifest(data: bytes, folder: Path) -> None:
    (folder / MANIFEST).write_bytes(data)
    Forecaster.load(folder)


TARGETS = [
    Target(
        "forecaster",
        lambda folder: _inputs(_forecasters(), folder),
        partial(_load_and_use, (Forecaster,) * 3),
        mutate=grammar.mutate,
    ),
    Target(
        "sequence-estimators",
        lambda folder: _inputs(_estimators(), folder),
        partial(_load_and_use, _KINDS),
        mutate=grammar.mutate,
    ),
    Target("model-weights", _weights_seeds, _load_weights, (ModelFileError,)),
    Target("model-manifest", _manifest_seeds, _load_manifest, (ModelFileError,)),
]

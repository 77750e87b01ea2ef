"""A tiny version of every experiment on generated data: it runs, it learns, and its results can be shown."""

from __future__ import annotations

import json
import math
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from parallelrnn.lab.datasets import Examples, Splits, Table
from parallelrnn.lab.experiments import classification, forecasting, noise_padded_cifar, pixel_cifar, pmnist, worms
from parallelrnn.lab.experiments.experiment import Job, Outcome, Workspace
from parallelrnn.lab.experiments.registry import EXPERIMENTS
from parallelrnn.lab.figures import draw
from parallelrnn.lab.results_page import paired_differences, section
from parallelrnn.lab.runs import Run
from parallelrnn.nn import recurrent_blocks
from tests.lab.samples import make_run, select

SMALL = {"hidden_size": "8", "batch_size": "16", "max_epochs": "2"}
TRANSFORMER = {"d_model": "16", "num_heads": "2", "num_states": "4"}
MODELS = ["ParaRNN", "GRU", "ParaLSTM", "BRT", "ParaBRT"]


def outcomes(name: str, only: dict[str, list[str]], changes: dict[str, str]) -> dict[str, tuple[Job, Outcome]]:
    """Run one replicate; every outcome can be saved as JSON, its metrics are finite, and all can be shown together."""
    results, runs = {}, []
    experiment = EXPERIMENTS[name]
    for job in experiment.jobs(only, changes, 1):
        outcome = experiment.run(job.config, job.seed, Workspace())
        values = json.loads(json.dumps([outcome.metrics, job.seed, outcome.curve, outcome.details]))
        runs.append(make_run(name, *values, **asdict(job.config)))
        assert all(math.isfinite(value) for value in outcome.metrics.values())
        results[str(job)] = (job, outcome)
    show(*runs)
    return results


def show(*runs: Run) -> None:
    """Make the tables and figures of runs."""
    name, selection = runs[0].experiment, select(*runs)
    assert section(name, selection)
    assert paired_differences({name: selection})
    with tempfile.TemporaryDirectory() as folder:
        draw(name, selection, Path(folder))


def images(*shape: int) -> Splits:
    """Two classes that differ in brightness."""
    random = np.random.default_rng(0)

    def draw_examples(count: int) -> Examples:
        targets = random.integers(0, 2, count)
        dark = random.integers(0, 120, (count, *shape))
        return Examples((dark + 120 * targets.reshape(-1, *[1] * len(shape))).astype(np.uint8), targets)

    return Splits(draw_examples(96), draw_examples(32), draw_examples(32))


def test_tradeoff() -> None:
    sizes = {"hidden_size": "8", "length": "12", "train": "400", "validation": "100", "test": "100"}
    only = {"block_size": ["1", "2", "8"], "noise_variance": ["1.0"], "recurrent_scale": ["0.0884"]}
    results = outcomes("tradeoff", only, sizes | {"max_epochs": "8", "learning_rate": "0.02", "batch_size": "32"})
    assert len(results) == 3
    for _, outcome in results.values():
        assert outcome.metrics["mse"] < 0.7 * outcome.metrics["variance"]
        assert outcome.curve[-1]["validation"] < outcome.curve[0]["validation"]


def test_speed() -> None:
    ((_, outcome),) = outcomes("speed", {}, {"rounds": "2"}).values()
    for size in ("1", "2", "128", "torch.nn.RNN"):
        forward, backward, total = (outcome.metrics[f"{size} {part} mean"] for part in ("forward", "backward", "total"))
        assert total == pytest.approx(forward + backward)
        assert min(forward, backward) > 0


@pytest.fixture
def daily(monkeypatch: pytest.MonkeyPatch) -> Table:
    """Two channels with a cycle of 24 steps, and noise."""
    time = np.arange(1200)
    random = np.random.default_rng(0)
    waves = [np.sin(2 * np.pi * time / 24), 2 + np.cos(2 * np.pi * time / 24)]
    values = np.stack(waves, 1) + 0.1 * random.standard_normal((1200, 2))
    stamps = np.datetime64("2020-01-01T00", "s") + time * np.timedelta64(3600, "s")
    table = Table(name="ETTh1", values=values, columns=("a", "b"), times=stamps, borders=(700, 900, 1200))
    monkeypatch.setattr(forecasting, "load_table", lambda name: table)
    return table


def test_forecasting(daily: Table) -> None:
    only = {"dataset": ["ETTh1"], "horizon": ["24"], "model": [*MODELS, *forecasting.BASELINES]}
    changes = SMALL | TRANSFORMER | {"epoch_steps": "30", "learning_rate": "0.01", "lookback": "48"}
    results = {job.config.model: outcome for job, outcome in outcomes("forecasting", only, changes).values()}
    errors = {model: outcome.metrics["mse"] for model, outcome in results.items()}
    scaled, first = daily.standardised(), 900
    last = np.array([scaled[t + 1 : t + 25] - scaled[t] for t in range(first - 1, 1200 - 24)])
    assert errors["naive"] == pytest.approx(float((last**2).mean()), rel=1e-4)
    season = np.array([scaled[t + 1 : t + 25] - scaled[t - 23 : t + 1] for t in range(first - 1, 1200 - 24)])
    assert errors["seasonal naive"] == pytest.approx(float((season**2).mean()), rel=1e-4)
    assert errors["Forecaster"] < errors["seasonal naive"], "noise is averaged"
    for model in (*MODELS, "NLinear"):
        assert errors[model] < 0.6 * errors["naive"], model
    assert sum(sum(types.values()) for types in results["GRU"].details["features"].values()) > 6
    assert len(results["ParaRNN"].details["first_layer"]) >= 4


@pytest.mark.parametrize(
    ("name", "shape", "length", "channels"),
    [("pmnist", (4, 4), 16, 1), ("pixel-cifar", (4, 4, 3), 16, 3), ("noise-padded-cifar", (4, 4, 3), 10, 12)],
)
def test_images(name: str, shape: tuple[int, ...], length: int, channels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    module, loader = {
        "pmnist": (pmnist, "load_mnist"),
        "pixel-cifar": (pixel_cifar, "load_cifar10"),
        "noise-padded-cifar": (noise_padded_cifar, "load_cifar10"),
    }[name]
    monkeypatch.setattr(module, loader, lambda: images(*shape))
    seen: list[tuple[int, ...]] = []
    original = classification.make_network

    def make(config: Any, channels: int, classes: int, length: int, seed: int) -> nn.Module:
        seen.append((length, channels, classes))
        return original(config, channels, classes, length, seed)

    monkeypatch.setattr(classification, "make_network", make)
    models = [model for model in MODELS if model != "ParaRNN" or name != "noise-padded-cifar"]
    changes = SMALL | TRANSFORMER | {"learning_rate": "0.01", "max_epochs": "5"}
    results = outcomes(name, {"model": models}, changes | ({"length": "10"} if "noise" in name else {}))
    assert set(seen) == {(length, channels, 2)}
    for job, outcome in results.values():
        assert outcome.metrics["accuracy"] > 0.8, job
        assert len(outcome.curve) == 5
        if job.config.model in ("GRU", "ParaLSTM", "ParaRNN"):
            assert len(outcome.details["features"]) == 6, "before training, and after each epoch"


def test_a_part_of_the_examples_is_a_random_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    splits = images(4, 4)
    monkeypatch.setattr(pmnist, "load_mnist", lambda: splits)
    changes = SMALL | {"train": "40", "validation": "10", "test": "20"}
    ((_, outcome),) = outcomes("pmnist", {"model": ["ParaRNN"]}, changes).values()
    assert outcome.metrics["tested"] == 20
    assert (20 * outcome.metrics["largest_class"]) % 1 == pytest.approx(0), "of those that are tested"
    part = classification._part(splits.test, lambda x: x, 20)
    taken = part.take(torch.arange(20))[0].numpy()
    places = [int(np.flatnonzero((splits.test.inputs == image).all((1, 2)))[0]) for image in taken]
    assert len(set(places)) == 20
    assert max(places) > 20, "not the first of them"


def test_pixels_are_permuted_in_one_order() -> None:
    image = np.arange(16, dtype=np.uint8).reshape(1, 4, 4)
    sequence = pmnist.permuted(image)(torch.from_numpy(image))
    assert sequence.shape == (1, 16, 1)
    assert sorted(sequence.flatten().tolist()) != sequence.flatten().tolist()
    torch.testing.assert_close(sequence.mean(), torch.tensor(0.0), atol=1e-6, rtol=0)
    torch.testing.assert_close(sequence.std(correction=0), torch.tensor(1.0))
    assert torch.equal(sequence, pmnist.permuted(image)(torch.from_numpy(image)))


def test_worms(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)

    def draw_examples(count: int) -> Examples:
        targets = random.integers(0, 2, count)
        return Examples((random.standard_normal((count, 36, 2)) + targets[:, None, None]).astype(np.float32), targets)

    splits = Splits(draw_examples(60), draw_examples(20), draw_examples(20))
    monkeypatch.setitem(worms.LOADERS, "Worms", lambda seed: splits)
    changes = SMALL | TRANSFORMER | {"learning_rate": "0.01", "max_epochs": "4", "transformer_layers": "2"}
    for job, outcome in outcomes("worms", {"dataset": ["Worms"], "model": ["ParaGRU", "ParaBRT"]}, changes).values():
        assert outcome.metrics["accuracy"] > 0.8, job
        assert 0.3 < outcome.metrics["largest_class"] < 0.7, "of two classes that are drawn alike"


def test_feature_evolution(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pmnist, "load_mnist", lambda: images(4, 4))
    changes = SMALL | {"epoch_steps": "5", "max_epochs": "4", "learning_rate": "0.02"}
    only = {"model": ["RNN", "GRU"]}
    for job, outcome in outcomes("feature-evolution", only, changes).values():
        first, last = outcome.details["features"][0], outcome.details["features"][-1]
        start = {"uniform": {"R-1", "C-1"}, "identity": {"R-1"}, "mixed": {"R-4", "C-2"}}[job.config.initial]
        assert set().union(*first.values()) <= start
        low = sum(types.get("R-1", 0) + types.get("C-1", 0) for types in last.values())
        assert low > 0.9 * sum(sum(types.values()) for types in last.values()), "low orders within a few steps"


def test_feature_recovery() -> None:
    sizes = {"hidden_size": "4", "length": "8", "train": "600", "validation": "100", "batch_size": "16"}
    changes = sizes | {"learning_rate": "0.02", "max_epochs": "30"}
    only = {"initial": ["uniform", "identity"], "truth": ["normal"]}
    for _, outcome in outcomes("feature-recovery", only, changes).values():
        assert outcome.metrics["distance"] < 0.5 * outcome.metrics["first_distance"]
        assert len(outcome.details["features"]) == 31
        assert set(outcome.details["true"]) == {"counts", "modulus", "angle"}


def test_adding() -> None:
    changes = {"hidden_size": "16", "length": "6", "iterations": "600", "epoch_steps": "100", "test": "100"}
    only = {"length": ["100"], "model": ["GRU", "ParaGRU"]}
    for _, outcome in outcomes("adding", only, changes | {"learning_rate": "0.01", "decay_every": "300"}).values():
        assert outcome.metrics["mse"] < 0.08  # guessing the mean has 1/6
        assert [line["rate"] for line in outcome.curve] == pytest.approx([0.01] * 3 + [0.001] * 3)


def test_chrono_and_other_initialisations() -> None:
    config = noise_padded_cifar.NoisePaddedCifarConfig(model="GRU", hidden_size=8, num_layers=1)
    network = classification.make_network(config, 3, 2, 1000, seed=0)
    update = network.layer.bias_ih_l0.detach()[8:16]  # type: ignore[union-attr, operator]
    assert 0 < float(update.min()) <= float(update.max()) < math.log(999)
    identity = classification.make_network(
        pmnist.PermutedMnistConfig(model="RNN", hidden_size=8, initial="identity"), 1, 2, 9, seed=0
    )
    assert all(torch.equal(block.matrix, torch.eye(8)) for block in recurrent_blocks(identity))


def values(name: str, *names: str) -> set[tuple[Any, ...]]:
    """The values that the cells of an experiment have under some names."""
    return {tuple(getattr(cell, value) for value in names) for cell in EXPERIMENTS[name].cells()}


def test_the_papers_values() -> None:
    """Supplement D.2 and D.3."""
    assert values("pmnist", "learning_rate", "hidden_size", "max_epochs", "minimum_rate") == {(2e-3, 128, 800, 1e-6)}
    layers = ("num_layers", "transformer_layers", "num_segments")
    images = [values(name, *layers) for name in ("pmnist", "pixel-cifar", "noise-padded-cifar")]
    assert images == [{(2, 3, 2)}, {(3, 4, 2)}, {(2, 4, 2)}]
    assert values("worms", "transformer_layers", "num_segments") == {(4, 18)}
    for name in ("pmnist", "pixel-cifar", "noise-padded-cifar", "worms"):
        assert values(name, "d_model", "num_heads", "num_states") == {(256, 8, 32)}
    assert values("adding", "iterations", "decay_every", "learning_rate") == {(60_000, 20_000, 2e-3)}
    assert values("forecasting", "d_model", "num_heads", "num_states", "num_layers") == {(512, 8, 128, 2)}
    assert values("tradeoff", "train", "validation", "test", "learning_rate") == {(40_000, 10_000, 10_000, 1e-3)}

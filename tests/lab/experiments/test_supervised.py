"""Trainings of experiments stop when their time is up, and resume to the bit."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from parallelrnn.io import load_tensors
from parallelrnn.lab.experiments.experiment import ExperimentError, OutOfTimeError, Workspace
from parallelrnn.lab.experiments.models import Recurrent
from parallelrnn.lab.experiments.supervised import Subset, classification_scores, regression_errors, train
from parallelrnn.training.checkpoint import FILE
from parallelrnn.training.optimizers import Plateau
from parallelrnn.training.trainer import PassSampler, Progress, TrainerConfig
from tests.support import raises

X = torch.randn(50, 6, 2, generator=torch.Generator().manual_seed(0))
SUBSET = Subset(50, lambda rows: (X[rows], X[rows].sum((1, 2))[:, None]))


class Clock(Workspace):
    """A workspace whose time is up after so many steps."""

    def after(self, steps: int) -> Clock:
        object.__setattr__(self, "steps", steps)
        return self

    @property
    def is_over(self) -> bool:
        self.after(self.steps - 1)  # type: ignore[has-type]
        return self.steps <= 0  # type: ignore[has-type, no-any-return]


def run(workspace: Workspace, hidden_size: int = 8, **options: Any) -> tuple[nn.Module, Progress]:
    """Train a small network; an epoch has seven steps."""
    torch.manual_seed(1)
    network = Recurrent("ParaGRU", 2, 1, hidden_size=hidden_size)
    network.aggregate = nn.Sequential(network.aggregate, nn.Dropout(0.2))  # which draws random numbers at every step
    arguments: dict[str, Any] = {
        "sampler": PassSampler(50, 8, 3),
        "loss": functional.mse_loss,
        "validate": lambda network: {"validation": regression_errors(network, SUBSET)["mse"]},
        "config": TrainerConfig(learning_rate=1e-2, schedule=Plateau(), max_epochs=4, patience=None),
        "observe": lambda network: len(list(network.parameters())),
        **options,
    }
    return network, train(network, SUBSET, workspace=workspace, **arguments)


@pytest.mark.parametrize("steps", [3, 7])
def test_a_training_out_of_time_resumes_to_the_bit(tmp_path: Path, steps: int) -> None:
    expected, progress = run(Workspace())
    stops = 0
    while True:
        reported: list[float] = []
        try:
            network, resumed = run(Clock(tmp_path, report=reported.append).after(steps))
            break
        except OutOfTimeError:
            stops += 1
            assert reported[-1] == pytest.approx(stops * steps / 28)
            assert load_tensors(tmp_path / FILE)[0]["progress"]["step"] == stops * steps % 7
    assert stops == -(-28 // steps) - 1
    assert (resumed.history, resumed.notes) == (progress.history, progress.notes)
    assert len(progress.notes) == 5, "before training and after each epoch"
    assert all(torch.equal(*pair) for pair in zip(network.parameters(), expected.parameters(), strict=True))


def test_threads_stay_what_they_were(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with pytest.raises(OutOfTimeError):
            run(Clock(tmp_path).after(2))
        torch.set_num_threads(1)
        run(Workspace(tmp_path))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_training_that_diverges_has_no_result() -> None:
    with raises(ExperimentError, "epoch 1"):
        run(Workspace(), validate=lambda network: {"validation": float("nan")})


def test_scores_are_those_of_all_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parallelrnn.lab.experiments.supervised._STEPS_AT_ONCE", 100)  # 16 sequences of 6
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    classes = torch.arange(50) % 3
    output = network(X).detach()
    scores = classification_scores(network, Subset(50, lambda rows: (X[rows], classes[rows])))
    assert scores["accuracy"] == pytest.approx(float((output.argmax(1) == classes).float().mean()))
    assert scores["loss"] == pytest.approx(float(functional.cross_entropy(output, classes)))
    errors = regression_errors(network, Subset(50, lambda rows: (X[rows], torch.ones(len(rows), 3))))
    assert errors["mse"] == pytest.approx(float((output - 1).square().mean()))
    assert errors["mae"] == pytest.approx(float((output - 1).abs().mean()))


def test_long_sequences_are_evaluated_a_few_at_a_time() -> None:
    lengths = []

    def take(rows: Tensor) -> tuple[Tensor, Tensor]:
        lengths.append(len(rows))
        return torch.zeros(len(rows), 40_000, 1), torch.zeros(len(rows), 1)

    assert sum(len(targets) for _, targets in Subset(5, take).chunks()) == 5
    assert lengths == [1, 2, 2, 1], "one to see how long they are, then 80,000 steps at a time"


def test_a_deadline_is_a_time(tmp_path: Path) -> None:
    assert not Workspace(tmp_path, time.monotonic() + 100).is_over
    assert Workspace(tmp_path, time.monotonic()).is_over


def test_twins_share_all_but_the_recurrent_layer() -> None:
    for cell in ("RNN", "LSTM", "GRU"):
        vanilla, para = (Recurrent(name, 3, 2, hidden_size=8, num_layers=2, seed=5) for name in (cell, f"Para{cell}"))
        shared, other = (
            {name: parameter for name, parameter in network.named_parameters() if not name.startswith("layer")}
            for network in (vanilla, para)
        )
        assert len(shared) == 6
        assert shared.keys() == other.keys()
        assert all(torch.equal(shared[name], other[name]) for name in shared), "they begin the same"
        assert type(vanilla.layer) is getattr(nn, cell)
        x = torch.randn(4, 5, 3)
        for network in (vanilla, para):
            states: Tensor = network.layer(x)[0]
            expected = network.read_out(network.aggregate(states[:, -1]))
            torch.testing.assert_close(network(x), expected)

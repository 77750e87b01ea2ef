"""Trainings of experiments stop and resume, and their models differ in the recurrent layer alone."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from parallelrnn.errors import InputError
from parallelrnn.lab.experiments.experiment import ExperimentError, OutOfTimeError, Workspace
from parallelrnn.lab.experiments.models import Recurrent
from parallelrnn.lab.experiments.supervised import Subset, regression_errors, train
from parallelrnn.training.optimizers import Plateau
from parallelrnn.training.trainer import PassSampler, Progress, TrainerConfig

CONFIG = TrainerConfig(learning_rate=1e-2, schedule=Plateau(patience=0), max_epochs=4, patience=None, minimum_rate=1e-6)


class Clock(Workspace):
    """A workspace whose time is up after so many looks at it."""

    def after(self, looks: int) -> Clock:
        object.__setattr__(self, "looks", looks)
        return self

    @property
    def is_over(self) -> bool:
        self.after(self.looks - 1)  # type: ignore[has-type]
        return self.looks < 0  # type: ignore[has-type, no-any-return]


def subset() -> Subset:
    x = torch.randn(50, 6, 2, generator=torch.Generator().manual_seed(0))
    y = x.sum((1, 2))[:, None]
    return Subset(50, lambda rows: (x[rows], y[rows]))


def train_small(workspace: Workspace, fingerprint: str = "", **options: Any) -> tuple[nn.Module, Progress]:
    examples = subset()
    torch.manual_seed(1)
    network = Recurrent("ParaGRU", 2, 1, hidden_size=8)
    validate = options.pop("validate", lambda network: {"validation": regression_errors(network, examples)["mse"]})
    sampler = PassSampler(examples.count, 8, 3)
    loss = functional.mse_loss
    return network, train(network, examples, sampler, loss, validate, CONFIG, workspace, fingerprint, **options)


def observe(network: nn.Module) -> float:
    return float(next(network.parameters()).detach().sum())


@pytest.mark.parametrize("steps", [3, 7, 20])  # 7 make an epoch
def test_resumes_to_the_bit(tmp_path: Path, steps: int) -> None:
    expected, whole = train_small(Workspace(), observe=observe)
    assert len(whole.notes) == 5, "before training, and after each epoch"
    stops = 0
    while True:
        try:
            network, progress = train_small(Clock(tmp_path, checkpoint_every=0.0).after(steps), observe=observe)
            break
        except OutOfTimeError:
            stops += 1
    assert stops >= 28 // (steps + 1) - 1
    assert (progress.history, progress.notes) == (whole.history, whole.notes)
    assert all(map(torch.equal, network.parameters(), expected.parameters()))


def test_a_checkpoint_of_other_data_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(OutOfTimeError):
        train_small(Clock(tmp_path, checkpoint_every=0.0).after(2), "one")
    with pytest.raises(InputError):
        train_small(Workspace(tmp_path), "two")


def test_a_resumed_run_keeps_its_number_of_threads(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with pytest.raises(OutOfTimeError):
            train_small(Clock(tmp_path, checkpoint_every=0.0).after(2))
        torch.set_num_threads(1)
        train_small(Workspace(tmp_path))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_training_that_diverges_has_no_result() -> None:
    with pytest.raises(ExperimentError):
        train_small(Workspace(), validate=lambda network: {"validation": float("nan")})


def test_subsets_are_evaluated_in_chunks() -> None:
    lengths = []

    def take(rows: Tensor) -> tuple[Tensor, Tensor]:
        lengths.append(len(rows))
        return torch.zeros(len(rows), 40_000, 1), torch.zeros(len(rows), 1)

    assert sum(len(targets) for _, targets in Subset(5, take).chunks()) == 5
    assert lengths == [1, 2, 2, 1], "one to see how long they are, then 80,000 steps at a time"


def test_a_deadline_is_a_time(tmp_path: Path) -> None:
    assert not Workspace(tmp_path, time.monotonic() + 100).is_over
    assert Workspace(tmp_path, time.monotonic()).is_over


def test_paired_models_share_all_but_the_recurrent_layer() -> None:
    for cell in ("RNN", "LSTM", "GRU"):
        vanilla, para = (Recurrent(name, 3, 2, hidden_size=8, num_layers=2, seed=5) for name in (cell, f"Para{cell}"))
        shared, other = (
            {name: parameter for name, parameter in network.named_parameters() if not name.startswith("layer")}
            for network in (vanilla, para)
        )
        assert len(shared) == 6
        assert shared.keys() == other.keys()
        assert all(torch.equal(shared[name], other[name]) for name in shared), "they start the same"
        assert type(vanilla.layer) is getattr(nn, cell)
        x = torch.randn(4, 5, 3)
        for network in (vanilla, para):
            states: Tensor = network.layer(x)[0]
            torch.testing.assert_close(network(x), network.read_out(network.aggregate(states[:, -1])))

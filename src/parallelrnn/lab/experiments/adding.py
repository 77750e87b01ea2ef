"""The adding problem: Section D.6 of the supplement of arXiv 2605.02692, its Figures D.2 to D.5.

Batches are drawn anew at every step. The paper gives no batch size: 50, as in IndRNN (arXiv 1803.04831), which it cites
for the problem. A line of the curve is the test error after each `epoch_steps` iterations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from parallelrnn.lab.datasets import adding_problem
from parallelrnn.lab.experiments.experiment import Experiment, ExperimentError, Outcome, Workspace
from parallelrnn.lab.experiments.models import Recurrent, count_parameters
from parallelrnn.lab.experiments.supervised import LabeledBatch, train
from parallelrnn.training.optimizers import StepDecay
from parallelrnn.training.trainer import TrainerConfig

MODELS = ("LSTM", "ParaLSTM", "GRU", "ParaGRU")
_TESTED_FROM = 1 << 40  # seeds of what is tested on, apart from those of training


@dataclass(frozen=True)
class AddingConfig:
    """One model at one length."""

    model: str
    length: int = 100
    hidden_size: int = 128
    block_size: int = 2
    batch_size: int = 50
    iterations: int = 60_000
    decay_every: int = 20_000  # iterations after which the rate is divided by ten
    learning_rate: float = 2e-3
    epoch_steps: int = 500
    test: int = 2_000

    def __post_init__(self) -> None:
        for name in ("iterations", "decay_every"):
            if getattr(self, name) % self.epoch_steps:
                raise ExperimentError(f"{name} {getattr(self, name)} is no multiple of epoch_steps {self.epoch_steps}")


class Adding:
    """New sequences at every step."""

    def __init__(self, config: AddingConfig, seed: int) -> None:
        self._config, self._seed = config, seed
        self.steps = config.epoch_steps
        self._test = self._draw(config.test, _TESTED_FROM)

    def rows(self, epoch: int, step: int) -> Tensor:
        """Return the number of a batch."""
        return torch.tensor([epoch * self.steps + step])

    def batch(self, rows: Tensor) -> LabeledBatch:
        """Draw a batch by its number."""
        return LabeledBatch(*self._draw(self._config.batch_size, int(rows)))

    def validate(self, network: nn.Module) -> dict[str, float]:
        """Return the test error."""
        inputs, targets = self._test
        return {"validation": float(functional.mse_loss(network(inputs), targets))}

    def _draw(self, count: int, number: int) -> tuple[Tensor, Tensor]:
        found = adding_problem(count, self._config.length, np.random.default_rng((self._seed, number)))
        return torch.from_numpy(found.inputs), torch.from_numpy(found.targets)


def cells() -> list[AddingConfig]:
    """Both lengths, all models."""
    return [AddingConfig(model, length) for length in (100, 500) for model in MODELS]


def run(config: AddingConfig, seed: int, workspace: Workspace) -> Outcome:
    """Data and initial weights are those of the seed; the figures show the last error, not the best."""
    torch.manual_seed(seed)
    network = Recurrent(
        config.model,
        2,
        1,
        hidden_size=config.hidden_size,
        block_size=config.block_size,
        aggregate="linear",
        seed=seed,
    )
    task = Adding(config, seed)
    how = TrainerConfig(
        learning_rate=config.learning_rate,
        schedule=StepDecay(0.1, config.decay_every // config.epoch_steps),
        max_epochs=config.iterations // config.epoch_steps,
        patience=None,
        keep_best=False,
    )
    progress = train(network, task, task, functional.mse_loss, task.validate, how, workspace)
    errors = progress.errors
    solved = next((number for number, error in enumerate(errors, 1) if error < 0.01), None)
    metrics = {"mse": errors[-1], "parameters": count_parameters(network)}
    metrics |= {"seconds": progress.seconds, "processor_seconds": progress.processor_seconds}
    if solved is not None:  # the first line of the curve below 0.01; guessing has 1/6
        metrics["iterations_to_0.01"] = solved * config.epoch_steps
    return Outcome(metrics, progress.history)


EXPERIMENT = Experiment("adding", "Figures D.2 to D.5: the adding problem", AddingConfig, cells, run, 10)

"""The adding problem: Section D.6 of the supplement of arXiv 2605.02692, its Figures D.2 to D.5.

Every step draws a new batch. The paper gives no batch size: 50, as in IndRNN (arXiv 1803.04831), which it cites for the
problem. Each entry of the curve is the test error after `epoch_steps` more iterations.
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
SOLVED = 0.01  # test MSE below which the problem is solved; guessing the mean gives 1/6
_TEST_SEED = 1 << 40  # apart from the seeds of training batches


@dataclass(frozen=True, kw_only=True)
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
                count = getattr(self, name)
                raise ExperimentError(f"{name} {count} is not a multiple of epoch_steps {self.epoch_steps}")


class Adding:
    """The task, with new sequences at every step."""

    def __init__(self, config: AddingConfig, seed: int) -> None:
        self._config, self._seed = config, seed
        self.steps = config.epoch_steps
        self._test = self._draw(config.test, _TEST_SEED)

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
        examples = adding_problem(count, self._config.length, np.random.default_rng((self._seed, number)))
        return torch.from_numpy(examples.inputs), torch.from_numpy(examples.targets)


def cells() -> list[AddingConfig]:
    """Return both lengths and all models."""
    return [AddingConfig(model=model, length=length) for length in (100, 500) for model in MODELS]


def run(config: AddingConfig, seed: int, workspace: Workspace) -> Outcome:
    """Run a configuration; the seed decides data and initial weights. The result is the last error, not the best."""
    torch.manual_seed(seed)
    network = Recurrent(
        config.model, 2, 1, hidden_size=config.hidden_size, block_size=config.block_size, aggregate="linear", seed=seed
    )
    task = Adding(config, seed)
    trainer_config = TrainerConfig(
        learning_rate=config.learning_rate,
        schedule=StepDecay(0.1, config.decay_every // config.epoch_steps),
        max_epochs=config.iterations // config.epoch_steps,
        patience=None,
        keep_best=False,
    )
    progress = train(network, task, task, functional.mse_loss, task.validate, trainer_config, workspace)
    errors = progress.errors
    solved = next((number for number, error in enumerate(errors, 1) if error < SOLVED), None)
    metrics = {"mse": errors[-1], "parameters": count_parameters(network)}
    metrics |= {"seconds": progress.seconds, "processor_seconds": progress.processor_seconds}
    if solved is not None:
        metrics["iterations_to_0.01"] = solved * config.epoch_steps
    return Outcome(metrics, progress.history)


EXPERIMENT = Experiment(name="adding", config=AddingConfig, cells=cells, run=run, replicates=10)

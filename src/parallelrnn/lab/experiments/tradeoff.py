"""Accuracy by block size: Section 6.1 of arXiv 2605.02692, its Figures 2(c) and D.1 and Table S.2.

A dense RNN of width 128 generates the data, and ParaRNNs of the same width with blocks of 1 to 128 units learn them;
blocks of 128 are `torch.nn.RNN`. Two things matter about the data as the paper describes them:

- weights from N(0, 1) make that RNN chaotic: its recurrent matrix has spectral radius sqrt(128), and no model can
  predict most of its output from its input. `recurrent_scale` 1/sqrt(128) (0.0884) keeps it at the edge of chaos. Both
  are run;
- the batch size, the number of epochs and what counts as no improvement are not given: 128, 40 and three epochs.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch

from parallelrnn.lab.datasets import Examples, tradeoff_simulation
from parallelrnn.lab.experiments.experiment import Experiment, Outcome, Workspace
from parallelrnn.lab.experiments.models import Recurrent, count_parameters
from parallelrnn.lab.experiments.supervised import Subset, fit, regression_errors

BLOCK_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
EDGE = 0.0884  # 1/sqrt(128), the scale at which such a recurrence turns chaotic


@dataclass(frozen=True, kw_only=True)
class TradeoffConfig:
    """One block size on data of one kind."""

    block_size: int
    noise_variance: float = 1.0
    recurrent_scale: float = 1.0
    hidden_size: int = 128
    length: int = 128
    train: int = 40_000
    validation: int = 10_000
    test: int = 10_000
    batch_size: int = 128
    learning_rate: float = 1e-3
    max_epochs: int = 40
    patience: int = 2
    minimum_rate: float = 1e-5


def cells() -> list[TradeoffConfig]:
    """Return both kinds of data, both variances and all block sizes."""
    return [
        TradeoffConfig(block_size=size, noise_variance=variance, recurrent_scale=scale)
        for scale in (1.0, EDGE)
        for variance in (1.0, 5.0)
        for size in BLOCK_SIZES
    ]


def run(config: TradeoffConfig, seed: int, workspace: Workspace) -> Outcome:
    """Run a configuration; the seed decides data, the same for all block sizes, and initial weights."""
    splits = tradeoff_simulation(
        seed,
        noise_variance=config.noise_variance,
        hidden_size=config.hidden_size,
        length=config.length,
        sizes=(config.train, config.validation, config.test),
        recurrent_scale=config.recurrent_scale,
    )
    training, validation, test = (as_subset(examples) for examples in (splits.train, splits.validation, splits.test))
    torch.manual_seed(seed)
    dense = config.block_size == config.hidden_size
    network = Recurrent(
        "RNN" if dense else "ParaRNN",
        1,
        splits.train.targets.shape[1],
        hidden_size=config.hidden_size,
        block_size=config.block_size,
        aggregate=None,
    )
    data = data_checksum(splits.train)
    progress = fit(network, training, validation, config, seed, workspace, fingerprint=data)
    metrics = regression_errors(network, test)
    metrics |= {"variance": float(splits.test.targets.var(0).mean()), "parameters": count_parameters(network)}
    metrics |= {"epochs": progress.epoch, "seconds": progress.seconds}
    return Outcome(metrics, progress.history, {"data": data})


def as_subset(examples: Examples) -> Subset:
    """Return examples that are in memory as a subset."""
    inputs, targets = torch.from_numpy(examples.inputs), torch.from_numpy(examples.targets)
    return Subset(len(examples), lambda rows: (inputs[rows], targets[rows]))


def data_checksum(examples: Examples) -> str:
    """Return a checksum that identifies the data: chaos amplifies rounding, and machines round differently."""
    return hashlib.sha256(examples.targets.tobytes()).hexdigest()[:16]


EXPERIMENT = Experiment(name="tradeoff", config=TradeoffConfig, cells=cells, run=run, replicates=25)

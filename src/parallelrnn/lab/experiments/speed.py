"""Time by block size: Figure 2(c) and Table S.3 of arXiv 2605.02692.

One ParaRNN layer with a linear aggregate, d = T = 128 and one input; the paper gives no batch size: 128. All block
sizes and `torch.nn.RNN` take turns in one process, after `parallelrnn.lab.benchmarks.gate` has checked that
they compute the same. Times mean something only on an idle machine: run it alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import nn

from parallelrnn.lab.benchmarks import gate
from parallelrnn.lab.benchmarks.cases import CASES
from parallelrnn.lab.benchmarks.timing import PASSES, take_turns, time_passes
from parallelrnn.lab.experiments.experiment import Experiment, Outcome, Workspace
from parallelrnn.lab.experiments.tradeoff import BLOCK_SIZES
from parallelrnn.nn import ParaRNN

VANILLA = "torch.nn.RNN"
_MAX_DISTURBED = 0.1  # fraction of disturbed rounds above which times say nothing


@dataclass(frozen=True)
class SpeedConfig:
    """All block sizes, measured in turns."""

    hidden_size: int = 128
    length: int = 128
    batch_size: int = 128
    rounds: int = 100


def cells() -> list[SpeedConfig]:
    """Return the one configuration."""
    return [SpeedConfig()]


def run(config: SpeedConfig, seed: int, workspace: Workspace) -> Outcome:
    """Run a configuration; the result has mean and standard deviation of milliseconds, as in the paper, and medians."""
    sizes = [size for size in BLOCK_SIZES if size <= config.hidden_size]
    gate.check([], ["RNN"], [replace(CASES["S1"], block_size=size) for size in sizes])
    torch.manual_seed(seed)
    x = torch.randn(config.length, config.batch_size, 1)
    grad = torch.randn(config.length, config.batch_size, config.hidden_size)
    layers: dict[str, nn.Module] = {
        str(size): ParaRNN(1, config.hidden_size, block_size=size, aggregate="linear") for size in sizes
    }
    layers[VANILLA] = nn.RNN(1, config.hidden_size)
    steps = {name: partial(time_passes, layer, x, grad) for name, layer in layers.items()}
    rounds, busy = take_turns(steps, config.rounds, workspace.report)
    metrics = {}
    for name in layers:
        forward, backward = 1e3 * np.array([taken[name] for taken in rounds]).T
        for which, times in zip(PASSES, (forward, backward, forward + backward), strict=True):
            metrics[f"{name} {which} mean"] = float(times.mean())
            metrics[f"{name} {which} sd"] = float(times.std(ddof=1)) if len(times) > 1 else 0.0
            metrics[f"{name} {which} median"] = float(np.median(times))
    return Outcome(metrics, details={"disturbed_rounds": busy, "disturbed": busy > _MAX_DISTURBED * config.rounds})


EXPERIMENT = Experiment(name="speed", config=SpeedConfig, cells=cells, run=run, replicates=1)

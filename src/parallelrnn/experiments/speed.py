"""Time by block size: Figure 2(c) and Table S.3 of arXiv 2605.02692.

One ParaRNN layer with a linear aggregate, d = T = 128 and one input; the paper gives no batch size: 128. All block
sizes and `torch.nn.RNN` take turns in one process, after each has been held to the reference loop. Times mean something
only on a machine that does nothing else: run it alone.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from parallelrnn.bench import gate, load
from parallelrnn.bench.cases import CASES
from parallelrnn.bench.timing import MAX_FOREIGN
from parallelrnn.experiments.experiment import Experiment, Outcome, Workspace
from parallelrnn.experiments.tradeoff import BLOCK_SIZES
from parallelrnn.nn import ParaRNN

VANILLA = "torch.nn.RNN"
PASSES = ("forward", "backward", "total")


@dataclass(frozen=True)
class SpeedConfig:
    """All block sizes in turns."""

    hidden_size: int = 128
    length: int = 128
    batch_size: int = 128
    rounds: int = 100


def cells() -> list[SpeedConfig]:
    """The one."""
    return [SpeedConfig()]


def run(config: SpeedConfig, seed: int, workspace: Workspace) -> Outcome:
    """Mean and standard deviation of milliseconds, as in the paper, and medians."""
    sizes = [size for size in BLOCK_SIZES if size <= config.hidden_size]
    gate.check([], ["RNN"], [replace(CASES["S1"], block_size=size) for size in sizes])
    torch.manual_seed(seed)
    x = torch.randn(config.length, config.batch_size, 1)
    grad = torch.randn(config.length, config.batch_size, config.hidden_size)
    layers: dict[str, nn.Module] = {str(size): ParaRNN(1, config.hidden_size, block_size=size) for size in sizes}
    layers[VANILLA] = nn.RNN(1, config.hidden_size)
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in layers}
    order, names = random.Random(seed), list(layers)
    for layer in layers.values():
        _pass(layer, x, grad)  # to warm up
    before = load.read()
    for number in range(config.rounds):
        order.shuffle(names)
        for name in names:
            taken[name].append(_pass(layers[name], x, grad))
        workspace.tell((number + 1) / config.rounds)
    foreign = load.foreign(before, load.read())
    metrics = {}
    for name, passes in taken.items():
        forward, backward = 1e3 * np.array(passes).T
        for which, times in zip(PASSES, (forward, backward, forward + backward), strict=True):
            metrics[f"{name} {which} mean"] = float(times.mean())
            metrics[f"{name} {which} sd"] = float(times.std(ddof=1)) if len(times) > 1 else 0.0
            metrics[f"{name} {which} median"] = float(np.median(times))
    disturbed = foreign is not None and foreign > MAX_FOREIGN
    return Outcome(metrics, details={"foreign_load": foreign, "disturbed": disturbed})


def _pass(layer: nn.Module, x: Tensor, grad: Tensor) -> tuple[float, float]:
    """Seconds of forward and backward in one training step."""
    layer.zero_grad(set_to_none=True)
    began = time.perf_counter()
    output, _ = layer(x)
    turned = time.perf_counter()
    output.backward(grad)
    return turned - began, time.perf_counter() - turned


EXPERIMENT = Experiment("speed", "Figure 2(c) and Table S.3: time by block size", SpeedConfig, cells, run, 1)

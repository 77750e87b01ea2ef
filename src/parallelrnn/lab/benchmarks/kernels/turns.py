"""Forward and backward passes of several layers that take turns: what Figure 2(c) of arXiv 2605.02692 is made of."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping

from torch import Tensor, nn

from parallelrnn.lab.benchmarks.kernels import load
from parallelrnn.lab.benchmarks.kernels.timing import MAX_FOREIGN, PAUSE, TRIES

PASSES = ("forward", "backward", "total")
Pass = tuple[float, float]  # seconds forward and backward


def measure_in_turns(
    layers: Mapping[str, nn.Module],
    x: Tensor,
    grad: Tensor,
    repetitions: int,
    tell: Callable[[float], None] = lambda part: None,
) -> tuple[list[dict[str, Pass]], int]:
    """Rounds, one pass of each layer in a new order, and how many of them were disturbed by others to the last.

    A round in which other processes were at work is taken again, a few times; every layer runs once before, to warm up.
    """
    order = random.Random(0)
    names = list(layers)
    rounds: list[dict[str, Pass]] = []
    busy = 0
    for name in names:
        one_pass(layers[name], x, grad)
    for number in range(repetitions):
        order.shuffle(names)
        for _ in range(TRIES):
            before = load.read()
            taken = {name: one_pass(layers[name], x, grad) for name in names}
            foreign = load.foreign(before, load.read())
            quiet = foreign is None or foreign <= MAX_FOREIGN
            if quiet:
                break
            time.sleep(PAUSE)
        busy += not quiet
        rounds.append(taken)
        tell((number + 1) / repetitions)
    return rounds, busy


def one_pass(layer: nn.Module, x: Tensor, grad: Tensor) -> Pass:
    """Forward and backward of one training step."""
    layer.zero_grad(set_to_none=True)
    began = time.perf_counter()
    output, _ = layer(x)
    turned = time.perf_counter()
    output.backward(grad)
    return turned - began, time.perf_counter() - turned

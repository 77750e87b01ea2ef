"""What this machine can do at most, measured by work of known size: the yardstick for the kernels."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from parallelrnn.kernels.library import INSTRUCTIONS

_BEST_OF = 25  # short runs, some of which other work disturbs
_TRIAD = 16 << 20  # numbers in each of three arrays: 64 MiB, more than caches hold


@dataclass(frozen=True)
class Limits:
    """Rates of float32 work, by as many threads as they were measured with."""

    fma: float  # floating point operations per second, two for each multiply-add
    tanh: float  # activations per second
    bandwidth: float  # bytes per second between memory and processor


def measure(threads: int) -> Limits:
    """The best of several runs of each kind of work."""
    if INSTRUCTIONS is None:
        raise RuntimeError("limits are measured with the C kernels, which are missing; `parallelrnn doctor` tells more")
    lanes = INSTRUCTIONS.lanes[torch.float32]
    multiply_add, activations, triad = INSTRUCTIONS.limits
    results = torch.empty(threads * lanes)
    memory = torch.ones(3 * _TRIAD)
    rounds = 400_000
    return Limits(
        fma=2 * 12 * lanes * rounds * threads / _best(lambda: multiply_add(rounds, threads, results.data_ptr())),
        tanh=1024 * 2000 * threads / _best(lambda: activations(2000, threads, results.data_ptr())),
        # Each number of the result is read before it is written: four transfers.
        bandwidth=16 * _TRIAD / _best(lambda: triad(_TRIAD, threads, memory.data_ptr())),
    )


def _best(work: Callable[[], object]) -> float:
    times = []
    for _ in range(_BEST_OF):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return min(times)

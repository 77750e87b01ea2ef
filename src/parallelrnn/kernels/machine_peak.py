"""The peak rates of this machine, measured by work of known size: the yardstick for the kernels."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from parallelrnn.errors import UnavailableError
from parallelrnn.kernels.library import INSTRUCTIONS, LIBRARY

_REPETITIONS = 25  # short runs, some of which other work on the machine disturbs
_TRIAD_SIZE = 16 << 20  # numbers in each of three arrays: 64 MiB, more than caches hold


@dataclass(frozen=True)
class MachinePeak:
    """Peak rates of float32 work, for the number of threads that they were measured with."""

    fma: float  # floating point operations per second, two for each multiply-add
    tanh: float  # activations per second
    bandwidth: float  # bytes per second between memory and processor


def measure(threads: int) -> MachinePeak:
    """Return the best rate of several runs of each kind of work."""
    if INSTRUCTIONS is None:
        raise UnavailableError(f"peak rates are measured with the C kernels: {LIBRARY.problem}", hint=LIBRARY.advice)
    lanes = INSTRUCTIONS.lanes[torch.float32]
    multiply_add, activations, triad = INSTRUCTIONS.peak_work
    results = torch.empty(threads * lanes)
    memory = torch.ones(3 * _TRIAD_SIZE)
    rounds = 400_000
    return MachinePeak(
        fma=2 * 12 * lanes * rounds * threads / _shortest(lambda: multiply_add(rounds, threads, results.data_ptr())),
        tanh=1024 * 2000 * threads / _shortest(lambda: activations(2000, threads, results.data_ptr())),
        # Each number of the result is read before it is written: four transfers.
        bandwidth=16 * _TRIAD_SIZE / _shortest(lambda: triad(_TRIAD_SIZE, threads, memory.data_ptr())),
    )


def _shortest(work: Callable[[], object]) -> float:
    """Return the shortest duration of the work, in seconds."""
    durations = []
    for _ in range(_REPETITIONS):
        begin = time.perf_counter()
        work()
        durations.append(time.perf_counter() - begin)
    return min(durations)

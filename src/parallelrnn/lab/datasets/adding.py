"""The adding problem: add two numbers of a long sequence, those that are marked."""

from __future__ import annotations

import numpy as np

from parallelrnn.lab.datasets.examples import Examples


def adding_problem(count: int, length: int, random: np.random.Generator) -> Examples:
    """Sequences (N, T, 2) and sums (N, 1), as in Section D of the supplement of arXiv 2605.02692.

    The first channel is uniform between 0 and 1. The second is 1 twice, once in each half, and else 0. Predicting 1
    always has a mean squared error of 1/6. Of an odd length, the second half is the longer one.
    """
    if count < 1 or length < 2:
        raise ValueError(f"expected at least 1 sequence of length 2, got {count} of length {length}")
    inputs = np.zeros((count, length, 2), dtype=np.float32)
    inputs[..., 0] = random.random((count, length), dtype=np.float32)
    rows, half = np.arange(count), length // 2
    marked = random.integers(0, half, count), random.integers(half, length, count)
    for times in marked:
        inputs[rows, times, 1] = 1
    targets = sum(inputs[rows, times, :1] for times in marked)
    return Examples(inputs, np.asarray(targets))

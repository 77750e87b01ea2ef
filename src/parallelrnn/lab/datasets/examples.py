"""Inputs with their targets, and how they are split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Examples:
    """Inputs and targets, one row of each for every example."""

    inputs: NDArray[Any]
    targets: NDArray[Any]

    def __post_init__(self) -> None:
        if len(self.inputs) != len(self.targets):
            raise ValueError(f"expected as many targets as inputs, got {len(self.targets)} and {len(self.inputs)}")

    def __len__(self) -> int:
        return len(self.inputs)

    def take(self, rows: NDArray[np.int64]) -> Examples:
        """Some of the examples, in the order asked for."""
        return Examples(self.inputs[rows], self.targets[rows])


@dataclass(frozen=True)
class TrainingSplits:
    """Examples to fit with and examples to choose with."""

    train: Examples
    validation: Examples


@dataclass(frozen=True)
class Splits(TrainingSplits):
    """Examples to fit with, to choose with and to judge with."""

    test: Examples


def permutation(count: int, seed: int) -> NDArray[np.int64]:
    """The numbers below `count` in random order, the same for a seed with every release of numpy.

    Use it wherever an order is part of an experiment and has to be the same for ever: which examples are for
    validation, or in which order the pixels of an image are read, as `permutation(784, 0)` has it for MNIST.
    `numpy.random.Generator.permutation` may change with a release: numpy promises that the bits of PCG64 stay as they
    are, not what a `Generator` makes of them.
    """
    return np.argsort(np.random.PCG64(seed).random_raw(count), kind="stable").astype(np.int64)

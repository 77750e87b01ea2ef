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

    numpy promises that for the bits of PCG64, not for what `numpy.random.Generator` makes of them.
    """
    return np.argsort(np.random.PCG64(seed).random_raw(count), kind="stable").astype(np.int64)

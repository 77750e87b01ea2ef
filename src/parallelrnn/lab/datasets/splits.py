"""Examples, and their split into training, validation and test."""

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
        """Return the examples in these rows."""
        return Examples(self.inputs[rows], self.targets[rows])


@dataclass(frozen=True)
class TrainingSplits:
    """Examples for training and for validation."""

    train: Examples
    validation: Examples


@dataclass(frozen=True)
class Splits(TrainingSplits):
    """Examples for training, validation and test."""

    test: Examples


def permutation(count: int, seed: int) -> NDArray[np.int64]:
    """Return the numbers below `count` in random order, the same for a seed with every release of numpy.

    For orders that are part of an experiment: which examples are for validation, or in which order the pixels of an
    image are read. numpy promises that the bits of PCG64 stay the same, not what a `Generator` makes of them.
    """
    return np.argsort(np.random.PCG64(seed).random_raw(count), kind="stable").astype(np.int64)

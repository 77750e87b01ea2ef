"""Sequences of one length or several, as users have them and as a network takes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parallelrnn.errors import ArgumentError

Array = NDArray[np.float64]
NORMALIZATIONS = ("channel", "sequence", None)
_FLOOR = 1e-6  # of a deviation that values are divided by, relative to the largest of them


@dataclass(frozen=True)
class RaggedArray:
    """Many sequences, one after the other."""

    values: Array  # (sum of lengths, C)
    lengths: NDArray[np.int64]  # (N,), all above zero

    @classmethod
    def from_list(cls, sequences: Sequence[Array]) -> RaggedArray:
        """Join arrays (T, C)."""
        return cls(np.concatenate(sequences), np.array([len(sequence) for sequence in sequences], dtype=np.int64))

    @classmethod
    def from_array(cls, sequences: Array) -> RaggedArray:
        """Take one array (N, T, C)."""
        count, steps, channels = sequences.shape
        return cls(sequences.reshape(count * steps, channels), np.full(count, steps, dtype=np.int64))

    def __len__(self) -> int:
        """Return the number of sequences."""
        return len(self.lengths)

    @property
    def channels(self) -> int:
        """The number of values at each step."""
        return int(self.values.shape[1])


def is_table(x: Any) -> bool:
    """Return whether data are a table, whose rows are sequences and whose columns are time steps.

    Several arrays are never a table, even if they happen to be of one length; lists within a list are, if they are.
    """
    kind = getattr(getattr(x, "dtype", None), "kind", None)
    if isinstance(x, list | tuple) or (kind == "O" and len(x.shape) == 1):
        if any(len(getattr(row, "shape", ())) > 0 for row in x):
            return False
        try:
            return np.ndim(np.asarray([_as_array(row) for row in x])) != 3
        except ValueError:  # of unequal lengths
            return False
    return len(getattr(x, "shape", ())) < 3


def read_sequences(x: Any) -> RaggedArray:
    """Read an array (N, T, C), or a list of arrays (T,) or (T, C) of any lengths."""
    if len(getattr(x, "shape", ())) > 3:
        raise ArgumentError(argument="X", expected="sequences (N, T, C)", got=tuple(x.shape))
    if len(getattr(x, "shape", ())) == 3:
        return _checked(RaggedArray.from_array(_numbers(x, "X")))
    sequences = []
    for row, sequence in enumerate(x):
        array = _numbers(sequence, f"X[{row}]")
        if array.ndim not in (1, 2) or not len(array):
            expected = "a sequence (T,) or (T, C) of at least one step"
            raise ArgumentError(argument=f"X[{row}]", expected=expected, got=array.shape)
        sequences.append(array if array.ndim == 2 else array[:, None])
    if not sequences:
        raise ArgumentError("X holds no sequence: Found array with 0 sample(s) while a minimum of 1 is required.")
    widths = sorted({sequence.shape[1] for sequence in sequences})
    if len(widths) > 1:
        raise ArgumentError(argument="X", expected="the same number of channels in all sequences", got=widths)
    return _checked(RaggedArray.from_list(sequences))


def _as_array(x: Any) -> Any:
    return x.detach().cpu().numpy() if isinstance(x, Tensor) else x


def _numbers(x: Any, name: str) -> Array:
    try:
        return np.asarray(_as_array(x), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"{name} has no numbers, but a {type(x).__name__}: {error}") from error


def _checked(data: RaggedArray) -> RaggedArray:
    if not len(data) or not len(data.values) or not data.channels:
        raise ArgumentError(argument="X", expected="at least one sequence, one step and one channel")
    wrong = np.flatnonzero(~np.isfinite(data.values).all(axis=1))
    if len(wrong):
        ends = np.cumsum(data.lengths)
        row = int(np.searchsorted(ends, wrong[0], side="right"))
        step = int(wrong[0] - (ends[row] - data.lengths[row]))
        problem = f"X contains NaN or infinity, first in sequence {row} at step {step}"
        raise ArgumentError(problem, hint="fill or drop missing values first")
    return data


@dataclass(frozen=True)
class ChannelScaler:
    """Mean and deviation by which channels are normalised."""

    how: str | None
    mean: Array  # (C,)
    deviation: Array  # (C,), above zero

    @classmethod
    def fit(cls, how: str | None, data: RaggedArray) -> ChannelScaler:
        """Measure the training sequences; "sequence" normalises each sequence by itself, when it comes."""
        if how != "channel":
            return cls(how, np.zeros(data.channels), np.ones(data.channels))
        return cls(how, data.values.mean(0), nonzero_deviation(data.values.std(0), data.values))

    def __call__(self, data: RaggedArray) -> Array:
        """Return normalised values (sum of lengths, C)."""
        if self.how != "sequence":
            return (data.values - self.mean) / self.deviation
        starts = np.concatenate([[0], np.cumsum(data.lengths)[:-1]])
        count = data.lengths[:, None]
        mean = np.add.reduceat(data.values, starts) / count
        centred = data.values - np.repeat(mean, data.lengths, axis=0)
        deviation = np.sqrt(np.add.reduceat(centred**2, starts) / count)
        largest = np.maximum.reduceat(abs(data.values), starts)
        deviation = np.where(deviation > _FLOOR * largest, deviation, 1.0)
        by_itself: Array = centred / np.repeat(deviation, data.lengths, axis=0)
        return by_itself


def nonzero_deviation(deviation: Array, values: Array) -> Array:
    """Return the deviations of columns, and one for a column that varies by no more than rounding."""
    return np.where(deviation > _FLOOR * abs(values).max(0), deviation, 1.0)


class SequenceBatch(NamedTuple):
    """Sequences of one length: zeros come before one that is no multiple of a segment, anything after its end."""

    x: Tensor  # (B, T, C)
    lengths: Tensor | None  # (B,), steps with the zeros before; None if all are T
    target: Tensor  # (B, outputs), or classes (B,)
    weight: Tensor  # of the same shape


class SequenceDataset:
    """Normalised sequences, from which batches are taken."""

    def __init__(
        self,
        data: RaggedArray,
        scaler: ChannelScaler,
        segment: int,
        target: Tensor | None = None,
        weight: Tensor | None = None,
    ) -> None:
        self._values = torch.from_numpy(scaler(data)).float()
        self._lengths = torch.from_numpy(data.lengths)
        self._starts = torch.cumsum(self._lengths, 0) - self._lengths
        self._segment = segment
        self._target = torch.zeros(len(data)) if target is None else target
        self._weight = torch.ones(self._target.shape) if weight is None else weight

    def batch(self, rows: Tensor) -> SequenceBatch:
        """Return the sequences of these rows."""
        lengths, target = self._lengths[rows], self._target[rows]
        before = -lengths % self._segment
        padded = lengths + before
        steps = int(padded.max())
        place = torch.arange(steps) - before[:, None]  # (B, T), within each sequence
        inside = place >= 0  # what comes after the end is not read: see `lengths`
        x = self._values[(self._starts[rows][:, None] + place.clamp(min=0)).clamp(max=len(self._values) - 1)]
        equal = bool((padded == steps).all())
        return SequenceBatch(x * inside[..., None], None if equal else padded, target, self._weight[rows])

"""Sequences of one length or several, as users have them and as a network takes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]
NORMALIZATIONS = ("channel", "sequence", None)
_FLOOR = 1e-6  # of a deviation that something is divided by, relative to its largest value


@dataclass(frozen=True)
class Ragged:
    """Many sequences one after the other."""

    values: Array  # (sum of lengths, C)
    lengths: NDArray[np.int64]  # (N,), all above zero

    @classmethod
    def of_arrays(cls, sequences: Sequence[Array]) -> Ragged:
        """From arrays (T, C) each."""
        return cls(np.concatenate(sequences), np.array([len(one) for one in sequences], dtype=np.int64))

    @classmethod
    def of_array(cls, sequences: Array) -> Ragged:
        """From one array (N, T, C)."""
        count, steps, channels = sequences.shape
        return cls(sequences.reshape(count * steps, channels), np.full(count, steps, dtype=np.int64))

    def __len__(self) -> int:
        """How many sequences."""
        return len(self.lengths)

    @property
    def channels(self) -> int:
        """Numbers at each step."""
        return int(self.values.shape[1])


def is_table(x: Any) -> bool:
    """Whether data are a table, whose rows are sequences and whose columns are time steps.

    Several arrays are never one, even if they happen to be of one length; lists within a list are, if they are.
    """
    kind = getattr(getattr(x, "dtype", None), "kind", None)
    if isinstance(x, list | tuple) or (kind == "O" and len(x.shape) == 1):
        if any(len(getattr(one, "shape", ())) > 0 for one in x):
            return False
        try:
            return np.ndim(np.asarray([_as_array(one) for one in x])) != 3
        except ValueError:  # of unequal lengths
            return False
    return len(getattr(x, "shape", ())) < 3


def _as_array(x: Any) -> Any:
    return x.detach().cpu().numpy() if isinstance(x, Tensor) else x


def read_sequences(x: Any, name: str = "X") -> Ragged:
    """From an array (N, T, C), or a list of arrays (T,) or (T, C) of any lengths."""
    if len(getattr(x, "shape", ())) > 3:
        raise ValueError(f"{name}: expected sequences (N, T, C), got the shape {tuple(x.shape)}")
    if len(getattr(x, "shape", ())) == 3:
        return _checked(Ragged.of_array(_numbers(x, name)), name)
    sequences = []
    for row, one in enumerate(x):
        array = _numbers(one, f"{name}[{row}]")
        if array.ndim not in (1, 2) or not len(array):
            raise ValueError(
                f"{name}[{row}]: expected a sequence (T,) or (T, C) of at least one step, got the shape {array.shape}"
            )
        sequences.append(array if array.ndim == 2 else array[:, None])
    if not sequences:
        raise ValueError(f"{name} holds no sequence: Found array with 0 sample(s) while a minimum of 1 is required.")
    widths = sorted({one.shape[1] for one in sequences})
    if len(widths) > 1:
        raise ValueError(f"{name}: expected the same number of channels in all sequences, got {widths}")
    return _checked(Ragged.of_arrays(sequences), name)


def _numbers(x: Any, name: str) -> Array:
    try:
        return np.asarray(_as_array(x), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: expected numbers, got {type(x).__name__}: {error}") from error


def _checked(found: Ragged, name: str) -> Ragged:
    if not len(found) or not len(found.values) or not found.channels:
        raise ValueError(f"{name}: expected at least one sequence, one step and one channel")
    wrong = np.flatnonzero(~np.isfinite(found.values).all(axis=1))
    if len(wrong):
        ends = np.cumsum(found.lengths)
        row = int(np.searchsorted(ends, wrong[0], side="right"))
        step = int(wrong[0] - (ends[row] - found.lengths[row]))
        raise ValueError(
            f"{name} contains NaN or infinity, first in sequence {row} at step {step}; fill or drop it first"
        )
    return found


@dataclass(frozen=True)
class Scale:
    """What channels are normalised by."""

    how: str | None
    mean: Array  # (C,)
    deviation: Array  # (C,), above zero

    @classmethod
    def of(cls, how: str | None, data: Ragged) -> Scale:
        """From the sequences that are learned from; "sequence": of each by itself, when it comes."""
        if how != "channel":
            return cls(how, np.zeros(data.channels), np.ones(data.channels))
        return cls(how, data.values.mean(0), positive(data.values.std(0), data.values))

    def __call__(self, data: Ragged) -> Array:
        """The values (sum of lengths, C)."""
        if self.how != "sequence":
            scaled: Array = (data.values - self.mean) / self.deviation
            return scaled
        starts = np.concatenate([[0], np.cumsum(data.lengths)[:-1]])
        count = data.lengths[:, None]
        mean = np.add.reduceat(data.values, starts) / count
        centred = data.values - np.repeat(mean, data.lengths, axis=0)
        deviation = np.sqrt(np.add.reduceat(centred**2, starts) / count)
        largest = np.maximum.reduceat(abs(data.values), starts)
        deviation = np.where(deviation > _FLOOR * largest, deviation, 1.0)
        by_itself: Array = centred / np.repeat(deviation, data.lengths, axis=0)
        return by_itself


def positive(deviation: Array, values: Array) -> Array:
    """Deviations of columns; one where a column does not vary but for rounding."""
    found: Array = np.where(deviation > _FLOOR * abs(values).max(0), deviation, 1.0)
    return found


class SequenceBatch(NamedTuple):
    """Some sequences, with zeros before those whose length is no multiple of a segment, and anything after the end."""

    x: Tensor  # (B, T, C)
    lengths: Tensor | None  # (B,), steps with those before; None if all are T
    target: Tensor  # (B, outputs), or classes (B,)
    weight: Tensor  # of the same shape


class SequenceSource:
    """Sequences at the scale of a network, from which batches are taken."""

    def __init__(
        self, data: Ragged, scale: Scale, segment: int, target: Tensor | None = None, weight: Tensor | None = None
    ) -> None:
        self._values = torch.from_numpy(scale(data)).float()
        self._lengths = torch.from_numpy(data.lengths)
        self._starts = torch.cumsum(self._lengths, 0) - self._lengths
        self._segment = segment
        self._target = torch.zeros(len(data)) if target is None else target
        self._weight = torch.ones(self._target.shape) if weight is None else weight

    def __len__(self) -> int:
        """How many sequences."""
        return len(self._lengths)

    def batch(self, rows: Tensor) -> SequenceBatch:
        """Those of these numbers."""
        lengths, target = self._lengths[rows], self._target[rows]
        before = -lengths % self._segment
        whole = lengths + before
        steps = int(whole.max())
        place = torch.arange(steps) - before[:, None]  # (B, T), within each sequence
        there = place >= 0  # what comes after the end is not read: see `lengths`
        x = self._values[(self._starts[rows][:, None] + place.clamp(min=0)).clamp(max=len(self._values) - 1)]
        equal = bool((whole == steps).all())
        return SequenceBatch(x * there[..., None], None if equal else whole, target, self._weight[rows])

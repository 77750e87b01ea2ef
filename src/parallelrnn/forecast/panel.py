"""Series as arrays on one grid of time."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parallelrnn.forecast.grid import Grid

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Columns:
    """Which column is what. Several targets: a wide table, in which each of them is a series."""

    id: str | None  # None: the table holds one series, or one for each target
    time: str
    targets: tuple[str, ...]
    past: tuple[str, ...] = ()  # covariates known up to now
    future: tuple[str, ...] = ()  # known ahead, too
    static: tuple[str, ...] = ()  # the same at all times
    dates: bool = False  # times are days of a calendar without a clock, which polars tells apart

    @property
    def all(self) -> tuple[str, ...]:
        """Every column that is read."""
        ids = () if self.id is None else (self.id,)
        return (*ids, self.time, *self.targets, *self.past, *self.future, *self.static)


@dataclass(frozen=True)
class Series:
    """One sequence of C channels at consecutive positions of a grid."""

    name: Any  # the value of its id column, or the name of its target
    position: int  # of its first step
    values: Array  # (T, C), filled where they were missing
    observed: NDArray[np.bool_]  # (T, C)
    past: Array  # (T, P)
    future: Array  # (T, F)
    static: Array  # (S,)

    def __len__(self) -> int:
        return len(self.values)

    def tail(self, steps: int) -> Series:
        """Its last so many steps, or all if it has no more."""
        cut = max(0, len(self) - steps)
        return replace(
            self,
            position=self.position + cut,
            values=self.values[cut:],
            observed=self.observed[cut:],
            past=self.past[cut:],
            future=self.future[cut:],
        )

    def without_last(self, steps: int) -> Series:
        """All but its last so many steps, and nothing of these: a gap at the new end holds the value before it."""
        kept = max(0, len(self) - steps)
        observed, number = self.observed[:kept], np.arange(kept)[:, None]
        last = np.where(observed, number, 0).max(axis=0, initial=0)  # (C,)
        held = self.values[last, np.arange(len(last))]
        return replace(
            self,
            values=np.where(number > last, held, self.values[:kept]),
            observed=observed,
            past=self.past[:kept],
            future=self.future[:kept],
        )

    @property
    def end(self) -> int:
        """The position after its last step."""
        return self.position + len(self)


@dataclass(frozen=True)
class Panel:
    """The series of a table."""

    series: tuple[Series, ...]
    grid: Grid
    columns: Columns
    notes: tuple[str, ...] = ()  # what was filled or cut off

    def without_last(self, steps: int) -> Panel:
        """All series without their last so many steps."""
        return replace(self, series=tuple(one.without_last(steps) for one in self.series))

    def warn(self) -> None:
        """Tell what was filled or cut off."""
        for note in self.notes:
            warnings.warn(note, stacklevel=4)

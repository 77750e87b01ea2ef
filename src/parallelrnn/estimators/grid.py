"""The time stamps of a series: equally spaced by whole numbers, or by a frequency of the calendar."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parallelrnn.interpret.units import Step

Stamps: TypeAlias = Any  # an index of pandas, of time stamps or of whole numbers


class TimeError(ValueError):
    """Time stamps that make no series."""


@dataclass(frozen=True)
class Grid:
    """All time stamps that a frequency allows, numbered from an origin."""

    freq: str | int  # of pandas, "h" or "MS" say; or how far whole numbers are apart
    origin: Any  # a time stamp, or a whole number

    def __post_init__(self) -> None:
        if self._offset is not None and not self._offset.is_on_offset(self.origin):
            raise TimeError(
                f"the time stamp {self.origin} is not one of frequency {self.freq!r}; give another by freq="
            )

    @property
    def step(self) -> Step:
        """The time from one stamp to the next, for reading."""
        return Step() if isinstance(self.freq, int) else Step.of(self.freq)

    def locate(self, stamps: Stamps) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The number of each time stamp, and whether it is on the grid at all."""
        if self._offset is None or isinstance(self._offset, pd.offsets.Tick):
            unit = self.freq if self._offset is None else pd.Timedelta(self._offset)
            away = stamps - self.origin
            return (away // unit).to_numpy(np.int64), (away % unit == 0 * unit)
        before = self._steps_to(stamps.min())
        between = self.stamps(before, self._steps_to(stamps.max()) - before + 1)
        found = between.get_indexer(stamps)
        return (found + before).astype(np.int64), found >= 0

    def stamps(self, position: int, count: int) -> Stamps:
        """So many time stamps from one of the grid on."""
        if self._offset is None:
            first = self.origin + position * self.freq
            return pd.RangeIndex(first, first + count * self.freq, self.freq)
        return pd.date_range(self.origin + position * self._offset, periods=count, freq=self._offset, unit=self._unit)

    def _steps_to(self, stamp: Any) -> int:
        """From the origin to the last stamp of the grid that is not after this one."""
        if stamp >= self.origin:
            return len(pd.date_range(self.origin, stamp, freq=self._offset)) - 1
        return -len(pd.date_range(stamp, self.origin, freq=self._offset, inclusive="left"))

    @property
    def _offset(self) -> Any:
        return None if isinstance(self.freq, int) else pd.tseries.frequencies.to_offset(self.freq)

    @property
    def _unit(self) -> str:
        return str(self.origin.unit)

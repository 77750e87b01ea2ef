"""The time stamps of a series: equally spaced by whole numbers, or by a frequency of the calendar."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parallelrnn.errors import TimestampError
from parallelrnn.interpret.display import Step

Stamps: TypeAlias = Any  # an index of pandas, of time stamps or of whole numbers


_MOST_STEPS = 100_000  # of months or business days, which take a second to count
_SPARSEST = 200  # steps for each stamp, of all series


def of_series(name: Any) -> str:
    """How an error begins that is of one of several series; `name` is None where there is but one."""
    return "" if name is None else f"series {name!r}: "


@dataclass(frozen=True)
class Grid:
    """All time stamps that a frequency allows, numbered from an origin."""

    freq: str | int  # of pandas, "h" or "MS" say; or how far whole numbers are apart
    origin: Any  # a time stamp, or a whole number

    def __post_init__(self) -> None:
        if self._offset is None:
            if self.freq < 1:  # type: ignore[operator]
                raise TimestampError(f"freq: expected at least 1 for whole numbers, got {self.freq}")
        elif not self._offset.is_on_offset(self.origin):
            raise TimestampError(
                f"the time stamp {self.origin} is not one of frequency {self.freq!r}; give another by freq="
            )

    @property
    def step(self) -> Step:
        """The time from one stamp to the next, for reading."""
        return Step() if isinstance(self.freq, int) else Step.of(self.freq)

    def locate(self, stamps: Stamps) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The number of each time stamp, and whether it is on the grid at all."""
        if not len(stamps):
            return np.zeros(0, np.int64), np.zeros(0, np.bool_)
        if self._spacing is not None:
            away = stamps - self.origin
            return (away // self._spacing).to_numpy(np.int64), np.asarray(away % self._spacing == 0 * self._spacing)
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

    def refuse_far_off(self, stamps: Stamps) -> None:
        """Refuse a year 9020 for 2020, if months or business days would be counted one by one up to it."""
        if self._spacing is not None:
            return
        first, last = min(self.origin, stamps.min()), max(self.origin, stamps.max())
        one, two = self.stamps(0, 2)
        steps = (last - first).days // max(1, (two - one).days)
        if steps > max(_MOST_STEPS, _SPARSEST * len(stamps)):
            raise TimestampError(
                f"the time stamps reach from {first} to {last}, some {steps:,} steps of frequency {self.freq!r}; "
                "correct those that are far off, or give another frequency by freq="
            )

    def _steps_to(self, stamp: Any) -> int:
        """From the origin to the last stamp of the grid that is not after this one."""
        if stamp >= self.origin:
            return len(pd.date_range(self.origin, stamp, freq=self._offset)) - 1
        return -len(pd.date_range(stamp, self.origin, freq=self._offset, inclusive="left"))

    @property
    def _offset(self) -> Any:
        return None if isinstance(self.freq, int) else pd.tseries.frequencies.to_offset(self.freq)

    @property
    def _spacing(self) -> Any:
        """How far apart all neighbours are; None if that depends on the month or on the week-end."""
        offset = self._offset
        if offset is None:
            return self.freq
        if isinstance(offset, pd.offsets.Day | pd.offsets.Week):
            return pd.Timedelta(days=offset.n * (7 if isinstance(offset, pd.offsets.Week) else 1))
        return pd.Timedelta(offset) if isinstance(offset, pd.offsets.Tick) else None

    @property
    def _unit(self) -> str:
        return str(self.origin.unit)

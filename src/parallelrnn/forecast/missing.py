"""Missing values: how gaps are filled, where series are trimmed, and what users are warned about.

A last value that is far too low is most likely that of a period that was not over, and counts as missing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from parallelrnn.errors import TableError

if TYPE_CHECKING:
    from parallelrnn.forecast.data import Series

MISSING = ("interpolate", "error")  # policies
_LEAST_EARLIER = 8  # steps that tell how far values fall
_HALF = 0.5  # of the least of the last values: what is above is no incomplete period
_FALLS = 3.0  # times the largest fall before (in logarithms): likewise
_LEAST_SPAN = 3  # steps whose least value the last one is compared with, where there is no season


@dataclass(kw_only=True)
class MissingValues:
    """Trims and fills series by one policy, and counts what was missing."""

    policy: str
    targets: Collection[str]
    past: Collection[str]  # covariates, which are held and not interpolated: a line to the next value would leak it
    filled: dict[Any, int] = field(default_factory=dict)  # values, by the name of the series
    trimmed: dict[Any, int] = field(default_factory=dict)  # steps, by the name of the series
    with_gaps: dict[str, None] = field(default_factory=dict)  # columns, in order

    def fill(
        self, name: Any, table: NDArray[np.float64], keys: Sequence[str], stamp: Callable[[int], Any]
    ) -> tuple[int, NDArray[np.float64], NDArray[np.bool_]]:
        """Return the steps trimmed at the start, the filled rest of the table, and where it had values.

        The columns of `table` (T, columns) are named by `keys`; `stamp` gives the timestamp of a row.
        """
        is_target = [key in self.targets for key in keys]
        has_target: NDArray[np.bool_] = np.asarray(~np.isnan(table[:, is_target]).all(axis=1))
        if not has_target.any():
            raise TableError(f"series {name!r} has no values", hint="drop it from the table")
        start, end = int(has_target.argmax()), len(table) - int(has_target[::-1].argmax())
        if end - start < len(table):
            self.trimmed[name] = len(table) - (end - start)
        table = table[start:end]
        observed = ~np.isnan(table)
        count = int((~observed).sum())
        if count and self.policy == "error":
            row, column = np.argwhere(~observed)[0].tolist()
            problem = f"series {name!r}: {keys[column]!r} is missing at {stamp(start + row)}; {count} missing in all"
            raise TableError(problem, hint="fill them", code="or use missing='interpolate'")
        if count:
            self.filled[name] = count
        for column, known, key in zip(table.T, observed.T, keys, strict=True):
            if not known.any():
                hint = "drop the column or the series"
                raise TableError(f"series {name!r}: every value of {key!r} is missing", hint=hint)
            if not known.all():
                self.with_gaps[key] = None
                rows = np.flatnonzero(known)
                if key in self.past:
                    before = np.searchsorted(rows, np.arange(len(column)), side="right") - 1
                    column[:] = column[rows[before.clip(min=0)]]
                else:
                    column[~known] = np.interp(np.flatnonzero(~known), rows, column[known])
        return start, table, observed

    def notes(self) -> tuple[str, ...]:
        """Return a sentence on what was filled and one on what was trimmed, if anything was."""
        notes = []
        if self.filled:
            covariates = [key for key in self.with_gaps if key not in self.targets]
            names = ["targets"] * (len(covariates) < len(self.with_gaps)) + covariates
            which = f" ({', '.join(names)})" if covariates else ""
            carried = ", past covariates with their last value" if self.past else ""
            notes.append(
                f"{_count(self.filled, 'value', 'missing')}{which}: filled by linear interpolation{carried}; filled "
                "targets count neither in training nor in validation"
            )
        if self.trimmed:
            notes.append(f"{_count(self.trimmed, 'step', 'without values at the ends')}: trimmed")
        return tuple(notes)


def is_incomplete(values: NDArray[np.float64], season: int) -> bool:
    """Return whether the last value (T,), after positive ones, is that of a period which was not over.

    It is below half of all values of the season before it, a fall that is three times as deep as any before.
    """
    span = max(_LEAST_SPAN, min(season, len(values) // 3))
    if len(values) < span + _LEAST_EARLIER or values[-1] < 0 or not (values[:-1] > 0).all():
        return False
    logs = np.log(np.maximum(values, np.finfo(float).tiny))
    least = sliding_window_view(logs[:-1], span).min(axis=1)
    first = np.minimum.accumulate(logs[: span - 1])  # the first values have fewer before them
    falls = logs[1:] - np.concatenate([first, least])
    return bool(falls[-1] < min(np.log(_HALF), _FALLS * min(0.0, falls[:-1].min())))


def fill_incomplete(series: Sequence[Series], seasons: Sequence[int]) -> tuple[tuple[Series, ...], str]:
    """Return series whose last values count as missing if they are incomplete, and a sentence on which these are."""
    longest, shortest = max(seasons, default=1), min(seasons, default=1)
    filled, found = [], []
    for single in series:
        values = single.values.T
        is_low = np.array([is_incomplete(own, longest) for own in values]) & single.observed[-1]
        if is_low.any():
            found.append((single.name, float(values[is_low, -1][0])))
            single = single.with_last(np.where(is_low, _expected(single.values, shortest), single.values[-1]), ~is_low)
        filled.append(single)
    if not found:
        return tuple(filled), ""
    (name, value), count = found[0], len(found)
    which = f"series {name!r} ends" if count == 1 else f"{count} series end, such as {name!r},"
    return tuple(filled), (
        f"{which} with a value ({value:g}) far below all before it, which looks like a period that is not over: it "
        "counts as missing; missing='error' takes it as it is"
    )


def _expected(values: NDArray[np.float64], season: int) -> NDArray[np.float64]:
    """Return the value before the last, grown as it grew a season ago where that is known, within what there was."""
    with np.errstate(invalid="ignore", divide="ignore"):  # of those that are not asked for
        growth = values[-1 - season] / values[-2 - season] if 1 < season < len(values) - 1 else 1.0
        expected: NDArray[np.float64] = values[-2] * growth
    known = values[-1 - max(season, _LEAST_SPAN) : -1]
    return np.clip(expected, known.min(axis=0), known.max(axis=0))


def _count(counts: dict[Any, int], what: str, how: str) -> str:
    total, (name, most) = sum(counts.values()), max(counts.items(), key=lambda item: item[1])
    where = f"in series {name!r}" if len(counts) == 1 else f"in {len(counts)} series, the most ({most}) in {name!r}"
    return f"{total} {what}{'s' * (total > 1)} {how} {where}"

"""Missing values: where they are, what takes their place, and that it is told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parallelrnn.errors import TableError, check_choice
from parallelrnn.forecast.grid import Grid
from parallelrnn.forecast.panel import Array, Columns, Series

MISSING = ("interpolate", "error")
_SPARSEST = 100  # steps for each row; with fewer rows, a time stamp or the frequency is wrong


class SeriesReader:
    """Makes series of rows, and keeps account of what was missing."""

    def __init__(self, columns: Columns, grid: Grid, missing: str) -> None:
        check_choice("missing", missing, MISSING)
        self._columns, self._grid, self._missing = columns, grid, missing
        self._filled: dict[Any, int] = {}  # by the name of the series
        self._holed: dict[str, None] = {}  # the columns that had gaps, in order
        self._cut: dict[Any, int] = {}

    def read(self, name: Any, positions: NDArray[np.int64], data: dict[str, Array], targets: Sequence[str]) -> Series:
        """One series from its rows, sorted by time."""
        columns = self._columns
        first, steps = int(positions[0]), int(positions[-1] - positions[0]) + 1
        if steps > _SPARSEST * len(positions):
            begin, end = (self._grid.stamps(int(position), 1)[0] for position in positions[[0, -1]])
            raise TableError(
                f"series {name!r} has {len(positions)} rows for the {steps} steps of frequency {self._grid.freq!r} "
                f"from {begin} to {end}; correct time stamps that are far off, or resample to a coarser frequency"
            )

        def on_grid(names: Sequence[str]) -> Array:
            table = np.full((steps, len(names)), np.nan)
            for index, key in enumerate(names):
                table[positions - first, index] = data[key]
            return table

        values, past, future = on_grid(targets), on_grid(columns.past), on_grid(columns.future)
        there = np.flatnonzero(~np.isnan(values).all(axis=1))
        if not len(there):
            raise TableError(f"series {name!r} has no values: every one is missing; leave it out of the table")
        inside = slice(int(there[0]), int(there[-1]) + 1)
        cut = steps - (inside.stop - inside.start)
        if cut:
            self._cut[name] = cut
        values, past, future = values[inside], past[inside], future[inside]
        observed = ~np.isnan(values)
        absent = np.isnan(np.hstack([values, past, future]))
        holes, keys = int(absent.sum()), (*targets, *columns.past, *columns.future)
        if holes and self._missing == "error":
            step, column = np.argwhere(absent)[0].tolist()
            stamp = self._grid.stamps(first + inside.start + step, 1)[0]
            raise TableError(
                f"series {name!r}: {keys[column]!r} is missing at {stamp}, and {holes} values in all; fill them, or "
                "use missing='interpolate'"
            )
        if holes:
            self._filled[name] = holes
            self._holed |= {key: None for key, column in zip(keys, absent.T, strict=True) if column.any()}
        return Series(
            name,
            first + inside.start,
            _interpolate(values, name, targets),
            observed,
            _hold(past, name, columns.past),
            _interpolate(future, name, columns.future),
            self._static(name, data),
        )

    def notes(self) -> list[str]:
        """What was missing in all that was read, in a sentence each."""
        found = []
        if self._filled:
            columns = [key for key in self._holed if key not in self._columns.targets]
            which = f" (targets and {', '.join(columns)})" if columns else ""
            if columns and len(columns) == len(self._holed):
                which = f" (of {', '.join(columns)})"
            held = ", but for past covariates, which stay as they were" if self._columns.past else ""
            found.append(
                f"{_counted(self._filled, 'value', 'missing')}{which}; straight lines fill the gaps{held}; those of "
                "targets are neither trained nor judged on"
            )
        if self._cut:
            found.append(f"{_counted(self._cut, 'step', 'without values at the ends')}; the series are cut there")
        return found

    def _static(self, name: Any, data: dict[str, Array]) -> Array:
        found = []
        for key in self._columns.static:
            values = np.unique(data[key])
            if np.isnan(values).any():
                raise TableError(
                    f"series {name!r}: the static covariate {key!r} is missing; write its value into every row of the "
                    "series"
                )
            if len(values) != 1:
                raise TableError(
                    f"series {name!r}: the static covariate {key!r} should have one value, and has "
                    f"{', '.join(map(str, values[:3].tolist()))}; if it changes, it is one of past_covariates"
                )
            found.append(float(values[0]))
        return np.array(found)


def _interpolate(table: Array, name: Any, keys: Sequence[str]) -> Array:
    for column, key in zip(table.T, keys, strict=True):
        known = ~np.isnan(column)
        if not known.any():
            raise TableError(f"series {name!r}: every value of {key!r} is missing; leave the column or the series out")
        if not known.all():
            column[~known] = np.interp(np.flatnonzero(~known), np.flatnonzero(known), column[known])
    return table


def _hold(table: Array, name: Any, keys: Sequence[str]) -> Array:
    """What is not known ahead stays as it was, since a line to the next value would tell of it."""
    for column, key in zip(table.T, keys, strict=True):
        known = np.flatnonzero(~np.isnan(column))
        if not len(known):
            raise TableError(f"series {name!r}: every value of {key!r} is missing; leave the column or the series out")
        before = np.searchsorted(known, np.arange(len(column)), side="right") - 1
        column[:] = column[known[before.clip(min=0)]]
    return table


def _counted(counts: dict[Any, int], what: str, how: str) -> str:
    total, (name, most) = sum(counts.values()), max(counts.items(), key=lambda item: item[1])
    plural = what if total == 1 else f"{what}s"
    where = f"in series {name!r}" if len(counts) == 1 else f"in {len(counts)} series, the most ({most}) in {name!r}"
    return f"{total} {plural} {how} {where}"

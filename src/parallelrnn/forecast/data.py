"""Tables of series as people have them, read into arrays; errors say where in the table the problem is."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parallelrnn.errors import ArgumentTypeError, TableError, TimestampError
from parallelrnn.forecast.frequency import Grid, Stamps, read_timestamps, series_prefix
from parallelrnn.forecast.missing import MissingValues

Array = NDArray[np.float64]

_LARGEST, _SMALLEST = 1e100, 1e-100  # values whose squares are still numbers
_OUTPUT_COLUMNS = ("yhat", "level", "cutoff", "y", "covariates")
_MAX_STEPS_PER_ROW = 100  # beyond this, a timestamp or the frequency is wrong
_SHORT_SERIES = 10  # steps


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The roles of columns. Several targets make a wide table, in which each of them is a series."""

    id: str | None = None  # None: the table holds one series, or one for each target
    time: str = "ds"
    targets: tuple[str, ...] = ("y",)
    past: tuple[str, ...] = ()  # covariates known up to now
    future: tuple[str, ...] = ()  # covariates also known ahead
    static: tuple[str, ...] = ()  # covariates that are constant in each series
    dates: bool = False  # whether times are polars dates, without a time of day

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that identify a row."""
        return (self.time,) if self.id is None else (self.id, self.time)

    @property
    def all(self) -> tuple[str, ...]:
        """Every column that is read."""
        return (*self.keys, *self.targets, *self.past, *self.future, *self.static)


@dataclass(frozen=True, kw_only=True)
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

    @property
    def end(self) -> int:
        """The position after its last step."""
        return self.position + len(self)

    def tail(self, steps: int) -> Series:
        """Return the last `steps` steps, or all if there are no more."""
        rows = slice(max(0, len(self) - steps), None)
        return replace(
            self,
            position=self.position + rows.start,
            **{name: getattr(self, name)[rows] for name in ("values", "observed", "past", "future")},
        )

    def without_last(self, steps: int) -> Series:
        """Return all but the last `steps` steps; a gap at the new end holds the value before it, to leak nothing."""
        length = max(0, len(self) - steps)
        observed, step = self.observed[:length], np.arange(length)[:, None]
        last = np.where(observed, step, 0).max(axis=0, initial=0)  # (C,)
        held = self.values[last, np.arange(len(last))]
        values = np.where(step > last, held, self.values[:length])
        return replace(self, values=values, observed=observed, past=self.past[:length], future=self.future[:length])


@dataclass(frozen=True)
class Panel:
    """The series of a table."""

    series: tuple[Series, ...]
    grid: Grid
    columns: Columns
    notes: tuple[str, ...] = ()  # on what was filled or trimmed

    def without_last(self, steps: int) -> Panel:
        """Return all series without their last `steps` steps."""
        return replace(self, series=tuple(series.without_last(steps) for series in self.series))


def warn_user(message: str) -> None:
    """Warn at the line outside this package that led here."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("parallelrnn."):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)


def warn_short_series(series: Sequence[Series]) -> None:
    """Warn of series that are too short for their level, scale and intervals to be more than a guess."""
    short = [one for one in series if len(one) < _SHORT_SERIES]
    if short:
        warn_user(
            f"{len(short)} series with fewer than {_SHORT_SERIES} steps, such as {short[0].name!r} with "
            f"{len(short[0])}: their level and scale are guesses, and so are their forecasts and intervals"
        )


def read_panel(
    table: Any,
    columns: Columns,
    *,
    freq: str | int | None = None,
    grid: Grid | None = None,
    missing: str = "interpolate",
    mixed: bool = False,
) -> Panel:
    """Read the series of a long or wide table of pandas, polars or another library that narwhals supports.

    Rows may come in any order. `grid` is that of an earlier panel; without it, the grid has frequency `freq`, which is
    inferred if None. With `mixed`, several targets are the channels of one series.
    """
    frame = as_frame(table)
    _check_columns(frame, columns)
    if not len(frame):
        raise TableError("the table has no rows")
    stamps = read_timestamps(frame, columns.time)
    names, owner = _read_ids(frame, columns)
    order = np.lexsort((stamps.to_numpy(), owner))
    stamps, owner = stamps[order], owner[order]
    _check_duplicates(stamps, owner, names, order, columns)
    edges = [*np.flatnonzero(np.r_[True, owner[1:] != owner[:-1]]).tolist(), len(owner)]
    hint = "resample the series to the frequency that the model was fitted on"
    if grid is None:
        grid = Grid.of({names[owner[start]]: stamps[start:end] for start, end in pairwise(edges)}, freq)
        hint = "resample the series to one frequency, or change {freq}"
    positions = grid.positions(stamps, lambda row: _place(names[owner[row]], order[row]), hint)
    data = {name: _read_numbers(frame, name)[order] for name in columns.all if name not in columns.keys}
    _check_range(data, owner, names, order)

    gaps = MissingValues(missing, columns.targets, columns.past)
    series: list[Series] = []
    for start, end in pairwise(edges):
        rows, name = slice(start, end), names[owner[start]]
        local = {key: values[rows] for key, values in data.items()}
        if mixed or len(columns.targets) == 1:
            label = ", ".join(map(str, columns.targets)) if columns.id is None else name
            series.append(_make_series(label, positions[rows], local, columns, grid, gaps))
        else:
            each = (replace(columns, targets=(target,)) for target in columns.targets)
            series += [_make_series(one.targets[0], positions[rows], local, one, grid, gaps) for one in each]
    return Panel(tuple(series), grid, columns, gaps.notes() if gaps.filled or gaps.trimmed else ())


def read_future_exog(table: Any, series: Sequence[Series], columns: Columns, grid: Grid, horizon: int) -> list[Array]:
    """Read the future covariates (H, F) of each series over the horizon after its last step."""
    if table is None:
        names = ", ".join(map(repr, columns.future))
        raise TableError(f"a forecast needs {names} for the next {horizon} steps", hint="give {futr_df}")
    what, frame = "the table of future covariates", as_frame(table)
    missing = [name for name in (*columns.keys, *columns.future) if name not in frame.columns]
    if missing:
        columns_are = f"its columns are {', '.join(map(repr, frame.columns))}"
        raise TableError(f"{what} has no column {', '.join(map(repr, missing))}; {columns_are}", argument="futr_df")
    if not len(frame):
        raise TableError(
            f"{what} has no rows", argument="futr_df", hint=f"give the next {horizon} steps of each series"
        )
    ids, owner = _read_ids(frame, columns)
    stamps = read_timestamps(frame, columns.time)
    positions = grid.positions(stamps, lambda row: f"{what}, row {row}", "correct it, or drop the row")
    values = np.stack([_read_numbers(frame, name) for name in columns.future], -1)
    order = np.lexsort((positions, owner))
    same = (np.diff(owner[order]) == 0) & (np.diff(positions[order]) == 0)
    if same.any():
        first, second = sorted(order[int(same.argmax()) :][:2].tolist())
        problem = f"{what}: rows {first} and {second} have the same timestamp {stamps[first]}"
        raise TableError(problem, argument="futr_df", hint="keep one of them")
    rows_of = dict(zip(ids, np.split(order, np.flatnonzero(np.diff(owner[order])) + 1), strict=True))
    exog = []
    for one in series:
        if columns.id is not None and one.name not in rows_of:
            hint = f"give its next {horizon} steps"
            raise TableError(f"{what} has no rows for series {one.name!r}", argument="futr_df", hint=hint)
        rows = rows_of[None if columns.id is None else one.name]
        steps = positions[rows] - one.end
        inside = (steps >= 0) & (steps < horizon)
        ahead = np.full((horizon, len(columns.future)), np.nan)
        ahead[steps[inside]] = values[rows[inside]]
        invalid = np.argwhere(~np.isfinite(ahead))
        if len(invalid):
            step, column = invalid[0].tolist()
            stamp, name = grid.stamps(one.end + step, 1)[0], columns.future[column]
            raise TableError(
                f"series {one.name!r}: no finite value of {name!r} at {stamp}, step {step + 1} of {horizon}",
                argument="futr_df",
                hint="complete {futr_df}",
            )
        exog.append(ahead)
    return exog


def as_frame(table: Any) -> nw.DataFrame[Any]:
    """Return any table in memory that narwhals supports as a narwhals frame."""
    try:
        return nw.from_native(table, eager_only=True)
    except TypeError as error:
        lazy = hasattr(table, "collect")
        raise ArgumentTypeError(
            f"expected a pandas or polars table, got {type(table).__name__}", code="call its collect() first" * lazy
        ) from error
    except nw.exceptions.DuplicateError as error:
        raise TableError(f"two columns have the same name: {error}", hint="rename one of them") from error


def _check_columns(frame: nw.DataFrame[Any], columns: Columns) -> None:
    missing = [name for name in columns.all if name not in frame.columns]
    if missing:
        raise TableError(
            f"the table has no column {', '.join(map(repr, missing))}; its columns are "
            f"{', '.join(map(repr, frame.columns))}",
            hint="name its columns with {id_col}, {time_col} and {target_col}",
        )
    repeated = [name for name in columns.all if columns.all.count(name) > 1]
    if repeated:
        raise TableError(f"column {repeated[0]!r} has two roles", hint="give it one")
    taken = [name for name in columns.keys if str(name) in _OUTPUT_COLUMNS or str(name).startswith("yhat-")]
    if taken:
        raise TableError(f"column {taken[0]!r} has the name of a column of forecasts", hint="rename it")
    unused = [name for name in frame.columns if name not in columns.all]
    if unused == ["unique_id"]:
        raise TableError(
            "the table has ids ('unique_id'), but the fitted one had none",
            hint="fit a table with ids to forecast other series, or drop the column",
        )
    if unused:
        raise TableError(
            f"unexpected column {', '.join(map(repr, unused))}",
            hint="drop it, or list it in {target_col}, {past_covariates}, {future_covariates} or {static_covariates}",
        )


def _read_ids(frame: nw.DataFrame[Any], columns: Columns) -> tuple[list[Any], NDArray[np.int64]]:
    """Return the names of the series in their order in the table, and for each row the index of its series."""
    if columns.id is None:
        return [None], np.zeros(len(frame), dtype=np.int64)
    owner, names = pd.factorize(pd.Series(frame.get_column(columns.id).to_list(), dtype=object))
    if (owner < 0).any():
        row = int((owner < 0).argmax())
        raise TableError(f"row {row}: no id in column {columns.id!r}", hint="fill it in, or drop the row")
    return list(names), owner.astype(np.int64)


def _place(name: Any, row: int) -> str:
    return f"row {row}" if name is None else f"series {name!r}, row {row}"


def _check_duplicates(
    stamps: Stamps, owner: NDArray[np.int64], names: Sequence[Any], order: NDArray[np.int64], columns: Columns
) -> None:
    same = (owner[1:] == owner[:-1]) & np.asarray(stamps[1:] == stamps[:-1])
    if not same.any():
        return
    index = int(same.argmax())
    first, second = sorted(order[index : index + 2].tolist())
    place, others = series_prefix(names[owner[index]]), f" ({same.sum()} such pairs)" if same.sum() > 1 else ""
    alone = ", or name the column that tells series apart with {id_col}" if columns.id is None else ""
    raise TimestampError(
        f"{place}rows {first} and {second} have the same timestamp {stamps[index]}{others}",
        hint=f"keep one of them{alone}",
        code=f"df.drop_duplicates({list(columns.keys)})",
    )


def _read_numbers(frame: nw.DataFrame[Any], name: str) -> Array:
    column = frame.get_column(name)
    if not (column.dtype.is_numeric() or column.dtype == nw.Boolean):
        values = column.to_list()
        filled = [row for row, value in enumerate(values) if value is not None]
        row = next((row for row in filled if not _is_number(values[row])), filled[0] if filled else None)
        example = "" if row is None else f" such as {values[row]!r} in row {row}"
        raise TableError(
            f"column {name!r} holds {column.dtype}{example}, not numbers", hint="convert it to numbers, or drop it"
        )
    return np.asarray(column.cast(nw.Float64).to_numpy(), dtype=np.float64)


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _check_range(
    data: dict[str, Array], owner: NDArray[np.int64], names: Sequence[Any], order: NDArray[np.int64]
) -> None:
    for key, values in data.items():
        too_large = abs(values) > _LARGEST
        if too_large.any():
            row = int(too_large.argmax())
            raise TableError(
                f"{_place(names[owner[row]], order[row])}: {key!r} is {values[row]}, above {_LARGEST:g} in magnitude",
                hint="correct it, make it a missing value, or rescale the series",
            )
        largest = np.zeros(len(names))
        np.fmax.at(largest, owner, abs(values))
        too_small = (largest > 0) & (largest < _SMALLEST)
        if too_small.any():
            index = int(too_small.argmax())
            raise TableError(
                f"series {names[index]!r}: all values of {key!r} are below {_SMALLEST:g} in magnitude, the largest is "
                f"{largest[index]:g}",
                hint="rescale the series",
            )


def _make_series(
    name: Any, positions: NDArray[np.int64], data: dict[str, Array], columns: Columns, grid: Grid, gaps: MissingValues
) -> Series:
    """Put the rows of one series, sorted by time, on the grid."""
    first, steps = int(positions[0]), int(positions[-1] - positions[0]) + 1
    if steps > _MAX_STEPS_PER_ROW * len(positions):
        start, end = (grid.stamps(int(position), 1)[0] for position in positions[[0, -1]])
        raise TableError(
            f"series {name!r} has {len(positions)} rows for the {steps} steps of frequency {grid.freq!r} from {start} "
            f"to {end}",
            hint="correct outlying timestamps, or resample to a coarser frequency",
        )
    keys = (*columns.targets, *columns.past, *columns.future)
    table = np.full((steps, len(keys)), np.nan)
    for index, key in enumerate(keys):
        table[positions - first, index] = data[key]
    observed = ~np.isnan(table)
    if not observed.all():
        trimmed, table, observed = gaps.fill(name, table, keys, lambda row: grid.stamps(first + row, 1)[0])
        first += trimmed
    count, past = len(columns.targets), len(columns.past)
    parts = map(np.ascontiguousarray, np.split(table, [count, count + past], axis=1))
    values, past_exog, future_exog = parts
    return Series(
        name=name,
        position=first,
        values=values,
        observed=np.ascontiguousarray(observed[:, :count]),
        past=past_exog,
        future=future_exog,
        static=np.array([_static_value(name, key, np.unique(data[key])) for key in columns.static], dtype=np.float64),
    )


def _static_value(name: Any, key: str, values: Array) -> float:
    if np.isnan(values).any():
        raise TableError(
            f"series {name!r}: static covariate {key!r} is missing", hint="write its value into every row of the series"
        )
    if len(values) != 1:
        raise TableError(
            f"series {name!r}: static covariate {key!r} has several values, {', '.join(map(str, values[:3].tolist()))}",
            hint="if it changes, list it in {past_covariates}",
        )
    return float(values[0])

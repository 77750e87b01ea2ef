"""Tables of series as people have them, read into arrays; errors say where in the table the problem is."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parallelrnn.errors import ArgumentTypeError, InputWarning, TableError, TimestampError
from parallelrnn.forecast.frequency import Grid, Stamps, read_timestamps, series_prefix
from parallelrnn.forecast.missing import MissingValues

Array = NDArray[np.float64]

_LARGEST, _SMALLEST = 1e100, 1e-100  # values whose squares are still numbers
_OUTPUT_COLUMNS = ("yhat", "level", "cutoff", "y", "covariates")
_ROLES = "the id column", "the time column", "a target", "a past covariate", "a future covariate", "a static covariate"
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

    def after(self, earlier: Series) -> Series:
        """Return the series with what an earlier piece of it has before its first step, if the two meet."""
        rows = slice(0, self.position - earlier.position)
        if not earlier.position < self.position <= earlier.end:
            return self
        names = ("values", "observed", "past", "future")
        joined = {name: np.concatenate([getattr(earlier, name)[rows], getattr(self, name)]) for name in names}
        return replace(self, position=earlier.position, **joined)

    def with_last(self, values: Array, observed: NDArray[np.bool_]) -> Series:
        """Return the series with another last value (C,)."""
        tables = np.vstack([self.values[:-1], values]), np.vstack([self.observed[:-1], self.observed[-1] & observed])
        return replace(self, values=tables[0], observed=tables[1])

    def without_last(self, steps: int) -> Series:
        """Return all but the last `steps` steps; a gap at the new end holds the value before it, to leak nothing."""
        length = max(0, len(self) - steps)
        observed, step = self.observed[:length], np.arange(length)[:, None]
        last = np.where(observed, step, 0).max(axis=0, initial=0)  # (C,)
        last_values = self.values[last, np.arange(len(last))]
        values = np.where(step > last, last_values, self.values[:length])
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


def warn_user(problem: str, **fields: str) -> None:
    """Warn at the line outside this package that led here; the fields are those of an error."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("parallelrnn."):
        level, frame = level + 1, frame.f_back
    warnings.warn(InputWarning(problem, **fields), stacklevel=level)


def warn_short_series(series: Sequence[Series]) -> None:
    """Warn of series that are too short for their level, scale and intervals to be more than a guess."""
    short = [single for single in series if len(single) < _SHORT_SERIES]
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
    rows = _sort_rows(frame, columns, "df", may_name_ids=grid is None and columns.id is None)
    hint = "resample the series to the frequency that the model was fitted on"
    if grid is None:
        if len(rows.groups) == len(frame) > 1:
            raise TableError(f"{columns.id!r} has {len(frame)} ids in {len(frame)} rows", hint="check {id_col}")
        grid = Grid.of({name: rows.stamps[own] for name, own in rows.groups.items()}, freq)
        hint = "resample the series to one frequency, or give another {freq}"
    positions = grid.positions(rows.stamps, rows.place, hint)
    data = {name: _read_numbers(frame, name)[rows.order] for name in columns.all if name not in columns.keys}
    _check_range(data, rows)

    gaps = MissingValues(policy=missing, targets=columns.targets, past=columns.past)
    series: list[Series] = []
    for name, own in rows.groups.items():
        local = {key: values[own] for key, values in data.items()}
        if mixed or len(columns.targets) == 1:
            label = ", ".join(map(str, columns.targets)) if columns.id is None else name
            series.append(_make_series(label, positions[own], local, columns, grid, gaps))
        else:
            each = (replace(columns, targets=(target,)) for target in columns.targets)
            series += [_make_series(single.targets[0], positions[own], local, single, grid, gaps) for single in each]
    return Panel(tuple(series), grid, columns, gaps.notes() if gaps.filled or gaps.trimmed else ())


def read_future_exog(table: Any, series: Sequence[Series], columns: Columns, grid: Grid, horizon: int) -> list[Array]:
    """Read the future covariates (H, F) of each series over the horizon after its last step."""
    if table is None:
        names = ", ".join(map(repr, columns.future))
        raise TableError(f"a forecast needs {names} for the next {horizon} steps", hint="give {futr_df}")
    frame = as_frame(table)
    _require(frame, (*columns.keys, *columns.future), "futr_df")
    rows = _sort_rows(frame, columns, "futr_df")
    positions = grid.positions(rows.stamps, rows.place, "correct {futr_df}, or drop the row")
    values = np.stack([_read_numbers(frame, name)[rows.order] for name in columns.future], -1)
    exog = []
    for single in series:
        name = None if columns.id is None else single.name
        if name not in rows.groups:
            hint = f"give its next {horizon} steps"
            raise TableError(f"no rows for series {name!r}", argument="futr_df", hint=hint)
        own = rows.groups[name]
        steps = positions[own] - single.end
        inside = (steps >= 0) & (steps < horizon)
        ahead = np.full((horizon, len(columns.future)), np.nan)
        ahead[steps[inside]] = values[own][inside]
        for column in np.flatnonzero(~np.isfinite(ahead).all(axis=0)):
            steps = np.flatnonzero(~np.isfinite(ahead[:, column]))
            start, count = int(steps[0]), int((steps - np.arange(len(steps)) == steps[0]).sum())  # the first gap
            stamps = grid.stamps(single.end + start, count)
            where = f"at {stamps[0]}, step {start + 1}"
            if count > 1:
                where = f"from {stamps[0]} to {stamps[-1]}, steps {start + 1} to {start + count}"
            problem = f"series {single.name!r}: no finite value of {columns.future[column]!r} {where} of {horizon}"
            raise TableError(problem, argument="futr_df", hint="complete {futr_df}")
        exog.append(ahead)
    return exog


def as_frame(table: Any) -> nw.DataFrame[Any]:
    """Return any table in memory that narwhals supports as a narwhals frame."""
    try:
        return nw.from_native(table, eager_only=True)
    except TypeError as error:
        code = "call its collect() first" if hasattr(table, "collect") else ""
        raise ArgumentTypeError(f"expected a pandas or polars table, got {type(table).__name__}", code=code) from error
    except nw.exceptions.DuplicateError as error:
        names = list(getattr(table, "column_names", table.columns))  # of pyarrow, or else of pandas
        raise TableError(f"several columns are named {max(names, key=names.count)!r}", hint="rename them") from error


def _require(frame: nw.DataFrame[Any], names: Sequence[str], argument: str, hint: str = "") -> None:
    missing = ", ".join(repr(name) for name in names if name not in frame.columns)
    if missing:
        existing = ", ".join(map(repr, frame.columns))
        raise TableError(f"no column {missing}; the columns are {existing}", argument=argument, hint=hint)


def _check_columns(frame: nw.DataFrame[Any], columns: Columns) -> None:
    _require(frame, columns.all, "df", "name its columns with {id_col}, {time_col} and {target_col}")
    if repeated := [name for name in columns.all if columns.all.count(name) > 1]:
        groups = ((columns.id,), (columns.time,), columns.targets, columns.past, columns.future, columns.static)
        roles = [role for role, names in zip(_ROLES, groups, strict=True) if repeated[0] in names]
        how = f"both {' and '.join(roles)}" if len(roles) > 1 else f"given twice as {roles[0]}"
        raise TableError(f"{repeated[0]!r} is {how}", hint="give it one role")
    if taken := [name for name in columns.keys if str(name) in _OUTPUT_COLUMNS or str(name).startswith("yhat-")]:
        raise TableError(f"column {taken[0]!r} has the name of a column of forecasts", hint="rename it")
    unused = [name for name in frame.columns if name not in columns.all]
    if unused == ["unique_id"]:
        hint = "fit a table with ids to forecast other series, or drop the column"
        raise TableError("the table has ids ('unique_id'), but the fitted one had none", hint=hint)
    if unused:
        hint = "drop it, or list it in {target_col}, {past_covariates}, {future_covariates} or {static_covariates}"
        raise TableError(f"unexpected column {', '.join(map(repr, unused))}", hint=hint)


class _Rows(NamedTuple):
    """The rows of a table, sorted by series and time."""

    stamps: Stamps
    order: NDArray[np.int64]  # their places in the table
    groups: dict[Any, slice]  # those of each series, by its name, or None if the table has no ids

    def place(self, row: int) -> str:
        """Return where a row is, for errors."""
        name = next(name for name, own in self.groups.items() if row < own.stop)
        return f"row {self.order[row]}" if name is None else f"series {name!r}, row {self.order[row]}"


def _sort_rows(frame: nw.DataFrame[Any], columns: Columns, argument: str, may_name_ids: bool = False) -> _Rows:
    """Sort rows by series, in their order in the table, and time; raise if a series has a timestamp twice."""
    if not len(frame):
        raise TableError("no rows", argument=argument)
    stamps = read_timestamps(frame, columns.time)
    owner, names = np.zeros(len(frame), dtype=np.int64), [None]
    if columns.id is not None:
        owner, names = pd.factorize(pd.Series(frame.get_column(columns.id).to_list(), dtype=object))
        if (owner < 0).any():
            row = int((owner < 0).argmax())
            raise TableError(f"row {row}: no id in column {columns.id!r}", hint="fill it in, or drop the row")
    order = np.lexsort((stamps.to_numpy(), owner))
    stamps, owner = stamps[order], owner[order]
    same = (owner[1:] == owner[:-1]) & np.asarray(stamps[1:] == stamps[:-1])
    if same.any():
        index = int(same.argmax())
        first, second = sorted(order[index : index + 2].tolist())
        place, pairs = series_prefix(names[owner[index]]), f" ({same.sum()} such pairs)" if same.sum() > 1 else ""
        alone = ", or name the column that tells series apart with {id_col}" * may_name_ids
        raise TimestampError(
            f"{place}rows {first} and {second} have the same timestamp {stamps[index]}{pairs}",
            argument=argument,
            hint=f"keep one of them{alone}",
            code=f"df.drop_duplicates({list(columns.keys)})",
        )
    edges = [*np.flatnonzero(np.r_[True, owner[1:] != owner[:-1]]).tolist(), len(owner)]
    return _Rows(stamps, order, {names[owner[start]]: slice(start, end) for start, end in pairwise(edges)})


def _read_numbers(frame: nw.DataFrame[Any], name: str) -> Array:
    column = frame.get_column(name)
    if not (column.dtype.is_numeric() or column.dtype == nw.Boolean):
        values = pd.Series(column.to_list(), dtype=object)
        is_number = pd.to_numeric(values.astype("string"), errors="coerce").notna()
        rows = [*np.flatnonzero(values.notna() & ~is_number), *np.flatnonzero(values.notna())]
        example = f" such as {values[rows[0]]!r} in row {rows[0]}" if rows else ""
        hint = "convert it to numbers, or drop it"
        kind = "text" if column.dtype == nw.String else column.dtype
        raise TableError(f"column {name!r} holds {kind}{example}, not numbers", hint=hint)
    return np.asarray(column.cast(nw.Float64).to_numpy(), dtype=np.float64)


def _check_range(data: dict[str, Array], rows: _Rows) -> None:
    for key, values in data.items():
        for row in np.flatnonzero(abs(values) > _LARGEST).tolist():
            hint = "correct it, make it a missing value, or rescale the series"
            raise TableError(f"{rows.place(row)}: {key!r} is {values[row]}, above {_LARGEST:g} in magnitude", hint=hint)
        for name, own in rows.groups.items():
            largest = np.fmax.reduce(abs(values[own]))
            if 0 < largest < _SMALLEST:
                problem = f"{series_prefix(name)}all values of {key!r} are below {_SMALLEST:g} in magnitude"
                raise TableError(f"{problem}, the largest is {largest:g}", hint="rescale the series")


def _make_series(
    name: Any, positions: NDArray[np.int64], data: dict[str, Array], columns: Columns, grid: Grid, gaps: MissingValues
) -> Series:
    """Put the rows of one series, sorted by time, on the grid."""
    first, steps = int(positions[0]), int(positions[-1] - positions[0]) + 1
    if steps > _MAX_STEPS_PER_ROW * len(positions):
        start, end = (grid.stamps(int(position), 1)[0] for position in positions[[0, -1]])
        span = f"the {steps} steps of frequency {grid.freq!r} from {start} to {end}"
        hint = "correct outlying timestamps, or resample to a coarser frequency"
        raise TableError(f"series {name!r} has {len(positions)} rows for {span}", hint=hint)
    keys = (*columns.targets, *columns.past, *columns.future)
    table = np.full((steps, len(keys)), np.nan)
    for index, key in enumerate(keys):
        table[positions - first, index] = data[key]
    observed = ~np.isnan(table)
    if not observed.all():
        trimmed, table, observed = gaps.fill(name, table, keys, lambda row: grid.stamps(first + row, 1)[0])
        first += trimmed
    count = len(columns.targets)
    parts = map(np.ascontiguousarray, np.split(table, [count, count + len(columns.past)], axis=1))
    arrays = dict(zip(("values", "past", "future"), parts, strict=True))
    static = np.array([_static_value(name, key, np.unique(data[key])) for key in columns.static], dtype=np.float64)
    return Series(name=name, position=first, observed=observed[:, :count].copy(), static=static, **arrays)


def _static_value(name: Any, key: str, values: Array) -> float:
    problem = f"series {name!r}: static covariate {key!r}"
    if np.isnan(values).any():
        raise TableError(f"{problem} is missing", hint="write its value into every row of the series")
    if len(values) != 1:
        several = ", ".join(map(str, values[:3].tolist()))
        raise TableError(f"{problem} has several values, {several}", hint="if it changes, use {past_covariates}")
    return float(values[0])

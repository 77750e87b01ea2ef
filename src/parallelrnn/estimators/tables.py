"""Tables of series, as people have them, turned into arrays; what is wrong in them is told with its place."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parallelrnn.estimators.frequency import infer_frequency
from parallelrnn.estimators.gaps import SeriesReader
from parallelrnn.estimators.grid import Grid, Stamps, TimeError
from parallelrnn.estimators.panel import Array, Columns, Panel, Series, TableError
from parallelrnn.interpret.units import Step


def read_panel(
    table: Any,
    columns: Columns,
    *,
    freq: str | int | None = None,
    grid: Grid | None = None,
    missing: str = "interpolate",
    mixed: bool = False,
) -> Panel:
    """The series of a long or wide table of pandas, polars or another library that narwhals knows.

    Rows may come in any order. On the grid of an earlier panel, or on one of its own of frequency `freq`, which is
    guessed if it is not given. With `mixed`, several targets are the channels of one series.
    """
    frame = as_frame(table)
    _check_columns(frame, columns)
    if not len(frame):
        raise TableError("the table has no rows")
    stamps = stamps_of(frame, columns.time)
    names, owner = owners_of(frame, columns)
    order = np.lexsort((stamps.to_numpy(), owner))
    stamps, owner = stamps[order], owner[order]
    _refuse_duplicates(stamps, owner, names, order, columns.time)
    if grid is None:
        grid = _new_grid(stamps, owner, names, freq)
    positions = _positions(grid, stamps, owner, names, order)
    data = {name: numbers_of(frame, name)[order] for name in columns.all if name not in (columns.id, columns.time)}
    _refuse_infinite(data, owner, names, order)

    series: list[Series] = []
    reader = SeriesReader(columns, missing)
    for begin, end in pairwise(_edges(owner)):
        rows, name = slice(begin, end), names[owner[begin]]
        local = {key: column[rows] for key, column in data.items()}
        if mixed or len(columns.targets) == 1:
            label = name if columns.id is not None or len(columns.targets) > 1 else columns.targets[0]
            series.append(reader.read(label, positions[rows], local, columns.targets))
        else:
            series += [reader.read(target, positions[rows], local, (target,)) for target in columns.targets]
    return Panel(tuple(series), grid, columns, tuple(reader.notes()))


def as_frame(table: Any) -> nw.DataFrame[Any]:
    """Any table that narwhals knows and that is in memory."""
    try:
        return nw.from_native(table, eager_only=True)
    except TypeError as error:
        raise TypeError(f"expected a table of pandas or polars, got {type(table).__name__}") from error


def _check_columns(frame: nw.DataFrame[Any], columns: Columns) -> None:
    missing = [name for name in columns.all if name not in frame.columns]
    if missing:
        raise TableError(
            f"the table has no column {', '.join(map(repr, missing))}; its columns are "
            f"{', '.join(map(repr, frame.columns))}; say which is what by id_col=, time_col= and target_col="
        )
    repeated = sorted({name for name in columns.all if columns.all.count(name) > 1})
    if repeated:
        raise TableError(f"the column {repeated[0]!r} is used in two ways; each has one")
    unused = [name for name in frame.columns if name not in columns.all]
    if unused:
        raise TableError(
            f"the table has columns that nobody asked for: {', '.join(map(repr, unused))}; name them as targets, as "
            "past_covariates, future_covariates or static_covariates, or leave them out of the table"
        )


def stamps_of(frame: nw.DataFrame[Any], name: str) -> Stamps:
    """The time column as an index of pandas."""
    column = frame[name]
    if column.null_count():
        raise TimeError(f"row {int(column.is_null().to_numpy().argmax())}: the time column {name!r} is empty there")
    if column.dtype == nw.String or column.dtype == nw.Object:
        parsed = pd.to_datetime(pd.Series(column.to_list()), errors="coerce", format="ISO8601")
        if parsed.isna().all():
            parsed = pd.to_datetime(pd.Series(column.to_list()), errors="coerce")
        if parsed.isna().any():
            row = int(parsed.isna().to_numpy().argmax())
            raise TimeError(f"row {row}: {column[row]!r} in the time column {name!r} is no time stamp")
        return pd.DatetimeIndex(parsed)
    if column.dtype.is_integer():
        return pd.Index(column.to_numpy().astype(np.int64))
    if isinstance(column.dtype, nw.Date):
        return pd.DatetimeIndex(column.cast(nw.Datetime("us")).to_numpy())
    if not isinstance(column.dtype, nw.Datetime):
        raise TimeError(f"the time column {name!r} holds {column.dtype}; expected time stamps, dates or whole numbers")
    if column.dtype.time_zone is not None:
        raise TimeError(
            f"the time column {name!r} has the time zone {column.dtype.time_zone}, in which days may have 23 or 25 "
            "hours; convert it to UTC without a zone (pandas: .dt.tz_convert('UTC').dt.tz_localize(None))"
        )
    return pd.DatetimeIndex(column.to_numpy())


def owners_of(frame: nw.DataFrame[Any], columns: Columns) -> tuple[list[Any], NDArray[np.int64]]:
    """The series that there are, in the order in which they come, and to which of them each row belongs."""
    if columns.id is None:
        return [None], np.zeros(len(frame), dtype=np.int64)
    column = frame[columns.id]
    if column.null_count():
        raise TableError(
            f"row {int(column.is_null().to_numpy().argmax())}: the id column {columns.id!r} is empty there"
        )
    owner, names = pd.factorize(pd.Series(column.to_list(), dtype=object))
    return list(names), owner.astype(np.int64)


def _edges(owner: NDArray[np.int64]) -> list[int]:
    """Where the rows of each series begin, and the end."""
    return [*np.flatnonzero(np.r_[True, owner[1:] != owner[:-1]]).tolist(), len(owner)]


def _refuse_duplicates(
    stamps: Stamps, owner: NDArray[np.int64], names: Sequence[Any], order: NDArray[np.int64], time: str
) -> None:
    same = (owner[1:] == owner[:-1]) & np.asarray(stamps[1:] == stamps[:-1])
    if same.any():
        index = int(same.argmax())
        first, second = sorted(order[index : index + 2].tolist())
        series = "" if names[owner[index]] is None else f"series {names[owner[index]]!r}: "
        more = int(same.sum()) - 1
        raise TimeError(
            f"{series}rows {first} and {second} have the same time stamp {stamps[index]} ({more} more such pairs); "
            f"keep one of them, df.drop_duplicates({time!r}) say, or if they are of different series, name the column "
            "that tells them apart by id_col="
        )


def _new_grid(stamps: Stamps, owner: NDArray[np.int64], names: Sequence[Any], freq: str | int | None) -> Grid:
    if freq is None:
        freq = infer_frequency({str(names[owner[a]]): stamps[a:b] for a, b in pairwise(_edges(owner))})
    is_calendar = isinstance(stamps, pd.DatetimeIndex)
    if is_calendar == isinstance(freq, int):
        wanted = "a frequency of pandas such as 'h', 'D' or 'MS'" if is_calendar else "a whole number of steps"
        raise TimeError(f"freq: expected {wanted} for such time stamps, got {freq!r}")
    if is_calendar:
        Step.of(freq)  # refuses what has no name
    return Grid(freq, stamps.min())


def _positions(
    grid: Grid, stamps: Stamps, owner: NDArray[np.int64], names: Sequence[Any], order: NDArray[np.int64]
) -> NDArray[np.int64]:
    if isinstance(stamps, pd.DatetimeIndex) == isinstance(grid.freq, int):
        raise TimeError(f"the model was fitted on time stamps such as {grid.origin}, and these are such as {stamps[0]}")
    positions, fits = grid.locate(stamps)
    if not fits.all():
        index = int((~fits).argmax())
        series = "" if names[owner[index]] is None else f"series {names[owner[index]]!r}, "
        raise TimeError(
            f"{series}row {order[index]}: the time stamp {stamps[index]} is not one of frequency {grid.freq!r} from "
            f"{grid.origin} on; resample the series to one frequency, or give another by freq="
        )
    return positions


def numbers_of(frame: nw.DataFrame[Any], name: str) -> Array:
    """A column as floats."""
    column = frame[name]
    if not (column.dtype.is_numeric() or column.dtype == nw.Boolean):
        first = next((value for value in column.to_list() if value is not None), None)
        raise TableError(
            f"the column {name!r} holds {column.dtype} such as {first!r}; expected numbers: turn what is no number "
            "into one, or leave the column out"
        )
    return np.asarray(column.cast(nw.Float64).to_numpy(), dtype=np.float64)


def _refuse_infinite(
    data: dict[str, Array], owner: NDArray[np.int64], names: Sequence[Any], order: NDArray[np.int64]
) -> None:
    for name, column in data.items():
        wrong = np.isinf(column)
        if wrong.any():
            index = int(wrong.argmax())
            series = "" if names[owner[index]] is None else f"series {names[owner[index]]!r}, "
            raise TableError(
                f"{series}row {order[index]}: {name!r} is {column[index]}; correct it, or make it a missing value"
            )

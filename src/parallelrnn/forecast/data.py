"""Tables of series, as people have them, turned into arrays; what is wrong in them is told with its place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NoReturn

import narwhals as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parallelrnn.errors import TableError, TimestampError
from parallelrnn.forecast.frequency import infer_frequency
from parallelrnn.forecast.grid import Grid, Stamps, of_series
from parallelrnn.forecast.missing import SeriesReader
from parallelrnn.forecast.panel import Array, Columns, Panel, Series
from parallelrnn.interpret.display import Step

_LARGEST, _SMALLEST = 1e100, 1e-100  # whose squares are numbers
_OURS = ("yhat", "level", "cutoff", "y", "covariates")  # columns of forecasts


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
    _refuse_duplicates(stamps, owner, names, order, columns)
    if grid is None:
        grid = _new_grid(stamps, owner, names, freq)
        remedy = "resample the series to one frequency, or give another by freq="
    else:
        remedy = "resample the series to the frequency that the model was fitted on"
    positions = positions_on(grid, stamps, lambda row: _row(names[owner[row]], order[row]), remedy)
    data = {name: numbers_of(frame, name)[order] for name in columns.all if name not in (columns.id, columns.time)}
    _refuse_out_of_range(data, owner, names, order)

    series: list[Series] = []
    reader = SeriesReader(columns, grid, missing)
    for begin, end in pairwise(_edges(owner)):
        rows, name = slice(begin, end), names[owner[begin]]
        local = {key: column[rows] for key, column in data.items()}
        if mixed or len(columns.targets) == 1:
            label = ", ".join(map(str, columns.targets)) if columns.id is None else name
            series.append(reader.read(label, positions[rows], local, columns.targets))
        else:
            series += [reader.read(target, positions[rows], local, (target,)) for target in columns.targets]
    return Panel(tuple(series), grid, columns, tuple(reader.notes()))


def as_frame(table: Any) -> nw.DataFrame[Any]:
    """Any table that narwhals knows and that is in memory."""
    try:
        return nw.from_native(table, eager_only=True)
    except TypeError as error:
        remedy = "; call its collect() first" if hasattr(table, "collect") else ""
        raise TypeError(f"expected a table of pandas or polars, got {type(table).__name__}{remedy}") from error
    except nw.exceptions.DuplicateError as error:
        raise TableError(f"two columns of the table have one name; rename one of them: {error}") from error


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
    ours = [name for name in (columns.id, columns.time) if str(name) in _OURS or str(name).startswith("yhat-")]
    if ours:
        raise TableError(f"the column {ours[0]!r} has the name of one that forecasts have; rename it")
    unused = [name for name in frame.columns if name not in columns.all]
    if unused == ["unique_id"]:
        raise TableError(
            "the table has ids ('unique_id'), and the one that was fitted had none; fit a table with ids to forecast "
            "other series, or leave them out of this one"
        )
    if unused:
        raise TableError(
            f"the table has columns that nobody asked for: {', '.join(map(repr, unused))}; name them as targets, as "
            "past_covariates, future_covariates or static_covariates, or leave them out of the table"
        )


def stamps_of(frame: nw.DataFrame[Any], name: str) -> Stamps:
    """The time column as an index of pandas."""
    column = frame.get_column(name)
    if column.null_count():
        row = int(column.is_null().to_numpy().argmax())
        raise TimestampError(f"row {row}: the time column {name!r} is empty there; fill it, or leave the row out")
    if column.dtype == nw.String:
        return _parsed(column)
    if column.dtype.is_integer():
        return pd.Index(column.to_numpy().astype(np.int64))
    if column.dtype == nw.Object and pd.api.types.infer_dtype(column.to_list()) in ("date", "datetime"):
        column = nw.from_native(pd.Series(pd.to_datetime(column.to_list()), name=name), series_only=True)
    if isinstance(column.dtype, nw.Date):
        column = column.cast(nw.Datetime("us"))
    if not isinstance(column.dtype, nw.Datetime):
        first = column.head(1).to_list()[0]
        raise TimestampError(
            f"the time column {name!r} holds {column.dtype} such as {first!r}; expected time stamps, dates or whole "
            "numbers: convert it, by pd.to_datetime say"
        )
    if column.dtype.time_zone is not None:
        _refuse_time_zone(column, column.dtype.time_zone)
    return pd.DatetimeIndex(column.to_numpy())


def _parsed(column: nw.Series[Any]) -> Stamps:
    """Texts, by ISO 8601 alone: year, month, day. Whether 01.02.2020 is in January or in February, nobody can tell."""
    texts = pd.Series(column.to_list())
    try:
        parsed = pd.to_datetime(texts, errors="coerce", format="ISO8601")
    except ValueError:  # several time zones
        _refuse_time_zone(column, "of its texts")
    if parsed.isna().any():
        row = int(parsed.isna().to_numpy().argmax())
        raise TimestampError(
            f"row {row}: {column[row]!r} in the time column {column.name!r} is no time stamp such as 2020-01-31 or "
            "2020-01-31 12:00; parse the column first, by pd.to_datetime(..., format='%d.%m.%Y') say"
        )
    if parsed.dt.tz is not None:
        _refuse_time_zone(column, parsed.dt.tz)
    return pd.DatetimeIndex(parsed)


def _refuse_time_zone(column: nw.Series[Any], zone: Any) -> NoReturn:
    remedy = "pandas: .dt.tz_convert('UTC').dt.tz_localize(None)"
    if column.dtype == nw.String:
        remedy = "pandas: pd.to_datetime(..., utc=True).dt.tz_localize(None)"
    elif column.implementation.is_polars():
        remedy = "polars: .dt.convert_time_zone('UTC').dt.replace_time_zone(None)"
    raise TimestampError(
        f"the time column {column.name!r} has the time zone {zone}; time stamps without one are expected, as in most "
        f"zones days may have 23 or 25 hours; convert it to UTC without a zone ({remedy})"
    )


def owners_of(frame: nw.DataFrame[Any], columns: Columns) -> tuple[list[Any], NDArray[np.int64]]:
    """The series that there are, in the order in which they come, and to which of them each row belongs."""
    if columns.id is None:
        return [None], np.zeros(len(frame), dtype=np.int64)
    owner, names = pd.factorize(pd.Series(frame.get_column(columns.id).to_list(), dtype=object))
    if (owner < 0).any():
        row = int((owner < 0).argmax())
        raise TableError(f"row {row}: the id column {columns.id!r} is empty there; fill it, or leave the row out")
    return list(names), owner.astype(np.int64)


def _edges(owner: NDArray[np.int64]) -> list[int]:
    """Where the rows of each series begin, and the end."""
    return [*np.flatnonzero(np.r_[True, owner[1:] != owner[:-1]]).tolist(), len(owner)]


def _row(name: Any, row: int) -> str:
    return f"row {row}" if name is None else f"series {name!r}, row {row}"


def _refuse_duplicates(
    stamps: Stamps, owner: NDArray[np.int64], names: Sequence[Any], order: NDArray[np.int64], columns: Columns
) -> None:
    same = (owner[1:] == owner[:-1]) & np.asarray(stamps[1:] == stamps[:-1])
    if same.any():
        index = int(same.argmax())
        first, second = sorted(order[index : index + 2].tolist())
        more = f", and {int(same.sum()) - 1} more such pairs" if same.sum() > 1 else ""
        remedy = f"keep one of them, df.drop_duplicates([{columns.id!r}, {columns.time!r}]) say"
        if columns.id is None:
            remedy = (
                f"keep one of them, df.drop_duplicates({columns.time!r}) say, or if they are of different series, name "
                "the column that tells them apart by id_col= as the model is fitted"
            )
        raise TimestampError(
            f"{of_series(names[owner[index]])}rows {first} and {second} have the same time stamp {stamps[index]}{more};"
            f" {remedy}"
        )


def _new_grid(stamps: Stamps, owner: NDArray[np.int64], names: Sequence[Any], freq: str | int | None) -> Grid:
    if freq is None:
        freq = infer_frequency({names[owner[a]]: stamps[a:b] for a, b in pairwise(_edges(owner))})
        if str(freq).endswith(("us", "ns")):
            raise TimestampError(
                f"the time stamps are {freq} apart, too close for a calendar; number them 0, 1, 2, ... instead"
            )
    is_calendar = isinstance(stamps, pd.DatetimeIndex)
    if is_calendar == isinstance(freq, int | np.integer) or isinstance(freq, bool):
        wanted = "a frequency of pandas such as 'h', 'D' or 'MS'" if is_calendar else "a whole number of steps"
        raise TimestampError(f"freq: expected {wanted} for such time stamps, got {freq!r}")
    if not is_calendar:
        return Grid(int(freq), int(stamps.min()))
    Step.of(freq)  # refuses what has no name
    try:
        freq = str(pd.tseries.frequencies.to_offset(freq).freqstr)
    except ValueError as error:
        raise TimestampError(f"freq {freq!r} is not one of pandas {pd.__version__}: {error}") from error
    return Grid(freq, stamps.min())


def positions_on(grid: Grid, stamps: Stamps, where: Callable[[int], str], remedy: str) -> NDArray[np.int64]:
    """The numbers of time stamps that are all on a grid; `where` says which row is meant."""
    if isinstance(stamps, pd.DatetimeIndex) == isinstance(grid.freq, int):
        raise TimestampError(
            f"the model was fitted on time stamps such as {grid.origin}, and these are such as {stamps[0]}"
        )
    grid.refuse_far_off(stamps)
    positions, fits = grid.locate(stamps)
    if not fits.all():
        index = int((~fits).argmax())
        raise TimestampError(
            f"{where(index)}: the time stamp {stamps[index]} is not one of frequency {grid.freq!r} from {grid.origin} "
            f"on; {remedy}"
        )
    return positions


def numbers_of(frame: nw.DataFrame[Any], name: str) -> Array:
    """A column as floats."""
    column = frame.get_column(name)
    if not (column.dtype.is_numeric() or column.dtype == nw.Boolean):
        values = column.to_list()
        there = [row for row, value in enumerate(values) if value is not None]
        row = next((row for row in there if not _is_number(values[row])), there[0] if there else None)
        example = "" if row is None else f" such as {values[row]!r} in row {row}"
        raise TableError(
            f"the column {name!r} holds {column.dtype}{example}; expected numbers: turn it into numbers, or leave the "
            "column out"
        )
    return np.asarray(column.cast(nw.Float64).to_numpy(), dtype=np.float64)


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _refuse_out_of_range(
    data: dict[str, Array], owner: NDArray[np.int64], names: Sequence[Any], order: NDArray[np.int64]
) -> None:
    for name, column in data.items():
        wrong = abs(column) > _LARGEST
        if wrong.any():
            index = int(wrong.argmax())
            raise TableError(
                f"{_row(names[owner[index]], order[index])}: {name!r} is {column[index]}, and values may be up to "
                f"{_LARGEST:g}; correct it, make it a missing value, or use other units"
            )
        largest = np.zeros(len(names))
        np.fmax.at(largest, owner, abs(column))
        tiny = (largest > 0) & (largest < _SMALLEST)
        if tiny.any():
            index = int(tiny.argmax())
            raise TableError(
                f"series {names[index]!r}: {name!r} is {largest[index]:g} at most, too small to reckon with; use other "
                f"units, in which it is above {_SMALLEST:g}"
            )

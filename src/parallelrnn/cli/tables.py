"""Read and write tables of series; guess which column is what, and how times are written."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from parallelrnn.cli.errors import note
from parallelrnn.errors import MissingPackageError, TableError, TimestampError, printable
from parallelrnn.io import write_bytes

_SEPARATORS = (",", ";", "\t", "|")
_NO_SEPARATOR = "\x00"  # in no line of text
_TIME_NAMES = ("ds", "date", "datetime", "time", "timestamp", "day", "month", "year")
ID_NAMES = ("unique_id", "id", "series", "item_id", "series_id")
_DAYS = ("%m/%d/%Y", "%d/%m/%Y", "%d.%m.%Y", "%d-%m-%Y", "%m-%d-%Y", "%m/%d/%y", "%d/%m/%y", "%d.%m.%y")
_CLOCKS = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
_MONTHS = ("%b %Y", "%B %Y", "%b-%Y", "%b-%y", "%m/%Y")
_QUARTERS = "1980Q1"  # stands for quarters, which strptime has no directive for
_FORMATS = (*map("".join, product(_DAYS, _CLOCKS)), *_MONTHS, _QUARTERS)


def read_table(path: Path, id_col: str | None = None) -> pd.DataFrame:
    """Read a CSV or Parquet file; values of the id column, given or guessed, stay as they are written."""
    if path.is_dir():
        raise TableError(f"{path} is a directory", hint="give a CSV or Parquet file")
    if not path.is_file():
        files = os.listdir(path.parent) if path.parent.is_dir() else []
        raise TableError(f"no such file: {path}", hint=_closest(path.name, files) or "give a CSV or Parquet file")
    try:
        if path.suffix.lower() in (".parquet", ".pq"):
            pyarrow, frame = import_module("pyarrow"), pd.read_parquet(path)
            for name in frame.columns:  # decode all text now: a decoding error after this could not name the file
                if pd.api.types.is_string_dtype(frame[name]):
                    pyarrow.array(frame[name]).validate(full=True)
            return frame
        if path.suffix.lower() in (".csv", ".txt", ".gz", ".tsv"):
            return _read_csv(path, ID_NAMES if id_col is None else (id_col,))
    except ImportError as error:
        raise _no_pyarrow(path) from error
    except pd.errors.EmptyDataError as error:
        raise TableError(f"{path} is empty", hint="give a file with a header and rows") from error
    except UnicodeDecodeError as error:
        raise TableError(f"{path} is not UTF-8 ({error.reason})", hint="save it as UTF-8") from error
    except Exception as error:  # from pandas, pyarrow or the decompressor: all are about the file
        raise TableError(f"cannot read {path}: {str(error) or type(error).__name__}") from error
    raise TableError(f"cannot tell the format of {path}", hint="use .csv, .tsv, .csv.gz or .parquet")


def _closest(name: str, names: Sequence[Any]) -> str:
    return "".join(f"did you mean {match!r}?" for match in get_close_matches(name, map(str, names), 1))


def _no_pyarrow(path: Path) -> MissingPackageError:
    return MissingPackageError(f"{path.name} needs pyarrow, which is not installed", hint="pip install pyarrow")


def _read_csv(path: Path, id_cols: Sequence[str]) -> pd.DataFrame:
    """Read a table separated by whatever its first line has most of; ids such as 007 and NA stay text."""
    header = "".join(map(str, pd.read_csv(path, sep=_NO_SEPARATOR, nrows=0, engine="python").columns))
    separator = max(_SEPARATORS, key=header.count)
    frame = pd.read_csv(path, sep=separator)
    for name in frame.columns if separator != "," else ():  # numbers with decimal commas, such as 99,81
        values = frame[name].dropna().astype(str)
        if _is_text(frame[name]) and len(values) and values.str.fullmatch(r"\s*[+-]?\d*,?\d+\s*").all():
            frame[name] = pd.to_numeric(frame[name].astype("string").str.replace(",", "."))
    if ids := [name for name in id_cols if name in frame.columns]:
        texts = pd.read_csv(path, sep=separator, usecols=ids, dtype="string", keep_default_na=False, na_values=[""])
        for name in ids:
            lost_text = (frame[name].isna() & texts[name].notna()).any()  # NA may be Namibia
            lost_zeros = pd.api.types.is_numeric_dtype(frame[name]) and texts[name].str.match(r"0\d").any()
            if lost_text or lost_zeros:
                frame[name] = texts[name]
    return frame


def write_table(frame: pd.DataFrame, path: Path) -> None:
    """Write a CSV or Parquet file atomically."""
    if path.suffix.lower() in (".parquet", ".pq"):
        try:
            data = frame.to_parquet(index=False)
        except ImportError as error:
            raise _no_pyarrow(path) from error
    elif path.suffix.lower() in (".csv", ".txt"):
        data = frame.to_csv(index=False).encode("utf-8")
    else:
        raise TableError(f"cannot tell the format of {path}", hint="use .csv or .parquet")
    write_bytes(path, data)


@dataclass(frozen=True)
class Layout:
    """Which column is what, and which of that was guessed."""

    id: str | None
    time: str
    targets: tuple[str, ...]
    guesses: tuple[str, ...]

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `Forecaster.fit` that name columns."""
        ids = {} if self.id is None else {"id_col": self.id}
        return {**ids, "time_col": self.time, "target_col": self.targets[0] if len(self.targets) == 1 else self.targets}


def infer_layout(
    frame: pd.DataFrame, id: str | None, time: str | None, targets: Sequence[str], covariates: Sequence[str]
) -> Layout:
    """Return what each column is, as given or else as guessed."""
    guesses = []
    if time is None:
        time = _guess_time(frame)
        if _matching_formats(pd.Series([time])) or _is_iso(pd.Series([time])):
            raise TableError(
                f"the first line holds values instead of column names ({time!r} is a time)",
                hint="add a line with column names, or give {time_col} and {target_col} if these are the names",
            )
        guesses.append(f"time column {time!r}")
    if id is None:
        free = [name for name in frame.columns if name not in (time, *targets, *covariates)]
        candidates = [name for name in ID_NAMES if name in free]
        id = next((name for name in candidates if not pd.api.types.is_float_dtype(frame[name])), None)
        if id is not None:
            guesses.append(f"id column {id!r}")
        elif time in frame.columns:
            text = next((name for name in free if _is_text(frame[name])), None)
            if (repeats := frame[time].dropna().duplicated()).any():
                problem = f"column {time!r} repeats {str(frame[time][repeats.idxmax()])!r}, and no id column is given"
                problem += "" if text is None else f"; {text!r} may be one"
                raise TimestampError(problem, hint="drop duplicate rows, or name the column of series with {id_col}")
            guesses += [] if text is None else [f"one series (if {text!r} identifies several, give it as --id)"]
    if not targets:
        targets = _guess_targets(frame, (id, time, *covariates))
        guesses.append(f"target{'s' if len(targets) > 1 else ''} {', '.join(map(repr, targets))}")
    return Layout(id, time, tuple(targets), tuple(guesses))


def _guess_time(frame: pd.DataFrame) -> str:
    by_name = [name for name in frame.columns if str(name).lower() in _TIME_NAMES]
    by_type = [name for name in frame.columns if _is_text(frame[name])]
    by_type += [name for name in frame.columns if "datetime" in str(frame[name].dtype)]
    for name in [*by_name, *by_type]:
        sample = frame[name].head(100)
        is_time = pd.api.types.is_integer_dtype(sample) or "datetime" in str(sample.dtype)
        if is_time or _is_iso(sample) or _matching_formats(sample):
            return str(name)
    raise TableError(
        f"no column looks like times; the columns are {', '.join(map(repr, frame.columns))}",
        hint="name the time column with {time_col}, and describe its format with {time_format}",
    )


def _guess_targets(frame: pd.DataFrame, taken: Sequence[str | None]) -> list[str]:
    if "y" in frame.columns and "y" not in taken:
        return ["y"]
    free = [name for name in frame.columns if name not in taken]
    numeric = [name for name in frame.columns if pd.api.types.is_numeric_dtype(frame[name])]
    if targets := [name for name in free if name in numeric]:
        return targets
    if frame.empty:
        raise TableError("the table has no rows")
    for name in free:
        numbers = pd.to_numeric(frame[name].astype("string"), errors="coerce")
        if numbers.notna().any() and (rows := _unparsed(frame[name], numbers)):
            problem = f"row {rows[0]}: {frame[name].iloc[rows[0]]!r} in column {name!r} is not a number"
            raise TableError(problem, hint="correct it, or leave it empty")
    if free:
        example = "".join(f", but values such as {value!r}" for value in frame[free[0]].dropna().head(1))
        raise TableError(f"column {free[0]!r} holds no numbers to forecast{example}", hint="convert it to numbers")
    if numeric:
        raise TableError(f"column {numeric[0]!r} cannot be forecast: it is the time, id or covariate column")
    raise TableError("there is no column to forecast", hint="add a column of numbers")


def select_columns(frame: pd.DataFrame, arguments: Mapping[str, str], path: Path) -> pd.DataFrame:
    """Return the columns that are named by these arguments, and print a note on those that are not used."""
    for name in (name for name in arguments if name not in frame.columns):
        problem = f"{path.name} has no column {name!r}; its columns are {', '.join(map(repr, frame.columns))}"
        hint, parts = _closest(name, frame.columns), name.split(",")
        if set(parts) <= set(frame.columns):
            hint = "repeat the option: " + " ".join(f"{{{arguments[name]}}} {part}" for part in parts)
        raise TableError(problem, argument=arguments[name], hint=hint)
    if unused := [printable(str(name)) for name in frame.columns if name not in arguments]:
        note(f"unused columns: {', '.join(unused)}")
    return frame[list(arguments)]


def with_times(frame: pd.DataFrame, time_col: str, time_format: str | None) -> pd.DataFrame:
    """Return the table with parsed times; print guesses at once, since an error may be due to them."""
    if time_col not in frame.columns:
        return frame  # the forecaster raises, and names the columns that it needs
    times, guess = parse_times(frame[time_col], time_format)
    if guess is not None:
        note(guess)
    return frame.assign(**{time_col: times})


def parse_times(column: pd.Series, time_format: str | None) -> tuple[pd.Series, str | None]:
    """Return times as timestamps, and a note on what was guessed: a format that all rows fit, and no other format."""
    if time_format is not None:
        return _parse_given(column, time_format), None
    is_iso = _is_text(column) and _is_iso(column)
    has_zones = is_iso and column.astype(str).str.contains(r":\d\d.*(?:Z|[+-]\d\d:?\d\d)$").any()
    if has_zones or getattr(column.dtype, "tz", None) is not None:
        times = pd.to_datetime(column, utc=True, format="ISO8601").dt.tz_localize(None)
        return times, "times have a time zone; they are converted to UTC, and so are forecasts"
    if is_iso or not _is_text(column):
        return column, None
    formats = _matching_formats(column)
    if len(formats) > 1:
        problem = f"the times in column {column.name!r} are ambiguous: {' or '.join(map(repr, formats))}"
        raise TableError(problem, hint="choose one with {time_format}")
    if formats:
        return _parse(column, formats[0]), f"guessed the time format {formats[0]!r}"
    for row in _unparsed(column, pd.to_datetime(column, errors="coerce", format="ISO8601", utc=True)):
        if isinstance(column.iloc[row], str):
            problem = f"row {row}: cannot parse the time {column.iloc[row]!r} in column {column.name!r}"
            raise TableError(problem, hint="describe the format with {time_format}, for example '%d.%m.%Y %H:%M'")
    return column, None


def _is_text(column: pd.Series) -> bool:
    return bool(pd.api.types.is_string_dtype(column) or pd.api.types.is_object_dtype(column))


def _is_iso(column: pd.Series) -> bool:
    return bool(pd.to_datetime(column, errors="coerce", format="ISO8601", utc=True).notna().all())


def _matching_formats(column: pd.Series) -> list[str]:
    formats = []
    for time_format in _FORMATS:
        with suppress(ValueError, TypeError):
            formats += [time_format] if _parse(column, time_format).notna().any() else []
    return formats[:1] if set(formats) == {"%b %Y", "%B %Y"} else formats  # May is short for May


def _parse(column: pd.Series, time_format: str) -> pd.Series:
    if time_format != _QUARTERS:
        return pd.to_datetime(column, format=time_format)
    if not column.dropna().astype(str).str.fullmatch(r"\d{4}[- ]?Q[1-4]").all():
        raise ValueError("not quarters")
    quarters = column.astype("string").str.replace(r"[- ]", "", regex=True)
    return pd.Series(pd.PeriodIndex(quarters, freq="Q").to_timestamp(), index=column.index)


def _parse_given(column: pd.Series, time_format: str) -> pd.Series:
    try:
        times = pd.to_datetime(column.astype("string"), format=time_format, errors="coerce")
    except ValueError as error:
        raise TableError(f"--time-format {time_format!r}: {error}", hint="write it like '%d.%m.%Y %H:%M'") from error
    for row in _unparsed(column, times):
        problem = f"row {row}: the time {column.iloc[row]!r} does not fit {time_format!r}"
        raise TableError(problem, hint="correct {time_format}")
    return times


def _unparsed(column: pd.Series, times: pd.Series) -> list[int]:
    return [int(row) for row in (times.isna() & column.notna()).to_numpy().nonzero()[0]]

"""Times as people write them in files. A format is guessed only if all rows fit it and no other."""

from __future__ import annotations

from itertools import product

import pandas as pd

from parallelrnn.errors import TableError

_DAYS = ("%m/%d/%Y", "%d/%m/%Y", "%d.%m.%Y", "%d-%m-%Y", "%m-%d-%Y", "%m/%d/%y", "%d/%m/%y", "%d.%m.%y")
_CLOCKS = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
_MONTHS = ("%b %Y", "%B %Y", "%b-%Y", "%b-%y", "%m/%Y")
_QUARTERS = "1980Q1"  # stands for quarters, which strptime has no directive for
_FORMATS = (*map("".join, product(_DAYS, _CLOCKS)), *_MONTHS, _QUARTERS)


def parse_times(column: pd.Series, time_format: str | None) -> tuple[pd.Series, str | None]:
    """Return the column as timestamps where it holds text, and a sentence on what was guessed, if anything."""
    if time_format is not None:
        return _parse_given(column, time_format), None
    if getattr(column.dtype, "tz", None) is not None or (is_text(column) and _has_zones(column)):
        times = pd.to_datetime(column, utc=True, format="ISO8601").dt.tz_localize(None)
        return times, "times have a time zone; they are converted to UTC, and so are forecasts"
    if not is_text(column) or is_iso(column):
        return column, None
    formats = matching_formats(column)
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


def is_text(column: pd.Series) -> bool:
    """Return whether a column may hold times as text."""
    return bool(pd.api.types.is_string_dtype(column) or pd.api.types.is_object_dtype(column))


def is_iso(column: pd.Series) -> bool:
    """Return whether all values are ISO 8601 times."""
    return bool(pd.to_datetime(column, errors="coerce", format="ISO8601", utc=True).notna().all())


def matching_formats(column: pd.Series) -> list[str]:
    """Return the formats, other than ISO 8601, that all values of a column fit."""
    formats = [time_format for time_format in _FORMATS if _fits(column, time_format)]
    return formats[:1] if set(formats) == {"%b %Y", "%B %Y"} else formats  # May is short for May


def _has_zones(column: pd.Series) -> bool:
    return is_iso(column) and bool(column.astype(str).str.contains(r":\d\d.*(?:Z|[+-]\d\d:?\d\d)$").any())


def _fits(column: pd.Series, time_format: str) -> bool:
    try:
        return bool(_parse(column, time_format).notna().any())
    except (ValueError, TypeError):
        return False


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
    """Return the rows that hold something and gave no time."""
    return [int(row) for row in (times.isna() & column.notna()).to_numpy().nonzero()[0]]

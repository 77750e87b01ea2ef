"""Dates as people write them in files; they become time stamps if all rows can be read in one way and in no other."""

from __future__ import annotations

from itertools import product

import pandas as pd

from parallelrnn.errors import TableError

_DAYS = ("%m/%d/%Y", "%d/%m/%Y", "%d.%m.%Y", "%d-%m-%Y", "%m-%d-%Y", "%m/%d/%y", "%d/%m/%y", "%d.%m.%y")
_MONTHS = ("%b %Y", "%B %Y", "%b-%Y", "%b-%y", "%m/%Y")
_QUARTER = "1980Q1"  # how one is written, and the name of that form
_CLOCKS = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")


def read_dates(frame: pd.DataFrame, name: str, form: str | None) -> tuple[pd.DataFrame, str | None]:
    """A table with time stamps in one of its columns, and what was guessed of them if no form was given."""
    if form is not None:
        return _with(frame, name, _in_form(frame[name], form)), None
    if getattr(frame[name].dtype, "tz", None) is not None or (is_text(frame[name]) and _has_zones(frame[name])):
        stamps = pd.to_datetime(frame[name], utc=True, format="ISO8601").dt.tz_localize(None)
        return _with(frame, name, stamps), "times have a time zone and are turned into UTC, as forecasts will be"
    if not is_text(frame[name]) or is_iso(frame[name]):
        return frame, None
    forms = possible_forms(frame[name])
    if not forms:
        return frame, None
    if len(forms) > 1:
        raise TableError(
            f"the time column {name!r} can be read in {len(forms)} ways, {' or '.join(map(repr, forms))}; say which by "
            "--time-format"
        )
    return _with(frame, name, _read_in(frame[name], forms[0])), f"times are written as {forms[0]!r}"


def is_text(column: pd.Series) -> bool:
    """Whether a column may hold dates that have to be read."""
    return bool(pd.api.types.is_string_dtype(column) or pd.api.types.is_object_dtype(column))


def is_iso(column: pd.Series) -> bool:
    """Whether texts are dates by ISO 8601, which need no guess."""
    return bool(pd.to_datetime(column, errors="coerce", format="ISO8601", utc=True).notna().all())


def _has_zones(column: pd.Series) -> bool:
    return is_iso(column) and bool(column.astype(str).str.contains(r":\d\d.*(?:Z|[+-]\d\d:?\d\d)$").any())


def possible_forms(column: pd.Series) -> list[str]:
    """The other forms in which all texts of a column are dates."""
    forms = [*map("".join, product(_DAYS, _CLOCKS)), *_MONTHS, _QUARTER]
    found = [form for form in forms if _fits(column, form)]
    return found[:1] if set(found) == {"%b %Y", "%B %Y"} else found  # in May they are the same


def _fits(column: pd.Series, form: str) -> bool:
    try:
        return bool(_read_in(column, form).notna().any())
    except (ValueError, TypeError):
        return False


def _read_in(column: pd.Series, form: str) -> pd.Series:
    if form != _QUARTER:
        return pd.to_datetime(column, format=form)
    if not column.dropna().astype(str).str.fullmatch(r"\d{4}[- ]?Q[1-4]").all():
        raise ValueError("no quarters")
    plain = column.astype("string").str.replace(r"[- ]", "", regex=True)
    return pd.Series(pd.PeriodIndex(plain, freq="Q").to_timestamp(), index=column.index)


def _in_form(column: pd.Series, form: str) -> pd.Series:
    try:
        stamps = pd.to_datetime(column.astype("string"), format=form, errors="coerce")
    except ValueError as error:
        raise TableError(f"--time-format {form!r}: {error}; write it as in '%d.%m.%Y %H:%M'") from error
    wrong = (stamps.isna() & column.notna()).to_numpy().nonzero()[0]
    if len(wrong):
        row = int(wrong[0])
        raise TableError(f"row {row}: the time {column.iloc[row]!r} is not written as {form!r}; correct --time-format")
    return stamps


def _with(frame: pd.DataFrame, name: str, stamps: pd.Series) -> pd.DataFrame:
    changed = frame.copy(deep=False)
    changed[name] = stamps
    return changed

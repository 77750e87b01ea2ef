"""Dates as people write them in files; they become time stamps if all rows can be read in one way and in no other."""

from __future__ import annotations

from itertools import product

import pandas as pd

from parallelrnn.estimators.forecasting.panel import TableError

_DAYS = ("%m/%d/%Y", "%d/%m/%Y", "%d.%m.%Y", "%d-%m-%Y", "%m-%d-%Y")
_CLOCKS = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")


def read_dates(frame: pd.DataFrame, name: str, form: str | None) -> tuple[pd.DataFrame, str | None]:
    """A table with time stamps in one of its columns, and the form in which they were found if none was given."""
    if form is not None:
        return _with(frame, name, _in_form(frame[name], form)), None
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
    return _with(frame, name, pd.to_datetime(frame[name], format=forms[0])), forms[0]


def is_text(column: pd.Series) -> bool:
    """Whether a column may hold dates that have to be read."""
    return bool(pd.api.types.is_string_dtype(column) or pd.api.types.is_object_dtype(column))


def is_iso(column: pd.Series) -> bool:
    """Whether texts are dates by ISO 8601, which need no guess."""
    return bool(pd.to_datetime(column, errors="coerce", format="ISO8601").notna().all())


def possible_forms(column: pd.Series) -> list[str]:
    """The other forms in which all texts of a column are dates."""
    return [form for form in map("".join, product(_DAYS, _CLOCKS)) if _fits(column, form)]


def _fits(column: pd.Series, form: str) -> bool:
    try:
        return bool(pd.to_datetime(column, format=form).notna().any())
    except (ValueError, TypeError):
        return False


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

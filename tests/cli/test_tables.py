"""Times as people write them, and tables as their programs export them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from parallelrnn.cli.tables import infer_layout, parse_times, read_table
from parallelrnn.errors import TableError
from tests.support import raises

TIMES = pd.date_range("2013-01-01 06:00", periods=90, freq="12h")


def guess_time(column: pd.Series) -> str:
    return infer_layout(pd.DataFrame({"when": column, "y": range(len(column))}), None, None, (), ()).time


@pytest.mark.parametrize("day", ["%m/%d/%Y", "%d/%m/%Y", "%d.%m.%Y", "%d-%m-%Y", "%m-%d-%Y", "%m/%d/%y", "%d.%m.%y"])
@pytest.mark.parametrize("clock", [" %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p"])
def test_an_unambiguous_format_is_guessed(day: str, clock: str) -> None:
    times, note = parse_times(pd.Series(TIMES.strftime(day + clock)), None)
    assert repr(day + clock) in str(note)
    assert list(times) == list(TIMES)


def test_leading_zeros_may_be_missing() -> None:
    column = pd.Series([f"1/{day}/2010 0:00" for day in range(1, 32)])
    assert guess_time(column) == "when"
    times, note = parse_times(column, None)
    assert "'%m/%d/%Y %H:%M'" in str(note)
    assert list(times) == list(pd.date_range("2010-01-01", periods=31))


def test_the_first_days_of_months_are_ambiguous() -> None:
    column = pd.Series(pd.date_range("2013-01-01", periods=12, freq="MS").strftime("%d/%m/%Y"), name="when")
    with raises(TableError, "'when'", "'%m/%d/%Y'", "'%d/%m/%Y'", "time_format"):
        parse_times(column, None)
    for time_format, freq in (("%d/%m/%Y", "MS"), ("%m/%d/%Y", "D")):
        times, note = parse_times(column, time_format)
        assert note is None
        assert list(times) == list(pd.date_range("2013-01-01", periods=12, freq=freq))


@pytest.mark.parametrize(
    "column",
    [
        pd.Series(TIMES.strftime("%Y-%m-%d %H:%M")),
        pd.Series(TIMES),
        pd.Series(range(5)),
        pd.Series([None, None], dtype=object),
    ],
)
def test_unambiguous_dates_are_left_alone(column: pd.Series) -> None:
    times, note = parse_times(column, None)
    assert note is None
    assert times is column


def test_a_time_in_no_known_format_is_named_with_its_row() -> None:
    with raises(TableError, "row 1", "'noon'", "'when'", "time_format"):
        parse_times(pd.Series(["2013-01-01", "noon"], name="when"), None)


def test_a_format_can_be_given_for_numbers_and_missing_values_stay_missing() -> None:
    times, _ = parse_times(pd.Series(pd.array([20130101, None, 20130103], dtype="Int64")), "%Y%m%d")
    assert list(times.dropna()) == [pd.Timestamp("2013-01-01"), pd.Timestamp("2013-01-03")]
    assert times.isna().tolist() == [False, True, False]


def test_a_format_that_does_not_fit_is_an_error_with_its_row() -> None:
    column = pd.Series(TIMES.strftime("%d.%m.%Y"))
    with raises(TableError, "row 24", "'13.01.2013'", "'%m.%d.%Y'", "time_format"):
        parse_times(column, "%m.%d.%Y")
    with raises(TableError, "--time-format '%Q'"):
        parse_times(column, "%Q")


@pytest.mark.parametrize("time_format", ["%b %Y", "%B %Y", "%b-%y", "%m/%Y"])
def test_months_are_parsed(time_format: str) -> None:
    months = pd.date_range("1999-01-01", periods=30, freq="MS")
    times, note = parse_times(pd.Series(months.strftime(time_format)), None)
    assert repr(time_format) in str(note)
    assert list(times) == list(months)


@pytest.mark.parametrize("between", ["", "-", " "])
def test_quarters_are_parsed(between: str) -> None:
    quarters = pd.period_range("1980Q1", periods=12, freq="Q")
    column = pd.Series([f"{quarter.year}{between}Q{quarter.quarter}" for quarter in quarters])
    assert guess_time(column) == "when"
    assert list(parse_times(column, None)[0]) == list(quarters.to_timestamp())


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_times_with_offsets_are_converted_to_utc(zone: str) -> None:
    """Also where the offset changes, as it does in Berlin on 2013-03-31."""
    hours = pd.date_range("2013-03-30", periods=60, freq="h", tz="UTC")
    texts = pd.Series([hour.isoformat() for hour in hours.tz_convert(zone)])
    assert guess_time(texts) == "when"
    for column in (texts, pd.Series(hours.tz_convert(zone))):
        times, note = parse_times(column, None)
        assert "UTC" in str(note)
        assert list(times) == list(hours.tz_localize(None))


@pytest.mark.parametrize(
    ("columns", "facts"),
    [
        ({"v": pd.Series([], dtype=object)}, ["rows"]),
        ({"v": ["1", "n/d", "3"]}, ["row 1", "'n/d'", "'v'"]),
        ({"v": ["a", "b", "c"]}, ["'v'"]),
        ({}, ["'when'"]),
    ],
)
def test_why_there_is_nothing_to_forecast(columns: dict[str, Any], facts: list[str]) -> None:
    table = pd.DataFrame({"when": range(len(columns.get("v", "xyz"))), **columns})
    with raises(TableError, *facts):
        infer_layout(table, None, "when", (), ())


def test_there_may_be_no_column_of_numbers_at_all() -> None:
    with raises(TableError, hint="add a column of numbers"):
        infer_layout(pd.DataFrame({"when": TIMES}), None, "when", (), ())


def test_times_named_y_are_not_the_target() -> None:
    layout = infer_layout(pd.DataFrame({"y": range(3), "spots": 1.0}), None, "y", (), ())
    assert layout.arguments() == {"time_col": "y", "target_col": "spots"}


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_the_separator_is_what_the_first_line_has_most_of(tmp_path: Path, separator: str) -> None:
    path = tmp_path / "data.csv"
    lines = (["Datum", "Umsatz (€)", "n"], ["01.02.2021", "7", "3"])
    path.write_text("\n".join(separator.join(line) for line in lines))
    assert list(read_table(path).columns) == ["Datum", "Umsatz (€)", "n"]


def test_decimal_commas_are_parsed_where_the_separator_is_another(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("Datum;Umsatz;Notiz\n01.02.2021;99,81;a,b\n02.02.2021;;x\n03.02.2021;-7;y\n")
    table = read_table(path)
    assert table["Umsatz"].tolist()[::2] == [99.81, -7.0]
    assert table["Umsatz"].isna().tolist() == [False, True, False]
    assert table["Notiz"].tolist() == ["a,b", "x", "y"]

"""Dates as people write them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from parallelrnn.cli.dates import read_dates
from parallelrnn.cli.tables import read_table, understand
from parallelrnn.errors import TableError

DAYS = pd.date_range("2013-01-01 06:00", periods=90, freq="12h")


def written(form: str, stamps: pd.DatetimeIndex = DAYS) -> pd.DataFrame:
    return pd.DataFrame({"when": stamps.strftime(form), "y": range(len(stamps))})


@pytest.mark.parametrize("day", ["%m/%d/%Y", "%d/%m/%Y", "%d.%m.%Y", "%d-%m-%Y", "%m-%d-%Y", "%m/%d/%y", "%d.%m.%y"])
@pytest.mark.parametrize("clock", [" %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p"])
def test_a_form_that_is_the_only_one_is_found(day: str, clock: str) -> None:
    table, told = read_dates(written(day + clock), "when", None)
    assert told == f"times are written as {day + clock!r}"
    assert list(table["when"]) == list(DAYS)


def test_numbers_need_no_zeros_before_them(tmp_path: Path) -> None:
    path = tmp_path / "us.csv"
    path.write_text("date,y\n" + "".join(f"1/{day}/2010 0:00,{day}\n" for day in range(1, 32)))
    table = read_table(path)
    assert understand(table, None, None, (), ()).time == "date"
    dated, told = read_dates(table, "date", None)
    assert told == "times are written as '%m/%d/%Y %H:%M'"
    assert list(dated["date"]) == list(pd.date_range("2010-01-01", periods=31))
    assert table["date"].iloc[0] == "1/1/2010 0:00"


def test_the_first_days_of_months_can_be_read_in_two_ways() -> None:
    table = written("%d/%m/%Y", pd.date_range("2013-01-01", periods=12, freq="MS"))
    with pytest.raises(
        TableError, match=r"'when' can be read in 2 ways, '%m/%d/%Y' or '%d/%m/%Y'; say which by --time"
    ):
        read_dates(table, "when", None)
    for form, step in (("%d/%m/%Y", "MS"), ("%m/%d/%Y", "D")):
        read, guessed = read_dates(table, "when", form)
        assert guessed is None
        assert list(read["when"]) == list(pd.date_range("2013-01-01", periods=12, freq=step))


@pytest.mark.parametrize(
    "table",
    [
        written("%Y-%m-%d %H:%M"),
        pd.DataFrame({"when": DAYS}),
        pd.DataFrame({"when": range(5)}),
        pd.DataFrame({"when": ["today", "tomorrow"]}),
        pd.DataFrame({"when": [None, None]}, dtype=object),
    ],
)
def test_what_needs_no_guess_or_allows_none_stays_as_it_is(table: pd.DataFrame) -> None:
    read, form = read_dates(table, "when", None)
    assert form is None
    assert read is table


def test_a_form_can_be_given_for_numbers_and_empty_cells_stay_empty() -> None:
    table = pd.DataFrame({"when": pd.array([20130101, None, 20130103], dtype="Int64")})
    read, _ = read_dates(table, "when", "%Y%m%d")
    assert list(read["when"].dropna()) == [pd.Timestamp("2013-01-01"), pd.Timestamp("2013-01-03")]
    assert read["when"].isna().tolist() == [False, True, False]


def test_a_form_that_does_not_fit_is_refused_with_its_row() -> None:
    table = written("%d.%m.%Y")
    with pytest.raises(
        TableError, match=r"row 24: the time '13\.01\.2013' is not written as '%m\.%d\.%Y'; correct --t"
    ):
        read_dates(table, "when", "%m.%d.%Y")
    with pytest.raises(TableError, match="--time-format '%Q'"):
        read_dates(table, "when", "%Q")


@pytest.mark.parametrize("form", ["%b %Y", "%B %Y", "%b-%y", "%m/%Y"])
def test_months_are_read(form: str) -> None:
    months = pd.date_range("1999-01-01", periods=30, freq="MS")
    table, found = read_dates(written(form, months), "when", None)
    assert found == f"times are written as {form!r}"
    assert list(table["when"]) == list(months)


@pytest.mark.parametrize("between", ["", "-", " "])
def test_quarters_are_read(between: str) -> None:
    quarters = pd.period_range("1980Q1", periods=12, freq="Q")
    table = pd.DataFrame({"when": [f"{one.year}{between}Q{one.quarter}" for one in quarters], "y": range(12)})
    assert understand(table, None, None, (), ()).time == "when"
    table, _ = read_dates(table, "when", None)
    assert list(table["when"]) == list(quarters.to_timestamp())


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_times_with_offsets_are_turned_into_utc(zone: str) -> None:
    """Also where the offset changes, as it does in Berlin on 2013-03-31."""
    stamps = pd.date_range("2013-03-30", periods=60, freq="h", tz="UTC")
    table = pd.DataFrame({"when": [one.isoformat() for one in stamps.tz_convert(zone)], "y": range(60)})
    assert understand(table, None, None, (), ()).time == "when"
    dated, told = read_dates(table, "when", None)
    assert told == "times have a time zone and are turned into UTC, as forecasts will be"
    assert list(dated["when"]) == list(stamps.tz_localize(None))
    aware = pd.DataFrame({"when": stamps.tz_convert(zone), "y": range(60)})
    assert list(read_dates(aware, "when", None)[0]["when"]) == list(stamps.tz_localize(None))


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_columns_are_apart_by_what_the_first_line_has_most_of(tmp_path: Path, separator: str) -> None:
    path = tmp_path / "data.csv"
    lines = (["Datum", "Umsatz (€)", "n"], ["01.02.2021", "7", "3"])
    path.write_text("\n".join(separator.join(line) for line in lines))
    assert list(read_table(path).columns) == ["Datum", "Umsatz (€)", "n"]


def test_decimal_commas_are_read_where_columns_are_apart_by_something_else(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("Datum;Umsatz;Notiz\n01.02.2021;99,81;a,b\n02.02.2021;;x\n03.02.2021;-7;y\n")
    table = read_table(path)
    assert table["Umsatz"].tolist()[::2] == [99.81, -7.0]
    assert table["Umsatz"].isna().tolist() == [False, True, False]
    assert table["Notiz"].tolist() == ["a,b", "x", "y"]

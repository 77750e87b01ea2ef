from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from parallelrnn.errors import TimestampError
from parallelrnn.forecast.data import Panel, read_panel
from parallelrnn.forecast.frequency import Grid
from tests.forecast.small import LONG, ONE, assert_same, hours, one_series
from tests.support import raises


@pytest.mark.parametrize("freq", ["ms", "15min", "h", "D", "B", "W-WED", "MS", "QE-DEC", "YS-JAN"])
@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame])
def test_the_frequency_is_guessed_or_given(freq: str, library: Any) -> None:
    stamps = pd.date_range("2001-01-01", periods=30, freq=freq).delete([4, 11, 12])
    table = library({"ds": stamps.to_numpy(), "y": np.arange(27.0)})
    panel = read_panel(table, ONE)
    assert panel.grid == Grid(freq, stamps[0])
    assert len(panel.series[0]) == 30
    assert panel.grid.stamps(0, 30)[panel.series[0].observed[:, 0]].equals(stamps)
    assert_same(read_panel(table, ONE, freq=freq), panel)


@pytest.mark.parametrize("given", [pd.offsets.Hour(6), "6h", "360min"])
def test_other_spellings_of_a_frequency(given: Any) -> None:
    stamps = pd.date_range("2001-01-01", periods=5, freq="6h")
    grid = read_panel(one_series(stamps), ONE, freq=given).grid
    assert isinstance(grid.freq, str)
    assert grid.stamps(0, 5).equals(stamps)


@pytest.mark.parametrize(
    ("freq", "stamps", "facts"),
    [
        ("D", hours(), ["row 1", "2024-02-27 01:00:00", "'D'", "from 2024-02-27 00:00:00"]),
        ("MS", hours(), ["2024-02-27 00:00:00", "'MS'", "freq="]),
        ("B", pd.date_range("2024-03-01", periods=4), ["row 1", "2024-03-02 00:00:00", "'B'"]),
        ("W", pd.date_range("2024-03-04", periods=4, freq="7D"), ["2024-03-04 00:00:00", "'W-SUN'"]),
        ("2h", hours(), ["row 1", "freq="]),
        (2, [1, 2, 3], ["row 1", "timestamp 2", "from 1"]),
    ],
)
def test_timestamps_that_do_not_have_the_given_frequency(freq: Any, stamps: Any, facts: list[str]) -> None:
    with raises(TimestampError, *facts):
        read_panel(one_series(stamps), ONE, freq=freq)


@pytest.mark.parametrize(
    ("freq", "stamps"),
    [(1, hours()), ("h", [1, 2, 3]), (1.0, [1, 2, 3]), (True, [1, 2, 3]), (0, [1, 2, 3]), (-1, [3, 2, 1])],
)
def test_a_frequency_of_the_wrong_kind(freq: Any, stamps: Any) -> None:
    with raises(TimestampError, argument="freq", got=freq):
        read_panel(one_series(stamps), ONE, freq=freq)


@pytest.mark.parametrize("freq", ["hourly", "", "us", "0h", "-1h"])
def test_unknown_frequencies_are_rejected(freq: str) -> None:
    with raises(ValueError, repr(freq)):
        read_panel(one_series(hours()), ONE, freq=freq)


def test_a_frequency_that_pandas_rejects() -> None:
    with raises(TimestampError, pd.__version__, argument="freq", got="QS-FOO"):
        read_panel(one_series(hours()), ONE, freq="QS-FOO")
    if pd.__version__ >= "3":
        with raises(TimestampError, "Did you mean h?", argument="freq", got="H"):
            read_panel(one_series(hours()), ONE, freq="H")


def test_timestamps_too_close_for_a_calendar() -> None:
    with raises(TimestampError, "500us"):
        read_panel(one_series(pd.date_range("2024-01-01", periods=9, freq="500us")), ONE)


def test_series_of_two_frequencies_are_rejected() -> None:
    daily = pd.date_range("2024-02-27", periods=5)
    table = one_series([*hours(5), *daily], unique_id=["a"] * 5 + ["b"] * 5)
    with raises(TimestampError, "'a'", "'h'", "'b'", "'D'"):
        read_panel(table, LONG)


def test_series_of_one_frequency_that_are_not_on_one_grid() -> None:
    later = hours(5, "2024-02-27 00:30")
    table = one_series([*hours(5), *later], unique_id=["a"] * 5 + ["b"] * 5)
    with raises(TimestampError, "series 'b', row 5", "2024-02-27 00:30:00", "'h'"):
        read_panel(table, LONG)


@pytest.mark.parametrize("dtype", ["int64", "int16", "uint64", "Int64", "int32[pyarrow]"])
@pytest.mark.parametrize("step", [1, 5])
def test_integers_as_time(dtype: str, step: int) -> None:
    table = one_series(pd.array(np.arange(10, 10 + 9 * step, step), dtype=dtype)).drop([3, 6])
    for frame in (table, pl.from_pandas(table)):
        panel = read_panel(frame, ONE)
        assert panel.grid == Grid(step, 10)
        assert type(panel.grid.origin) is int
        assert panel.series[0].values[:, 0].tolist() == list(range(9))
        assert panel.series[0].observed[:, 0].tolist() == [n not in (3, 6) for n in range(9)]
        assert panel.grid.stamps(9, 2).tolist() == [10 + 9 * step, 10 + 10 * step]


def test_integers_that_read_like_months_need_a_frequency() -> None:
    table = one_series([202011, 202012, 202101, 202102])
    with raises(TimestampError, "202011, 202012", "202001"):
        read_panel(table, ONE)
    assert len(read_panel(table, ONE, freq=1).series[0]) == 92


@pytest.mark.parametrize(
    "texts",
    [
        ["2020-01-31", "2020-02-01", "2020-02-02"],
        ["2020-01-31 00:00", "2020-02-01 00:00", "2020-02-02 00:00"],
        ["2020-01-31T00:00:00", "2020-02-01T00:00:00.000", "2020-02-02"],
        ["20200131", "20200201", "20200202"],
        ["2020/01/31", "2020/02/01", "2020/02/02"],
    ],
)
@pytest.mark.parametrize("dtype", [object, "str", "string[pyarrow]", "polars"])
def test_texts_of_iso_8601_are_time_stamps(texts: list[str], dtype: Any) -> None:
    table = one_series(texts)
    table = pl.from_pandas(table) if dtype == "polars" else table.astype({"ds": dtype})
    panel = read_panel(table, ONE)
    assert panel.grid == Grid("D", pd.Timestamp("2020-01-31"))


@pytest.mark.parametrize(
    "texts",
    [
        ["01.02.2020", "02.02.2020", "03.02.2020"],
        ["01/02/2020", "02/02/2020", "03/02/2020"],
        ["1-2-2020", "2-2-2020", "3-2-2020"],
        ["Feb 1, 2020", "Feb 2, 2020", "Feb 3, 2020"],
        ["2020-01-01", "02.01.2020", "2020-01-03"],
        ["2020-01-01", "2020-02-30", "2020-01-03"],
        ["2020-01-01", "", "2020-01-03"],
        ["1", "2", "3"],
        ["202001", "202002", "202003"],
        ["2020Q1", "2020Q2", "2020Q3"],
    ],
)
@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame])
def test_other_texts_are_rejected_and_not_guessed(texts: list[str], library: Any) -> None:
    row = 1 if texts[0] == "2020-01-01" else 0
    with raises(TimestampError, f"row {row}", "'ds'", "pd.to_datetime", argument="time_col", got=texts[row]):
        read_panel(library({"ds": texts, "y": [1.0, 2.0, 3.0]}), ONE)


@pytest.mark.parametrize("kind", [datetime.date, datetime.datetime])
def test_dates_of_python(kind: Any) -> None:
    stamps = [kind(2020, 1, day) for day in (1, 2, 4)]
    panel = read_panel(one_series(pd.Series(stamps, dtype=object)), ONE)
    assert panel.grid == Grid("D", pd.Timestamp("2020-01-01"))
    assert len(panel.series[0]) == 4
    assert_same(read_panel(pl.DataFrame({"ds": stamps, "y": [0.0, 1.0, 2.0]}), ONE), panel)


@pytest.mark.parametrize("dtype", ["timestamp[us][pyarrow]", "date32[pyarrow]"])
def test_stamps_of_arrow(dtype: str) -> None:
    daily = pd.date_range("2020-01-01", periods=4)
    assert_same(read_panel(one_series(pd.array(daily, dtype=dtype)), ONE), read_panel(one_series(daily), ONE))


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize(
    ("freq", "start"), [("D", "1650-12-30"), ("MS", "1066-01-01"), ("h", "2262-04-11 20:00"), ("YE", "2400-12-31")]
)
def test_dates_that_nanoseconds_do_not_reach(freq: str, start: str, library: Any) -> None:
    stamps = pd.date_range(start, periods=12, freq=freq)
    panel = read_panel(library({"ds": stamps.to_numpy(), "y": np.arange(12.0)}), ONE)
    assert panel.grid.stamps(0, 12).equals(stamps)
    texts = read_panel(library({"ds": [stamp.isoformat() for stamp in stamps], "y": np.arange(12.0)}), ONE)
    assert texts.grid.stamps(0, 12).equals(stamps)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_time_zones_are_rejected_with_a_remedy(zone: str) -> None:
    table = one_series(hours().tz_localize("UTC").tz_convert(zone))
    other = pl.from_pandas(table)
    with raises(TimestampError, "'ds'", zone, ".dt.tz_convert", argument="time_col"):
        read_panel(table, ONE)
    with raises(TimestampError, "'ds'", zone, ".dt.convert_time_zone", argument="time_col"):
        read_panel(other, ONE)
    remedied = table.assign(ds=table["ds"].dt.tz_convert("UTC").dt.tz_localize(None))
    plain = pl.col("ds").dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    assert_same(read_panel(remedied, ONE), read_panel(one_series(hours()), ONE))
    assert_same(read_panel(other.with_columns(plain), ONE), read_panel(one_series(hours()), ONE))


@pytest.mark.parametrize("offsets", [["Z"] * 3, ["+01:00"] * 3, ["+01:00", "+02:00", "+02:00"], ["", "Z", "Z"]])
@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame])
def test_time_zones_in_texts_are_rejected_with_a_remedy(offsets: list[str], library: Any) -> None:
    texts = [f"2020-01-01T0{hour}:00{offset}" for hour, offset in enumerate(offsets)]
    with raises(TimestampError, code="pd.to_datetime(df['ds'], utc=True).dt.tz_localize(None)", argument="time_col"):
        read_panel(library({"ds": texts, "y": [1.0, 2.0, 3.0]}), ONE)


@pytest.mark.parametrize(
    ("times", "fact"),
    [
        ([1.0, 2.0, 3.0], "Float64 such as 1.0"),
        ([True, False, True], "Boolean such as True"),
        (pd.Series([1, 2, 3], dtype=object), "Object such as 1"),
        (pd.Series([1.5, "2020-01-01", datetime.date(2020, 1, 1)], dtype=object), "Object such as 1.5"),
        (pd.Categorical(["2020-01-01", "2020-01-02", "2020-01-03"]), "Categorical such as '2020-01-01'"),
        (pd.period_range("2020-01", periods=3, freq="M"), "Unknown such as Period('2020-01', 'M')"),
        (pd.to_timedelta([1, 2, 3], "h"), "Duration"),
    ],
)
def test_other_kinds_of_time_are_rejected(times: Any, fact: str) -> None:
    with raises(TimestampError, "'ds'", fact, argument="time_col"):
        read_panel(one_series(times), ONE)


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize(
    "times", [["2020-01-01", None, "2020-01-03"], [datetime.datetime(2020, 1, 1), None, datetime.datetime(2020, 1, 3)]]
)
def test_an_empty_time_is_rejected(library: Any, times: list[Any]) -> None:
    with raises(TimestampError, "row 1", "'ds'"):
        read_panel(library({"ds": times, "y": [1.0, 2.0, 3.0]}), ONE)


def fitted_on(freq: str) -> Panel:
    return read_panel(one_series(pd.date_range("2024-01-01", periods=20, freq=freq)), ONE)


@pytest.mark.parametrize("freq", ["h", "D", "B", "W-MON", "MS", "2MS"])
@pytest.mark.parametrize("shift", [-30, -20, -3, 0, 7, 50])
def test_a_second_panel_is_numbered_from_the_first(freq: str, shift: int) -> None:
    grid = fitted_on(freq).grid
    stamps = grid.stamps(shift, 9)
    panel = read_panel(one_series(stamps).drop([4]), ONE, grid=grid)
    assert panel.grid is grid
    assert (panel.series[0].position, panel.series[0].end) == (shift, shift + 9)
    assert panel.series[0].values[:, 0].tolist() == list(range(9))


def test_a_second_panel_needs_no_three_stamps() -> None:
    panel = read_panel(one_series(hours(1, "2023-12-31 23:00")), ONE, grid=fitted_on("h").grid)
    assert (panel.series[0].position, len(panel.series[0])) == (-1, 1)


@pytest.mark.parametrize(
    ("freq", "stray"), [("h", "2024-01-05 00:30"), ("D", "2023-12-05 12:00"), ("B", "2024-03-02"), ("MS", "2023-05-02")]
)
def test_a_stamp_off_the_grid_of_the_first_is_rejected(freq: str, stray: str) -> None:
    grid = fitted_on(freq).grid
    stamps = [*grid.stamps(0, 3), pd.Timestamp(stray)]
    with raises(TimestampError, "row 3", pd.Timestamp(stray), f"'{freq}'", "from 2024-01-01 00:00:00"):
        read_panel(one_series(stamps), ONE, grid=grid)


def test_stamps_of_another_kind_than_the_first_are_rejected() -> None:
    grid = fitted_on("h").grid
    with raises(TimestampError, "2024-01-01 00:00:00", "5"):
        read_panel(one_series([5, 6, 7]), ONE, grid=grid)
    with raises(TimestampError, "3", "2024-02-27 00:00:00"):
        read_panel(one_series(hours()), ONE, grid=Grid(1, 3))

from __future__ import annotations

import datetime
import re
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from parallelrnn.errors import TimestampError
from parallelrnn.forecast.data import read_panel
from parallelrnn.forecast.grid import Grid
from parallelrnn.forecast.panel import Panel
from tests.forecast.small import LONG, ONE, assert_same, hours, one_series


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
def test_a_frequency_given_in_other_words(given: Any) -> None:
    stamps = pd.date_range("2001-01-01", periods=5, freq="6h")
    grid = read_panel(one_series(stamps), ONE, freq=given).grid
    assert isinstance(grid.freq, str)
    assert grid.stamps(0, 5).equals(stamps)


@pytest.mark.parametrize(
    ("freq", "stamps", "words"),
    [
        (
            "D",
            hours(),
            "row 1: the time stamp 2024-02-27 01:00:00 is not one of frequency 'D' from 2024-02-27 00:00:00",
        ),
        ("MS", hours(), "the time stamp 2024-02-27 00:00:00 is not one of frequency 'MS'; give another by freq="),
        (
            "B",
            pd.date_range("2024-03-01", periods=4),
            "row 1: the time stamp 2024-03-02 00:00:00 .* frequency 'B' from",
        ),
        ("W", pd.date_range("2024-03-04", periods=4, freq="7D"), "time stamp 2024-03-04 00:00:00 .* 'W-SUN'; give"),
        ("2h", hours(), "row 1: .* resample the series to one frequency, or give another by freq="),
        (1, hours(), "expected a frequency of pandas such as 'h', 'D' or 'MS' for such time stamps, got 1"),
        ("h", [1, 2, 3], "expected a whole number of steps for such time stamps, got 'h'"),
        (1.0, [1, 2, 3], "expected a whole number of steps for such time stamps, got 1.0"),
        (True, [1, 2, 3], "expected a whole number of steps for such time stamps, got True"),
        (2, [1, 2, 3], "row 1: the time stamp 2 is not one of frequency 2 from 1 on"),
        (0, [1, 2, 3], "expected at least 1"),
        (-1, [3, 2, 1], "expected at least 1"),
        ("QS-FOO", hours(), f"freq 'QS-FOO' is not one of pandas {re.escape(pd.__version__)}"),
    ],
)
def test_a_given_frequency_that_does_not_fit(freq: Any, stamps: Any, words: str) -> None:
    with pytest.raises(TimestampError, match=words):
        read_panel(one_series(stamps), ONE, freq=freq)


@pytest.mark.parametrize("freq", ["hourly", "", "us", "0h", "-1h"])
def test_a_given_frequency_that_is_none(freq: str) -> None:
    with pytest.raises(ValueError, match=f"freq: .* got '{freq}'"):
        read_panel(one_series(hours()), ONE, freq=freq)


def test_a_frequency_of_the_old_names_is_explained() -> None:
    if pd.__version__ < "3":
        pytest.skip("pandas still knows the old names")
    with pytest.raises(TimestampError, match=r"freq 'H' is not one of pandas .*Did you mean h\?"):
        read_panel(one_series(hours()), ONE, freq="H")


def test_stamps_too_close_for_a_calendar() -> None:
    stamps = pd.date_range("2024-01-01", periods=9, freq="500us")
    with pytest.raises(
        TimestampError, match=r"500us apart, too close for a calendar; number them 0, 1, 2, \.\.\. instead"
    ):
        read_panel(one_series(stamps), ONE)


def test_series_of_two_frequencies_are_refused() -> None:
    daily = pd.date_range("2024-02-27", periods=5)
    table = one_series([*hours(5), *daily], unique_id=["a"] * 5 + ["b"] * 5)
    with pytest.raises(
        TimestampError, match="series 'a' has a frequency of 'h' and series 'b' of 'D'; fit them apart, or"
    ):
        read_panel(table, LONG)


def test_series_of_one_frequency_that_are_not_on_one_grid() -> None:
    later = hours(5, "2024-02-27 00:30")
    table = one_series([*hours(5), *later], unique_id=["a"] * 5 + ["b"] * 5)
    with pytest.raises(
        TimestampError, match="series 'b', row 5: the time stamp 2024-02-27 00:30:00 is not one of frequency 'h' from"
    ):
        read_panel(table, LONG)


@pytest.mark.parametrize("dtype", ["int64", "int16", "uint64", "Int64", "int32[pyarrow]"])
@pytest.mark.parametrize("step", [1, 5])
def test_whole_numbers_as_time(dtype: str, step: int) -> None:
    table = one_series(pd.array(np.arange(10, 10 + 9 * step, step), dtype=dtype)).drop([3, 6])
    for one in (table, pl.from_pandas(table)):
        panel = read_panel(one, ONE)
        assert panel.grid == Grid(step, 10)
        assert type(panel.grid.origin) is int
        assert panel.series[0].values[:, 0].tolist() == list(range(9))
        assert panel.series[0].observed[:, 0].tolist() == [n not in (3, 6) for n in range(9)]
        assert panel.grid.stamps(9, 2).tolist() == [10 + 9 * step, 10 + 10 * step]


def test_whole_numbers_that_read_like_months_count_only_if_one_says_so() -> None:
    table = one_series([202011, 202012, 202101, 202102])
    with pytest.raises(
        TimestampError, match=r"202011, 202012, \.\.\. in the time column read like dates written as 202001"
    ):
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
def test_other_texts_are_refused_and_not_guessed(texts: list[str], library: Any) -> None:
    row = 1 if texts[0] == "2020-01-01" else 0
    words = (
        f"row {row}: {texts[row]!r} in the time column 'ds' is no time stamp such as 2020-01-31 or 2020-01-31 12:00; "
    )
    with pytest.raises(TimestampError, match=re.escape(words) + ".*pd.to_datetime"):
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
    texts = read_panel(library({"ds": [one.isoformat() for one in stamps], "y": np.arange(12.0)}), ONE)
    assert texts.grid.stamps(0, 12).equals(stamps)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_time_zones_are_refused_with_the_remedy(zone: str) -> None:
    table = one_series(hours().tz_localize("UTC").tz_convert(zone))
    other = pl.from_pandas(table)
    with pytest.raises(TimestampError, match=f"time column 'ds' has the time zone {zone}; .*pandas: .dt.tz_convert"):
        read_panel(table, ONE)
    with pytest.raises(
        TimestampError, match=f"time column 'ds' has the time zone {zone}; .*polars: .dt.convert_time_zone"
    ):
        read_panel(other, ONE)
    remedied = table.assign(ds=table["ds"].dt.tz_convert("UTC").dt.tz_localize(None))
    plain = pl.col("ds").dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    assert_same(read_panel(remedied, ONE), read_panel(one_series(hours()), ONE))
    assert_same(read_panel(other.with_columns(plain), ONE), read_panel(one_series(hours()), ONE))


@pytest.mark.parametrize("offsets", [["Z"] * 3, ["+01:00"] * 3, ["+01:00", "+02:00", "+02:00"], ["", "Z", "Z"]])
@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame])
def test_time_zones_in_texts_are_refused_with_the_remedy(offsets: list[str], library: Any) -> None:
    texts = [f"2020-01-01T0{hour}:00{offset}" for hour, offset in enumerate(offsets)]
    with pytest.raises(
        TimestampError, match=r"'ds' has the time zone .*pd.to_datetime\(..., utc=True\).dt.tz_localize\(None\)"
    ):
        read_panel(library({"ds": texts, "y": [1.0, 2.0, 3.0]}), ONE)


@pytest.mark.parametrize(
    ("times", "words"),
    [
        ([1.0, 2.0, 3.0], "holds Float64 such as 1.0"),
        ([True, False, True], "holds Boolean such as True"),
        (pd.Series([1, 2, 3], dtype=object), "holds Object such as 1"),
        (pd.Series([1.5, "2020-01-01", datetime.date(2020, 1, 1)], dtype=object), "holds Object such as 1.5"),
        (pd.Categorical(["2020-01-01", "2020-01-02", "2020-01-03"]), "holds Categorical such as '2020-01-01'"),
        (pd.period_range("2020-01", periods=3, freq="M"), r"holds Unknown such as Period\('2020-01', 'M'\)"),
        (pd.to_timedelta([1, 2, 3], "h"), "holds Duration"),
    ],
)
def test_other_kinds_of_time_are_refused(times: Any, words: str) -> None:
    with pytest.raises(
        TimestampError, match=f"the time column 'ds' {words}.*; expected time stamps, dates or whole numbers"
    ):
        read_panel(one_series(times), ONE)


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize(
    "times", [["2020-01-01", None, "2020-01-03"], [datetime.datetime(2020, 1, 1), None, datetime.datetime(2020, 1, 3)]]
)
def test_an_empty_time_is_refused(library: Any, times: list[Any]) -> None:
    with pytest.raises(
        TimestampError, match="row 1: the time column 'ds' is empty there; fill it, or leave the row out"
    ):
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
def test_a_stamp_off_the_grid_of_the_first_is_refused(freq: str, stray: str) -> None:
    grid = fitted_on(freq).grid
    stamps = [*grid.stamps(0, 3), pd.Timestamp(stray)]
    words = (
        f"row 3: the time stamp {pd.Timestamp(stray)} is not one of frequency '{freq}' from 2024-01-01 00:00:00 on; "
    )
    with pytest.raises(
        TimestampError, match=words + "resample the series to the frequency that the model was fitted on"
    ):
        read_panel(one_series(stamps), ONE, grid=grid)


def test_stamps_of_another_kind_than_the_first_are_refused() -> None:
    grid = fitted_on("h").grid
    with pytest.raises(
        TimestampError, match="fitted on time stamps such as 2024-01-01 00:00:00, and these are such as 5"
    ):
        read_panel(one_series([5, 6, 7]), ONE, grid=grid)
    with pytest.raises(
        TimestampError, match="fitted on time stamps such as 3, and these are such as 2024-02-27 00:00:00"
    ):
        read_panel(one_series(hours()), ONE, grid=Grid(1, 3))

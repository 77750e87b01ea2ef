from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas.tseries.holiday import USFederalHolidayCalendar

from parallelrnn.errors import TimestampError
from parallelrnn.forecast.frequency import infer_frequency
from tests.support import raises

NAMES = {
    **{freq: freq for freq in ("ms", "s", "min", "15min", "90min", "h", "6h", "36h", "D", "2D", "10D", "B", "2B")},
    **{f"W-{day}": f"W-{day}" for day in ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")},
    **{"250ms": "250ms", "60s": "min", "24h": "D", "7D": "W-MON", "2W-SUN": "2W-SUN", "365D": "365D"},
    **{"MS": "MS", "ME": "ME", "BMS": "BMS", "BME": "BME", "2MS": "2MS", "6ME": "2QE-OCT"},
    **{"QS": "QS-JAN", "QS-OCT": "QS-JAN", "QS-FEB": "QS-FEB", "QE": "QE-DEC", "QE-NOV": "QE-NOV", "QE-JAN": "QE-OCT"},
    **{"BQS": "BQS-JAN", "BQE": "BQE-DEC", "YS": "YS-JAN", "YE": "YE-DEC", "YS-APR": "YS-APR", "YE-JUN": "YE-JUN"},
    **{"BYS": "BYS-JAN", "BYE": "BYE-DEC", "10YS": "10YS-JAN"},
}
every_frequency = pytest.mark.parametrize(("freq", "name"), NAMES.items(), ids=list(NAMES))


def complete(freq: str, count: int = 40, start: str = "2001-01-01") -> pd.DatetimeIndex:
    return pd.date_range(start, periods=count, freq=freq)


def days(*texts: str) -> pd.DatetimeIndex:
    return pd.DatetimeIndex([f"2024-{text}" for text in texts])


def integers(values: Sequence[int]) -> pd.Index:
    return pd.Index(np.array(values, dtype=np.int64))


@every_frequency
def test_of_stamps_that_are_all_there(freq: str, name: str) -> None:
    stamps = complete(freq)
    assert infer_frequency({"a": stamps}) == name
    assert pd.date_range(stamps[0], stamps[-1], freq=name).equals(stamps)


@settings(max_examples=300, deadline=None)
@given(freq=st.sampled_from([*NAMES]), gaps=st.sets(st.integers(1, 38), min_size=1, max_size=6))
def test_of_stamps_some_of_which_are_missing(freq: str, gaps: set[int]) -> None:
    assert infer_frequency({"a": complete(freq).delete(sorted(gaps))}) == NAMES[freq]


@pytest.mark.parametrize("freq", ["h", "D", "MS", "QS", "YE"])
@pytest.mark.parametrize("start", ["1066-10-14", "1699-12-31", "2263-01-01", "2999-01-01"])
def test_of_years_that_nanoseconds_do_not_reach(freq: str, start: str) -> None:
    stamps = complete(freq, start=start)
    assert infer_frequency({"a": stamps}) == infer_frequency({"a": stamps.delete([5, 6, 20])}) == NAMES[freq]


@pytest.mark.parametrize("freq", ["s", "h", "D", "B", "W-MON", "MS", "QE", "YS"])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("clock", ["00:00", "09:30:15"])
def test_unit_and_time_of_day_do_not_matter(freq: str, unit: Any, clock: str) -> None:
    stamps = complete(freq, start=f"2001-01-01 {clock}").as_unit(unit)
    assert infer_frequency({"a": stamps}) == NAMES[freq]


@settings(deadline=None)
@given(
    step=st.sampled_from([1, 5, 1000]), start=st.integers(-(10**9), 10**9), gaps=st.sets(st.integers(1, 38), max_size=6)
)
def test_of_integers(step: int, start: int, gaps: set[int]) -> None:
    stamps = pd.RangeIndex(start, start + 40 * step, step).delete(sorted(gaps))
    frequency = infer_frequency({"a": stamps})
    assert frequency == step
    assert type(frequency) is int


def test_business_days_without_the_holidays_of_new_york() -> None:
    holidays = USFederalHolidayCalendar().holidays("2020-01-01", "2023-12-31")
    stamps = pd.bdate_range("2020-01-01", "2023-12-31").difference(holidays)
    assert len(holidays) > 40
    assert infer_frequency({"a": stamps}) == "B"


@pytest.mark.parametrize(
    ("stamps", "name"),
    [
        (days("02-26", "02-27", "02-28"), "D"),
        (days("02-26", "02-27", "02-29", "03-01"), "D"),  # Monday to Friday: no week-end was left out
        (days("02-29", "03-01", "03-04", "03-05"), "B"),
        (days("03-01", "03-02", "03-04"), "D"),
        (complete("D").delete([0, 7, 14]), "D"),
        (complete("h")[::3], "3h"),
        (complete("MS")[::2], "2MS"),
        (complete("YS")[::5], "5YS-JAN"),
    ],
)
def test_the_coarsest_frequency_that_fits(stamps: pd.DatetimeIndex, name: str) -> None:
    assert infer_frequency({"a": stamps}) == name


@every_frequency
def test_gaps_in_one_series_do_not_set_it_apart(freq: str, name: str) -> None:
    stamps = complete(freq)
    assert infer_frequency({"a": stamps, "b": stamps.delete([3, 9])}) == name
    assert infer_frequency({"a": stamps.delete([3, 9]), "b": stamps}) == name


@pytest.mark.parametrize(
    ("short", "long", "name"),
    [
        (days("02-26", "02-27", "02-28"), complete("B"), "B"),
        (days("02-26", "02-27", "02-28"), complete("D"), "D"),
        (days("01-31", "02-29", "04-30"), complete("ME"), "ME"),
        (days("01-31", "02-29", "04-30"), complete("BME"), "BME"),
        (days("02-01", "03-01", "04-01"), complete("BMS"), "BMS"),
        (days("02-01", "04-03"), complete("D"), "D"),  # two stamps say nothing
    ],
)
def test_a_short_series_follows_a_long_one(short: pd.DatetimeIndex, long: pd.DatetimeIndex, name: str) -> None:
    assert infer_frequency({"short": short, "long": long}) == name
    assert infer_frequency({"long": long, "short": short}) == name


@pytest.mark.parametrize(
    ("usual", "other"),
    [("h", "D"), ("D", "B"), ("W-MON", "W-TUE"), ("MS", "ME"), ("QS", "QS-FEB"), ("YS", "YS-APR"), ("15min", "30min")],
)
def test_series_of_two_frequencies_are_rejected_by_their_names(usual: str, other: str) -> None:
    series = {"a": complete(usual), "b": complete(usual), "c": complete(other), "d": complete(usual)}
    first, second = NAMES[usual], NAMES.get(other, other)
    with raises(TimestampError, f"'a' has frequency '{first}'", f"'c' has '{second}'", "freq="):
        infer_frequency(series)


def test_the_series_that_decided_is_named() -> None:
    series = {"either": days("01-31", "02-29", "04-30"), "business": complete("BME"), "end": complete("ME")}
    with raises(TimestampError, "'business' has frequency 'BME'", "'end' has 'ME'"):
        infer_frequency(series)


def test_integers_of_two_steps_are_rejected() -> None:
    with raises(TimestampError, "7 has frequency 1", "8 has 5"):
        infer_frequency({7: integers(range(9)), 8: integers(range(0, 45, 5))})


def test_names_that_look_alike_are_two_series() -> None:
    with raises(TimestampError, "1 has frequency 'h'", "'1' has 'D'"):
        infer_frequency({1: complete("h"), "1": complete("D")})


@pytest.mark.parametrize("stamps", [complete("h", 2), complete("h", 1), integers([1, 2])])
def test_two_stamps_are_too_few(stamps: pd.Index) -> None:
    with raises(TimestampError, "freq="):
        infer_frequency({"a": stamps})


UNEVEN = {
    "no common step": (
        days("02-01", "02-03", "02-06"),
        "2024-02-03 00:00:00",
        "2024-02-06 00:00:00",
        "1 of 2",
        "2 days",
    ),
    "a second off": (
        complete("h").insert(6, pd.Timestamp("2001-01-01 05:00:01")),
        *("2001-01-01 05:00:00", "2001-01-01 05:00:01", "38 of 40", "60 min;"),
    ),
    "half a day": (
        complete("D").insert(6, pd.Timestamp("2001-01-06 12:00")),
        *("2001-01-06 00:00:00", "2001-01-06 12:00:00", "38 of 40", "24 h;"),
    ),
    "Monday, Wednesday, Friday": (
        complete("B")[complete("B").day_of_week.isin([0, 2, 4])],
        *("2001-01-05 00:00:00", "2001-01-08 00:00:00", "16 of 23", "2 business days"),
    ),
    "every second month but one": (
        complete("MS").delete(range(1, 39, 2)),
        *("2004-03-01 00:00:00", "2004-04-01 00:00:00", "19 of 20", "2 months"),
    ),
    "every second week but one": (
        complete("W-MON").delete(range(1, 39, 2)),
        *("2001-09-24 00:00:00", "2001-10-01 00:00:00", "19 of 20", "2 weeks"),
    ),
    "integers": (integers([1, 3, 10, 1000]), "3", "10", "1 of 3", "2"),
    "one integer": (integers([0, 10, 20, 21, 30, 40]), "20", "21", "3 of 5", "10"),
}


@pytest.mark.parametrize(("stamps", "before", "after", "share", "usual"), UNEVEN.values(), ids=list(UNEVEN))
def test_uneven_stamps_are_rejected_with_a_place(
    stamps: pd.Index, before: str, after: str, share: str, usual: str
) -> None:
    with raises(TimestampError, "'a'", f"{after} follows {before}", share, usual, "freq="):
        infer_frequency({"a": stamps})


@settings(deadline=None)
@given(st.lists(st.integers(1, 10**4), min_size=2, max_size=20).filter(lambda gaps: np.gcd.reduce(gaps) not in gaps))
def test_a_step_that_no_neighbours_have_is_not_guessed(gaps: list[int]) -> None:
    with raises(TimestampError, "irregular"):
        infer_frequency({"a": integers(np.cumsum([0, *gaps]))})
    with raises(TimestampError, "irregular"):
        infer_frequency({"a": pd.Timestamp("2001-01-01") + pd.to_timedelta(np.cumsum([0, *gaps]), "s")})


def test_one_day_of_every_month_has_no_frequency() -> None:
    with raises(TimestampError, "'a'", "day 15", code="df[time].dt.to_period('M').dt.to_timestamp()"):
        infer_frequency({"a": complete("MS") + pd.Timedelta(days=14)})


def test_the_only_series_has_no_name() -> None:
    with raises(TimestampError) as caught:
        infer_frequency({None: integers([1, 3, 10, 1000])})
    assert "series" not in caught.value.problem


@pytest.mark.parametrize(("freq", "form"), [("MS", "%Y%m"), ("D", "%Y%m%d"), ("B", "%Y%m%d")])
def test_dates_written_as_integers_are_not_steps(freq: str, form: str) -> None:
    stamps = integers([int(date) for date in complete(freq).strftime(form)])
    with raises(TimestampError, f"{stamps[0]}, {stamps[1]}", f"format='{form}'", "freq=", argument="time_col"):
        infer_frequency({"a": stamps})


@pytest.mark.parametrize(
    "stamps",
    [
        integers(range(1950, 2020)),
        integers([*range(1950, 1990), *range(1995, 2020)]),
        integers([*range(202001, 202013)]),
        integers([*range(202001, 202040)]),
        integers([*range(100101, 100106), 100108]),
        integers([*range(20200101, 20200129)]),
        integers([1600000000, 1600000001, 1600000003]),
    ],
)
def test_integers_that_count_steps_are_taken_as_such(stamps: pd.Index) -> None:
    assert infer_frequency({"a": stamps}) == 1

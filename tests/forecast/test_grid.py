from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parallelrnn.errors import TimestampError
from parallelrnn.forecast.frequency import Grid
from parallelrnn.interpret.display import Step
from tests.support import raises

# Each with a stamp that is one of its own; a Tuesday, at a time of the day that is not midnight, where any day will do.
ORIGINS = {
    **dict.fromkeys(("ms", "s", "15min", "h", "6h", "36h", "D", "2D", "B", "W-TUE"), "2024-02-27 09:30"),
    **{"2B": "2024-02-27", "2W-TUE": "2024-02-27", "MS": "2024-02-01 09:30", "ME": "2024-02-29", "2MS": "2024-02-01"},
    **{"5ME": "2024-02-29", "BMS": "2024-06-03", "BME": "2024-03-29", "QS-JAN": "2024-04-01", "QS-FEB": "2024-02-01"},
    **{"QE-DEC": "2024-03-31", "2QE-DEC": "2024-03-31", "BQS-JAN": "2024-04-01", "BQE-DEC": "2024-03-29"},
    **{"YS-JAN": "2024-01-01", "YE-JUN": "2024-06-30", "10YS-JAN": "2020-01-01", "BYE-DEC": "2024-12-31"},
}
every_frequency = pytest.mark.parametrize(("freq", "origin"), ORIGINS.items(), ids=list(ORIGINS))


def grid_of(freq: str | int) -> Grid:
    return Grid(7, 3) if isinstance(freq, int) else Grid(freq, pd.Timestamp(ORIGINS[freq]))


def oracle(freq: str, origin: str, position: int, count: int) -> pd.DatetimeIndex:
    """The same stamps, by the other end of date_range."""
    before = pd.date_range(end=origin, periods=1 - min(0, position), freq=freq)
    after = pd.date_range(origin, periods=max(0, position + count), freq=freq)
    return before[:-1].append(after)[max(0, position) :][:count]


@every_frequency
@pytest.mark.parametrize(("position", "count"), [(0, 9), (5, 4), (-1, 1), (-7, 12), (-7, 3)])
def test_stamps_are_those_of_date_range(freq: str, origin: str, position: int, count: int) -> None:
    grid = Grid(freq, pd.Timestamp(origin))
    stamps = grid.stamps(position, count)
    pd.testing.assert_index_equal(stamps, oracle(freq, origin, position, count), check_names=False)
    positions, fits = grid.locate(stamps)
    assert positions.dtype == np.int64
    assert positions.tolist() == list(range(position, position + count))
    assert fits.all()


@settings(deadline=None)
@given(freq=st.sampled_from([*ORIGINS, 7]), positions=st.lists(st.integers(-40, 40), min_size=1, max_size=8))
def test_locating_undoes_numbering_in_any_order(freq: str | int, positions: list[int]) -> None:
    grid = grid_of(freq)
    located, fits = grid.locate(grid.stamps(-40, 81)[np.add(positions, 40)])
    assert located.tolist() == positions
    assert fits.all()


@every_frequency
@pytest.mark.parametrize("position", [-6, 0])
@pytest.mark.parametrize("beside", [-1, 1])
def test_a_stamp_beside_the_grid_is_not_located(freq: str, origin: str, position: int, beside: int) -> None:
    grid = Grid(freq, pd.Timestamp(origin))
    stamps = grid.stamps(position, 3)
    stray = stamps[[1]] + beside * pd.Timedelta(microseconds=1)
    assert grid.locate(stray)[1].tolist() == [False]
    positions, fits = grid.locate(stamps.append(stray))
    assert fits.tolist() == [True, True, True, False]
    assert positions[:3].tolist() == [position, position + 1, position + 2]


@pytest.mark.parametrize(
    ("freq", "single"), [("2D", "D"), ("2B", "B"), ("2W-TUE", "W-TUE"), ("2MS", "MS"), ("2QE-DEC", "QE-DEC")]
)
def test_every_second_is_not_every_one(freq: str, single: str) -> None:
    fits = grid_of(freq).locate(Grid(single, grid_of(freq).origin).stamps(-5, 11))[1]
    assert fits.tolist() == [False, True] * 5 + [False]


def test_integers_off_the_grid_are_not_located() -> None:
    positions, fits = Grid(5, 10).locate(pd.Index([0, 5, 10, 15, 16, -5, -4]))
    assert fits.tolist() == [True, True, True, True, False, True, False]
    assert positions[fits].tolist() == [-2, -1, 0, 1, -3]


@pytest.mark.parametrize("freq", ["h", "D", "B", "MS", "YE-DEC"])
@pytest.mark.parametrize("year", [1066, 1500, 1677, 2263, 3000])
def test_years_that_nanoseconds_do_not_reach(freq: str, year: int) -> None:
    first = pd.date_range(f"{year}-01-01", periods=1, freq=freq)[0]
    grid = Grid(freq, first)
    stamps = grid.stamps(-20, 41)
    assert stamps[20] == first
    assert (stamps[1:] > stamps[:-1]).all()
    assert grid.locate(stamps)[0].tolist() == list(range(-20, 21))


@pytest.mark.parametrize("freq", ["h", "D", pytest.param("B", marks=pytest.mark.slow), "MS"])
def test_a_grid_reaches_over_centuries(freq: str) -> None:
    grid = Grid(freq, pd.Timestamp("2020-01-01"))
    far = pd.DatetimeIndex(["1600-03-01", "2500-03-01"])
    positions, fits = grid.locate(far)
    assert fits.all()
    assert [grid.stamps(int(position), 1)[0] for position in positions] == far.tolist()


@pytest.mark.parametrize("freq", ["h", "D", "W-TUE", "B", "MS"])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("other", ["s", "ms", "us", "ns"])
def test_the_unit_of_stamps_does_not_matter_and_is_kept(freq: str, unit: Any, other: Any) -> None:
    grid = Grid(freq, pd.Timestamp(ORIGINS[freq]).as_unit(unit))
    stamps = grid.stamps(-3, 7)
    assert stamps.unit == unit
    assert grid.locate(stamps.as_unit(other))[0].tolist() == list(range(-3, 4))


@pytest.mark.parametrize("freq", ["h", "MS", 3])
def test_no_stamps_have_no_numbers(freq: str | int) -> None:
    grid = Grid(3, 0) if isinstance(freq, int) else grid_of(freq)
    positions, fits = grid.locate(grid.stamps(0, 0))
    assert len(positions) == len(fits) == 0


@pytest.mark.parametrize(
    ("freq", "origin"),
    [
        ("B", "2024-02-25"),
        ("MS", "2024-02-02"),
        ("W-MON", "2024-02-27"),
        ("QS-JAN", "2024-02-01"),
        ("YE", "2024-06-30"),
    ],
)
def test_an_origin_has_to_be_one_of_its_frequency(freq: str, origin: str) -> None:
    with raises(TimestampError, f"{origin} 00:00:00", f"'{freq}'", "freq=", argument="freq"):
        Grid(freq, pd.Timestamp(origin))


@pytest.mark.parametrize("freq", [0, -1])
def test_integers_have_to_go_forward(freq: int) -> None:
    with raises(TimestampError, argument="freq", got=freq):
        Grid(freq, 0)


@pytest.mark.parametrize(("freq", "step"), [(5, Step()), ("15min", Step(15.0, "min")), ("QS-FEB", Step(3.0, "months"))])
def test_the_step_of_a_grid(freq: str | int, step: Step) -> None:
    assert Grid(freq, 0 if isinstance(freq, int) else pd.Timestamp("2024-02-01")).step == step

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from parallelrnn.forecast.seasonality import calendar_periods, fit_cycles
from parallelrnn.interpret.display import Step
from tests.forecast.small import make_series as series


def day(time: NDArray[np.int64]) -> NDArray[np.float64]:
    return 2 * np.sin(2 * np.pi * time / 24 + 1) + 0.7 * np.cos(2 * np.pi * time / 8)


@pytest.mark.parametrize(
    ("freq", "expected"),
    [
        ("h", [24, 168, 8766]),
        ("15min", [4, 96, 672, 35064]),
        ("min", [60, 1440, 10080, 525960]),
        ("6h", [4, 28, 1461]),
        ("D", [7, 365.25]),
        ("B", [5, 260.89]),
        ("W-SUN", [52.1775]),
        ("MS", [12]),
        ("QE", [4]),
        ("YS", []),
        ("2YS", []),
        (None, []),
    ],
)
def test_the_cycles_that_steps_can_show(freq: str | None, expected: list[float]) -> None:
    assert calendar_periods(Step.of(freq)) == pytest.approx(expected)


def test_a_planted_cycle_is_found_in_noise_and_others_are_not() -> None:
    time = np.arange(2000)
    noise = np.random.default_rng(0).standard_normal(2000)
    (cycle,) = fit_cycles(series(5 + day(time) + 0.01 * time + noise), 2000, [24, 168, 365])
    assert cycle.period == 24
    # The standard error of a coefficient is sqrt(2 / 2000), of the sum of 16 of them at most four times that.
    assert abs(cycle.at(time)[:, 0] - day(time)).max() < 4 * 4 * np.sqrt(2 / 2000)


def test_the_phase_is_that_of_the_calendar_wherever_a_series_begins() -> None:
    first, second = (
        fit_cycles(series(day(time), position=int(time[0])), 480, [24])[0]
        for time in (np.arange(480), np.arange(1007, 1487))
    )
    later = np.arange(5000, 5050)
    np.testing.assert_allclose(first.at(later), second.at(later), atol=1e-9)
    np.testing.assert_allclose(first.at(later)[:, 0], day(later), atol=1e-9)


def test_only_the_steps_that_are_given_count() -> None:
    time = np.arange(1000)
    changed = np.where(time < 500, day(time), 50 * day(time + 5))
    np.testing.assert_allclose(fit_cycles(series(changed), 500, [24])[0].at(time[:24])[:, 0], day(time[:24]), atol=1e-9)


def test_values_that_were_not_observed_do_not_count() -> None:
    time = np.arange(480)
    data = series(day(time))
    data.observed[100:130] = False
    data.values[100:130] = 3.0
    np.testing.assert_allclose(fit_cycles(data, 480, [24])[0].at(time)[:, 0], day(time), atol=1e-9)


def test_a_week_of_equal_days_is_no_cycle() -> None:
    time = np.arange(3000)
    noise = 0.1 * np.random.default_rng(1).standard_normal(3000)
    assert [cycle.period for cycle in fit_cycles(series(day(time) + noise), 3000, [24, 168])] == [24]
    weekly = day(time) + np.sin(2 * np.pi * time / 168) + noise
    assert [cycle.period for cycle in fit_cycles(series(weekly), 3000, [24, 168])] == [24, 168]


def test_channels_have_cycles_of_their_own() -> None:
    time = np.arange(960)
    noise = np.random.default_rng(2).standard_normal(960)
    (cycle,) = fit_cycles(series(np.stack([day(time), noise, -day(time)], -1)), 960, [24])
    assert not cycle.cosines[:, 1].any()
    np.testing.assert_allclose(cycle.cosines[:, 0], -cycle.cosines[:, 2], atol=1e-9)


@pytest.mark.parametrize("values", [np.zeros(500), np.full(500, 7.0), np.arange(500.0)])
def test_a_series_without_turns_has_no_cycle(values: NDArray[np.float64]) -> None:
    assert fit_cycles(series(values), 500, [24]) == ()


def test_noise_has_no_cycles_but_by_rare_chance() -> None:
    random = np.random.default_rng(3)
    count = 0
    for _ in range(200):
        red = np.cumsum(random.standard_normal(800))
        count += len(fit_cycles(series(red), 800, [24])) + len(
            fit_cycles(series(random.standard_normal(800)), 800, [24])
        )
    # 400 series of 8 lines, each of which stands out once in 160,000 times, or some times as often by a median that is
    # itself estimated: none is expected, and two would be far too many.
    assert count < 2


def test_a_cycle_has_to_come_round_three_times() -> None:
    time = np.arange(71)
    assert fit_cycles(series(day(time)), 71, [24]) == ()
    assert len(fit_cycles(series(day(np.arange(96))), 96, [24])) == 1


@pytest.mark.parametrize(
    ("period", "steps"), [(12, 38), (12, 58), (24, 96), (52.18, 200), (365.25, 1200), (365.25, 2000)]
)
def test_cycles_that_came_round_a_few_times_are_found(period: float, steps: int) -> None:
    """Their lines lie so close that no frequency lies between them."""
    time, random = np.arange(steps), np.random.default_rng(0)
    wave = 100 + 5 * np.sin(2 * np.pi * time / period) + random.standard_normal(steps)
    assert [cycle.period for cycle in fit_cycles(series(wave), steps, [period])] == [period]
    walks = [np.cumsum(random.standard_normal(steps)) for _ in range(40)]
    assert sum(len(fit_cycles(series(walk), steps, [period])) for walk in walks) <= 5  # 5 % of short ones, by chance


def test_named_cycles_are_taken_as_they_are() -> None:
    noise = np.random.default_rng(0).standard_normal(60)
    assert fit_cycles(series(noise), 60, [12]) == ()
    (cycle,) = fit_cycles(series(noise), 60, [12, 31], named=True)
    assert cycle.period == 12

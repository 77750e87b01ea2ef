from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.linalg import block_diag

from parallelrnn import recurrence_features
from parallelrnn.interpret import Features, match_fits


def wave(period: float, half_life: float) -> np.ndarray:
    angle, modulus = 2 * math.pi / period, 0.5 ** (1 / half_life)
    return modulus * np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])


def fits(count: int, scatter: float = 0.02, extra: bool = False) -> list[Features]:
    """A wave of 24 hours, one of 12 and a slow decay, each scattered a little, in an order of its own each time."""
    generator = np.random.default_rng(0)
    tables = []
    for index in range(count):
        noise = np.exp(scatter * generator.normal(size=5))
        parts = [
            wave(24 * noise[0], 72 * noise[1]),
            wave(12 * noise[2], 10 * noise[3]),
            [[0.5 ** (1 / 200 / noise[4])]],
        ]
        if extra and index % 2:
            parts.append([[-0.5]])
        generator.shuffle(parts)
        tables.append(recurrence_features(block_diag(*parts), freq="h"))
    return tables


def test_the_same_features_are_found_in_every_fit() -> None:
    found = match_fits(fits(40))
    assert [one.frequency for one in found] == [1, 1, 1]
    periods = sorted(one.period.estimate for one in found)
    assert periods[0] == pytest.approx(12, rel=0.02)
    assert periods[1] == pytest.approx(24, rel=0.02)
    assert math.isinf(periods[2])
    day = next(one for one in found if abs(one.period.estimate - 24) < 1)
    assert day.label == "C-1"
    assert len(day.rows) == 40
    values = sorted(row.period for row in day.rows)
    assert (day.period.low, day.period.high) == (values[1], values[37])  # 5 and 95 % of forty
    assert 60 < day.half_life.low < 72 < day.half_life.high < 85


def test_how_often_a_feature_reappears() -> None:
    tables = fits(10, extra=True)
    found = match_fits(tables[1:] + tables[:1])
    frequencies = sorted(one.frequency for one in found)
    assert frequencies[-3:] == [1, 1, 1]
    assert frequencies[:-3] in ([], [0.5])  # the alternating decay, if the central fit has it


def test_what_is_far_apart_is_not_the_same() -> None:
    first, second = (recurrence_features(wave(period, 100)) for period in (24, 60))
    assert match_fits([first, second])[0].frequency == 0.5
    assert match_fits([first, second], furthest=0.5)[0].frequency == 1


def test_the_best_assignment_is_that_of_all_together() -> None:
    """The nearest pair first would leave the other two far apart."""
    first = recurrence_features(np.diag([0.5, 0.6]))
    second = recurrence_features(np.diag([0.58, 0.7]))
    found = match_fits([first, second], furthest=0.5)
    pairs = {tuple(sorted(round(row.modulus, 2) for row in one.rows)) for one in found}
    assert pairs == {(0.5, 0.58), (0.6, 0.7)}


def test_the_jackknife_of_a_mean_is_its_standard_error() -> None:
    """Leaving one value out of a mean at a time: the jackknife's error is the usual one, s / sqrt(n)."""
    sample = np.random.default_rng(0).uniform(0.4, 0.6, size=30)
    tables = [recurrence_features([[np.delete(sample, index).mean()]]) for index in range(30)]
    (found,) = match_fits(tables, method="jackknife", level=0.95)
    error = sample.std(ddof=1) / math.sqrt(30)
    assert found.modulus.estimate == pytest.approx(sample.mean())
    assert found.modulus.high - found.modulus.estimate == pytest.approx(1.959964 * error, rel=1e-6)


def test_the_table() -> None:
    text = match_fits(fits(10)).summary()
    assert "10 fits; intervals at 90%" in text
    assert "h (" in text
    assert "100%" in text


def test_what_cannot_be_compared_is_refused() -> None:
    one = recurrence_features([[0.5]])
    with pytest.raises(ValueError, match="several fits"):
        match_fits([one])
    with pytest.raises(ValueError, match="nothing to match"):
        match_fits([one, recurrence_features([[0.0]])])
    with pytest.raises(ValueError, match="'quantiles', 'jackknife', got 'guess'"):
        match_fits([one, one], method="guess")
    with pytest.raises(ValueError, match="between 0 and 1"):
        match_fits([one, one], level=90)


def test_two_that_are_the_same_are_not_parted_for_two_that_are_not() -> None:
    """The smallest sum of all distances would match neither."""
    first = recurrence_features(np.diag(np.exp([-1.0, -0.78])))
    second = recurrence_features(np.diag(np.exp([-0.8, -0.6])))
    found = match_fits([first, second], furthest=0.1)
    rates = [sorted(round(-math.log(row.modulus), 2) for row in one.rows) for one in found]
    assert rates[0] == [0.78, 0.8]


def test_a_fit_that_went_astray_is_not_what_others_are_held_to() -> None:
    day, other = recurrence_features(wave(24, 100)), recurrence_features(wave(60, 100))
    found = match_fits([other, day, day, day])
    assert [one.frequency for one in found] == [0.75]
    assert found[0].period.estimate == pytest.approx(24)

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
import torch
from scipy.linalg import block_diag
from scipy.stats import t as student
from torch import nn

from parallelrnn import ParaGRU, ParaLSTM, ParaRNN, forecast_modes, recurrence_features
from parallelrnn.errors import ArgumentError, InputError
from parallelrnn.interpret import (
    Features,
    ForecastModes,
    Interval,
    Mode,
    bootstrap_series,
    features_of_blocks,
    match_fits,
)
from parallelrnn.interpret.display import Step
from parallelrnn.interpret.freerun import FreeRun, NoFreeRunError
from parallelrnn.nn import RecurrentBlock
from tests.support import raises


def modes_of(value: complex) -> ForecastModes:
    return ForecastModes(rows=(Mode(order=1, eigenvalue=complex(value)),), where="", time=Step())


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
    features = match_fits(fits(40))
    assert [feature.frequency for feature in features] == [1, 1, 1]
    periods = sorted(feature.period.estimate for feature in features)
    assert periods[0] == pytest.approx(12, rel=0.02)
    assert periods[1] == pytest.approx(24, rel=0.02)
    assert math.isinf(periods[2])
    day = next(feature for feature in features if abs(feature.period.estimate - 24) < 1)
    assert day.label == "C-1"
    assert len(day.rows) == 40
    values = sorted(row.period for row in day.rows)
    assert (day.period.low, day.period.high) == (values[1], values[37])  # 5 and 95 % of forty
    assert 60 < day.half_life.low < 72 < day.half_life.high < 85


def test_how_often_a_feature_reappears() -> None:
    tables = fits(10, extra=True)
    features = match_fits(tables[1:] + tables[:1])
    frequencies = sorted(feature.frequency for feature in features)
    assert frequencies[-3:] == [1, 1, 1]
    assert frequencies[:-3] == [0.5]  # the alternating decay, which the central fit has


def test_distant_rows_are_not_matched() -> None:
    first, second = (recurrence_features(wave(period, 100)) for period in (24, 60))
    assert match_fits([first, second])[0].frequency == 0.5
    assert match_fits([first, second], furthest=0.5)[0].frequency == 1


def test_the_best_assignment_is_that_of_all_together() -> None:
    """The nearest pair first would leave the other two far apart."""
    first = recurrence_features(np.diag([0.5, 0.6]))
    second = recurrence_features(np.diag([0.58, 0.7]))
    features = match_fits([first, second], furthest=0.5)
    pairs = {tuple(sorted(round(row.modulus, 2) for row in feature.rows)) for feature in features}
    assert pairs == {(0.5, 0.58), (0.6, 0.7)}


def test_the_jackknife_of_a_mean_is_its_standard_error() -> None:
    """Leaving one value out of a mean at a time: the jackknife's error is the usual one, s / sqrt(n)."""
    sample = np.random.default_rng(0).uniform(0.4, 0.6, size=30)
    tables = [recurrence_features([[np.delete(sample, index).mean()]]) for index in range(30)]
    (feature,) = match_fits(tables, method="jackknife", level=0.95)
    error = sample.std(ddof=1) / math.sqrt(30)
    assert feature.modulus.estimate == pytest.approx(sample.mean())
    assert feature.modulus.high - feature.modulus.estimate == pytest.approx(student.ppf(0.975, 29) * error)


def test_the_bootstrap_is_students_interval_of_logarithms_around_the_fit() -> None:
    random = np.random.default_rng(0)
    periods, half_lives = 24 * np.exp(0.02 * random.normal(size=30)), 72 * np.exp(0.2 * random.normal(size=30))
    tables = [recurrence_features(wave(*pair)) for pair in zip(periods, half_lives, strict=True)]
    (feature,) = match_fits(tables, recurrence_features(wave(23.7, 80)), method="bootstrap")
    for interval, values, estimate in ((feature.period, periods, 23.7), (feature.half_life, half_lives, 80)):
        width = student.ppf(0.95, 29) * np.log(values).std(ddof=1)
        assert interval.estimate == pytest.approx(estimate)
        assert interval.low == pytest.approx(estimate * np.exp(-width))
        assert interval.high == pytest.approx(estimate * np.exp(width))
    assert feature.frequency == 1


@pytest.mark.parametrize(("growing", "is_open"), [(1, False), (5, True)])
def test_half_lives_that_may_be_endless(growing: int, is_open: bool) -> None:
    """One of 30 draws that does not fade is within the 5 % beyond the limit; five are not."""
    moduli = [0.99 + 0.0005 * math.sin(index) for index in range(30 - growing)] + [1.001] * growing
    tables = [recurrence_features(modulus * wave(24, math.inf)) for modulus in moduli]
    (feature,) = match_fits(tables, recurrence_features(0.99 * wave(24, math.inf)), method="bootstrap")
    assert math.isinf(feature.half_life.high) == is_open
    assert 50 < feature.half_life.low < feature.half_life.estimate == pytest.approx(math.log(0.5) / math.log(0.99))


def test_a_decay_has_no_period_to_be_sure_of() -> None:
    tables = [recurrence_features([[modulus]]) for modulus in (0.5, 0.52, 0.51)]
    (feature,) = match_fits(tables, tables[0], method="bootstrap")
    assert feature.period == Interval(math.inf, math.inf, math.inf)


def test_rows_that_only_the_fit_has() -> None:
    features = match_fits([recurrence_features([[0.5]])] * 3, recurrence_features(np.diag([0.5, -0.9])))
    assert [feature.frequency for feature in features] == [1, 0]
    assert features[1].modulus.estimate == pytest.approx(0.9)
    assert math.isnan(features[1].modulus.low)


def test_the_table() -> None:
    text = match_fits(fits(10)).summary()
    assert "Recurrence features in 10 fits" in text
    assert "90%" in text
    assert re.search(r"\(.* to .*\) h", text)
    assert "100%" in text


def test_rejected_tables_and_arguments() -> None:
    table = recurrence_features([[0.5]])
    for other in (recurrence_features([[0.0]]), modes_of(0.5)):  # nothing to match, and nothing to compare with
        with raises(InputError):
            match_fits([table, other])
    with raises(ArgumentError, argument="tables", got=1):
        match_fits([table])
    with raises(ArgumentError, argument="fitted"):
        match_fits([table, table], method="bootstrap")
    for argument, value in (("method", "guess"), ("level", 90), ("furthest", 0.0)):
        with raises(ArgumentError, argument=argument, got=value):
            match_fits([table, table], **{argument: value})


def test_two_that_are_the_same_are_not_parted_for_two_that_are_not() -> None:
    """The smallest sum of all distances would match neither."""
    first = recurrence_features(np.diag(np.exp([-1.0, -0.78])))
    second = recurrence_features(np.diag(np.exp([-0.8, -0.6])))
    features = match_fits([first, second], furthest=0.1)
    rates = [sorted(round(-math.log(row.modulus), 2) for row in feature.rows) for feature in features]
    assert rates[0] == [0.78, 0.8]


def test_an_outlying_fit_is_not_the_reference() -> None:
    day, other = recurrence_features(wave(24, 100)), recurrence_features(wave(60, 100))
    features = match_fits([other, day, day, day])
    assert [feature.frequency for feature in features] == [0.75]
    assert features[0].period.estimate == pytest.approx(24)


def test_intervals_are_not_cut_off_where_matching_is() -> None:
    """Half-lives that scatter by a factor of e: few are within a quarter of the fit, and all count."""
    half_lives = 8.55 * np.exp(np.random.default_rng(0).normal(size=40))
    tables = [recurrence_features([[0.5 ** (1 / half_life)]]) for half_life in half_lives]
    (feature,) = match_fits(tables, recurrence_features([[0.5 ** (1 / 8.55)]]), method="bootstrap")
    assert feature.frequency < 0.6
    width = student.ppf(0.95, 39) * np.log(half_lives).std(ddof=1)
    assert feature.half_life.high == pytest.approx(8.55 * np.exp(width))


def test_shares_that_are_not_known_everywhere() -> None:
    layer = ParaRNN(1, 2, nonlinearity="linear", aggregate=nn.Linear(2, 1), dtype=torch.float64).double()
    x = torch.randn(50, 1)
    known, unknown = forecast_modes(layer, x=x), forecast_modes(layer)
    assert not math.isnan(match_fits([known] * 19 + [unknown])[0].share.low)
    assert math.isnan(match_fits([known] * 10 + [unknown] * 10)[0].share.low)


def test_an_eigenvalue_of_zero_has_no_logarithm() -> None:
    tables = [recurrence_features(np.array([[0.0, 1.0], [0.0, 0.0]]) + np.eye(2) * 0)] * 3
    assert match_fits(tables, tables[0], method="bootstrap")[0].half_life.estimate == 0


def test_a_period_is_at_least_two_steps() -> None:
    tables = [recurrence_features(0.9 * wave(period, math.inf)) for period in (2.05, 2.2, 2.1, 3.5, 2.3)]
    (feature,) = match_fits(tables, tables[1], method="jackknife", furthest=1.0)
    assert feature.period.low == 2


def test_a_gate_is_matched_with_itself_though_another_is_nearer() -> None:
    def gates(first: float, second: float) -> Features:
        return features_of_blocks(
            [RecurrentBlock(0, "forward", gate, 0, [[v]]) for gate, v in (("new", first), ("reset", second))]
        )

    features = match_fits([gates(0.50, 0.52), gates(0.53, 0.49)], furthest=1.0)
    assert [feature.frequency for feature in features] == [1, 1]
    assert all(len({row.gate for row in feature.rows}) == 1 for feature in features)
    assert {"layer", "direction", "gate"} < set(features.display().columns)


def test_levels_are_the_same_on_both_sides_of_one() -> None:
    tables = [modes_of(value) for value in (0.9995, 1.0002, 1.0, 0.9999, 1.0004)]
    (mode,) = match_fits(tables, modes_of(1.0))
    assert mode.frequency == 1.0


def test_an_infinite_half_life_is_as_certain_as_its_modulus() -> None:
    random = np.random.default_rng(0)
    tables = [modes_of(value) for value in 1.0005 + 3e-4 * random.standard_normal(20)]
    (mode,) = match_fits(tables, modes_of(1.0005), method="jackknife")
    assert mode.half_life.high == math.inf
    assert mode.half_life.low == pytest.approx(math.log(2) / -math.log(mode.modulus.low))


def test_ties_between_types_go_to_the_fit() -> None:
    near_wave, decay = modes_of(complex(0.9, 0.01)), modes_of(0.9)
    for fitted in (near_wave, decay):
        (feature,) = match_fits([near_wave, decay], fitted, furthest=1.0)
        assert feature.label == fitted[0].label


@pytest.mark.parametrize("cls", [ParaRNN, ParaLSTM, ParaGRU, nn.LSTM])
def test_every_error_is_one_that_the_model_made(cls: Any) -> None:
    """On a new series the model makes the errors that were drawn, and no others (once the start is forgotten)."""
    torch.manual_seed(0)
    layer, readout = cls(2, 4).double(), nn.Linear(4, 2).double()
    x = torch.randn(60, 2, dtype=torch.float64)
    errors = x[1:] - readout(layer(x)[0])[:-1]
    errors = errors - errors.mean(0)
    drawn = bootstrap_series(layer, readout, x, 3, seed=1)
    assert drawn.shape == (60, 3, 2)
    made = drawn[1:] - readout(layer(drawn)[0])[:-1]
    distances = torch.cdist(made[40:].flatten(0, 1), errors)
    assert float(distances.min(1).values.max().detach()) < 1e-4  # the new run started elsewhere
    chosen = distances.argmin(1)
    assert len(chosen.unique()) > 10


def test_seeds_and_series_differ() -> None:
    torch.manual_seed(0)
    layer = ParaRNN(1, 4, nonlinearity="linear", aggregate=nn.Linear(4, 1))
    x = torch.randn(50, 1)
    first, second = (bootstrap_series(layer, None, x, 2, seed=seed) for seed in (0, 1))
    assert first.dtype == x.dtype
    assert not torch.equal(first, second)
    assert not torch.equal(first[:, 0], first[:, 1])
    assert torch.equal(first, bootstrap_series(layer, None, x, 2, seed=0))


def test_series_that_cannot_be_drawn() -> None:
    layer = ParaRNN(1, 2, nonlinearity="linear", aggregate=nn.Linear(2, 1))
    for shape in ((50, 1, 1), (1, 1)):
        with raises(ArgumentError, argument="x", got=shape):
            bootstrap_series(layer, None, torch.randn(shape))
    with raises(ArgumentError, argument="count", got=0):
        bootstrap_series(layer, None, torch.randn(50, 1), 0)
    with raises(NoFreeRunError):
        bootstrap_series(ParaRNN(1, 2), None, torch.randn(50, 1))
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.fill_(9.0)
    with raises(InputError):
        bootstrap_series(layer, None, torch.randn(600, 1))


def test_a_linear_model_draws_the_same_from_its_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    layer = ParaRNN(2, 6, 2, nonlinearity="linear", aggregate=nn.Linear(6, 2)).double()
    x = torch.randn(40, 2, dtype=torch.float64)
    fast = bootstrap_series(layer, None, x, 3)
    monkeypatch.setattr(FreeRun, "is_linear", False)
    torch.testing.assert_close(fast, bootstrap_series(layer, None, x, 3), rtol=1e-10, atol=1e-10)


def test_counts_are_drawn_as_numbers() -> None:
    layer = ParaRNN(1, 2, nonlinearity="linear", aggregate=nn.Linear(2, 1))
    counts = torch.randint(0, 5, (30, 1))
    series = bootstrap_series(layer, None, counts, 2)
    assert series.is_floating_point()
    torch.testing.assert_close(series, bootstrap_series(layer, None, counts.float(), 2))


def test_an_interval_has_one_unit_or_names_them_all() -> None:
    assert Interval(100, 50, 200).format(Step.of("s")) == "100 s (50 s to 3.33 min)"
    assert Interval(500, 90, 900).format(Step.of("ms")) == "500 (90 to 900) ms"
    assert Interval(1, 0.5, math.inf).format(Step.of("YS")) == "1 (0.5 to inf) years"
    assert Interval(0.983, 0.912, 1).format() == "98 (91 to 100) %"
    assert Interval(0.5, math.nan, math.nan).format() == "50 %"
    assert Interval(math.nan, 20, 30).span(Step.of("h")) == "20 to 30 h"

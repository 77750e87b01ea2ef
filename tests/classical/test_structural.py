"""The likelihood of sums of blocks against dense matrices and statsmodels."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from statsmodels.tsa.statespace.structural import UnobservedComponents

from parallelrnn.classical.structural import Block, Filtered, Parameters, Structural, covariance, maximize

Array = NDArray[np.float64]
WAVE = Block(variance=2.0, rate=0.05, angle=0.26)
LEVEL = Block(variance=0.5, rate=0.0, angle=0.0)
DECAY = Block(variance=1.0, rate=0.3, angle=0.0)


def dense(steps: int, blocks: tuple[Block, ...]) -> Array:
    """The covariance of a series, relative to its noise."""
    time = np.arange(steps)
    apart = abs(time[:, None] - time)
    total = np.eye(steps)
    for block in blocks:
        if block.rate == 0:
            total += block.variance * (np.minimum(time[:, None], time) + 1)
        else:
            total += block.variance * np.exp(-block.rate * apart) * np.cos(block.angle * apart)
    return total


def wave(steps: int, period: float, half_life: float, seed: int, snr: float = 4.0) -> Array:
    """A damped wave that noise drives, or a sine, in noise."""
    rng = np.random.default_rng(seed)
    if math.isinf(half_life):
        clean = math.sqrt(2) * np.cos(2 * math.pi * np.arange(steps) / period + rng.uniform(0, 6))
        return math.sqrt(snr) * clean + rng.standard_normal(steps)
    modulus = 2 ** (-1 / half_life)
    state, states = complex(*rng.standard_normal(2)), []
    for _ in range(steps):
        states.append(state.real)
        drive = math.sqrt(1 - modulus**2) * complex(*rng.standard_normal(2))
        state = modulus * np.exp(2j * math.pi / period) * state + drive
    return math.sqrt(snr) * np.array(states) + rng.standard_normal(steps)


@pytest.mark.parametrize("blocks", [(), (WAVE,), (LEVEL, DECAY), (WAVE, LEVEL, DECAY)])
def test_the_likelihood_is_that_of_the_dense_covariance(blocks: tuple[Block, ...]) -> None:
    rng = np.random.default_rng(0)
    y, x = rng.standard_normal(60).cumsum(), np.column_stack([np.ones(60), np.arange(60.0)])
    y[[5, 6, 40]] = np.nan
    seen = np.isfinite(y)
    inverse = np.linalg.inv(dense(60, blocks)[np.ix_(seen, seen)])
    weight = x[seen].T @ inverse @ x[seen]
    effects = np.linalg.solve(weight, x[seen].T @ inverse @ y[seen])
    left = y[seen] - x[seen] @ effects
    noise = left @ inverse @ left / (seen.sum() - 2)
    expected = -0.5 * (
        (seen.sum() - 2) * math.log(noise) - np.linalg.slogdet(inverse)[1] + np.linalg.slogdet(weight)[1]
    )
    fit = Filtered(Structural([y], [x]), blocks)
    assert fit.log_likelihood == pytest.approx(expected, abs=1e-9)
    np.testing.assert_allclose(fit.effects[0], effects, rtol=1e-8)
    np.testing.assert_allclose(fit.effect_covariance[0], noise * np.linalg.inv(weight), rtol=1e-8)
    np.testing.assert_allclose(fit.residuals[seen], inverse @ left / math.sqrt(noise), atol=1e-8)
    assert not fit.residuals[~seen].any()


def test_the_likelihood_is_that_of_statsmodels() -> None:
    y = wave(300, 24, 30, seed=1)
    fit = Filtered(Structural([y], [np.zeros((300, 0))]), (WAVE,))
    noise = float(fit.noise[0])
    model = UnobservedComponents(
        y, irregular=True, cycle=True, stochastic_cycle=True, damped_cycle=True, loglikelihood_burn=0
    )
    model.ssm.initialize_stationary()  # else it starts from an approximate diffuse state
    theirs = model.loglike([noise, noise * WAVE.drive, WAVE.angle, math.exp(-WAVE.rate)])
    ours = fit.log_likelihood - 300 / 2 * (math.log(2 * math.pi) + 1)
    assert ours == pytest.approx(theirs, abs=1e-6)


def test_series_of_a_panel_share_their_blocks_only() -> None:
    rng = np.random.default_rng(2)
    series = [rng.standard_normal(60), 100 * rng.standard_normal(40)]
    regressors = [np.ones((60, 1)), np.ones((40, 1))]
    alone = [Structural([y], [x]).log_likelihood((WAVE, LEVEL)) for y, x in zip(series, regressors, strict=True)]
    assert Structural(series, regressors).log_likelihood((WAVE, LEVEL)) == pytest.approx(sum(alone), abs=1e-9)


def test_filtered_states_are_the_conditional_means() -> None:
    y = wave(50, 12, 20, seed=3)
    fit = Filtered(Structural([y], [np.zeros((50, 0))]), (WAVE, DECAY))
    (states,) = fit.filtered_states(50)
    now = 30
    time = np.arange(now)
    apart = now - 1 - time
    inverse = np.linalg.inv(dense(now, fit.blocks))
    for index, block in enumerate(fit.blocks):
        with_past = block.variance * np.exp(-block.rate * apart) * np.cos(block.angle * apart)
        assert states[now - 1, index, 0] == pytest.approx(with_past @ inverse @ y[:now], abs=1e-9)
    ahead = fit.powers(5)[4]
    later = WAVE.variance * np.exp(-WAVE.rate * (apart + 5)) * np.cos(WAVE.angle * (apart + 5))
    assert states[now - 1, 0] @ ahead[0] == pytest.approx(later @ inverse @ y[:now], abs=1e-9)


def test_the_most_likely_wave_is_that_of_the_data_with_its_error() -> None:
    true, errors = np.array([500 / 24, math.log(math.log(2) / 30)]), []
    for seed in range(20):
        model = Structural([wave(500, 24, 30, seed)], [np.ones((500, 1))])
        parameters = Parameters([Block(variance=1.0, rate=0.05, angle=0.3)], 500)
        fit, vector = maximize(model, parameters)
        estimate = vector[[2, 1]]
        deviations = np.sqrt(covariance(model, Parameters(fit.blocks, 500), vector).diagonal())[[2, 1]]
        errors.append((estimate - true) / deviations)
    assert abs(np.mean(errors, axis=0)).max() < 3 / math.sqrt(20)
    assert 0.6 < np.std(errors) < 1.6  # the deviation of 40 standard normal numbers, in all but one of 10,000 cases


@pytest.mark.parametrize("blocks", [(WAVE,), (LEVEL, DECAY, WAVE), (WAVE, LEVEL, DECAY)])
def test_the_slope_is_that_of_the_likelihood(blocks: tuple[Block, ...]) -> None:
    series = [wave(120, 24, 30, seed=1), 3 * wave(80, 24, 30, seed=2)]
    series[0][[5, 6, 70]] = np.nan
    model = Structural(series, [np.column_stack([np.ones(len(y)), np.linspace(-1, 1, len(y))]) for y in series])
    parameters = Parameters(blocks, 120)
    vector = parameters.start
    steps = 1e-4 * np.eye(len(vector))

    def value(vector: Array) -> float:
        return model.log_likelihood(parameters.to_blocks(vector))

    expected = [(value(vector + step) - value(vector - step)) / 2e-4 for step in steps]
    slope = Filtered(model, parameters.to_blocks(vector)).slope(parameters, vector)
    np.testing.assert_allclose(slope, expected, rtol=1e-3, atol=1e-3)


def test_explained_variance_is_that_of_filtered_states() -> None:
    steps = 20_000
    y = wave(steps, 12, 20, seed=4, snr=2.0)
    blocks = (Block(variance=2.0, rate=math.log(2) / 20, angle=2 * math.pi / 12), DECAY)
    fit = Filtered(Structural([y], [np.zeros((steps, 0))]), blocks)
    (states,) = fit.filtered_states(steps)
    parts = np.einsum("tku,hku->htk", states[100:], fit.powers(8))
    measured = np.mean([(part * part.sum(1, keepdims=True)).mean(0) for part in parts], axis=0)
    np.testing.assert_allclose(fit.explained(8)[0], measured[0], rtol=0.1)  # of about 500 independent swings

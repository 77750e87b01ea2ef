from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import statsmodels.api as sm
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.stats import kstest, sem

from parallelrnn.errors import ArgumentError
from parallelrnn.theory.regression import (
    AnalyticTarget,
    Predict,
    Risk,
    RoughTarget,
    Target,
    _mixed,
    _signs,
    distance,
    excess_risk,
    minimax_slope,
    sample,
    slope_of,
)
from tests.support import raises

Array = NDArray[np.float64]


def grid(length: int, input_size: int, points: int) -> Array:
    """Sequences (N, T, C) at all points of a grid: means over it are integrals of trigonometric polynomials."""
    dimension = length * input_size
    axes = np.meshgrid(*[np.arange(points) / points] * dimension, indexing="ij")
    return np.stack(axes, -1).reshape(-1, length, input_size)


def constant(value: float) -> Predict:
    return lambda x: np.full(len(x), value)


@pytest.mark.parametrize(("length", "input_size"), [(1, 1), (2, 1), (1, 3)])
def test_the_analytic_target_is_a_trigonometric_polynomial_of_mean_square_one(length: int, input_size: int) -> None:
    dimension = length * input_size
    values = AnalyticTarget(length, input_size)(grid(length, input_size, 8)).reshape([8] * dimension)
    coefficients = np.fft.fftn(values) / values.size
    for frequency in itertools.product(range(8), repeat=dimension):
        by_hand = math.prod({0: 1 / 2, 1: -1 / 4, 7: -1 / 4}.get(component, 0.0) for component in frequency)  # of sin^2
        assert coefficients[frequency] == pytest.approx((8 / 3) ** (dimension / 2) * by_hand, abs=1e-14)
    assert np.mean(values**2) == pytest.approx(1)


@pytest.mark.parametrize(
    ("smoothness", "dimension"), [(0.3, 1), (0.5, 1), (0.5, 2), (1.5, 1), (1.9, 1), (1.5, 2), (1.5, 4)]
)
def test_a_rough_target_has_its_smoothness_and_not_more(smoothness: float, dimension: int) -> None:
    """Second differences over cells of side 2^-j are of order 2^(-beta j), from above and from below.

    From a corner of a cell of level j to its centre to the opposite corner, the levels above j vanish, and level j is
    twice the height of a bump. Level j - i is at most two heights; and at most its second derivative along the
    diagonal, which is no more than 2 pi^2 D^2 heights in units of its cells, times 4^-(i + 1), half a diagonal squared.
    """
    target = RoughTarget(smoothness, length=dimension)
    height = (8 / 3) ** (dimension / 2)
    random = np.random.default_rng(0)
    for level in range(5, 15):
        corner = random.integers(2**level, size=(200, dimension)) / 2**level
        start, centre, end = (target((corner + part / 2**level)[:, :, None]) for part in (0.0, 0.5, 1.0))
        second = abs(start - 2 * centre + end) / (height * 2.0 ** (-smoothness * level))
        below = sum(
            min(2.0, np.pi**2 * dimension**2 / 2 * 4.0**-i) * 2 ** (smoothness * i) for i in range(1, level + 1)
        )
        # One of the two signs of level j adds to what the levels below have: with 32 cells or more, somewhere it does.
        # Rounding of values of order one is 1e-16, and heights are 2^-27 = 1e-8 or more.
        assert 2 - 1e-6 <= second.max() <= 2 + below + 1e-6


def test_signs_are_fair_and_do_not_tell_of_each_other() -> None:
    cells = np.stack(np.meshgrid(*[np.arange(64, dtype=np.uint64)] * 2, indexing="ij"), -1).reshape(-1, 2)
    first, second = (_signs(cells, key).reshape(64, 64) for key in (5, 6))
    products = [first, first[1:] * first[:-1], first[:, 1:] * first[:, :-1], first[1:, 1:] * first[:-1, :-1]]
    products += [np.triu(first * first.T, 1)[np.triu_indices(64, 1)], first * second, first[::2] * second[:32]]
    for signs in products:
        assert set(np.unique(signs)) == {-1.0, 1.0}
        assert abs(signs.mean()) < 4 / math.sqrt(signs.size)  # four standard errors
    # The first number of SplitMix64 from the seed 1234567, as in its published implementations.
    assert _mixed(np.array([1234567], dtype=np.uint64))[0] == 6457827717110365317
    x = np.random.default_rng(0).uniform(size=(100, 2, 1))
    assert (RoughTarget(1.5, 2, seed=1)(x) == RoughTarget(1.5, 2, seed=1)(x)).all()
    assert (RoughTarget(1.5, 2, seed=1)(x) != RoughTarget(1.5, 2, seed=2)(x)).all()


@pytest.mark.parametrize(("smoothness", "dimension"), [(0.5, 1), (1.5, 2), (1.5, 4), (2.0, 3)])
def test_the_rate_balances_bias_and_variance(smoothness: float, dimension: int) -> None:
    """Local means over balls of radius h: squared bias h^(2 beta), variance 1 / (N h^D), at the best h."""

    def log_risk(log_size: float) -> float:
        def risk(log_h: float) -> float:
            return float(np.logaddexp(2 * smoothness * log_h, -log_size - dimension * log_h))

        return float(minimize_scalar(risk, bounds=(-log_size, 0), method="bounded").fun)

    assert minimax_slope(smoothness, dimension) == pytest.approx((log_risk(40.0) - log_risk(20.0)) / 20, abs=1e-6)


def test_a_sample_is_uniform_with_the_noise_asked_for() -> None:
    target = RoughTarget(1.5, 3, input_size=2)
    x, y = sample(target, 4000, noise=0.3, seed=1)
    assert x.shape == (4000, 3, 2)
    assert kstest(x.ravel(), "uniform").pvalue > 0.001
    assert kstest((y - target(x)) / 0.3, "norm").pvalue > 0.001
    assert (sample(target, 4000, 0.3, seed=1)[1] == y).all()
    assert not np.isin(sample(target, 4000, 0.3, seed=2)[0], x).any()
    assert not np.isin(sample(target, 2000, 0.3, seed=1)[0], x).any()


@pytest.mark.parametrize("value", [0.0, 0.5, 2.0])
def test_the_distance_of_a_constant_is_what_its_integral_says(value: float) -> None:
    target = AnalyticTarget(2)
    square = (target(grid(2, 1, 16)) - value) ** 2  # exact on the grid up to its own square
    error = square.std() / math.sqrt(20_000)
    assert distance(constant(value), target) == pytest.approx(square.mean(), abs=4 * error)
    assert distance(target, target) == 0


def test_the_points_of_a_distance_are_none_of_the_sample() -> None:
    """A predictor that knows its sample by heart, and nothing else."""
    target = AnalyticTarget(2)

    def by_heart(x: Array, y: Array) -> Predict:
        return lambda new: np.where(np.isin(new, x).all((1, 2)), target(new), 0.0)

    (risk,) = excess_risk(by_heart, target, [20_000], replicates=1)  # as many as there are points to compare at
    assert risk.excess == distance(constant(0.0), target)


def test_a_fit_of_one_parameter_has_the_risk_of_its_variance() -> None:
    """y = c f0 + noise by least squares: (c - 1)^2 is noise^2 / N times a chi-square of one degree, nearly."""
    target, size, noise = AnalyticTarget(1), 400, 0.7

    def scaled(x: Array, y: Array) -> Predict:
        scale = target(x) @ y / (target(x) @ target(x))
        return lambda new: scale * target(new)

    risks = [risk.excess for risk in excess_risk(scaled, target, [size], replicates=300, noise=noise)]
    assert np.mean(risks) * size / noise**2 == pytest.approx(1, abs=4 * math.sqrt(2 / 300))


def regressogram(x: Array, y: Array) -> Predict:
    """Means over sqrt(N) equal bins, the best number of them for a smoothness of 1/2 in one dimension."""
    bins = math.isqrt(len(y))
    place = (bins * x[:, 0, 0]).astype(int)
    means = np.bincount(place, y, bins) / np.maximum(1, np.bincount(place, minlength=bins))
    return lambda new: means[(bins * new[:, 0, 0]).astype(int)]


def test_means_over_bins_are_as_fast_as_any_method_can_be() -> None:
    """With 2^k bins and N = 4^k, squared bias and variance are both of order N^(-1/2), on average over signs."""
    risks = [
        replace(risk, seed=seed)
        for seed in range(12)
        for risk in excess_risk(regressogram, RoughTarget(0.5, 1, seed=seed), [4**k for k in range(4, 8)], replicates=1)
    ]
    slope = slope_of(risks)
    # The error is that of other signs and samples. Levels whose cells are wider than a bin fall faster, and add 0.01.
    assert slope.value == pytest.approx(minimax_slope(0.5, 1), abs=0.01 + 3 * slope.standard_error)
    assert slope.standard_error < 0.02


def test_the_slope_is_that_of_statsmodels() -> None:
    random = np.random.default_rng(0)
    risks = [Risk(size, seed, random.lognormal()) for size in (10, 20, 80) for seed in range(4)]

    def theirs(risks: list[Risk]) -> Array:
        design = sm.add_constant(np.log([risk.size for risk in risks]))
        return np.array(sm.OLS(np.log([risk.excess for risk in risks]), design).fit().params)

    ours = slope_of(risks)
    assert (ours.intercept, ours.value) == pytest.approx(tuple(theirs(risks)))
    by_seed = [theirs([risk for risk in risks if risk.seed == seed])[1] for seed in range(4)]
    assert ours.standard_error == pytest.approx(sem(by_seed))
    assert ours.at(40) == pytest.approx(math.exp(theirs(risks) @ [1, math.log(40)]))


@pytest.mark.parametrize(
    "risks",
    [
        [],
        [Risk(10, 0, 1.0), Risk(10, 1, 1.0)],
        [Risk(10, 0, 1.0), Risk(20, 0, 0.5)],
        [Risk(10, 0, 1.0), Risk(20, 0, 0.5), Risk(20, 1, 0.5)],
    ],
)
def test_a_slope_needs_some_fits(risks: list[Risk]) -> None:
    with raises(ArgumentError, f"{len(risks)} of", argument="risks"):
        slope_of(risks)


@pytest.mark.parametrize("smoothness", [0.0, -1.0, 1.0, 2.0, math.inf, math.nan])
def test_rough_targets_have_a_smoothness_below_two_other_than_one(smoothness: float) -> None:
    with raises(ArgumentError, argument="smoothness"):
        RoughTarget(smoothness, 2)


@pytest.mark.parametrize("target", [AnalyticTarget(2), RoughTarget(0.5, 2)])
@pytest.mark.parametrize("shape", [(5, 2), (5, 1, 2), (5, 3, 1)])
def test_sequences_of_another_shape_are_rejected(target: Target, shape: tuple[int, ...]) -> None:
    with raises(ArgumentError, argument="x", got=shape):
        target(np.zeros(shape))


def test_the_rate_has_a_limit_for_analytic_functions_and_needs_smoothness_and_dimension() -> None:
    assert minimax_slope(math.inf, 4) == -1 == pytest.approx(minimax_slope(1e9, 4))
    for smoothness in (0.0, math.nan):
        with raises(ArgumentError, argument="smoothness"):
            minimax_slope(smoothness, 1)
    with raises(ArgumentError, argument="dimension", got=0):
        minimax_slope(1.0, 0)

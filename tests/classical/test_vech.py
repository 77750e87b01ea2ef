from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from arch import univariate
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import multivariate_normal

from parallelrnn import ParaRNN, forecast_modes, recurrence_features
from parallelrnn.classical.garch import GARCH
from parallelrnn.classical.vech import (
    VechCoefficients,
    VechFit,
    VechGARCH,
    _BekkLikelihood,
    bekk,
    covariance_backcast,
    covariance_forecast,
    covariance_path,
    duplication,
    from_vech,
    to_vech,
    unvech,
    vech,
)
from parallelrnn.errors import ArgumentError, InputError
from tests.classical.models import check_likelihood, market
from tests.support import raises, warns

Array = NDArray[np.float64]

C = np.array([[0.3, 0.0], [0.1, 0.25]])
A = np.array([[0.35, 0.05], [-0.1, 0.4]])
B = np.array([[0.85, 0.03], [0.05, 0.8]])


def markets(steps: int = 400) -> Array:
    return np.stack([market(name, steps) for name in ("sp500", "nasdaq")], axis=1)


def bekk_path(constant: Array, arch: Array, garch: Array, errors: Array, level: Array) -> Array:
    """H(t) = C C' + A y y' A' + B H B' as it stands, matrix by matrix, and one step beyond the errors."""
    path, product, now = [], level, level
    for error in (*errors, None):
        now = constant @ constant.T + arch @ product @ arch.T + garch @ now @ garch.T
        path.append(now)
        if error is not None:
            product = np.outer(error, error)
    return np.stack(path)


def simulated(steps: int, seed: int = 0) -> Array:
    noise = np.random.default_rng(seed).standard_normal((steps + 200, 2))
    errors, now = np.zeros_like(noise), np.eye(2)
    for t in range(1, len(noise)):
        now = C @ C.T + A @ np.outer(errors[t - 1], errors[t - 1]) @ A.T + B @ now @ B.T
        errors[t] = np.linalg.cholesky(now) @ noise[t]
    return errors[200:]


def log_densities(params: Array, returns: Array, level: Array) -> Array:
    """(T,), from the means of two series, vech(C), A and B."""
    errors, lower = returns - params[:2], np.array([[params[2], 0.0], [params[3], params[4]]])
    path = bekk_path(lower, params[5:9].reshape(2, 2), params[9:].reshape(2, 2), errors, level)[:-1]
    squares = np.einsum("ti,tij,tj->t", errors, np.linalg.inv(path), errors)
    densities: Array = -0.5 * (np.log(np.linalg.det(2 * np.pi * path)) + squares)
    return densities


def some_model(size: int, seed: int) -> tuple[Array, Array, Array]:
    """C, A and B of n series."""
    random = np.random.default_rng(seed)
    constant = np.tril(random.uniform(0.1, 0.5, (size, size)))
    arch = 0.3 * np.eye(size) + random.normal(0, 0.05, (size, size))
    return constant, arch, 0.9 * np.eye(size) + random.normal(0, 0.03, (size, size))


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_vech_stacks_the_columns_of_the_lower_triangle(size: int) -> None:
    matrix = np.random.default_rng(size).normal(size=(size, size))
    matrix = matrix + matrix.T
    stacked = [matrix[row, column] for column in range(size) for row in range(column, size)]
    assert vech(matrix).tolist() == stacked
    assert (unvech(vech(matrix)) == matrix).all()
    np.testing.assert_array_equal(duplication(size) @ stacked, matrix.ravel(order="F"))


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 3), st.integers(0, 10_000))
def test_there_and_back(size: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    length = size * (size + 1) // 2
    garch = random.normal(size=(length, length))
    garch *= random.uniform(0.1, 0.99) / abs(np.linalg.eigvals(garch)).max()
    given_ = VechCoefficients(random.normal(size=length), random.normal(size=(length, length)), garch)
    for matrix, back in zip(given_, to_vech(from_vech(*given_)), strict=True):
        np.testing.assert_allclose(back, matrix, atol=1e-10)


def test_a_part_of_the_output_may_be_in_the_bias_of_the_aggregate() -> None:
    layer, moved, errors = from_vech(*bekk(C, A, B)), from_vech(*bekk(C, A, B)), simulated(60)
    level = torch.tensor([0.3, -0.1, 0.2], dtype=torch.float64)
    recurrent = torch.block_diag(*(block.matrix for block in moved.recurrent_blocks()))
    with torch.no_grad():  # the state is less by what the aggregate adds
        shift = torch.linalg.solve(moved.aggregate.weight, level)
        moved.bias_ih_l0.add_(recurrent @ shift - shift)
        moved.aggregate.bias.add_(level)
    for matrix, back in zip(bekk(C, A, B), to_vech(moved), strict=True):
        np.testing.assert_allclose(back, matrix, atol=1e-10)
    np.testing.assert_allclose(covariance_path(moved, errors), covariance_path(layer, errors), rtol=1e-9)
    forecasts = covariance_forecast(layer, errors, 20)
    np.testing.assert_allclose(covariance_forecast(moved, errors, 20), forecasts, rtol=1e-9)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_path_of_a_bekk_model_is_that_of_its_matrices(size: int) -> None:
    model = some_model(size, size)
    errors = np.random.default_rng(9).standard_normal((300, size))
    layer = from_vech(*bekk(*model))
    for level in (covariance_backcast(errors), 2 * np.eye(size) + 0.5):
        expected = bekk_path(*model, errors, level)
        np.testing.assert_allclose(covariance_path(layer, errors, level), expected[:-1], rtol=1e-9, atol=1e-11)


def test_the_path_of_any_vech_model_is_that_of_its_equations() -> None:
    random = np.random.default_rng(4)
    constant, arch = np.array([0.5, 0.1, 0.6]), 0.05 * np.eye(3) + random.uniform(-0.01, 0.01, (3, 3))
    garch = 0.85 * np.eye(3) + random.uniform(-0.02, 0.02, (3, 3))
    errors = random.standard_normal((100, 2))
    now = product = [1.5, 0.2, 1.1]
    path = covariance_path(from_vech(constant, arch, garch), errors, [[1.5, 0.2], [0.2, 1.1]])
    for (first, second), covariance in zip(errors, path, strict=True):
        now = [
            constant[i] + sum(arch[i, j] * product[j] for j in range(3)) + sum(garch[i, j] * now[j] for j in range(3))
            for i in range(3)
        ]
        np.testing.assert_allclose(covariance, [[now[0], now[1]], [now[1], now[2]]], rtol=1e-10)
        product = [first * first, second * first, second * second]


def test_forecasts_are_those_of_the_matrices_and_tend_to_the_unconditional_covariance() -> None:
    errors, level = simulated(50), np.eye(2)
    coefficients = bekk(C, A, B)
    forecasts = covariance_forecast(from_vech(*coefficients), errors, 400, level)
    now = bekk_path(C, A, B, errors, level)[-1]
    for forecast in forecasts:
        np.testing.assert_allclose(forecast, now, rtol=1e-9)
        now = C @ C.T + A @ now @ A.T + B @ now @ B.T
    np.testing.assert_allclose(forecasts[-1], coefficients.unconditional_covariance, rtol=1e-6)
    # What is left of the way shrinks at the pace of the slowest mode.
    distances = abs(forecasts - coefficients.unconditional_covariance)[:, 0, 0]
    assert distances[100] / distances[99] == pytest.approx(coefficients.persistence, rel=1e-4)
    assert coefficients.half_life == pytest.approx(math.log(0.5) / math.log(coefficients.persistence))


def test_memory_is_phi_and_forecasts_are_theta_and_phi() -> None:
    coefficients = bekk(C, A, B)
    layer = from_vech(*coefficients)
    first, second = np.linalg.eigvals(B)
    moduli = sorted(feature.modulus for feature in recurrence_features(layer))
    assert moduli == pytest.approx(sorted([first**2, first * second, second**2]), rel=1e-9)
    loop = abs(np.linalg.eigvals(coefficients.arch + coefficients.garch))
    moduli = [mode.modulus for mode in forecast_modes(layer) for _ in range(1 + (mode.kind == "C"))]
    assert sorted(moduli) == pytest.approx(sorted(loop), rel=1e-9)


def test_diagonal_matrices_give_each_series_its_own_variance_as_in_arch() -> None:
    errors = markets()
    layer = from_vech(*bekk(np.diag([0.3, 0.4]), np.diag([0.3, 0.4]), np.diag([0.9, 0.85])))
    path, level = covariance_path(layer, errors), covariance_backcast(errors)
    for at, params in enumerate([(0.09, 0.09, 0.81), (0.16, 0.16, 0.7225)]):
        model, bounds = univariate.GARCH(), np.tile([0.0, np.inf], (len(errors), 1))
        assert level[at, at] == pytest.approx(model.backcast(errors[:, at]), rel=1e-12)
        expected = model.compute_variance(
            np.array(params), errors[:, at].copy(), np.zeros(len(errors)), level[at, at], bounds
        )
        np.testing.assert_allclose(path[:, at, at], expected, rtol=1e-10)


def test_the_likelihood_and_its_derivatives_are_those_of_the_matrices() -> None:
    returns = markets(150) / markets(150).std(0)
    ours = _BekkLikelihood(returns, True)
    params = np.concatenate([[0.03, -0.02], vech(C), A.ravel(), B.ravel()])

    def terms(at: Array) -> Array:
        return log_densities(at, returns, covariance_backcast(returns))

    check_likelihood(ours, params, terms)


@cache
def market_fit() -> VechFit:
    return VechGARCH().fit(markets())


def test_the_fit_of_two_markets_is_a_maximum() -> None:
    fitted, returns = market_fit(), markets()
    level = covariance_backcast(returns - returns.mean(0))

    def value(params: Array) -> float:
        return float(log_densities(params, returns, level).sum())

    best = value(fitted.params)
    assert fitted.log_likelihood == pytest.approx(best, rel=1e-10)
    pairs = zip(returns, fitted.covariances, strict=True)
    densities = [multivariate_normal.logpdf(pair, fitted.mean, covariance) for pair, covariance in pairs]
    assert sum(densities) == pytest.approx(best, rel=1e-10)
    # A step of a thousandth of a standard error costs about 5e-7 if errors are Gaussian; values round to about 1e-12.
    for at, error in enumerate(fitted.standard_errors):
        step = 1e-3 * error * np.eye(len(fitted.params))[at]
        above, below = value(fitted.params + step), value(fitted.params - step)
        assert max(above, below) < best
        assert abs(above - below) < 0.5 * (2 * best - above - below)  # symmetric: the top is between them
    assert np.linalg.eigvalsh(fitted.covariances).min() > 0
    # Not below two series without anything in common, which are in the search.
    alone = sum(GARCH(1, 1).fit(column).log_likelihood for column in returns.T)
    assert fitted.log_likelihood > alone


def test_the_results_of_a_fit() -> None:
    fitted = market_fit()
    assert len(fitted.names) == len(fitted.params) == len(fitted.standard_errors) == 13
    assert fitted.names[2:6] == ["C[1,1]", "C[2,1]", "C[2,2]", "A[1,1]"]
    assert all(name in fitted.summary() for name in fitted.names)
    assert fitted.aic == pytest.approx(2 * 13 - 2 * fitted.log_likelihood)
    assert fitted.bic == pytest.approx(13 * math.log(len(fitted.returns)) - 2 * fitted.log_likelihood)
    assert fitted.modes[0].modulus == pytest.approx(fitted.persistence)
    assert fitted.modes[0].half_life == pytest.approx(fitted.half_life)
    largest = abs(np.linalg.eigvals(fitted.garch)).max()
    assert max(feature.modulus for feature in fitted.features) == pytest.approx(largest**2)
    np.testing.assert_allclose(fitted.forecast(3000)[-1], fitted.unconditional_covariance, rtol=1e-6)
    # The whitened errors have the quadratic forms of the errors themselves.
    squares = np.einsum("ti,tij,tj->t", fitted.errors, np.linalg.inv(fitted.covariances), fitted.errors)
    np.testing.assert_allclose((fitted.standardized**2).sum(1), squares, rtol=1e-9)


@pytest.mark.parametrize("mean", [True, False])
def test_the_fit_of_one_series_is_that_of_a_garch(mean: bool) -> None:
    returns = markets(1000)[:, :1]  # in which the persistence is below its bound, which a BEKK model has not
    ours, garch = VechGARCH(mean=mean).fit(returns), GARCH(1, 1, mean=mean).fit(returns)
    assert ours.log_likelihood == pytest.approx(garch.log_likelihood, rel=1e-10)
    # omega, alpha and beta are squares here, so that their errors are 2 c times those of c.
    powers = np.array([1] * mean + [2, 2, 2])
    np.testing.assert_allclose(ours.params**powers, garch.params, rtol=1e-5)
    slopes = powers * ours.params ** (powers - 1)
    np.testing.assert_allclose(slopes * ours.standard_errors, garch.standard_errors, rtol=1e-4)
    np.testing.assert_allclose(ours.forecast(5)[:, 0, 0], garch.forecast(5), rtol=1e-5)


def test_true_parameters_are_recovered_in_any_units() -> None:
    units = np.array([10.0, 0.1])
    fitted = VechGARCH(mean=False).fit(simulated(1200) * units)
    ratios = units[:, None] / units
    truth = np.concatenate([vech(units[:, None] * C), (A * ratios).ravel(), (B * ratios).ravel()])
    distance = (fitted.params - truth) / fitted.standard_errors
    assert abs(distance).max() < 3.5  # of eleven: once in two hundred samples by chance
    assert (fitted.standard_errors / abs(truth))[[3, 6, 7, 10]].max() < 0.15  # the diagonals of A and B
    assert fitted.persistence == pytest.approx(bekk(C, A, B).persistence, abs=0.1)


def test_growing_variances_do_not_give_a_model_that_never_forgets() -> None:
    noise = np.random.default_rng(1).standard_normal((250, 2))
    with warns(UserWarning):
        fitted = VechGARCH(mean=False).fit(noise * np.exp(np.arange(250) / 100)[:, None])
    assert abs(np.linalg.eigvals(fitted.garch)).max() < 1
    assert fitted.persistence > 1
    assert fitted.half_life == math.inf
    assert np.isnan(fitted.unconditional_covariance).all()
    assert "shocks to volatility do not fade" in fitted.summary()
    assert "C is at its bound" in fitted.summary()


def test_a_path_that_is_not_positive_definite_is_rejected() -> None:
    arch = np.zeros((3, 3))
    arch[1, 1] = 0.9  # covariances follow products, and variances do not
    layer = from_vech([1.0, 0.0, 1.0], arch, 0.1 * np.eye(3))
    with raises(InputError, "step 2", "eigenvalue -"):
        covariance_path(layer, np.array([[0.1, 0.1], [2.0, 2.0], [0.0, 0.0]]), np.eye(2))


WIDE = ParaRNN(3, 4, nonlinearity="linear", aggregate=torch.nn.Linear(4, 3))


@pytest.mark.parametrize(
    ("call", "argument", "facts"),
    [
        (lambda: from_vech(np.ones(4), np.eye(4), np.eye(4)), None, ["3 or 6", "got 4"]),
        (lambda: from_vech(np.ones((2, 2)), np.eye(3), np.eye(3)), "constant", ["(2, 2)"]),
        (lambda: from_vech(np.ones(3), np.eye(2), 0.5 * np.eye(3)), "arch", ["(3, 3)", "got (2, 2)"]),
        (lambda: from_vech(np.ones(3), np.eye(3), np.full((3, 3), np.nan)), "garch", ["nan"]),
        (lambda: from_vech(np.ones(3), 0.1 * np.eye(3), np.eye(3)), "garch", ["got 1.0"]),
        (lambda: to_vech(WIDE), "layer", ["3 states", "got 4"]),
        (lambda: covariance_path(from_vech(*bekk(C, A, B)), np.ones((5, 3))), "errors", ["(T, 2)", "(5, 3)"]),
        (lambda: covariance_path(from_vech(*bekk(C, A, B)), np.full((5, 2), np.nan)), "errors", []),
        (lambda: covariance_forecast(from_vech(*bekk(C, A, B)), np.ones((5, 2)), 0), "steps", ["got 0"]),
        (lambda: VechGARCH().fit(np.arange(500.0)), "returns", ["(500,)"]),
    ],
)
def test_rejected_arguments(call: Any, argument: str | None, facts: list[str]) -> None:
    with raises(ArgumentError, *facts, argument=argument):
        call()


def test_collinear_returns_are_rejected() -> None:  # other returns: see test_garch.py
    with raises(InputError):
        VechGARCH().fit(np.outer(np.arange(200.0), [1.0, 2.0]))
    with raises(InputError, "129 returns", "130"):
        VechGARCH().fit(np.ones((129, 2)))

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import check_grad, least_squares
from statsmodels.datasets import macrodata, nile, sunspots
from statsmodels.tsa.arima.model import ARIMA
from statsmodels.tsa.arima_process import ArmaProcess

from parallelrnn.classical import ARMA, to_arma
from parallelrnn.classical.arma_fit import OneStepErrors, from_partials, to_partials
from parallelrnn.errors import ArgumentError, InputError
from tests.classical.models import conditional_arma
from tests.support import raises

Array = NDArray[np.float64]

SIMULATED: dict[str, tuple[list[float], list[float]]] = {
    "AR(1)": ([0.5], []),
    "MA(1)": ([], [0.6]),
    "ARMA(1, 1)": ([0.7], [0.3]),
    "AR(2), a wave": ([1.2, -0.5], []),
    "ARMA(2, 1), a wave": ([1.2, -0.5], [0.4]),
    "MA(2)": ([], [0.5, 0.3]),
    "ARMA(2, 2), a long wave": ([1.6, -0.9], [0.5, 0.2]),
    "AR(3)": ([0.3, 0.2, 0.1], []),
    "ARMA(1, 1), alternating": ([-0.6], [0.8]),
    "ARMA(3, 1)": ([1.0, -0.8, 0.3], [0.6]),
}


def simulated(name: str) -> Array:
    ar, ma = SIMULATED[name]
    random = np.random.default_rng(list(SIMULATED).index(name))
    process = ArmaProcess.from_coeffs(ar, ma)
    sample: Array = process.generate_sample(500, distrvs=random.standard_normal, burnin=200)
    return 3 + sample


REAL: dict[str, tuple[Any, int, int]] = {
    "Nile": (lambda: nile.load_pandas().data["volume"], 1, 1),
    "sunspots": (lambda: np.sqrt(sunspots.load_pandas().data["SUNACTIVITY"]), 2, 1),
    "growth": (lambda: 400 * np.log(macrodata.load_pandas().data["realgdp"]).diff().dropna(), 1, 1),
}


def series_of(name: str) -> tuple[Array, int, int]:
    if name in SIMULATED:
        ar, ma = SIMULATED[name]
        return simulated(name), len(ar), len(ma)
    load, p, q = REAL[name]
    return np.asarray(load(), dtype=float), p, q


@pytest.mark.filterwarnings("ignore:Maximum Likelihood optimization failed:UserWarning")  # begun at the maximum
@pytest.mark.parametrize("name", [*SIMULATED, *REAL])
def test_estimates_beside_those_of_statsmodels(name: str) -> None:
    """The same likelihood to rounding, no smaller a maximum, and the estimates that come with it."""
    series, p, q = series_of(name)
    fitted = ARMA(p, q).fit(series)
    model = conditional_arma(series, p, q, p)
    assert fitted.log_likelihood == pytest.approx(model.loglike([*fitted.params, fitted.variance]), abs=1e-8)
    theirs = model.fit(disp=0, cov_type="approx")
    assert fitted.log_likelihood > theirs.llf - 1e-6
    # At a maximum the likelihood is flat, so their search stops this near to it, in standard errors.
    np.testing.assert_allclose((fitted.params - theirs.params[:-1]) / theirs.bse[:-1], 0, atol=0.05)
    np.testing.assert_allclose(fitted.standard_errors, theirs.bse[:-1], rtol=0.05)  # theirs, by differences of values
    # Their exact likelihood, of a stationary start, has its maximum elsewhere, but not by much.
    exact = ARIMA(series, order=(p, 0, q)).fit(start_params=[*fitted.params, fitted.variance])
    np.testing.assert_allclose((fitted.params - exact.params[:-1]) / exact.bse[:-1], 0, atol=0.75)


def test_it_finds_the_maximum_from_its_own_starts() -> None:
    """Of thirty random starts on a hard series, none gets higher."""
    series, p, q = series_of("ARMA(2, 2), a long wave")
    fitted = ARMA(p, q).fit(series)
    problem = OneStepErrors((series - series.mean()) / series.std(), p, q, True)
    random = np.random.default_rng(0)
    best = min(
        least_squares(problem.errors, random.normal(size=5) * [0.1, 1, 1, 1, 1], problem.jacobian, method="lm").cost
        for _ in range(30)
    )
    assert fitted.variance <= 2 * best * series.std() ** 2 / (len(series) - p) * (1 + 1e-8)


@pytest.mark.parametrize("mean", [True, False])
@pytest.mark.parametrize("orders", [(2, 2), (3, 0), (0, 2), (1, 3)])
def test_slopes_against_differences(orders: tuple[int, int], mean: bool) -> None:
    p, q = orders
    problem = OneStepErrors(simulated("ARMA(1, 1)")[:60] - 3, p, q, mean)
    free = np.random.default_rng(0).normal(size=p + q + mean) * 0.5
    weights = np.random.default_rng(1).normal(size=60 - p)
    error = check_grad(lambda x: weights @ problem.errors(x), lambda x: weights @ problem.jacobian(x), free)
    assert error < 1e-5 * np.linalg.norm(weights @ problem.jacobian(free))


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_partial_autocorrelations_are_those_of_the_process(count: int) -> None:
    free = np.random.default_rng(count).normal(size=count)
    coefficients, _ = from_partials(free)
    np.testing.assert_allclose(to_partials(coefficients), free, rtol=1e-9)
    if count:
        theirs = ArmaProcess.from_coeffs(coefficients).pacf(count + 1)[1:]
        np.testing.assert_allclose(free / np.sqrt(1 + free**2), theirs, rtol=1e-6)


@pytest.mark.parametrize("name", ["ARMA(2, 1), a wave", "MA(2)", "Nile"])
def test_forecasts_are_those_of_statsmodels(name: str) -> None:
    series, p, q = series_of(name)
    fitted = ARMA(p, q).fit(series)
    forecast = fitted.forecast(30, level=80)
    filtered = conditional_arma(series, p, q, p).filter([*fitted.params, fitted.variance])
    theirs = filtered.get_forecast(30, exog=np.ones(30))
    np.testing.assert_allclose(forecast.point, theirs.predicted_mean, rtol=1e-9)
    np.testing.assert_allclose(np.stack([forecast.lower, forecast.upper], 1), theirs.conf_int(alpha=0.2), rtol=1e-9)


def test_a_fit_is_read_and_summarised() -> None:
    fitted = ARMA(2, 1).fit(series_of("sunspots")[0])
    (wave,) = fitted.modes
    assert 10.5 < wave.period < 11.5
    (memory,) = fitted.features
    assert memory.eigenvalue == pytest.approx(-fitted.coefficients.ma[0])
    np.testing.assert_allclose(to_arma(fitted.layer).ar, fitted.coefficients.ar, atol=1e-10)
    text = str(fitted.summary())
    assert "ARMA(2, 1)" in text
    for name, value, error in zip(fitted.names, fitted.params, fitted.standard_errors, strict=True):
        assert any(line.split()[:3] == [name, f"{value:.4f}", f"{error:.4f}"] for line in text.splitlines())
    at = conditional_arma(fitted.series, 2, 1, 2).filter([*fitted.params, fitted.variance])
    assert (fitted.aic, fitted.bic) == (pytest.approx(at.aic), pytest.approx(at.bic))


def test_neither_scale_nor_level_matters() -> None:
    series, p, q = series_of("ARMA(1, 1)")
    fitted, other = ARMA(p, q).fit(series), ARMA(p, q).fit(1e6 * series - 1e9)
    np.testing.assert_allclose(fitted.params[1:], other.params[1:], rtol=1e-5)
    assert other.variance == pytest.approx(1e12 * fitted.variance)
    np.testing.assert_allclose(fitted.standard_errors[1:], other.standard_errors[1:], rtol=1e-4)
    assert other.standard_errors[0] == pytest.approx(1e6 * fitted.standard_errors[0], rel=1e-4)


def test_as_much_given_makes_orders_comparable() -> None:
    series, _, _ = series_of("AR(1)")
    fitted = ARMA(1, 1).fit(series, given=6)
    model = conditional_arma(series, 1, 1, 6)
    assert fitted.log_likelihood == pytest.approx(model.loglike([*fitted.params, fitted.variance]), abs=1e-8)
    nested = [ARMA(p, 0).fit(series, given=6).log_likelihood for p in range(7)]
    assert nested == sorted(nested)  # more terms explain the same values no worse
    assert len(fitted.errors) == len(series) - 6


def test_estimates_at_the_edge_have_no_standard_errors() -> None:
    series = np.diff(np.random.default_rng(1).standard_normal(60))  # differenced for nothing
    with pytest.warns(UserWarning, match=r"^ma\b"):
        fitted = ARMA(0, 1).fit(series)
    assert fitted.coefficients.ma[0] == pytest.approx(-1, abs=1e-4)
    assert np.isnan(fitted.standard_errors).all()
    with pytest.warns(UserWarning, match="function evaluations"):  # scipy, at a unit root
        ARMA(1, 0).fit(np.arange(9.0))


@pytest.mark.parametrize(
    ("call", "argument", "facts"),
    [
        (lambda: ARMA(-1, 0), "p", ["-1"]),
        (lambda: ARMA(1, 0.5), "q", ["0.5"]),
        (lambda: ARMA(1, 1).fit([1.0, np.nan] * 9), "y", ["9 values", "position 1"]),
        (lambda: ARMA(1, 1).fit(np.zeros((9, 2))), "y", ["(9, 2)"]),
        (lambda: ARMA(1, 1).fit([1.0, 2.0]), "y", ["at least 8", "got 2"]),
        (lambda: ARMA(1, 1).fit([1.0] * 30), "y", []),
        (lambda: ARMA(1, 1).fit(np.arange(30.0) * 1e200), "y", ["3e+201"]),
        (lambda: ARMA(1, 1).fit(np.ma.masked_less(np.arange(30.0), 2)), "y", ["2 values", "position 0"]),
        (lambda: ARMA(2, 1).fit(np.arange(30.0), given=1), "given", ["2", "got 1"]),
        (lambda: ARMA(1, 0).fit(simulated("AR(1)")).forecast(2, level=0.95), "level", ["got 0.95"]),
        (lambda: ARMA(1, 0).fit(simulated("AR(1)")).forecast(2, level=[80, 95]), "level", ["[80, 95]"]),
        (lambda: ARMA(1, 0).fit(simulated("AR(1)")).forecast(0), "steps", ["got 0"]),
    ],
)
def test_rejected_series_and_arguments(call: Any, argument: str, facts: list[str]) -> None:
    with raises(ArgumentError, *facts, argument=argument):
        call()


def test_a_model_without_parameters_is_rejected() -> None:
    with raises(InputError):
        ARMA(0, 0, mean=False)

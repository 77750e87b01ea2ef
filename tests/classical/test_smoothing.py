"""Exponential smoothing as blocks: the recursions and fits of statsmodels and statsforecast."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from statsmodels.tsa.exponential_smoothing.ets import ETSModel

from parallelrnn import forecast_modes
from parallelrnn.classical import ETS, EtsCoefficients, from_ets, to_ets
from parallelrnn.classical.smoothing import _Chunk, seasonal_means
from parallelrnn.errors import ArgumentError, InputError
from parallelrnn.nn import ParaRNN

Array = NDArray[np.float64]
STORED = json.loads((Path(__file__).parents[1] / "data" / "statsforecast_ets.json").read_text())
COEFFICIENTS = [
    EtsCoefficients(0.3),
    EtsCoefficients(0.4, 0.1, phi=1.0),
    EtsCoefficients(0.5, 0.2, phi=0.9),
    EtsCoefficients(0.3, gamma=0.2, period=4),
    EtsCoefficients(0.3, 0.1, 0.2, 0.95, 12),
]


def quarters(seed: int, steps: int = 60) -> Array:
    noise = np.random.default_rng(seed).normal(0.3, 1.0, steps)
    return 10 + np.cumsum(noise) + np.resize([3.0, 0.0, -2.0, -1.0], steps)


def one_step(values: Array, coefficients: EtsCoefficients, initial: Array) -> Array:
    chunk = _Chunk([values], coefficients.period)
    states, readout = chunk.states(
        torch.tensor([coefficients[:4]], dtype=torch.float64), torch.from_numpy(initial)[None]
    )
    return (states[:-1, 0] * readout[0]).sum(-1).numpy()


@pytest.mark.parametrize("coefficients", COEFFICIENTS)
def test_there_and_back(coefficients: EtsCoefficients) -> None:
    assert tuple(to_ets(from_ets(coefficients))) == pytest.approx(tuple(coefficients), abs=1e-9)


@pytest.mark.parametrize("coefficients", COEFFICIENTS)
def test_the_layer_forecasts_the_next_value(coefficients: EtsCoefficients) -> None:
    values = quarters(0)
    season = [0.0] * (coefficients.period if coefficients.period > 1 else 0)
    expected = one_step(values, coefficients, np.array([0.0, 0.0, *season]))
    output, _ = from_ets(coefficients)(torch.from_numpy(values)[:, None])
    np.testing.assert_allclose(output[:-1, 0].detach().numpy(), expected[1:], atol=1e-9)


def test_level_trend_and_season_are_modes() -> None:
    modes = forecast_modes(from_ets(EtsCoefficients(0.3, 0.1, 0.2, 0.9, 4)))
    moduli = sorted(round(mode.modulus, 6) for mode in modes)
    assert moduli[0] == 0.9
    assert {round(mode.period, 6) for mode in modes if mode.kind == "C"} == {4.0}


@pytest.mark.parametrize(("trend", "period"), [(None, 1), ("add", 1), ("damped", 1), (None, 4), ("damped", 4)])
def test_recursions_and_fits_are_those_of_statsmodels(trend: str | None, period: int) -> None:
    series = [quarters(seed, steps) for seed, steps in enumerate((40, 75, 60))]
    fit = ETS(trend, period).fit(series)
    for index, values in enumerate(series):
        season = {"seasonal": "add", "seasonal_periods": period} if period > 1 else {}
        model = ETSModel(values, error="add", trend="add" if trend else None, damped_trend=trend == "damped", **season)
        result = model.fit(disp=False)
        # Theirs may stop a little short of the least squares, or at a limit of its own, and so may ours.
        assert fit.variance[index] < 1.002 * result.sse / len(values)
        params = dict(zip(model.param_names, result.params, strict=True))
        alpha, phi = params["smoothing_level"], params.get("damping_trend", 1.0) if trend else 0.0
        own = EtsCoefficients(
            alpha, params.get("smoothing_trend", 0.0), params.get("smoothing_seasonal", 0.0), phi, period
        )
        terms = [params[f"initial_seasonal.{lag}"] for lag in range(period)] if period > 1 else []
        initial = np.array([params["initial_level"], params.get("initial_trend", 0.0), *terms])
        np.testing.assert_allclose(one_step(values, own, initial), result.fittedvalues, atol=1e-8)


@pytest.mark.parametrize("name", STORED["models"])
def test_recursions_are_those_of_statsforecast(name: str) -> None:
    model, values = STORED["models"][name], np.array(STORED["series"])
    alpha, beta, gamma = (0.0 if np.isnan(value) else value for value in model["parameters"][:3])
    has_trend = name[1] == "A"
    initial = model["initial"] if has_trend else [model["initial"][0], 0.0, *model["initial"][1:]]
    own = EtsCoefficients(alpha, beta, gamma, float(has_trend), model["period"])
    np.testing.assert_allclose(one_step(values, own, np.array(initial)), model["fitted"], atol=1e-8)


def test_series_are_fitted_alike_alone_and_together() -> None:
    series = [quarters(seed, 30 + seed) for seed in range(40)]
    together = ETS("damped", 4).fit(series)
    alone = ETS("damped", 4).fit(series[17:18])
    np.testing.assert_allclose(together.forecast(8)[17], alone.forecast(8)[0], rtol=1e-6)
    assert together[17] == pytest.approx(alone[0], abs=1e-6)
    assert len(together) == 40


def test_a_straight_line_and_a_season_are_continued() -> None:
    time = np.arange(40.0)
    (forecast,) = ETS("add", 4).fit([time + np.resize([3.0, 0.0, -2.0, -1.0], 40)]).forecast(6)
    np.testing.assert_allclose(forecast, np.arange(40, 46) + np.resize([3.0, 0.0, -2.0, -1.0], 6), atol=1e-3)


def test_the_criterion_prefers_the_season_that_is_there() -> None:
    series = [quarters(3)]
    assert ETS(None, 4).fit(series).aicc[0] < ETS(None, 1).fit(series).aicc[0]
    flat = [np.random.default_rng(0).standard_normal(60)]
    assert ETS(None, 1).fit(flat).aicc[0] < ETS("add", 4).fit(flat).aicc[0]


def test_seasonal_means_are_those_of_the_season() -> None:
    values = 0.5 * np.arange(48) + np.resize([3.0, 0.0, -2.0, -1.0], 48)
    np.testing.assert_allclose(seasonal_means(values, 4), [3.0, 0.0, -2.0, -1.0], atol=1e-9)


def test_rejected_arguments() -> None:
    with pytest.raises(ArgumentError, match="trend"):
        ETS("multiplicative")
    with pytest.raises(ArgumentError, match="at least 8 values"):
        ETS("add", 4).fit([np.arange(7.0)])
    with pytest.raises(ArgumentError, match="alpha"):
        from_ets(EtsCoefficients(0.0))
    with pytest.raises(InputError, match="no exponential smoothing"):
        to_ets(ParaRNN(1, 4, nonlinearity="linear", aggregate=torch.nn.Linear(4, 1)))

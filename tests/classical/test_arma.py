from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from statsmodels.tsa.arima_process import ArmaProcess
from torch import nn

from parallelrnn import ParaGRU, ParaRNN, forecast_modes, recurrence_features
from parallelrnn.classical import from_arma, reflect, to_arma
from parallelrnn.errors import ArgumentError, ArgumentTypeError, InputError
from tests.classical.models import ConditionalVARMA, conditional_arma
from tests.interpret.models import spectrum
from tests.support import raises, warns

Array = NDArray[np.float64]


def polynomial(moduli: list[float], angles: list[float]) -> Array:
    """Coefficients of lags, from inverse roots: pairs for angles, real ones for the moduli that are left."""
    roots: list[complex] = []
    for modulus, angle in zip(moduli, angles, strict=False):
        roots += [modulus * np.exp(1j * angle), modulus * np.exp(-1j * angle)]
    roots += [(-1) ** at * modulus for at, modulus in enumerate(moduli[len(angles) :])]
    return np.real(np.poly(roots))[1:] if roots else np.zeros(0)


def some_series(steps: int = 200, size: int = 1) -> Array:
    return np.random.default_rng(1).standard_normal((steps, size)).cumsum(0) * 0.3


SIDES = st.tuples(st.lists(st.floats(0.1, 0.95), max_size=3), st.lists(st.floats(0.2, 3.0), max_size=2))


@settings(max_examples=60, deadline=None)
@given(SIDES, SIDES, st.floats(-100, 100))
@example(([0.75, 0.5, 0.75], []), ([0.5], []), 5e-324)  # a mean so small that products with it vanish
def test_there_and_back(ar_side: Any, ma_side: Any, mean: float) -> None:
    ar, ma = -polynomial(*ar_side), polynomial(*ma_side)
    model = to_arma(from_arma(ar, ma, mean))
    for given_, back in ((ar, model.ar), (ma, model.ma)):
        assert len(back) <= len(given_)  # zeros at the end are left out
        np.testing.assert_allclose(np.pad(back, (0, len(given_) - len(back))), given_, atol=1e-10)
    # A mean comes from a division by one minus the sum of ar: the nearer to a unit root, the less is known of it.
    assert model.mean == pytest.approx(mean, abs=1e-10 * max(1, abs(mean)) / min(1, abs(1 - ar.sum())))


@pytest.mark.parametrize(
    ("ar", "ma"),
    [
        ([1.2, -0.5], [0.4, 0.3]),
        ([0.5], [0.2, -0.3, 0.1, 0.05]),
        ([0.1, 0.2, 0.1, 0.2], [0.5]),
        ([], [0.9, 0.2]),
        ([0.9], []),
        ([1.0], [-0.7]),  # a unit root: exponential smoothing
        ([1.8, -0.97], [0.25, -0.25, 0.0625]),
    ],
    ids=str,
)
def test_forecasts_are_those_of_statsmodels(ar: list[float], ma: list[float]) -> None:
    series = some_series()[:, 0] + 5
    layer = from_arma(ar, ma, 5.0)
    output = layer(torch.from_numpy(series)[:, None])[0][:, 0].detach().numpy()
    theirs = conditional_arma(series, len(ar), len(ma), 0).filter([5.0, *ar, *ma, 1.0]).fittedvalues
    np.testing.assert_allclose(output[:-1], theirs[1:], rtol=1e-10, atol=1e-10)


@pytest.mark.filterwarnings("ignore:Estimation of VARMA:UserWarning")  # nothing is estimated
@pytest.mark.parametrize("orders", [(1, 1), (2, 1), (1, 2), (2, 0), (0, 2)])
@pytest.mark.parametrize("size", [2, 3])
def test_several_series_there_and_back_and_as_in_statsmodels(orders: tuple[int, int], size: int) -> None:
    random = np.random.default_rng(size)
    ar, ma = (random.uniform(-0.35, 0.35, (order, size, size)) / max(1, order) for order in orders)
    layer = from_arma(ar, ma, np.arange(size))
    result = to_arma(layer)
    np.testing.assert_allclose(result.ar, ar, atol=1e-10)
    np.testing.assert_allclose(result.ma, ma, atol=1e-10)
    np.testing.assert_allclose(result.mean, np.arange(size), atol=1e-10)
    series = some_series(size=size)
    model = ConditionalVARMA(series, *orders)
    theirs = model.filter(model.vector(ar, ma)).fittedvalues
    output = from_arma(ar, ma)(torch.from_numpy(series))[0].detach().numpy()
    np.testing.assert_allclose(output[:-1], theirs[1:], rtol=1e-10, atol=1e-10)


def test_features_are_ma_roots_and_modes_ar_roots() -> None:
    ar, ma = -polynomial([0.95, 0.6, 0.7], [0.3, 1.9]), polynomial([0.5, 0.8, 0.4], [2.2])
    process = ArmaProcess.from_coeffs(ar, ma)
    layer = from_arma(ar, ma)
    features, modes = recurrence_features(layer), forecast_modes(layer)
    remembered = np.sort_complex(1 / process.maroots)
    # The state is as long as the longer side, and what the shorter leaves over is forgotten at once: no feature.
    np.testing.assert_allclose(spectrum(features, 12), remembered, atol=1e-7)
    assert features.nullity == 1
    np.testing.assert_allclose(spectrum(modes, 12), np.sort_complex(1 / process.arroots), atol=1e-7)
    wave = max(modes, key=lambda mode: mode.modulus)
    assert (wave.modulus, wave.period) == (pytest.approx(0.95), pytest.approx(2 * np.pi / 0.3))


def seasonal(season: int, first: float, other: float) -> Array:
    """Coefficients of (1 + first L) (1 + other L^season), without the leading one."""
    return np.convolve([1, first], [1, *np.zeros(season - 1), other])[1:]


@pytest.mark.parametrize("season", [12, 24, 52])
def test_long_seasons_there_and_back(season: int) -> None:
    """Their polynomials have dozens of roots near the unit circle, which multiply to huge numbers in a bad order."""
    ar, ma = -seasonal(season, -0.5, -0.4), seasonal(season, 0.3, 0.5)
    model = to_arma(from_arma(ar, ma))
    np.testing.assert_allclose(model.ar, ar, atol=1e-10)
    np.testing.assert_allclose(model.ma, ma, atol=1e-10)


def zeros_of(layer: ParaRNN) -> int:
    """Eigenvalues that are zero: alone, or in a line of delays."""
    features = recurrence_features(layer)
    return features.nullity + sum(feature.order for feature in features if feature.eigenvalue == 0)


@pytest.mark.parametrize("p", [2, 4, 13])
def test_extra_autoregressive_terms_are_forgotten_at_once(p: int) -> None:
    layer = from_arma([0.9 / p] * p, [0.5])
    (feature,) = (feature for feature in recurrence_features(layer) if feature.eigenvalue != 0)
    assert feature.eigenvalue == pytest.approx(-0.5)
    assert zeros_of(layer) == p - 1


def test_features_and_modes_of_several_series() -> None:
    random = np.random.default_rng(0)
    ar, ma = random.uniform(-0.3, 0.3, (2, 2, 2)), random.uniform(-0.4, 0.4, (1, 2, 2))
    layer = from_arma(ar, ma)
    nonzero = [feature for feature in recurrence_features(layer) if feature.eigenvalue != 0]
    np.testing.assert_allclose(spectrum(nonzero, 12), np.sort_complex(np.linalg.eigvals(-ma[0]) + 0j), atol=1e-9)
    assert zeros_of(layer) == 2
    companion = np.block([[ar[0], ar[1]], [np.eye(2), np.zeros((2, 2))]])
    expected = np.sort_complex(np.linalg.eigvals(companion) + 0j)
    np.testing.assert_allclose(spectrum(forecast_modes(layer), 12), expected, atol=1e-9)


@pytest.mark.parametrize(
    ("ma", "sizes"),
    [
        (polynomial([0.5, 0.8], [2.2, 0.4]), [2, 2]),
        (polynomial([0.5, 0.8, 0.3], [2.2, 0.4]), [1, 2, 2]),
        (np.poly([0.6] * 4)[1:], [4]),  # four times the same root
        (np.array([0.0, 0.0, 0.0, 0.0, 0.0]), [5]),  # a line of delays
    ],
    ids=["two pairs", "and a real one", "one root", "delays"],
)
def test_blocks_are_of_two_where_the_spectrum_allows(ma: Array, sizes: list[int]) -> None:
    layer = from_arma([0.1] * len(ma), ma)
    assert sorted(layer.block_sizes) == sizes
    np.testing.assert_allclose(np.pad(to_arma(layer).ma, (0, len(ma)))[: len(ma)], ma, atol=1e-10)


def autocovariances(ar: Array, ma: Array, sigma: Array, lags: int) -> Array:
    """Of a vector process, by its responses to errors of long ago."""
    size = len(sigma)
    responses = [np.eye(size)]
    for at in range(1, 400):
        response = ma[at - 1] if at <= len(ma) else np.zeros((size, size))
        responses.append(response + sum(ar[i] @ responses[at - 1 - i] for i in range(min(at, len(ar)))))
    pairs = [zip(responses[lag:], responses, strict=False) for lag in range(lags)]
    return np.array([sum(left @ sigma @ other.T for left, other in both) for both in pairs])


def test_a_reflected_moving_average_has_the_same_autocovariances() -> None:
    ma = np.real(np.poly([2.0, 0.4 + 0.3j, 0.4 - 0.3j]))[1:]
    changed, variance = reflect([0.7], ma)
    np.testing.assert_allclose(np.sort_complex(np.roots([1, *changed])), [0.4 - 0.3j, 0.4 + 0.3j, 0.5], atol=1e-9)
    assert variance.item() == pytest.approx(4)  # the square of the root that moved
    before, after = ArmaProcess.from_coeffs([0.7], ma), ArmaProcess.from_coeffs([0.7], changed)
    np.testing.assert_allclose(before.acovf(10), 4 * after.acovf(10), rtol=1e-9)


def test_a_reflected_vector_moving_average_has_the_same_autocovariances() -> None:
    ar, ma = np.array([[[0.5, 0.1], [-0.2, 0.3]]]), np.array([[[2.0, 0.4], [0.3, 0.5]]])
    sigma = np.array([[1.0, 0.3], [0.3, 2.0]])
    changed, variance = reflect(ar, ma, sigma)
    assert abs(np.linalg.eigvals(changed[0])).max() < 1
    np.testing.assert_allclose(
        autocovariances(ar, ma, sigma, 6), autocovariances(ar, changed, variance, 6), rtol=1e-9, atol=1e-12
    )


def test_models_that_are_not_invertible_are_rejected_or_reflected_with_a_warning() -> None:
    with warns(UserWarning, "modulus 2", "4 times"):
        layer = from_arma([0.5], [2.0], noninvertible="reflect")
    assert to_arma(layer).ma == pytest.approx([0.5])
    changed, variance = reflect([], [0.5])
    assert (changed, variance) == (0.5, 1)  # nothing to do


@pytest.mark.parametrize(
    ("channels", "units", "options"),
    [(1, 4, {}), (1, 32, {"form": "polar"}), (2, 6, {}), (3, 8, {"batch_first": True}), (2, 4, {"block_size": [3, 1]})],
    ids=str,
)
def test_any_linear_layer_is_an_arma_model(channels: int, units: int, options: Any) -> None:
    aggregate = nn.Linear(units, channels, dtype=torch.float64)
    layer = ParaRNN(channels, units, nonlinearity="linear", aggregate=aggregate, dtype=torch.float64, **options)
    if "block_size" in options:  # two series that have nothing to do with each other, of three states and of one
        with torch.no_grad():
            layer.weight_ih_l0[:3, 1] = layer.weight_ih_l0[3:, 0] = 0
            aggregate.weight[0, 3:] = aggregate.weight[1, :3] = 0
    for bias in (layer.bias_ih_l0, layer.bias_hh_l0, aggregate.bias):
        nn.init.zeros_(bias)  # so that its rest is where it starts
    model = to_arma(layer)
    series = torch.from_numpy(some_series(size=channels))[:, None]
    ours = layer(series.transpose(0, 1) if layer.batch_first else series)[0].detach().numpy().reshape(200, channels)
    ma, ar = np.reshape(model.ma, (-1, channels, channels)), np.reshape(model.ar, (-1, channels, channels))
    values, errors, forecasts = series[:, 0].numpy(), [], []
    for t, value in enumerate(values):  # the equation of the model, step by step
        past = [ar[i] @ values[t - 1 - i] for i in range(min(t, len(ar)))]
        past += [ma[j] @ errors[t - 1 - j] for j in range(min(t, len(ma)))]
        forecasts.append(np.sum(past, axis=0) if past else np.zeros(channels))
        errors.append(value - forecasts[-1])
    np.testing.assert_allclose(ours[:-1], forecasts[1:], atol=1e-8)


def test_means_beside_unit_roots_are_known_to_rounding() -> None:
    assert to_arma(from_arma([1.6, -0.6], [-0.3, 0.1], 1e9)).mean == pytest.approx(1e9)
    assert to_arma(from_arma([1.0], [-0.3], 5.0).float()).mean == pytest.approx(5)


@pytest.mark.parametrize(
    ("call", "argument", "facts"),
    [
        (lambda: from_arma([[0.5, 0.2]]), "ar", ["(1, 2)"]),
        (lambda: from_arma([np.nan]), "ar", ["nan"]),
        (lambda: from_arma(np.zeros((1, 2, 2)), np.zeros((1, 3, 3))), "ma", ["2 series", "got 3"]),
        (lambda: from_arma([0.5], mean=[1, 2]), "mean", ["got 2"]),
        (lambda: from_arma([0.5], noninvertible="ignore"), "noninvertible", ["'ignore'"]),
        (lambda: from_arma([0.5], [2.0]), "ma", ["got 2", "noninvertible="]),
        (lambda: from_arma([0.5], [-1.0], noninvertible="reflect"), "ma", []),  # a root on the unit circle
        (lambda: from_arma(ma=[np.diag([2.0, 0.5])], noninvertible="reflect"), "noninvertible", ["reflect(ar, ma, "]),
        (lambda: reflect([], [2.0], -1.0), "covariance", ["-1.0"]),
        (lambda: reflect([], [2.0], [[1.0, 2.0], [2.0, 1.0]]), "covariance", []),
        (lambda: to_arma(ParaRNN(1, 4)), "layer", ["nonlinearity='linear'"]),
        (lambda: to_arma(ParaRNN(1, 4, 2, "linear")), "layer", ["one layer"]),
        (lambda: to_arma(ParaRNN(1, 4, nonlinearity="linear")), "layer", ["got 4"]),
    ],
)
def test_rejected_models(call: Any, argument: str, facts: list[str]) -> None:
    with raises(ArgumentError, *facts, argument=argument):
        call()


def test_a_unit_root_with_a_drift_has_no_mean() -> None:
    layer = from_arma([1.0], [-0.5])
    with torch.no_grad():
        layer.bias_ih_l0.fill_(1.0)
    with raises(InputError):
        to_arma(layer)
    with raises(ArgumentTypeError, argument="layer", got="ParaGRU"):
        to_arma(ParaGRU(1, 4))

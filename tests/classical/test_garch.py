from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from arch import arch_model, univariate
from arch.univariate.base import ARCHModelResult
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from parallelrnn import ParaRNN, forecast_modes, recurrence_features
from parallelrnn.classical import estimation
from parallelrnn.classical.garch import (
    GARCH,
    GarchCoefficients,
    GarchFit,
    _GarchLikelihood,
    backcast,
    backcast_state,
    from_garch,
    to_garch,
    variance_forecast,
    variance_path,
)
from parallelrnn.errors import ArgumentError, InputError
from tests.classical.models import check_likelihood, market
from tests.support import raises

Array = NDArray[np.float64]

MODELS = [
    (0.1, [0.1], [0.8]),
    (0.02, [0.05, 0.1], [0.7]),
    (0.02, [0.1], [0.3, 0.5]),
    (0.02, [0.0, 0.2], [0.0, 0.0, 0.7]),  # a damped wave in the memory
    (0.5, [0.2, 0.1, 0.05, 0.1], []),  # ARCH
    (0.01, [0.1], [0.9]),  # integrated
    (1e-7, [0.15, 0.02, 0.03], [0.2, 0.5]),
]


@cache
def arch_fit(name: str, p: int, q: int, mean: bool = True) -> ARCHModelResult:
    return arch_model(market(name), mean="Constant" if mean else "Zero", p=p, q=q, rescale=False).fit(disp="off")


@cache
def our_fit(name: str, p: int, q: int, mean: bool = True) -> GarchFit:
    return GARCH(p, q, mean=mean).fit(market(name))


def simulated(omega: float, alpha: float, beta: float, steps: int, seed: int = 0) -> Array:
    noise = np.random.default_rng(seed).standard_normal(steps + 200)
    errors, variance = np.zeros(steps + 200), 1.0
    for t in range(steps + 200):
        variance = omega + alpha * errors[t - 1] ** 2 + beta * variance
        errors[t] = noise[t] * math.sqrt(variance)
    return errors[200:]


def arch_path(omega: float, alpha: list[float], beta: list[float], errors: Array, level: float) -> Array:
    """By the recursion of `arch`, without its bounds on variances, which are there for the sake of its search."""
    model = univariate.GARCH(len(alpha), 0, len(beta))
    bounds = np.tile([0.0, np.inf], (len(errors), 1))
    path: Array = model.compute_variance(np.array([omega, *alpha, *beta]), errors, np.zeros(len(errors)), level, bounds)
    return path


COEFFICIENTS = st.lists(st.floats(0, 0.5), max_size=3)


@settings(max_examples=60, deadline=None)
@given(st.floats(1e-8, 100), st.floats(0, 1), COEFFICIENTS, COEFFICIENTS)
@example(0.1, 0.2, [], [0.5, 0.3])  # integrated
def test_there_and_back(omega: float, first: float, later: list[float], beta: list[float]) -> None:
    alpha = [first, *later]
    beta = [coefficient / max(1.0, sum(beta) / 0.98) for coefficient in beta]
    model = to_garch(from_garch(omega, alpha, beta))
    for given_, back in ((alpha, model.alpha), (beta, model.beta)):
        assert len(back) <= len(given_)  # zeros at the end are left out
        np.testing.assert_allclose(np.pad(back, (0, len(given_) - len(back))), given_, atol=1e-10)
    assert model.omega == pytest.approx(omega, rel=1e-10)


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_the_path_is_that_of_arch(model: tuple[float, list[float], list[float]]) -> None:
    errors = market("sp500") * 0.5
    layer = from_garch(*model)
    for level in (univariate.GARCH().backcast(errors), 3.0):
        expected = arch_path(*model, errors, level)
        np.testing.assert_allclose(variance_path(layer, errors, level), expected, rtol=1e-10)
        output, _ = layer(torch.from_numpy(errors**2)[:, None], backcast_state(layer, level))  # of the next error
        np.testing.assert_allclose(output[:-1, 0].detach().numpy(), expected[1:], rtol=1e-10)


@pytest.mark.parametrize("steps", [1, 10, 75, 400])
def test_the_time_before_the_first_error_is_that_of_arch(steps: int) -> None:
    errors = market("wti")[:steps]
    assert backcast(errors) == pytest.approx(univariate.GARCH().backcast(errors), rel=1e-12)
    path = variance_path(from_garch(0.1, [0.1], [0.8]), errors)
    np.testing.assert_allclose(
        path, arch_path(0.1, [0.1], [0.8], errors, univariate.GARCH().backcast(errors)), rtol=1e-10
    )


def test_a_state_is_found_for_a_layer_in_other_coordinates() -> None:
    layer, aggregate = from_garch(0.1, [0.1, 0.05], [0.5, 0.2]), torch.nn.Linear(2, 1, dtype=torch.float64)
    moved = ParaRNN(1, 2, nonlinearity="linear", block_size=2, aggregate=aggregate, dtype=torch.float64)
    turn = torch.tensor([[2.0, 1.0], [-1.0, 0.5]], dtype=torch.float64)
    (block,), (target,) = layer.recurrent_blocks(), moved.recurrent_blocks()
    with torch.no_grad():  # s' = turn s, and an output of which a part is in the aggregate's bias
        target.matrix.copy_(turn @ block.matrix @ turn.inverse())
        moved.weight_ih_l0.copy_(turn @ layer.weight_ih_l0)
        moved.aggregate.weight.copy_(layer.aggregate.weight @ turn.inverse())
        moved.aggregate.bias.fill_(0.05)
        shift = torch.linalg.lstsq(moved.aggregate.weight, torch.tensor([[-0.05]], dtype=torch.float64)).solution[:, 0]
        moved.bias_ih_l0.copy_(turn @ (layer.bias_ih_l0 + layer.bias_hh_l0) + shift - target.matrix @ shift)
        moved.bias_hh_l0.zero_()
    errors = market("nasdaq")
    np.testing.assert_allclose(variance_path(moved, errors), variance_path(layer, errors), rtol=1e-10)
    forecasts = variance_forecast(layer, errors, 10)
    np.testing.assert_allclose(variance_forecast(moved, errors, 10), forecasts, rtol=1e-10)
    assert to_garch(moved).omega == pytest.approx(0.1, rel=1e-10)


def inverse_roots(coefficients: Array) -> list[float]:
    """Moduli of the roots of z^m - c_1 z^(m-1) - ... that are not zero."""
    moduli = abs(np.roots([1.0, *-np.asarray(coefficients)]))
    return sorted(moduli[moduli > 1e-6])


@pytest.mark.parametrize("model", [m for m in MODELS if m[2] != [0.9]], ids=str)
def test_memory_is_beta_and_forecasts_are_alpha_and_beta(model: tuple[float, list[float], list[float]]) -> None:
    omega, alpha, beta = model
    order = max(len(alpha), len(beta))
    persistence = np.pad(alpha, (0, order - len(alpha))) + np.pad(beta, (0, order - len(beta)))
    layer = from_garch(*model)
    for table, coefficients in ((recurrence_features(layer), beta), (forecast_modes(layer), persistence)):
        moduli = sorted(row.modulus for row in table for _ in range(row.order * (1 + (row.kind == "C"))))
        assert [modulus for modulus in moduli if modulus > 1e-6] == pytest.approx(inverse_roots(coefficients), rel=1e-7)
    half_life = math.log(0.5) / math.log(inverse_roots(persistence)[-1])
    assert GarchCoefficients(omega, *map(np.array, (alpha, beta))).half_life == pytest.approx(half_life, rel=1e-9)


def test_forecasts_tend_to_the_unconditional_variance_at_the_pace_of_the_half_life() -> None:
    coefficients = GarchCoefficients(0.05, np.array([0.1]), np.array([0.85]))
    layer, errors = from_garch(*coefficients), simulated(0.05, 0.1, 0.85, 50)
    assert coefficients.unconditional_variance == pytest.approx(1.0)
    assert coefficients.half_life == pytest.approx(math.log(0.5) / math.log(0.95))
    steps = 2 * round(coefficients.half_life)
    forecasts = variance_forecast(layer, errors, 1 + steps)
    assert (forecasts[-1] - 1) / (forecasts[0] - 1) == pytest.approx(0.95**steps, rel=1e-9)


def test_without_mean_reversion_forecasts_grow_by_omega() -> None:
    layer = from_garch(0.3, [0.25], [0.75])
    coefficients = to_garch(layer)
    assert coefficients.persistence == pytest.approx(1.0, abs=1e-12)
    forecasts = variance_forecast(layer, simulated(0.05, 0.1, 0.85, 30), 40)
    np.testing.assert_allclose(np.diff(forecasts), 0.3, rtol=1e-9)
    for beta in ([0.9], [0.4, 0.5], [0.125, 0.25, 0.5], [0.125, 0.125, 0.5]):  # the last two round to just below one
        integrated = GarchCoefficients(0.3, np.array([1 - sum(beta)]), np.array(beta))
        assert integrated.half_life == integrated.unconditional_variance == math.inf
    assert forecast_modes(layer)[0].modulus == 1.0


@pytest.mark.parametrize("orders", [(1, 1), (2, 1), (1, 2), (2, 0)])
@pytest.mark.parametrize("mean", [True, False])
def test_the_likelihood_and_its_derivatives_are_those_of_archs(orders: tuple[int, int], mean: bool) -> None:
    p, q = orders
    returns = market("nasdaq", 400) / market("nasdaq", 400).std()
    ours = _GarchLikelihood(returns - returns.mean() * mean, p, q, mean)
    params = np.array([0.03] * mean + [0.1] + [0.2 / p] * p + [0.6 / max(1, q)] * q)
    data = ours.returns[:, 0].numpy()
    level = univariate.GARCH().backcast(data)

    def terms(at: Array) -> Array:
        errors = data - (at[0] if mean else 0.0)
        omega, *coefficients = at[int(mean) :]
        variances = arch_path(omega, coefficients[:p], coefficients[p:], errors, level)
        densities: Array = univariate.Normal().loglikelihood([], errors, variances, individual=True)
        return densities

    check_likelihood(ours, params, terms)


FITS = [("sp500", 1, 1), ("wti", 1, 1), ("wti", 2, 1), ("sp500", 1, 2), ("nasdaq", 2, 0), ("sp500", 1, 1, False)]


@pytest.mark.parametrize("case", FITS, ids=str)
def test_estimates_are_those_of_arch(case: tuple[str, int, int]) -> None:
    ours, theirs = our_fit(*case), arch_fit(*case)
    # Both search for one maximum; `arch` stops where it differs from ours by 1e-6 or less.
    assert ours.log_likelihood >= theirs.loglikelihood - 1e-8
    assert ours.log_likelihood == pytest.approx(theirs.loglikelihood, abs=1e-4)
    errors = theirs.std_err.to_numpy()
    np.testing.assert_allclose(ours.params / errors, theirs.params.to_numpy() / errors, atol=5e-3)
    # Its derivatives are numeric (to about 1e-3), and it divides by T - 1.
    np.testing.assert_allclose(ours.standard_errors, errors, rtol=5e-3)
    assert ours.names[ours.has_mean :] == list(theirs.params.index[ours.has_mean :])
    assert (ours.mean != 0.0) == ours.has_mean
    assert (ours.aic, ours.bic) == pytest.approx((theirs.aic, theirs.bic), abs=1e-3)
    assert ours.features[0].modulus == pytest.approx(inverse_roots(ours.coefficients.beta)[-1] if case[2] else 0)
    assert ours.modes[0].half_life == pytest.approx(ours.half_life)


@pytest.mark.parametrize("case", [("sp500", 1, 1), ("sp500", 1, 2), ("wti", 2, 1)], ids=str)
def test_variances_and_forecasts_of_a_fit_are_those_of_arch_with_its_parameters(case: tuple[str, int, int]) -> None:
    name, p, q = case
    ours = our_fit(*case)
    theirs = arch_model(market(name), p=p, q=q, rescale=False).fix(ours.params)
    np.testing.assert_allclose(ours.variance, theirs.conditional_volatility**2, rtol=1e-10)
    np.testing.assert_allclose(ours.standardized, theirs.std_resid, rtol=1e-9, atol=1e-9)
    assert ours.log_likelihood == pytest.approx(theirs.loglikelihood, rel=1e-12)
    expected = theirs.forecast(horizon=20, method="analytic").variance.to_numpy()[-1]
    np.testing.assert_allclose(ours.forecast(20), expected, rtol=1e-10)


@pytest.mark.parametrize("scale", [1e-6, 1e5])
def test_units_do_not_matter(scale: float) -> None:
    returns = market("sp500")
    fitted, other = our_fit("sp500", 1, 1), GARCH().fit(scale * returns)
    units = np.array([scale, scale**2, 1.0, 1.0])
    # Rounding of the returns moves the maximum by the root of it, where the likelihood is flat.
    np.testing.assert_allclose(other.params / units, fitted.params, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(other.standard_errors / units, fitted.standard_errors, rtol=1e-6)
    assert other.log_likelihood + len(returns) * math.log(scale) == pytest.approx(fitted.log_likelihood, rel=1e-10)


def test_true_parameters_are_recovered() -> None:
    fitted = GARCH().fit(0.5 + simulated(0.05, 0.1, 0.85, 4000))
    distance = (fitted.params - [0.5, 0.05, 0.1, 0.85]) / fitted.standard_errors
    assert abs(distance).max() < 3.5  # of four: once in five hundred samples by chance
    assert fitted.standard_errors[2:].max() < 0.03
    assert fitted.unconditional_variance == pytest.approx(1.0, abs=0.3)
    assert np.var(fitted.standardized) == pytest.approx(1.0, abs=0.1)
    back = to_garch(fitted.layer)
    np.testing.assert_allclose(np.concatenate([back.alpha, back.beta]), fitted.params[2:], atol=1e-10)


@pytest.mark.parametrize(("orders", "kind"), [((2, 2), "noise"), ((1, 1), "integrated"), ((3, 0), "integrated")])
def test_variances_are_positive_whatever_the_returns(orders: tuple[int, int], kind: str) -> None:
    returns = np.random.default_rng(5).standard_normal(400) if kind == "noise" else simulated(0.01, 0.3, 0.7, 400)
    fitted = GARCH(*orders).fit(returns)
    omega, alpha, beta = fitted.coefficients
    assert omega > 0
    assert min([*alpha, *beta]) >= 0
    assert fitted.persistence < 1
    assert fitted.variance.min() > 0
    assert str(fitted.summary()).count("[") == sum(orders)


@pytest.mark.parametrize("seed", [1, 17])
def test_the_best_of_several_maxima_is_found(seed: int) -> None:
    noise = np.random.default_rng(seed).standard_normal(300)
    model = arch_model(noise, rescale=False)
    starts = [np.array([0.0, 1 - persistence, 0.1, persistence - 0.1]) for persistence in (0.3, 0.8)]
    theirs = [model.fit(disp="off", starting_values=start).loglikelihood for start in starts]
    assert GARCH().fit(noise).log_likelihood >= max(theirs) - 1e-6


def test_the_search_from_the_best_start_continues_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimation, "_FIRST_ITERATIONS", 1)
    theirs = arch_fit("sp500", 1, 1)
    assert GARCH().fit(market("sp500")).log_likelihood >= theirs.loglikelihood - 1e-8


def test_unidentified_parameters_have_no_standard_error() -> None:
    signs = np.random.default_rng(0).choice([-1.0, 1.0], 200)  # squares do not vary, and any coefficients will do
    fitted = GARCH(mean=False).fit(signs)
    np.testing.assert_allclose(fitted.variance, 1.0, rtol=1e-6)
    assert np.isnan(fitted.standard_errors).all()
    assert "nan" in fitted.summary()


def test_a_summary_reports_bounds() -> None:
    noise = GARCH(2, 1).fit(np.random.default_rng(5).standard_normal(400))
    assert 0 in noise.params
    assert "at their bound" in noise.summary()
    growing = GARCH(mean=False).fit(simulated(0.01, 0.25, 0.8, 500))
    assert "at its bound of one" in growing.summary()
    persistence = arch_fit("sp500", 1, 1).params.iloc[2:].sum()
    text = " ".join(our_fit("sp500", 1, 1).summary().split())
    assert f"half-life of {math.log(0.5) / math.log(persistence):.3g} steps" in text


@pytest.mark.parametrize(
    ("call", "argument", "got"),
    [
        (lambda: from_garch(0.0, [0.1], [0.8]), "omega", 0.0),
        (lambda: from_garch(math.inf, [0.1], [0.8]), "omega", math.inf),
        (lambda: from_garch(0.1, [-0.1], [0.8]), "alpha", [-0.1]),
        (lambda: from_garch(0.1, [0.1], [math.inf]), "beta", [math.inf]),
        (lambda: from_garch(0.1, [], [0.8]), "alpha", []),
        (lambda: from_garch(0.1, 0.1, [0.8]), "alpha", ()),
        (lambda: from_garch(0.1, [0.1], [0.5, 0.5]), "beta", 1.0),
        (lambda: GARCH(0, 1), "p", 0),
        (lambda: GARCH(1, -1), "q", -1),
        (lambda: GARCH(1.0, 1), "p", 1.0),
        (lambda: GARCH().fit(np.zeros((50, 2))), "returns", (50, 2)),
        (lambda: variance_forecast(from_garch(*MODELS[0]), np.ones(5), 0), "steps", 0),
        (lambda: variance_path(from_garch(*MODELS[0]), np.ones((5, 1))), "errors", (5, 1)),
        (lambda: variance_path(from_garch(*MODELS[0]), np.array([1.0, np.nan])), "errors", (2,)),
        (lambda: variance_path(from_garch(*MODELS[0]), np.zeros(0)), "errors", (0,)),
    ],
)
def test_rejected_arguments(call: Any, argument: str, got: object) -> None:
    with raises(ArgumentError, argument=argument, got=got):
        call()


@pytest.mark.parametrize(
    ("returns", "facts"),
    [
        (np.r_[np.arange(50.0), np.nan, np.nan], ["2 steps", "step 50"]),
        (np.arange(39.0), ["39 returns", "40"]),
        (np.full(100, 3.0), []),
    ],
)
def test_rejected_returns(returns: Array, facts: list[str]) -> None:
    with raises(InputError, *facts):
        GARCH().fit(returns)


def test_a_layer_whose_variances_fall_below_zero_is_rejected() -> None:
    layer = from_garch(0.1, [0.1], [0.5])
    with torch.no_grad():
        layer.weight_ih_l0.neg_()
    with raises(InputError, "step 1"):
        variance_path(layer, np.array([5.0, 5.0]), 0.2)

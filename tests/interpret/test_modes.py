from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.linalg import solve_discrete_are
from statsmodels.tsa.arima_process import ArmaProcess
from torch import nn

from parallelrnn import ParaGRU, ParaLSTM, ParaRNN, WaveDecoder, forecast_modes, recurrence_features
from parallelrnn.errors import ArgumentError, ArgumentTypeError, InputError
from parallelrnn.interpret.freerun import Ending, FreeRun, GrowingForecastsError, NoFixedPointError, NoFreeRunError
from tests.interpret.models import forecasting, predictor, scalar, spectrum
from tests.support import raises

Array = NDArray[np.float64]


STABLE = st.floats(-0.95, 0.95)


def own_forecast(layer: ParaRNN, x: torch.Tensor, steps: int) -> Array:
    """The forecast (H, ...) of a layer that is fed its own output."""
    values, state = layer(x)
    values, forecast = values[-1:], []
    for _ in range(steps):
        forecast.append(values[0].detach().numpy())
        values, state = layer(values, state)
    return np.stack(forecast)


@settings(max_examples=30, deadline=None)
@given(st.lists(STABLE, min_size=2, max_size=2), st.lists(STABLE, min_size=2, max_size=2))
def test_modes_are_the_ar_roots_and_features_the_ma_roots_of_statsmodels(ar: list[float], ma: list[float]) -> None:
    # Partial autocorrelations within (-1, 1) make a stationary and invertible process.
    ar_poly = np.array([1, -ar[0] * (1 - ar[1]), -ar[1]])
    ma_poly = np.array([1, ma[0] * (1 + ma[1]), ma[1]])
    process = ArmaProcess(ar_poly, ma_poly)
    assume(abs(ar_poly[2]) > 0.05 and abs(ma_poly[2]) > 0.05)
    assume(min(abs(np.diff(process.arroots))) > 1e-3 and min(abs(np.diff(process.maroots))) > 1e-3)
    transition = np.array([[-ar_poly[1], 1], [-ar_poly[2], 0]])
    gain = (ma_poly[1:] - ar_poly[1:])[:, None]
    layer = predictor(transition, gain, np.array([[1.0, 0.0]]))
    modes = forecast_modes(layer)
    assert modes.where == "exact, since the model is linear"
    np.testing.assert_allclose(spectrum(modes), np.sort_complex(np.round(1 / process.arroots, 6)), atol=2e-6)
    np.testing.assert_allclose(
        spectrum(recurrence_features(layer)), np.sort_complex(np.round(1 / process.maroots, 6)), atol=2e-6
    )


def test_a_wave_in_noise_is_a_mode_and_not_a_feature() -> None:
    """The steady Kalman filter of a damped wave, from SciPy's Riccati solver: A is the truth, A - K C the memory."""
    angle, modulus = 2 * math.pi / 24, 0.98
    transition = modulus * np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    reading = np.array([[1.0, 0.0]])
    covariance = solve_discrete_are(transition.T, reading.T, np.eye(2), np.array([[0.1]]))
    gain = transition @ covariance @ reading.T / (reading @ covariance @ reading.T + 0.1)
    layer = predictor(transition, gain, reading)
    (mode,) = forecast_modes(layer, freq="h")
    assert mode.period == pytest.approx(24)
    assert mode.modulus == pytest.approx(0.98)
    assert all(abs(feature.period - 24) > 3 for feature in recurrence_features(layer))
    summary = forecast_modes(layer, freq="h").summary()
    assert "24 h" in summary
    assert "Recurrence features" not in summary


def test_parts_of_a_linear_forecast_sum_to_it() -> None:
    """Two layers: the shares come from parts that are checked here by running the model on its own forecasts."""
    torch.manual_seed(0)
    layer = ParaRNN(2, 4, 2, nonlinearity="linear", aggregate=nn.Linear(4, 2)).double()
    x = torch.randn(30, 3, 2, dtype=torch.float64)
    modes = forecast_modes(layer, x=x, horizon=12)
    assert sum(mode.share for mode in modes) == pytest.approx(1)
    forecast = own_forecast(layer, x, 12)  # (H, B, C)
    np.testing.assert_allclose(modes.level + sum(mode.part for mode in modes), forecast, atol=1e-12)
    # Every forecast obeys the recurrence whose characteristic roots are the modes.
    roots = [v for m in modes for v in ({m.eigenvalue, m.eigenvalue.conjugate()} if m.kind == "C" else {m.eigenvalue})]
    polynomial = np.real(np.poly([*roots, 1.0]))  # and the constant part
    applied = np.apply_along_axis(lambda series: np.convolve(series, polynomial, "valid"), 0, forecast)
    assert abs(applied).max() < 1e-9 * abs(polynomial).max()
    assert len(roots) == 8


def test_shares_are_covariances_with_the_forecast() -> None:
    """Two decays that do not touch each other: the parts of the forecast are plain to see."""
    layer = predictor(np.diag([0.9, 0.3]), np.array([[0.5], [0.4]]), np.array([[1.0, 1.0]]))
    x = torch.randn(20, 1, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    start = FreeRun(layer, None).after(x)[0].numpy()
    parts = [start[index] * decay ** np.arange(10) for index, decay in enumerate((0.9, 0.3))]
    forecast = parts[0] + parts[1]
    for mode, part in zip(forecast_modes(layer, x=x, horizon=10), parts, strict=True):
        assert mode.share == pytest.approx(np.cov(part, forecast)[0, 1] / np.var(forecast, ddof=1))


@pytest.mark.parametrize("cls", [ParaRNN, ParaLSTM, ParaGRU])
def test_forecasts_come_to_rest_as_the_largest_mode_says(cls: Any) -> None:
    layer = forecasting(cls)
    modes = forecast_modes(layer)
    assert modes.where == "to first order around the model's fixed point"
    run = FreeRun(layer, None)
    state = 0.01 * torch.randn(1, run.size, dtype=torch.float64)
    rest = state
    for _ in range(3000):
        rest = run.step(rest)
    distances = []
    for _ in range(40):
        state = run.step(state)
        distances.append(float((state - rest).norm()))
    assert (distances[39] / distances[9]) ** (1 / 30) == pytest.approx(modes[0].modulus, rel=0.05)


def test_modes_along_a_free_run() -> None:
    layer, x = forecasting(ParaGRU), torch.randn(9, 1, 2).double()
    modes = forecast_modes(layer, x=x, along=4)
    assert sorted({mode.step for mode in modes}) == [0, 1, 2, 3]
    run = FreeRun(layer, None)
    third = run.step(run.step(run.after(x)))[0]
    expected = np.linalg.eigvals(run.jacobian(third)[0])
    own = [mode for mode in modes if mode.step == 2]
    np.testing.assert_allclose(spectrum(own), np.sort_complex(np.round(expected, 6)), atol=2e-6)


def test_a_linear_trend_is_one_mode_of_order_two() -> None:
    layer = predictor(np.array([[1.0, 1.0], [0.0, 1.0]]), np.array([[0.8], [0.2]]), np.array([[1.0, 0.0]]))
    (mode,) = forecast_modes(layer, x=torch.arange(20.0).view(20, 1, 1))
    assert (mode.label, mode.meaning) == ("R-2", "never fades")
    assert mode.modulus == pytest.approx(1)
    assert mode.share == pytest.approx(1)


def test_the_model_itself_stays_as_it_is() -> None:
    layer = forecasting(ParaLSTM).float().train()
    forecast_modes(layer, x=torch.randn(5, 1, 2))
    assert layer.training
    assert layer.weight_ih_l0.dtype == torch.float32
    assert layer.weight_ih_l0.requires_grad


def halving(weight: float = 0.5) -> ParaRNN:
    return predictor(weight * np.eye(2), np.ones((2, 1)), np.ones((1, 2)))


@pytest.mark.parametrize(
    ("call", "kind", "fields"),
    [
        (lambda: forecast_modes(ParaRNN(6, 6, bidirectional=True)), NoFreeRunError, {}),
        (lambda: forecast_modes(nn.Linear(2, 2)), ArgumentTypeError, {"got": "Linear"}),
        (lambda: forecast_modes(halving(), torch.zeros(4, 1, 1)), ArgumentTypeError, {"argument": "readout"}),
        (lambda: forecast_modes(halving(), nn.Linear(7, 1)), ArgumentError, {"argument": "readout"}),
        (lambda: forecast_modes(halving(), horizon=1), ArgumentError, {"argument": "horizon", "got": 1}),
        (lambda: forecast_modes(halving(), along=4), ArgumentError, {"argument": "x"}),
        (lambda: forecast_modes(halving(), along=-1), ArgumentError, {"argument": "along", "got": -1}),
        (lambda: forecast_modes(halving(), x=torch.full((4, 1, 1), math.nan)), InputError, {}),
        (lambda: forecast_modes(halving(math.nan)), InputError, {}),
        (lambda: forecast_modes(WaveDecoder(3), nn.Linear(1, 1)), ArgumentError, {"argument": "readout"}),
        (lambda: forecast_modes(WaveDecoder(3), x=torch.zeros(1, 3), along=2), ArgumentError, {"argument": "along"}),
    ],
)
def test_rejected_models_and_arguments(call: Any, kind: type[Exception], fields: dict[str, Any]) -> None:
    with raises(kind, **fields):
        call()


def test_a_model_has_to_output_its_next_input() -> None:
    with raises(NoFreeRunError, "3 inputs", "6 outputs", "nn.Linear(..., 3)"):
        forecast_modes(ParaRNN(3, 6))


def test_a_random_walk_with_drift_has_a_trend_for_a_mode() -> None:
    """An eigenvalue 1 and a bias: no fixed point; level and parts are still the model's own forecast."""
    layer = ParaRNN(1, 2, nonlinearity="linear", block_size=2, aggregate=nn.Linear(2, 1)).double()
    with torch.no_grad():
        layer.weight_hh_l0.copy_(torch.tensor([[0.0, 0.0], [0.0, 0.5]]))
        layer.weight_ih_l0.copy_(torch.tensor([[1.0], [0.0]]))
        layer.aggregate.weight.copy_(torch.tensor([[1.0, 1.0]]))
        layer.aggregate.bias.fill_(0.1)
    x = torch.tensor([[1.0], [2.0], [3.0]], dtype=torch.float64)
    modes = forecast_modes(layer, x=x, horizon=50)
    parts = modes.level + sum(mode.part[:, 0] for mode in modes)
    np.testing.assert_allclose(parts, own_forecast(layer, x, 50), atol=1e-10)
    trend = max(modes, key=lambda mode: mode.share)
    assert (trend.label, trend.modulus) == ("R-2", 1.0)
    assert trend.share == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("weights", [(0.9, 0.1), (0.7, 0.3)])
def test_a_drift_is_not_lost_to_rounding(weights: tuple[float, float]) -> None:
    """In float32 0.9 + 0.1 is 1 - 2e-8, which has a fixed point, millions away."""
    layer = scalar(*weights, bias=0.1, nonlinearity="linear")
    x = torch.randn(30, 1, generator=torch.Generator().manual_seed(0))
    modes = forecast_modes(layer, x=x, horizon=50)
    assert [mode.label for mode in modes] == ["R-2"]
    parts = modes.level + sum(mode.part[:, 0] for mode in modes)
    # Each of 50 steps may be off by the rounding of the weights.
    np.testing.assert_allclose(parts, own_forecast(layer.double(), x.double(), 50), atol=50 * 50 * 1.2e-7)
    assert modes[0].share == pytest.approx(1)


def test_forecasts_that_explode_have_shares_as_long_as_they_are_numbers() -> None:
    layer = scalar(1.0, 0.5, nonlinearity="linear").double()
    x = torch.ones(5, 1, dtype=torch.float64)
    assert forecast_modes(layer, x=x, horizon=1000)[0].share == pytest.approx(1)
    assert math.isnan(forecast_modes(layer, x=x, horizon=3000)[0].share)


def test_shares_need_all_forecasts_to_end_at_the_fixed_point() -> None:
    """h' = tanh(2 h) rests at +0.957 and at -0.957: two sequences that end there have no common expansion."""
    layer = scalar(1.0, 1.0).double()
    up, down = torch.full((20, 1, 1), 0.5), torch.full((20, 1, 1), -0.5)
    assert forecast_modes(layer, x=up).has_shares
    assert not forecast_modes(layer, x=torch.cat([up, down], 1)).has_shares


def test_modes_are_read_in_the_precision_of_the_weights() -> None:
    """A straight trend, whose double eigenvalue 1 rounding to float32 spreads by 1e-4."""
    transition = np.array([[1.0, 1.0], [0.0, 1.0]])
    layer = predictor(transition, np.array([[0.7], [0.13]]), np.array([[1.1, 0.0]])).float()
    (trend,) = forecast_modes(layer)
    assert (trend.label, trend.modulus) == ("R-2", 1.0)


def test_the_fixed_point_is_one_that_forecasts_can_reach() -> None:
    """Where the update gates of a GRU are closed for good, any state is left as it is; its own states are within 1."""
    layer, readout = nn.GRU(1, 8), nn.Linear(8, 1)
    trained = ParaGRU(1, 8, block_size=8, aggregate=None)  # the same numbers, sooner
    trained.load_state_dict(layer.state_dict())
    t = torch.arange(400.0)
    x = (torch.sin(2 * math.pi * t / 24) + 0.1 * torch.randn(400))[:, None]
    optimizer = torch.optim.Adam([*trained.parameters(), *readout.parameters()], lr=0.02)
    for _ in range(150):
        loss = ((readout(trained(x[:-1])[0]) - x[1:]) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    layer.load_state_dict(trained.state_dict())
    modes = forecast_modes(layer, readout, x)
    assert abs(modes.level) < 1
    assert modes.cycle.period == pytest.approx(24, rel=0.05)
    assert modes.cycle.is_regular


def test_modes_of_where_forecasts_do_not_lead_have_no_shares() -> None:
    """A stable fixed point beside an alternation that forecasts after these data keep to."""
    layer = scalar(-3.0).double()  # h = tanh(-3 h): rest at 0 repels, and forecasts alternate
    modes = forecast_modes(layer, x=torch.ones(3, 1, 1))
    assert not modes.has_shares
    assert modes.cycle.period == pytest.approx(2, rel=1e-2)


def test_a_model_whose_forecasts_grow_has_no_fixed_point() -> None:
    layer = ParaRNN(1, 2, nonlinearity="relu", aggregate=nn.Linear(2, 1)).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.fill_(1.0)
    with raises(GrowingForecastsError):
        forecast_modes(layer)


def test_forecasts_that_do_not_vary_or_leave_the_fixed_point_have_no_shares() -> None:
    """What grows leaves the fixed point for a cycle, which a sum of growing waves is not."""
    constant = forecast_modes(halving(), x=torch.zeros(4, 1, 1))
    assert (len(constant), constant.has_shares) == (2, False)
    layer = forecasting(ParaRNN)
    with torch.no_grad():
        layer.weight_hh_l0.mul_(6)
    modes = forecast_modes(layer, x=torch.randn(9, 1, 2).double())
    assert modes[0].modulus > 1
    assert not modes.has_shares


def test_no_fixed_point_is_looked_for_where_forecasts_never_go() -> None:
    """A map that moves every state, the less the further out: nothing rests, and far out nearly so."""

    class Drifting:
        size = 1

        def step(self, state: torch.Tensor) -> torch.Tensor:
            return state + 1 / (1 + state**2)

        def jacobian(self, state: torch.Tensor) -> tuple[Array, None]:
            value = float(state)
            return np.array([[1 - 2 * value / (1 + value**2) ** 2]]), None

    state = torch.tensor([[1.0]], dtype=torch.float64)
    ending = Ending(halfway=state, last=state, mean=state[0], low=-state[0], high=state[0], forecasts=np.zeros((1, 1)))
    with raises(NoFixedPointError, "along="):
        ending.fixed_point(Drifting())


def test_the_modes_of_a_wave_decoder_are_its_blocks() -> None:
    torch.manual_seed(0)
    decoder = WaveDecoder(3, 2, num_waves=2, num_decays=1).start_at([24, 7], [48, 500], [10])
    nn.init.normal_(decoder.amplitudes.weight)
    states = torch.randn(5, 3)
    modes = forecast_modes(decoder, x=states, horizon=30, freq="h")
    assert [mode.period for mode in modes] == pytest.approx([7, 24, math.inf], rel=1e-6)
    assert [mode.half_life for mode in modes] == pytest.approx([500, 48, 10], rel=1e-5)
    total = sum(mode.part for mode in modes if mode.part is not None)
    expected = decoder(states, 30).detach().transpose(0, 1).numpy()  # (H, B, C)
    np.testing.assert_allclose(total, expected, rtol=1e-5, atol=1e-5)
    assert sum(mode.share for mode in modes) == pytest.approx(1)
    assert "24 h" in str(modes.summary())
    assert not forecast_modes(decoder).has_shares


def test_modes_of_a_model_that_is_not_linear_carry_their_spread_along_the_data() -> None:
    torch.manual_seed(0)
    layer = ParaRNN(1, 4, aggregate=nn.Linear(4, 1)).double()
    x = torch.sin(torch.arange(200.0, dtype=torch.float64) * 0.5)[:, None]
    modes = forecast_modes(layer, x=x)
    assert modes.along is not None
    assert modes.along.fits == 50
    assert "half-life along the data" in modes.summary()
    for match in modes.along:
        assert match.half_life.low <= match.half_life.high
    assert forecast_modes(layer).along is None  # without data there is nothing to go along
    linear = ParaRNN(1, 4, nonlinearity="linear", aggregate=nn.Linear(4, 1)).double()
    assert forecast_modes(linear, x=x).along is None


def test_features_of_a_layer_that_is_not_linear_carry_their_spread_along_the_data() -> None:
    torch.manual_seed(0)
    layer = ParaGRU(1, 4, aggregate=nn.Linear(4, 1)).double()
    x = torch.sin(torch.arange(60.0, dtype=torch.float64) * 0.5)[:, None]
    features = recurrence_features(layer, x)
    assert features.along is not None
    assert "half-life along the data" in features.summary()
    linear = ParaRNN(1, 4, nonlinearity="linear", aggregate=nn.Linear(4, 1)).double()
    assert "along the data" not in recurrence_features(linear, x).summary()

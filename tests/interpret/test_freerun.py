"""The closed loop of a model that is fed its own forecasts, and the cycle into which they settle."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from parallelrnn import ParaGRU, ParaLSTM, ParaRNN, forecast_modes
from parallelrnn.interpret.freerun import FreeRun, settled_cycle
from tests.interpret.models import forecasting, predictor, scalar


@pytest.mark.parametrize("cls", [ParaRNN, ParaLSTM, ParaGRU])
@pytest.mark.parametrize("num_layers", [1, 2])
def test_the_derivative_is_that_of_the_free_run(cls: Any, num_layers: int) -> None:
    layer = forecasting(cls, num_layers=num_layers, batch_first=num_layers == 2)
    run = FreeRun(layer, None)
    state = 0.3 * torch.randn(run.size, dtype=torch.float64)
    loop, reading = run.jacobian(state)
    for index in range(run.size):
        nudge = torch.zeros(run.size, dtype=torch.float64)
        nudge[index] = 1e-6
        states = torch.stack([state + nudge, state - nudge])
        np.testing.assert_allclose(loop[:, index], np.diff(run.step(states).numpy(), axis=0)[0] / -2e-6, atol=1e-8)
        np.testing.assert_allclose(reading[:, index], np.diff(run.output(states).numpy(), axis=0)[0] / -2e-6, atol=1e-8)


@pytest.mark.parametrize("cls", [nn.RNN, nn.LSTM, nn.GRU])
def test_one_step_of_the_free_run_is_the_layer_on_its_own_forecast(cls: Any) -> None:
    torch.manual_seed(0)
    layer, readout = cls(2, 5, num_layers=2).double(), nn.Linear(5, 2).double()
    x = torch.randn(7, 3, 2, dtype=torch.float64)
    run = FreeRun(layer, readout)
    output, state = layer(x)
    forecast = readout(output[-1:])
    torch.testing.assert_close(run.output(run.after(x)), forecast[0].detach())
    expected = readout(layer(forecast, state)[0][0])
    torch.testing.assert_close(run.output(run.step(run.after(x))), expected.detach())


def test_a_kink_that_is_far_away_is_still_a_kink() -> None:
    layer = ParaRNN(1, 1, nonlinearity="relu", block_size=1, aggregate=nn.Linear(1, 1), dtype=torch.float64)
    with torch.no_grad():
        layer.bias_ih_l0.fill_(100.0)
    assert not FreeRun(layer, None).is_linear
    linear = ParaRNN(1, 2, nonlinearity="linear", aggregate=nn.Sequential(nn.Linear(2, 1)), dtype=torch.float64)
    assert FreeRun(linear, None).is_linear
    bent = nn.Sequential(nn.Linear(2, 3, dtype=torch.float64), nn.ReLU(), nn.Linear(3, 1, dtype=torch.float64))
    with torch.no_grad():
        bent[0].bias.fill_(1000.0)
    layer = ParaRNN(1, 2, nonlinearity="linear", aggregate=bent, dtype=torch.float64)
    assert not FreeRun(layer, None).is_linear
    plain = ParaRNN(1, 2, nonlinearity="linear", aggregate=None)
    for odd in (nn.Tanh(), nn.Softsign()):
        assert not FreeRun(plain, nn.Sequential(nn.Linear(2, 1), odd)).is_linear


def test_wandering_forecasts_are_not_called_a_cycle() -> None:
    values = [0.3]
    for _ in range(2047):
        values.append(3.9 * values[-1] * (1 - values[-1]))  # the logistic map, which is chaotic there
    cycle = settled_cycle(np.array(values)[:, None])
    assert not cycle.is_regular


def test_the_cycle_that_forecasts_settle_into() -> None:
    """Against the crossings of zero of the model's own forecasts, counted over a long run."""
    layer = ParaRNN(1, 2, bias=False, aggregate=nn.Linear(2, 1, bias=False)).double()
    angle = 2 * math.pi / 17.3
    with torch.no_grad():
        turn = 1.15 * torch.tensor([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
        layer.aggregate.weight.copy_(torch.tensor([[1.0, 0.0]]))
        layer.weight_ih_l0.copy_(torch.tensor([[0.3], [0.1]]))
        layer.weight_hh_l0.copy_(turn - layer.weight_ih_l0 @ layer.aggregate.weight)
    modes = forecast_modes(layer)
    assert modes[0].period == pytest.approx(17.3)
    assert modes[0].modulus == pytest.approx(1.15)
    run = FreeRun(layer, None)
    state, outputs = torch.full((1, 2), 0.1, dtype=torch.float64), []
    for _ in range(6000):
        outputs.append(float(run.output(state)))
        state = run.step(state)
    settled = np.array(outputs[1000:])
    rising = np.flatnonzero((settled[:-1] < 0) & (settled[1:] >= 0))
    period = (rising[-1] - rising[0]) / (len(rising) - 1)
    assert modes.cycle.period == pytest.approx(period, rel=1e-3)
    assert modes.cycle.share > 0.9
    assert f"{period:.1f} steps" in modes.summary()


def test_forecasts_that_come_to_rest_have_no_cycle() -> None:
    assert forecast_modes(forecasting(ParaRNN)).cycle is None
    assert forecast_modes(predictor(1.1 * np.eye(2), np.ones((2, 1)), np.ones((1, 2)))).cycle is None
    assert forecast_modes(scalar(0.501, 0.5).double(), x=torch.ones(3, 1, 1)).cycle is None  # slowly


def test_a_wave_that_fades_slowly_is_no_cycle() -> None:
    steps = np.arange(2048)
    assert settled_cycle((0.999**steps * np.cos(0.3 * steps))[:, None]) is None
    assert settled_cycle(np.cos(0.3 * steps)[:, None]).period == pytest.approx(2 * math.pi / 0.3, rel=1e-3)
    assert settled_cycle(np.ones((2048, 1))) is None
    assert settled_cycle(np.full((2048, 1), np.inf)) is None

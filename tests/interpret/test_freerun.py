"""The closed loop of a model that is fed its own forecasts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from parallelrnn import ParaGRU, ParaLSTM, ParaRNN
from parallelrnn.interpret.freerun import FreeRun
from tests.interpret.models import made


@pytest.mark.parametrize("cls", [ParaRNN, ParaLSTM, ParaGRU])
@pytest.mark.parametrize("num_layers", [1, 2])
def test_the_derivative_is_that_of_the_free_run(cls: Any, num_layers: int) -> None:
    layer = made(cls, num_layers=num_layers, batch_first=num_layers == 2)
    run = FreeRun(layer, None)
    state = 0.3 * torch.randn(run.size, dtype=torch.float64)
    loop, reading = run.jacobian(state)
    for index in range(run.size):
        nudge = torch.zeros(run.size, dtype=torch.float64)
        nudge[index] = 1e-6
        both = torch.stack([state + nudge, state - nudge])
        np.testing.assert_allclose(loop[:, index], np.diff(run.step(both).numpy(), axis=0)[0] / -2e-6, atol=1e-8)
        np.testing.assert_allclose(reading[:, index], np.diff(run.output(both).numpy(), axis=0)[0] / -2e-6, atol=1e-8)


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

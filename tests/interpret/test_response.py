from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from parallelrnn import ParaGRU, ParaLSTM, ParaRNN, impulse_response
from parallelrnn.errors import ArgumentError, ArgumentTypeError, InputError
from parallelrnn.interpret.jordan import projectors, spectrum_of
from tests.interpret.models import data, make
from tests.support import raises

DATA = data(60, 3)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from([1, 2, 3, [1, 2, 3]]), st.integers(0, 1000))
def test_a_linear_layer_answers_with_the_curves_of_its_features(block_size: Any, seed: int) -> None:
    """C W^lag U of each block is the sum over its features of C P W^lag U, a decay or a damped wave each."""
    torch.manual_seed(seed)
    layer = ParaRNN(2, 6, nonlinearity="linear", block_size=block_size, aggregate=nn.Linear(6, 6)).double()
    response = impulse_response(layer, DATA, lags=20)
    np.testing.assert_allclose(response.low, response.high, atol=1e-9)
    np.testing.assert_allclose(response.mean, response.linear.sum(axis=2), atol=1e-9)
    start = 0
    weight, entering = layer.aggregate.weight.detach().numpy(), layer.weight_ih_l0.detach().numpy()
    for index, block in enumerate(layer.recurrent_blocks()):
        matrix = block.matrix.detach().numpy()
        units = slice(start, start + len(matrix))
        curves = np.zeros((20, 2, 6))
        for group, order, projector in projectors(spectrum_of(matrix).groups(1e-12)):
            assert order == 1
            for lag in range(20):
                # A projector commutes with the matrix: on its subspace the matrix is the eigenvalue.
                power = np.real(group.eigenvalue**lag) * projector
                if group.eigenvalue.imag:
                    turn = (matrix @ projector - np.real(group.eigenvalue) * projector) / group.eigenvalue.imag
                    power = power + np.imag(group.eigenvalue**lag) * turn
                curves[lag] += (weight[:, units] @ power @ entering[units]).T
        np.testing.assert_allclose(response.by_block[:, :, index], curves, atol=1e-9)
        start = units.stop


@pytest.mark.parametrize("cls", [ParaRNN, ParaLSTM, ParaGRU])
@pytest.mark.parametrize("batch_first", [False, True])
def test_the_answer_is_the_derivative_of_the_output(cls: Any, batch_first: bool) -> None:
    layer = make(cls, num_layers=2, batch_first=batch_first)
    x = data(12, 1)
    response = impulse_response(layer, x.transpose(0, 1) if batch_first else x, lags=11, places=1, nudge=1e-5)
    series = x[:, 0].clone().requires_grad_()  # nudged at its first step, the only one with so many lags
    output, _ = layer(series[None] if batch_first else series[:, None])
    output = output[0] if batch_first else output[:, 0]
    for lag in (0, 3, 10):
        for out in range(6):
            (gradient,) = torch.autograd.grad(output[lag, out], series, retain_graph=True)
            np.testing.assert_allclose(response.mean[lag, :, out], gradient[0].numpy(), atol=1e-5)
    np.testing.assert_allclose(response.by_block.sum(axis=2), response.mean, atol=1e-12)
    assert (response.linear is None) == (cls is not ParaRNN)


def test_an_activation_bends_the_answer() -> None:
    layer = make(ParaRNN)
    with torch.no_grad():
        layer.weight_hh_l0.mul_(2)
        layer.weight_ih_l0.mul_(3)
    response = impulse_response(layer, DATA, lags=10, places=20, band=0.8)
    assert response.places == 20
    assert (response.low <= response.high).all()
    assert (response.high - response.low).max() > 0.1
    # tanh lets through less than the identity does.
    assert abs(response.mean[0]).max() < abs(response.linear.sum(axis=2)[0]).max()


def test_a_constant_input_can_be_nudged() -> None:
    response = impulse_response(make(ParaRNN, nonlinearity="linear"), torch.zeros(30, 2), lags=5)
    np.testing.assert_allclose(response.mean, response.linear.sum(axis=2), atol=1e-9)


@pytest.mark.parametrize("cls", [nn.RNN, nn.LSTM, nn.GRU])
def test_a_layer_of_torch_answers_as_one_block(cls: Any) -> None:
    """Against the derivative of the layer itself, by autograd, at every place."""
    torch.manual_seed(0)
    layer = cls(2, 3).double()
    x = torch.randn(20, 1, 2, dtype=torch.float64, requires_grad=True)
    response = impulse_response(layer, x.detach(), lags=4, places=100, nudge=1e-6)
    output = layer(x)[0]
    places = range(16)
    for lag in range(4):
        slopes = [torch.autograd.grad(output[t + lag, 0, 1], x, retain_graph=True)[0][t, 0] for t in places]
        np.testing.assert_allclose(response.mean[lag, :, 1], torch.stack(slopes).mean(0), atol=1e-5)
    assert response.by_block.shape[2] == 1


def test_rejected_layers_and_arguments() -> None:
    with raises(ArgumentTypeError, got="Linear"):
        impulse_response(nn.Linear(2, 6), DATA)
    with raises(InputError):
        impulse_response(make(ParaRNN, bidirectional=True), DATA)
    for argument, value in (("lags", 60), ("lags", 0), ("band", 1.0), ("nudge", 0), ("places", 0)):
        with raises(ArgumentError, argument=argument, got=value):
            impulse_response(make(ParaRNN), DATA, **{argument: value})


def test_places_in_the_last_steps_have_all_data_behind_them() -> None:
    """A nudge in the last place that there is, by hand."""
    layer = ParaGRU(1, 4, dtype=torch.float64, aggregate=nn.Linear(4, 1, dtype=torch.float64))
    x = 2 * torch.randn(60, 1, dtype=torch.float64)
    response = impulse_response(layer, x, 9, last=10, nudge=1e-6)
    assert response.places == 1
    nudged = x.clone()
    nudged[50] += 1e-6 * float(x.std())
    with torch.no_grad():
        change = (layer(nudged)[0] - layer(x)[0])[50:59, 0] / (1e-6 * float(x.std()))
    np.testing.assert_allclose(response.mean[:, 0, 0], change, rtol=1e-4, atol=1e-8)

"""The reference loop against other software: torch.nn for gates and tanh (tests/nn), SciPy for linear blocks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import signal
from torch import nn

from parallelrnn import ParaRNN, from_torch
from parallelrnn.kernels import Weights, recurrence


def test_a_linear_block_is_a_linear_state_space_model() -> None:
    layer = ParaRNN(3, 4, nonlinearity="linear", block_size=4, aggregate=None, dtype=torch.float64)
    x, h_0 = torch.randn(50, 1, 3, dtype=torch.float64), torch.randn(1, 1, 4, dtype=torch.float64)
    output, _ = layer(x, h_0)

    a, b = layer.weight_hh_l0.detach().numpy(), layer.weight_ih_l0.detach().numpy()
    bias = (layer.bias_ih_l0 + layer.bias_hh_l0).detach().numpy()
    inputs = np.concatenate([x[:, 0].numpy(), np.ones((50, 1))], axis=1)
    # SciPy's state lags by one step: its output y(t) = A s(t) + B u(t) is our h(t), s(0) = h_0 and s(t + 1) = y(t).
    b = np.concatenate([b, bias[:, None]], axis=1)
    _, expected, _ = signal.dlsim((a, b, a, b, 1), inputs, x0=h_0[0, 0].numpy())
    np.testing.assert_allclose(output[:, 0].detach().numpy(), expected, rtol=1e-12, atol=1e-13)


def test_linear_blocks_of_size_one_are_first_order_filters() -> None:
    layer = ParaRNN(1, 3, nonlinearity="linear", bias=False, block_size=1, aggregate=None, dtype=torch.float64)
    x = torch.randn(40, 1, 1, dtype=torch.float64)
    output = layer(x)[0].detach().numpy()
    for unit in range(3):
        decay, gain = layer.weight_hh_l0[unit].item(), layer.weight_ih_l0[unit].item()
        expected = signal.lfilter([gain], [1, -decay], x[:, 0, 0].numpy())
        np.testing.assert_allclose(output[:, 0, unit], expected, rtol=1e-12, atol=1e-13)


def test_a_sigmoid_layer_is_a_tanh_layer_in_other_units() -> None:
    """sigmoid(z) = (1 + tanh(z / 2)) / 2, so g = 2 h - 1 obeys g' = tanh(W/4 g + U/2 x + b/2 + W 1/4)."""
    ours = ParaRNN(3, 4, nonlinearity="sigmoid", block_size=4, aggregate=None, dtype=torch.float64)
    theirs = nn.RNN(3, 4, dtype=torch.float64)
    with torch.no_grad():
        theirs.weight_hh_l0.copy_(ours.weight_hh_l0 / 4)
        theirs.weight_ih_l0.copy_(ours.weight_ih_l0 / 2)
        theirs.bias_ih_l0.copy_((ours.bias_ih_l0 + ours.bias_hh_l0) / 2)
        theirs.bias_hh_l0.copy_(ours.weight_hh_l0.sum(1) / 4)
    x, h_0 = torch.randn(30, 2, 3, dtype=torch.float64), torch.rand(1, 2, 4, dtype=torch.float64)
    torch.testing.assert_close(ours(x, h_0)[0], (1 + theirs(x, 2 * h_0 - 1)[0]) / 2, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("cls", [nn.RNN, nn.LSTM, nn.GRU])
@pytest.mark.parametrize("length", [1, 2, 63])
@pytest.mark.usefixtures("fresh_memory_is_nan")
def test_non_contiguous_input_at_odd_sizes(cls: type[nn.RNNBase], length: int) -> None:
    module = cls(3, 4)
    x = torch.randn(5, 3, 2 * length).permute(2, 0, 1)[::2]  # (T, B, input_size), contiguous in none of them
    assert not x.is_contiguous()
    # Round-off grows like T * eps, T <= 63, with states and inputs around one.
    torch.testing.assert_close(from_torch(module)(x)[0], module(x)[0], rtol=0, atol=63 * torch.finfo(x.dtype).eps)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.usefixtures("fresh_memory_is_nan")
def test_steps_beyond_a_sequence_leave_its_state_alone(reverse: bool) -> None:
    weights = Weights(torch.randn(4, 3), torch.randn(1, 2, 2, 2))
    x, lengths = torch.randn(6, 3, 3), torch.tensor([6, 1, 4])
    state = (torch.randn(3, 4),)
    output, (final,) = recurrence("RNN_TANH", x, weights, state, lengths, reverse)
    for index, length in enumerate(lengths.tolist()):
        alone, (alone_final,) = recurrence(
            "RNN_TANH", x[:length, index : index + 1], weights, (state[0][index : index + 1],), reverse=reverse
        )
        torch.testing.assert_close(output[:length, index], alone[:, 0])
        torch.testing.assert_close(final[index], alone_final[0])
        assert (output[length:, index] == 0).all()


@pytest.mark.parametrize("reverse", [False, True])
def test_padding_changes_no_value_and_no_gradient(reverse: bool) -> None:
    leaves = torch.randn(4, 3, requires_grad=True), torch.randn(1, 2, 2, 2, requires_grad=True)
    x, lengths = torch.randn(6, 2, 3), torch.tensor([6, 2])
    other = x.clone()
    other[2:, 1] = 100.0
    results = []
    for inputs in (x, other):
        output, (final,) = recurrence("RNN_TANH", inputs, Weights(*leaves), (torch.zeros(2, 4),), lengths, reverse)
        results.append([output, final, *torch.autograd.grad(output.square().sum() + final.sum(), leaves)])
    for first, second in zip(*results, strict=True):
        torch.testing.assert_close(first, second, rtol=0, atol=0)

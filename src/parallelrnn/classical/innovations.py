"""Linear models in innovations form, and their equivalent linear ParaRNNs (Section 2.1 of arXiv 2605.02692).

With e(t) the error of the one-step forecast of y(t),

    s(t+1) = A s(t) + K e(t),                  y(t) = C s(t) + e(t)                    (about the mean of y)

is an ARMA model if A is the companion matrix of its autoregressive side. Since e(t) = y(t) - C s(t), the state can be
computed from the data alone, by a linear RNN whose output is the forecast of its next input:

    s(t+1) = W s(t) + K y(t),                  forecast of y(t+1) = C s(t+1),          W = A - K C

W is the companion matrix of the moving-average side: how the model remembers. A = W + K C is its closed loop: the
cycles of its forecasts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from parallelrnn.errors import ArgumentError, ArgumentTypeError, check_integer
from parallelrnn.nn import ParaRNN
from parallelrnn.nn.aggregate import is_linear_map
from parallelrnn.nn.similarity import smallest_blocks

Array = NDArray[np.float64]
_MOST_CONDITION = 1e4  # of the transform to blocks; the weights are then accurate to twelve digits


@dataclass(frozen=True, kw_only=True)
class Innovations:
    """The model s(t+1) = W s(t) + K y(t) + b, with the forecast C s(t+1) + c of y(t+1)."""

    recurrent: Array  # W, (d, d)
    gain: Array  # K, (d, n)
    readout: Array  # C, (n, d)
    bias: Array  # b, (d,)
    level: Array  # c, (n,)

    @classmethod
    def of_coefficients(cls, ar: Array, ma: Array, mean: Array) -> Innovations:
        """Recast y(t) = sum_i ar_i y(t-i) + e(t) + sum_j ma_j e(t-j), about a mean, to order (1, 1) in companion form.

        The coefficients are ar (p, n, n) and ma (q, n, n). The state holds what is known so far of y(t), y(t+1), ...
        """
        order, size = max(len(ar), len(ma), 1), len(mean)
        ar, ma = (np.concatenate([side, np.zeros((order - len(side), size, size))]) for side in (ar, ma))
        recurrent = np.eye(order * size, k=size)
        recurrent[:, :size] = -ma.reshape(order * size, size)
        gain = (ar + ma).reshape(order * size, size)
        readout = np.eye(size, order * size)
        return cls(recurrent=recurrent, gain=gain, readout=readout, bias=-gain @ mean, level=mean)

    @classmethod
    def of_layer(cls, layer: ParaRNN) -> Innovations:
        """Read the model off a linear layer whose output is the forecast of its next input."""
        _check_layer(layer)
        double = {name: weight.detach().cpu().double() for name, weight in layer.named_parameters()}
        blocks = [block.matrix.detach().cpu().double() for block in layer.recurrent_blocks()]
        states, outputs = layer.hidden_size, layer.input_size
        bias = double["bias_ih_l0"] + double["bias_hh_l0"] if layer.bias else torch.zeros(states)
        readout = double.get("aggregate.weight", torch.eye(states))
        level = double.get("aggregate.bias", torch.zeros(outputs))
        return cls(
            recurrent=torch.block_diag(*blocks).numpy(),
            gain=double["weight_ih_l0"].numpy(),
            readout=readout.double().numpy(),
            bias=bias.double().numpy(),
            level=level.double().numpy(),
        )

    @torch.no_grad()
    def as_layer(self) -> ParaRNN:
        """Return the equivalent linear ParaRNN in double precision, with blocks of size 2 where the spectrum allows."""
        size, states = self.readout.shape
        form = smallest_blocks(self.recurrent, _MOST_CONDITION)
        sizes = [len(block) for block in form.blocks]
        aggregate = nn.Linear(states, size, dtype=torch.float64)
        layer = ParaRNN(size, states, nonlinearity="linear", block_size=sizes, aggregate=aggregate, dtype=torch.float64)
        for block, matrix in zip(layer.recurrent_blocks(), form.blocks, strict=True):
            block.matrix.copy_(torch.from_numpy(matrix))
        layer.get_parameter("weight_ih_l0").copy_(torch.from_numpy(np.linalg.solve(form.transform, self.gain)))
        layer.get_parameter("bias_ih_l0").copy_(torch.from_numpy(np.linalg.solve(form.transform, self.bias)))
        layer.get_parameter("bias_hh_l0").zero_()
        aggregate.weight.copy_(torch.from_numpy(self.readout @ form.transform))
        aggregate.bias.copy_(torch.from_numpy(self.level))
        return layer

    @property
    def closed_loop(self) -> Array:
        """The matrix A = W + K C."""
        return self.recurrent + self.gain @ self.readout

    def forecast(self, state: Array, steps: int) -> Array:
        """Return the outputs (steps, n) from a state (d,) on, with each forecast as the next input."""
        loop, drift = self.closed_loop, self.bias + self.gain @ self.level
        outputs = []
        for _ in range(check_integer("steps", steps, 1)):
            outputs.append(self.readout @ state + self.level)
            state = loop @ state + drift
        return np.stack(outputs)


def spectral_radius(matrix: Array) -> float:
    """Return the largest modulus of an eigenvalue."""
    return float(abs(np.linalg.eigvals(matrix)).max())


def _check_layer(layer: ParaRNN) -> None:
    if not isinstance(layer, ParaRNN):
        expected = "a ParaRNN with nonlinearity='linear'"
        raise ArgumentTypeError(argument="layer", expected=expected, got=type(layer).__name__)
    aggregate = layer.aggregate
    wrong = {
        "nonlinearity='linear'": layer.nonlinearity != "linear",
        "one layer": layer.num_layers > 1,
        "one direction": layer.bidirectional,
        "a linear aggregate, or none": aggregate is not None and not is_linear_map(aggregate),
    }
    missing = [requirement for requirement, is_wrong in wrong.items() if is_wrong]
    if missing:
        problem = "only a linear ParaRNN is an ARMA model"
        raise ArgumentError(problem, argument="layer", expected=", ".join(missing))
    outputs = layer.hidden_size if aggregate is None else aggregate.out_features
    if outputs != layer.input_size:
        expected = f"as many outputs as inputs, {layer.input_size}, since an ARMA model forecasts its input"
        raise ArgumentError(argument="layer", expected=expected, got=outputs)

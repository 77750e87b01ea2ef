"""Linear models in innovations form, and the linear ParaRNN that each of them is (Section 2.1 of arXiv 2605.02692).

With e(t) the error of the forecast of y(t) that was made one step before,

    s(t+1) = A s(t) + K e(t),                  y(t) = C s(t) + e(t)                    (about the mean of y)

is an ARMA model if A is the companion matrix of its autoregressive side. Since e(t) = y(t) - C s(t), the state follows
from the data alone, by a linear RNN whose output is the forecast of its next input:

    s(t+1) = W s(t) + K y(t),                  forecast of y(t+1) = C s(t+1),          W = A - K C

W is the companion matrix of the moving-average side: how the model remembers. A = W + K C is its closed loop: the
cycles that it believes in.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from parallelrnn.nn import ParaRNN
from parallelrnn.nn.similarity import smallest_blocks

Array = NDArray[np.float64]
_CONDITION = 1e4  # of the transform to blocks: weights then say what they should to twelve digits


@dataclass(frozen=True)
class Innovations:
    """s(t+1) = W s(t) + K y(t) + b, and the forecast C s(t+1) + c of y(t+1)."""

    recurrent: Array  # W, (d, d)
    gain: Array  # K, (d, n)
    readout: Array  # C, (n, d)
    bias: Array  # b, (d,)
    level: Array  # c, (n,)

    @classmethod
    def of_coefficients(cls, ar: Array, ma: Array, mean: Array) -> Innovations:
        """Of y(t) = sum_i ar_i y(t-i) + e(t) + sum_j ma_j e(t-j) about a mean; ar (p, n, n), ma (q, n, n).

        Recast to order (1, 1) in companion form: the state holds, for i = 0, 1, ..., what is known so far of y(t+i).
        """
        order, size = max(len(ar), len(ma), 1), len(mean)
        ar, ma = (np.concatenate([one, np.zeros((order - len(one), size, size))]) for one in (ar, ma))
        recurrent = np.eye(order * size, k=size)
        recurrent[:, :size] = -ma.reshape(order * size, size)
        gain = (ar + ma).reshape(order * size, size)
        return cls(recurrent, gain, np.eye(size, order * size), -gain @ mean, mean)

    @classmethod
    def of_layer(cls, layer: ParaRNN) -> Innovations:
        """What a linear layer computes, whose output is the forecast of its next input."""
        _check_layer(layer)
        double = {name: weight.detach().cpu().double() for name, weight in layer.named_parameters()}
        blocks = [block.matrix.detach().cpu().double() for block in layer.recurrent_blocks()]
        states, outputs = layer.hidden_size, layer.input_size
        bias = double["bias_ih_l0"] + double["bias_hh_l0"] if layer.bias else torch.zeros(states)
        readout = double.get("aggregate.weight", torch.eye(states))
        level = double.get("aggregate.bias", torch.zeros(outputs))
        parts = (torch.block_diag(*blocks), double["weight_ih_l0"], readout, bias, level)
        return cls(*(part.double().numpy() for part in parts))

    @torch.no_grad()
    def as_layer(self) -> ParaRNN:
        """The linear ParaRNN that computes it, in double precision: blocks of size 2 where the spectrum allows."""
        size, states = self.readout.shape
        form = smallest_blocks(self.recurrent, _CONDITION)
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
        """A = W + K C."""
        return self.recurrent + self.gain @ self.readout


def _check_layer(layer: ParaRNN) -> None:
    if not isinstance(layer, ParaRNN):
        raise TypeError(f"expected a ParaRNN with nonlinearity='linear', got {type(layer).__name__}")
    aggregate = layer.aggregate
    wrong = {
        "nonlinearity='linear'": layer.nonlinearity != "linear",
        "one layer": layer.num_layers > 1,
        "one direction": layer.bidirectional,
        "a linear aggregate, or none": aggregate is not None and type(aggregate) is not nn.Linear,
    }
    missing = [what for what, is_wrong in wrong.items() if is_wrong]
    if missing:
        raise ValueError(f"only a linear ParaRNN is an ARMA model: expected {', '.join(missing)}")
    outputs = layer.hidden_size if aggregate is None else aggregate.out_features
    if outputs != layer.input_size:
        raise ValueError(
            f"an ARMA model puts out forecasts of what it takes in: the layer has {layer.input_size} inputs and "
            f"{outputs} outputs"
        )

"""The networks of Section 4 of arXiv 2605.02692, their ranges over inputs in [0, 1], and their rounding errors.

There are three classes of functions of a sequence: feedforward networks (FNNs) of the first steps, stacked; ParaRNNs,
which end in a ReLU layer and a linear map; and, in between, modified ParaRNNs, in which only some units pass through a
ReLU. `parallelrnn.theory.equivalence` converts between them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from parallelrnn.errors import ArgumentError, ArgumentTypeError, InputError, check_integer
from parallelrnn.nn import ParaRNN


class ParaRNNNetwork(nn.Module):
    """The deep ParaRNN Q o F o R_L o ... o R_1 o P of Section 4, with outputs at every step.

    P and Q are linear maps without bias, the R_l are ReLU layers of blocks that start from zeros, and F, a fully
    connected layer with ReLU, is their aggregate. Maps (B, T, input_size) to (B, T, output_size) in float64.
    """

    def __init__(
        self, input_size: int, hidden_size: int, output_size: int, num_layers: int = 1, *, block_size: int = 2
    ) -> None:
        super().__init__()
        double, sizes = torch.float64, (hidden_size, hidden_size)
        aggregate = nn.Sequential(nn.Linear(*sizes, dtype=double), nn.ReLU())
        self.input_map = nn.Linear(input_size, hidden_size, bias=False, dtype=double)
        options: dict[str, Any] = {"batch_first": True, "dtype": double, "block_size": block_size}
        self.recurrent = ParaRNN(*sizes, num_layers, "relu", aggregate=aggregate, **options)
        self.output_map = nn.Linear(hidden_size, output_size, bias=False, dtype=double)

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs at every step, from zero states."""
        states, _ = self.recurrent(self.input_map(x))
        output: Tensor = self.output_map(states)
        return output

    @property
    def fully_connected(self) -> nn.Linear:
        """F without its ReLU."""
        assert isinstance(self.recurrent.aggregate, nn.Sequential)
        linear = self.recurrent.aggregate[0]
        assert isinstance(linear, nn.Linear)
        return linear

    def layers(self) -> Iterator[RecurrentLayer]:
        """Yield the recurrent layers, first to last."""
        for index in range(self.recurrent.num_layers):
            names = (f"weight_hh_l{index}", f"weight_ih_l{index}", f"bias_ih_l{index}", f"bias_hh_l{index}")
            compact, *others = (getattr(self.recurrent, name).detach() for name in names)
            yield RecurrentLayer(torch.block_diag(*compact.unflatten(0, (self.recurrent.num_blocks, -1))), *others)


@dataclass(frozen=True)
class RecurrentLayer:
    """One recurrent layer of a ParaRNN, with its full recurrent matrix."""

    recurrent: Tensor  # (d, d), block-diagonal
    input: Tensor  # (d, inputs)
    bias_ih: Tensor  # (d,)
    bias_hh: Tensor  # (d,)


@dataclass(frozen=True)
class ModifiedLayer:
    """A recurrent layer in which only some units are activated; with zero recurrent blocks it is position-wise."""

    recurrent: Tensor  # (K, D, D)
    input: Tensor  # (d, d)
    bias: Tensor  # (d,)
    activated: Tensor  # (d,), bool: the index set I, one for each layer

    def __call__(self, x: Tensor) -> Tensor:
        """Run over x (B, T, d) from zero states."""
        recurrent = torch.block_diag(*self.recurrent)
        h = torch.zeros_like(x[:, 0])
        states = []
        for u in (x @ self.input.T + self.bias).unbind(1):
            h = h @ recurrent.T + u
            h = torch.where(self.activated, h.relu(), h)
            states.append(h)
        return torch.stack(states, 1)


@dataclass(frozen=True)
class ModifiedParaRNN:
    """The map Q o F o R_L o ... o R_1 o P with partially activated layers, in float64, of (B, T, input_size)."""

    input_map: Tensor  # P, (d, input_size)
    layers: tuple[ModifiedLayer, ...]  # R_1 ... R_L
    aggregate: ModifiedLayer  # F, position-wise
    output_map: Tensor  # Q, (output_size, d)

    def __call__(self, x: Tensor) -> Tensor:
        """Return the outputs at every step, (B, T, output_size)."""
        x = x @ self.input_map.T
        for layer in (*self.layers, self.aggregate):
            x = layer(x)
        return x @ self.output_map.T

    @property
    def block_size(self) -> int:
        """The number of units in a block."""
        return int(self.aggregate.recurrent.shape[-1])

    def lower_bounds(self, steps: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield lower bounds of each layer's units in the first `steps` steps, for all inputs in [0, 1].

        For R_1 ... R_L and F these are the bounds (d,) of the input's part W_x x + b, and of the total before
        activation. They are exact up to rounding if no unit below is activated, since everything is then affine in the
        inputs; otherwise they are sound.
        """
        check_integer("steps", steps, 1)
        size = self.input_map.shape[1]
        gains = torch.eye(steps * size, dtype=torch.float64).unflatten(0, (steps, size))
        nothing = torch.zeros(size, dtype=torch.float64)
        sequence = [_Range(nothing, gain, nothing).through(self.input_map) for gain in gains]
        for layer in (*self.layers, self.aggregate):
            recurrent = torch.block_diag(*layer.recurrent)
            inputs = [x.through(layer.input) + layer.bias for x in sequence]
            totals = inputs[:1]
            sequence = [totals[0].activate(layer.activated)]
            for part in inputs[1:]:
                totals.append(sequence[-1].through(recurrent) + part)
                sequence.append(totals[-1].activate(layer.activated))
            yield _lowest(inputs), _lowest(totals)


@dataclass(frozen=True)
class _Range:
    """The possible values of a vector: center + gain @ x + e for any x in [0, 1] and any |e| <= radius.

    Plain intervals ignore that sums of the same inputs cancel: over the nested sums of `modified_from_fnn` they would
    grow far faster with each step.
    """

    center: Tensor  # (d,)
    gain: Tensor  # (d, inputs)
    radius: Tensor  # (d,)

    def through(self, weight: Tensor) -> _Range:
        return _Range(weight @ self.center, weight @ self.gain, weight.abs() @ self.radius)

    def __add__(self, other: _Range | Tensor) -> _Range:
        if isinstance(other, Tensor):
            return _Range(self.center + other, self.gain, self.radius)
        return _Range(self.center + other.center, self.gain + other.gain, self.radius + other.radius)

    @property
    def low(self) -> Tensor:
        return self.center + self.gain.clamp(max=0).sum(1) - self.radius

    @property
    def high(self) -> Tensor:
        return self.center + self.gain.clamp(min=0).sum(1) + self.radius

    def activate(self, units: Tensor) -> _Range:
        """Apply ReLU to some units; for those that may be negative, only the interval is kept."""
        cut = units & (self.low < 0)
        half = self.high.relu() / 2
        gain = torch.where(cut[:, None], 0.0, self.gain)
        return _Range(torch.where(cut, half, self.center), gain, torch.where(cut, half, self.radius))


def _lowest(ranges: list[_Range]) -> Tensor:
    return torch.stack([value.low for value in ranges]).amin(0)


def affine_layers(fnn: nn.Module) -> list[tuple[Tensor, Tensor]]:
    """Return weights and biases, in float64, of an FNN: an `nn.Sequential` of Linear, ReLU, Linear, ..., Linear."""
    modules = list(fnn) if isinstance(fnn, nn.Sequential) else []
    linears = [module for module in modules if type(module) is nn.Linear]
    alternating = [nn.ReLU if index % 2 else nn.Linear for index in range(2 * len(linears) - 1)]
    if not linears or [type(module) for module in modules] != alternating:
        names = ", ".join(type(module).__name__ for module in modules) or type(fnn).__name__
        expected = "an nn.Sequential of alternating Linear and ReLU that starts and ends with a Linear"
        raise ArgumentTypeError(argument="fnn", expected=expected, got=names)
    layers: list[tuple[Tensor, Tensor]] = []
    for linear in linears:
        weight = linear.weight.detach().to("cpu", torch.float64)
        bias = weight.new_zeros(len(weight)) if linear.bias is None else linear.bias.detach().to(weight)
        if not (weight.isfinite().all() and bias.isfinite().all()):
            raise InputError(f"{linear} has weights that are not finite", hint="check whether training diverged")
        if layers and weight.shape[1] != len(layers[-1][1]):
            expected = f"{len(layers[-1][1])} inputs of {linear}, as many as the layer before has outputs"
            raise ArgumentError(argument="fnn", expected=expected, got=weight.shape[1])
        layers.append((weight, bias))
    return layers


@torch.no_grad()
def rounding_bound(network: ParaRNNNetwork | nn.Sequential, x: Tensor) -> Tensor:
    """Bound the rounding error of a network's outputs for x, entry by entry.

    The network is a `ParaRNNNetwork` with x (B, T, input_size), or an FNN with x (B, inputs), in float64. The bound
    also covers the distance to an intended function whose weights were rounded once. It is a running error bound
    (Higham, "Accuracy and Stability of Numerical Algorithms", Section 3.3).
    """
    run = before = _Computed(x, torch.zeros_like(x))
    if isinstance(network, nn.Sequential):
        for weight, bias in affine_layers(network):
            before = run.affine(weight, bias)
            run = before.relu()
        return before.error
    run = run.affine(network.input_map.weight)
    for layer in network.layers():
        run = run.recurrent(layer)
    full = network.fully_connected
    return run.affine(full.weight, full.bias).relu().affine(network.output_map.weight).error


@dataclass(frozen=True)
class _Computed:
    """Computed numbers, and a bound of their distance from exact ones, for any order of summation."""

    value: Tensor
    error: Tensor

    def affine(self, weight: Tensor, *biases: Tensor) -> _Computed:
        # The error of a sum of n products is at most n rounding units times the sum of their sizes. Zeros add nothing;
        # the rounding of the weights counts as one more term. eps is twice the rounding unit, which covers terms of
        # higher order and the rounding of this bound itself.
        terms = (weight != 0).sum(1) + len(biases) + 1
        sizes = self.value.abs() @ weight.abs().T + sum(bias.abs() for bias in biases)
        error = self.error @ weight.abs().T + torch.finfo(torch.float64).eps * terms * sizes
        return _Computed(self.value @ weight.T + sum(biases), error)

    def relu(self) -> _Computed:
        # Errors do not grow, and none passes where every possible value is negative.
        return _Computed(self.value.relu(), self.error.minimum((self.value + 2 * self.error).relu()))

    def recurrent(self, layer: RecurrentLayer) -> _Computed:
        weights = torch.cat([layer.input, layer.recurrent], 1)
        state = _Computed(torch.zeros_like(self.value[:, 0]), torch.zeros_like(self.error[:, 0]))
        states = []
        for value, error in zip(self.value.unbind(1), self.error.unbind(1), strict=True):
            both = _Computed(torch.cat([value, state.value], 1), torch.cat([error, state.error], 1))
            state = both.affine(weights, layer.bias_ih, layer.bias_hh).relu()
            states.append(state)
        return _Computed(torch.stack([s.value for s in states], 1), torch.stack([s.error for s in states], 1))

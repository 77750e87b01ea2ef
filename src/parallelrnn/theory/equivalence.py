"""FNN <-> ParaRNN: Proposition C.1 of arXiv 2605.02692 and its lemmas, as functions that return networks.

The output of a feedforward network for the first steps of a sequence, stacked, is the output of a ParaRNN at the last
of these steps, and vice versa. Every weight is computed in exact arithmetic and rounded once, so that `rounding_bound`
bounds the difference between two such networks.

Not to be confused with `from_torch`, which keeps the memory of a recurrent layer: here only the function is kept.
"""

from __future__ import annotations

from fractions import Fraction
from math import comb, fsum, gcd
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import pad

from parallelrnn.errors import ArgumentError, check_integer
from parallelrnn.theory.networks import (
    ModifiedLayer,
    ModifiedParaRNN,
    ParaRNNNetwork,
    RecurrentLayer,
    affine_layers,
    rounding_bound,
)

__all__ = [
    "ModifiedLayer",
    "ModifiedParaRNN",
    "ParaRNNNetwork",
    "fnn_from_para",
    "inverse_pascal",
    "modified_from_fnn",
    "para_from_fnn",
    "para_from_modified",
    "rounding_bound",
]


def para_from_fnn(fnn: nn.Sequential, steps: int, at: int, block_size: int = 2) -> ParaRNNNetwork:
    """Return a ParaRNN whose output at step `at` is the FNN of the inputs up to there: Proposition C.1 (i).

    Moreover, its output at each of the first `steps` steps is the FNN of the last `at` inputs up to there, with zeros
    before the first, so it is bounded wherever the FNN is. All of this holds for inputs in [0, 1].

    Parameters
    ----------
    fnn
        Linear, ReLU, Linear, ..., Linear: L Linears, none with more than d outputs, the first with at * input_size
        inputs.
    steps
        The length T of the sequences.
    at
        The number of steps that the FNN sees, and the step at which it sees them all: `network(x)[:, at - 1]` is
        `fnn(x[:, :at].flatten(1))`, up to `rounding_bound(network, x)[:, at - 1]`.
    block_size
        At least 2.

    Returns
    -------
    ParaRNNNetwork
        It has hidden_size (input_size + 1) d + block_size and 2 (T + L - 1) recurrent layers. If block_size does not
        divide (input_size + 1) d, d is replaced by the next larger number for which it does.

    Notes
    -----
    Rounding errors grow about elevenfold with each step, so `steps` should be no larger than needed. For small networks
    about nine digits are certain at 6 steps, six at 10, and none at 15.

    Examples
    --------
    >>> fnn = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1)).double()
    >>> network = para_from_fnn(fnn, steps=5, at=3)
    >>> network.recurrent.hidden_size, network.recurrent.num_layers
    (10, 12)
    >>> x = torch.rand(7, 5, 1, dtype=torch.float64)
    >>> torch.allclose(network(x)[:, 2], fnn(x[:, :3].flatten(1)))
    True
    """
    return para_from_modified(modified_from_fnn(fnn, steps, at, block_size), steps)


def modified_from_fnn(fnn: nn.Sequential, steps: int, at: int, block_size: int = 2) -> ModifiedParaRNN:
    """Return a modified ParaRNN with the outputs of `para_from_fnn`, for any inputs: Lemma C.2.

    It has (input_size + 1) d units and T + L - 1 recurrent layers. Each row of the FNN's first weight has a copy of the
    input and a running sum; T nested sums, with suitable inputs, yield any weighted sum over the steps (Step 1). The
    other layers of the FNN follow position by position (Steps 2 and 3). The arguments are those of `para_from_fnn`.
    """
    layers = affine_layers(fnn)
    first_weight, first_bias = layers[0]
    if check_integer("at", at, 1) > check_integer("steps", steps, 1):
        raise ArgumentError(argument="at", expected=f"at most {steps}, the number of steps", got=at)
    input_size, rest = divmod(first_weight.shape[1], at)
    if rest:
        expected = f"an FNN of the stacked inputs of {at} steps, with a multiple of {at} inputs"
        raise ArgumentError(argument="fnn", expected=expected, got=first_weight.shape[1])
    width = _width(max(len(bias) for _, bias in layers), input_size, block_size)

    is_sum = torch.arange(width) % (input_size + 1) == input_size
    identity = torch.eye(width, dtype=torch.float64)
    summing = _summing_layers(_entering(first_weight, steps, at), is_sum, block_size)
    layers[0] = (identity[is_sum][: len(first_bias)], first_bias)  # its weighted sums are already computed
    *activated, (weight, bias) = [(_padded(weight, width, width), _padded(bias, width)) for weight, bias in layers]
    no_blocks = torch.zeros(width // block_size, block_size, block_size, dtype=torch.float64)
    everywhere = torch.ones(width, dtype=torch.bool)
    input_map = _padded(torch.eye(input_size, dtype=torch.float64), input_size + 1, input_size)
    return ModifiedParaRNN(
        input_map=input_map.repeat(width // (input_size + 1), 1),
        layers=(*summing, *(ModifiedLayer(no_blocks, *affine, everywhere) for affine in activated)),
        aggregate=ModifiedLayer(no_blocks, weight, bias, ~everywhere),
        output_map=identity[: len(layers[-1][1])],
    )


def para_from_modified(modified: ModifiedParaRNN, steps: int) -> ParaRNNNetwork:
    """Return a ParaRNN with the outputs of a modified one at each of the first `steps` steps: Lemma C.1.

    This holds for inputs in [0, 1]. The ParaRNN has block_size more units and twice as many layers: one for the input's
    part of a layer and one for the recurrence. A unit that is not activated gets an offset that keeps it positive, so
    that the ReLU does nothing. Its recurrence expects the offset in the previous state, which is zero before the first
    step; so the extra block of the layer below marks the first step, and the missing offset is added there.
    """
    block_size = modified.block_size
    if block_size < 2:
        expected = "at least 2, since two units of the extra block mark the first step"
        raise ArgumentError(argument="block_size", expected=expected, got=block_size)
    width, input_size = modified.input_map.shape
    hidden_size, depth = width + block_size, 2 * len(modified.layers)
    network = ParaRNNNetwork(input_size, hidden_size, len(modified.output_map), depth, block_size=block_size)
    _set(network.input_map.weight, _padded(modified.input_map, hidden_size, input_size))

    *bounds, (_, low) = modified.lower_bounds(steps)
    below = torch.zeros(width, dtype=torch.float64)  # the offsets of the layer below
    for index, (layer, (low_input, low_total)) in enumerate(zip(modified.layers, bounds, strict=True)):
        lift, offset = _offset(low_input), torch.where(layer.activated, 0.0, _offset(low_total))
        _set_layer(network, 2 * index, *_input_part(layer, below, lift))
        _set_layer(network, 2 * index + 1, *_recurrent_part(layer, lift, offset))
        below = offset

    aggregate = modified.aggregate
    offset = torch.where(aggregate.activated, 0.0, _offset(low))
    _, weight, bias = _input_part(aggregate, below, offset)
    output_map = _padded(modified.output_map, len(modified.output_map), hidden_size)
    output_map[:, width] = _sum(-modified.output_map * offset)  # Q has no bias, so it uses the unit that is one
    _set(network.fully_connected.weight, weight)
    _set(network.fully_connected.bias, bias)
    _set(network.output_map.weight, output_map)
    return network


def fnn_from_para(network: ParaRNNNetwork, at: int) -> nn.Sequential:
    """Return an FNN of the inputs up to step `at` that computes a ParaRNN's output there: Proposition C.1 (ii).

    `fnn(x[:, :at].flatten(1))` equals `network(x)[:, at - 1]` for all real x. It has (at + 1) L + 2 Linears for L
    recurrent layers, with at most (2 at - 1) hidden_size units in between. Each recurrent layer becomes at + 1 Linears,
    the t-th of which performs step t.
    """
    check_integer("at", at, 1)
    linears: list[nn.Linear] = []
    input_map: Tensor | None = network.input_map.weight.detach()
    for layer in network.layers():
        linears += _unrolled(layer, at, input_map)
        input_map = None
    last = torch.zeros(1, at, dtype=torch.float64)
    last[0, -1] = 1.0  # only step `at` is needed
    full = network.fully_connected
    linears.append(_linear(torch.kron(last, full.weight.detach()), full.bias.detach()))
    linears.append(_linear(network.output_map.weight.detach()))
    modules = [module for linear in linears for module in (linear, nn.ReLU())]
    return nn.Sequential(*modules[:-1])


def inverse_pascal(size: int) -> list[list[int]]:
    """Return the inverse of the matrix of binomials (i + j choose i), i and j from 0 to size - 1, which has integers.

    The matrix is L L^T with L the lower triangle of (i choose j), whose inverse is that of (-1)^(i - j) (i choose j).

    Examples
    --------
    >>> inverse_pascal(3)  # of [[1, 1, 1], [1, 2, 3], [1, 3, 6]]
    [[3, -3, 1], [-3, 5, -2], [1, -2, 1]]
    """
    return [
        [(-1) ** (i + j) * sum(comb(k, i) * comb(k, j) for k in range(size)) for j in range(size)] for i in range(size)
    ]


def _entering(weight: Tensor, steps: int, at: int) -> Tensor:
    """Return the input weights of each layer's running sums, (T, rows, input_size): the b_l of Step 1.

    After n more sums over time, an input of s steps ago counts (n + s choose n) times, n and s from 0 to T - 1. Inputs
    that are `at` or more steps old must not count.
    """
    by_age = pad(weight.unflatten(1, (at, -1)).flip(1), (0, 0, 0, steps - at))  # (rows, T, input_size)
    inverse = np.array(inverse_pascal(steps), dtype=object)
    by_sums_to_come = np.tensordot(inverse, _exact(by_age), axes=(1, 1))  # (T, rows, input_size)
    return _rounded(by_sums_to_come).flip(0)


def _summing_layers(entering: Tensor, is_sum: Tensor, block_size: int) -> list[ModifiedLayer]:
    """Return layers with an input copy and a sum per row: s(t) = s(t - 1) + (sum of the layer below) + b_l x(t)."""
    size = entering.shape[-1] + 1
    rows = torch.arange(len(is_sum) // size)
    recurrent = torch.diag_embed(is_sum.double().reshape(-1, block_size))  # (K, D, D)
    layers = []
    for b in entering:  # (rows, input_size)
        weight = torch.eye(len(is_sum), dtype=torch.float64)
        weight.view(len(rows), size, len(rows), size)[rows, -1, rows, :-1] = _padded(b, len(rows), size - 1)
        layers.append(ModifiedLayer(recurrent, weight, torch.zeros_like(weight[0]), torch.zeros_like(is_sum)))
    return layers


def _input_part(layer: ModifiedLayer, below: Tensor, lift: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return blocks, weight and bias of W_x x + b, lifted, for x stored with the offsets `below`.

    The extra block starts with two units: one(t) = 1, and first(t) = relu(1 - one(t - 1)), which is 1 at the first step
    alone, since one(0) = 0.
    """
    width, block_size = len(layer.bias), layer.recurrent.shape[-1]
    blocks = torch.zeros(width // block_size + 1, block_size, block_size, dtype=torch.float64)
    blocks[-1, 1, 0] = -1.0
    bias = _sum(layer.bias[:, None], -layer.input * below, lift[:, None])
    ones = torch.ones(2, dtype=torch.float64)
    weight = _padded(layer.input, width + block_size, width + block_size)
    return blocks, weight, _padded(torch.cat([bias, ones]), width + block_size)


def _recurrent_part(layer: ModifiedLayer, lift: Tensor, offset: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return blocks, weight and bias of W_h h plus the output of `_input_part`, with offsets in place of the lift."""
    width, block_size = len(layer.bias), layer.recurrent.shape[-1]
    remembered = torch.block_diag(*layer.recurrent) * offset  # what offsets add to W_h h, except at the first step
    weight = _padded(torch.eye(width, dtype=torch.float64), width + block_size, width + block_size)
    weight[:width, width + 1] = _sum(remembered)
    bias = _sum(offset[:, None], -lift[:, None], -remembered)
    return pad(layer.recurrent, (0, 0, 0, 0, 0, 1)), weight, _padded(bias, width + block_size)


def _unrolled(layer: RecurrentLayer, steps: int, input_map: Tensor | None) -> list[nn.Linear]:
    """Return one recurrent layer over all steps as steps + 1 Linears; an input map, if any, is part of the first.

    After the t-th of them the units are h, relu(-h) for each state h of the steps before t, then h at step t, then
    relu(x), relu(-x) for each input x after t. The last one recombines x = relu(x) - relu(-x), also for states.
    """
    size = len(layer.recurrent)
    identity = torch.eye(size, dtype=torch.float64)
    both = torch.cat([identity, -identity])  # (2d, d)
    bias = layer.bias_ih + layer.bias_hh
    enter, keep = layer.input, both
    if input_map is not None:
        enter, keep = _rounded(_exact(layer.input) @ _exact(input_map)), torch.cat([input_map, -input_map])
    later = [keep] * (steps - 1)
    linears = [_linear(torch.block_diag(enter, *later), _padded(bias, (2 * steps - 1) * size))]
    state = torch.cat([layer.recurrent, layer.input, -layer.input], 1)  # (d, 3d): from h, relu(x) and relu(-x)
    step = torch.cat([_padded(both, 2 * size, 3 * size), state])  # (3d, 3d)
    for t in range(1, steps):
        before, after = 2 * (t - 1) * size, 2 * (steps - 1 - t) * size  # units that stay unchanged
        weight = torch.block_diag(torch.eye(before).double(), step, torch.eye(after).double())
        linears.append(_linear(weight, pad(bias, (before + 2 * size, after))))
    linears.append(_linear(torch.block_diag(*[both.T] * (steps - 1), identity)))
    return linears


def _offset(low: Tensor) -> Tensor:
    """Return offsets that make values from `low` on positive: powers of two, whose products are exact, or zero.

    The paper's delta is 1 here: scaling by a power of two changes no rounding, and any other factor adds some. The
    margin of at least a thousandth covers rounding in `low`.
    """
    _, exponent = torch.frexp(-low * (1 + 2**-10))
    return torch.where(low < 0, torch.exp2(exponent.double()), 0.0)


def _width(rows: int, input_size: int, block_size: int) -> int:
    """Return the least multiple of both block_size and input_size + 1 that has room for `rows` rows."""
    check_integer("block_size", block_size, 1)
    step = block_size // gcd(block_size, input_size + 1)
    return (input_size + 1) * -(-rows // step) * step


def _sum(*terms: Tensor) -> Tensor:
    """Return the sums of the rows of matrices side by side, rounded once."""
    return torch.tensor([fsum(row) for row in torch.cat(terms, 1).tolist()], dtype=torch.float64)


def _exact(values: Tensor) -> NDArray[Any]:
    exact: NDArray[Any] = np.vectorize(Fraction, otypes=[object])(values.detach().numpy())
    return exact


def _rounded(values: NDArray[Any]) -> Tensor:
    return torch.from_numpy(values.astype(np.float64))


def _padded(values: Tensor, *shape: int) -> Tensor:
    """Pad with zeros to the right and below, up to this shape."""
    margins = [side for have, want in zip(values.shape, shape, strict=True) for side in (want - have, 0)]
    return pad(values, margins[::-1])


@torch.no_grad()
def _set(parameter: Tensor, values: Tensor) -> None:
    parameter.copy_(values)


def _set_layer(network: ParaRNNNetwork, index: int, recurrent: Tensor, weight: Tensor, bias: Tensor) -> None:
    layer = network.recurrent
    _set(getattr(layer, f"weight_hh_l{index}"), recurrent.flatten(0, 1))
    _set(getattr(layer, f"weight_ih_l{index}"), weight)
    _set(getattr(layer, f"bias_ih_l{index}"), bias)
    _set(getattr(layer, f"bias_hh_l{index}"), torch.zeros_like(bias))


def _linear(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    linear = nn.Linear(weight.shape[1], weight.shape[0], device="meta")  # draws no weights: they may be millions
    linear.weight = nn.Parameter(weight.clone())
    linear.bias = nn.Parameter(weight.new_zeros(len(weight)) if bias is None else bias.clone())
    return linear

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
import sympy
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from parallelrnn.errors import ArgumentError, ArgumentTypeError, InputError
from parallelrnn.nn.aggregate import FullyConnected
from parallelrnn.theory.equivalence import (
    ModifiedLayer,
    ModifiedParaRNN,
    ParaRNNNetwork,
    fnn_from_para,
    inverse_pascal,
    modified_from_fnn,
    para_from_fnn,
    para_from_modified,
    rounding_bound,
)
from tests.support import dense_twin, raises

DOUBLE = torch.float64


def make_fnn(*sizes: int, bias: bool = True) -> nn.Sequential:
    modules: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        modules += [nn.Linear(inputs, outputs, bias=bias, dtype=DOUBLE), nn.ReLU()]
    return nn.Sequential(*modules[:-1])


def quarters(*shape: int) -> Tensor:
    return torch.randint(-4, 5, shape).double() / 4


def windows(x: Tensor, length: int) -> Tensor:
    """The last `length` inputs up to each step, zeros before the first: (B, T, length * input_size)."""
    before = torch.cat([x.new_zeros(len(x), length - 1, x.shape[2]), x], 1)
    return torch.stack([before[:, t : t + length].flatten(1) for t in range(x.shape[1])], 1)


def run_by_torch(network: ParaRNNNetwork, x: Tensor) -> Tensor:
    """The network with `nn.RNN` and block-diagonal matrices instead of our layer."""
    states, _ = dense_twin(network.recurrent)(x @ network.input_map.weight.T)
    return network.output_map(network.recurrent.aggregate(states))


def fractions(values: Tensor) -> NDArray[Any]:
    exact: NDArray[Any] = np.vectorize(Fraction, otypes=[object])(values.detach().numpy())
    return exact


def run_exactly(network: nn.Module, x: Tensor) -> NDArray[Any]:
    """An FNN of one vector x (inputs,), or a ParaRNN of one sequence x (T, input_size), in rational numbers."""
    values = fractions(x)
    if isinstance(network, nn.Sequential):
        for module in network:
            if isinstance(module, nn.Linear):
                values = fractions(module.weight) @ values + fractions(module.bias)
            else:
                values = np.maximum(values, 0)
        return values
    assert isinstance(network, ParaRNNNetwork)
    twin = dense_twin(network.recurrent)
    values = values @ fractions(network.input_map.weight).T
    for layer in range(twin.num_layers):
        weight_ih, weight_hh, bias_ih, bias_hh = (fractions(weight) for weight in twin.all_weights[layer])
        state = np.zeros(twin.hidden_size, dtype=object)
        states = []
        for row in values:
            state = np.maximum(weight_ih @ row + weight_hh @ state + bias_ih + bias_hh, 0)
            states.append(state)
        values = np.stack(states)
    full = network.fully_connected
    values = np.maximum(values @ fractions(full.weight).T + fractions(full.bias), 0)
    return values @ fractions(network.output_map.weight).T


def distance(computed: Tensor, exact: NDArray[Any]) -> NDArray[np.float64]:
    return abs(fractions(computed) - exact).astype(np.float64)


@torch.no_grad()
def assert_runs_the_fnn_on_windows(network: ParaRNNNetwork, fnn: nn.Sequential, x: Tensor, length: int) -> None:
    """At every step, as close as rounding in both networks lets one expect."""
    expected = fnn(windows(x, length))
    tolerance = rounding_bound(network, x) + rounding_bound(fnn, windows(x, length))
    assert (network(x) - expected).abs().le(tolerance).all()
    assert tolerance.max() < 1e-7  # the bound says something: T <= 6


@pytest.mark.parametrize("size", [1, 2, 3, 7, 12])
def test_the_inverse_of_pascals_matrix_is_sympys(size: int) -> None:
    pascal = sympy.Matrix(size, size, lambda i, j: sympy.binomial(i + j, i))
    assert sympy.Matrix(inverse_pascal(size)) == pascal.inv()


@pytest.mark.parametrize(
    ("hidden", "block_size"), [((), 2), ((), 6), ((5,), 3), ((5,), 4), ((3, 6, 2), 2), ((3, 6, 2), 6)]
)
@pytest.mark.parametrize("steps", [1, 3, 6])
def test_a_para_rnn_runs_an_fnn_on_the_last_steps(steps: int, hidden: tuple[int, ...], block_size: int) -> None:
    for at in range(1, steps + 1):
        fnn = make_fnn(2 * at, *hidden, 3)
        x = torch.rand(5, steps, 2, dtype=DOUBLE)
        assert_runs_the_fnn_on_windows(para_from_fnn(fnn, steps, at, block_size), fnn, x, at)


@torch.no_grad()
@pytest.mark.parametrize("block_size", [2, 3, 4])
@pytest.mark.parametrize("hidden", [(), (4,), (4, 2, 5)])
def test_weights_in_quarters_give_the_fnn_bit_for_bit(hidden: tuple[int, ...], block_size: int) -> None:
    """Then nothing is rounded: every number is a multiple of 4^-4 / 8 and far smaller than 2^53 of these."""
    steps, at = 5, 4
    fnn = make_fnn(2 * at, *hidden, 2)
    for parameter in fnn.parameters():
        parameter.copy_(quarters(*parameter.shape))
    x = torch.randint(0, 9, (20, steps, 2)).double() / 8
    expected = fnn(windows(x, at))
    assert expected.unique().numel() > 50
    network = para_from_fnn(fnn, steps, at, block_size)
    assert torch.equal(network(x), expected)
    assert torch.equal(run_by_torch(network, x), expected)
    assert torch.equal(fnn_from_para(network, at)(x[:, :at].flatten(1)), expected[:, at - 1])
    modified, anywhere = modified_from_fnn(fnn, steps, at, block_size), 20 * x - 10
    assert torch.equal(modified(anywhere), fnn(windows(anywhere, at)))


@pytest.mark.parametrize(
    ("inputs", "hidden", "outputs", "block_size", "width"),
    [
        (2, (4, 4), 3, 2, 4),
        (2, (4, 4), 3, 6, 4),
        (3, (2, 5), 1, 4, 5),
        (1, (), 3, 3, 3),
        (2, (2,), 7, 7, 7),
        # FNNs of width 3 and 5, with blocks that do not divide (d_in + 1) d, are FNNs of width 4 and 8 as well.
        (2, (3,), 1, 2, 4),
        (2, (5, 4), 2, 8, 8),
    ],
)
def test_sizes_are_as_promised(inputs: int, hidden: tuple[int, ...], outputs: int, block_size: int, width: int) -> None:
    steps, at, depth = 4, 3, len(hidden) + 1
    fnn = make_fnn(at * inputs, *hidden, outputs)
    modified = modified_from_fnn(fnn, steps, at, block_size)
    assert len(modified.layers) == steps + depth - 1
    assert modified.input_map.shape == ((inputs + 1) * width, inputs)
    network = para_from_fnn(fnn, steps, at, block_size)
    layer, size = network.recurrent, (inputs + 1) * width + block_size
    assert (layer.hidden_size, layer.num_layers, layer.block_size) == (size, 2 * (steps + depth - 1), block_size)
    assert {tuple(block.matrix.shape) for block in layer.recurrent_blocks()} == {(block_size, block_size)}
    assert network.input_map.weight.shape == (size, inputs)
    assert network.fully_connected.weight.shape == (size, size)
    assert network.output_map.weight.shape == (outputs, size)
    assert network.input_map.bias is None
    assert network.output_map.bias is None


def test_an_fnn_without_biases_or_in_single_precision_is_taken_as_it_is() -> None:
    fnn = make_fnn(6, 4, 1, bias=False).float()
    x = torch.rand(4, 3, 2, dtype=DOUBLE)
    assert_runs_the_fnn_on_windows(para_from_fnn(fnn, 3, 3), fnn.double(), x, 3)


def make_modified(width: int, block_size: int, depth: int, activated: float) -> ModifiedParaRNN:
    """Two inputs, three outputs, weights in quarters, and about this part of the units activated."""

    def layer(recurs: bool) -> ModifiedLayer:
        recurrent = torch.randint(-2, 3, (width // block_size, block_size, block_size)).double() / 2 * recurs
        return ModifiedLayer(recurrent, quarters(width, width), quarters(width), torch.rand(width) < activated)

    layers = tuple(layer(True) for _ in range(depth))
    return ModifiedParaRNN(quarters(width, 2), layers, layer(False), quarters(3, width))


def run_unit_by_unit(modified: ModifiedParaRNN, x: Tensor) -> NDArray[Any]:
    """The definition in rational numbers, for one sequence x (T, input_size)."""
    sequence = fractions(x) @ fractions(modified.input_map).T
    for layer in (*modified.layers, modified.aggregate):
        recurrent, weight, bias = fractions(layer.recurrent), fractions(layer.input), fractions(layer.bias)
        size = recurrent.shape[-1]
        h = [Fraction(0)] * len(bias)
        for t, row in enumerate(sequence):
            before = list(h)
            for i in range(len(h)):
                block, place = divmod(i, size)
                value = bias[i] + weight[i] @ row
                value += sum(recurrent[block, place, j] * before[block * size + j] for j in range(size))
                h[i] = max(value, Fraction(0)) if layer.activated[i] else value
            sequence[t] = h
    return sequence @ fractions(modified.output_map).T


@torch.no_grad()
@pytest.mark.parametrize(("width", "block_size"), [(4, 2), (6, 2), (6, 3), (8, 4), (6, 6)])
@pytest.mark.parametrize(("depth", "activated"), [(1, 0.5), (3, 0.5), (2, 0.0), (2, 1.0)])
def test_any_units_can_be_activated(width: int, block_size: int, depth: int, activated: float) -> None:
    steps = 5
    modified = make_modified(width, block_size, depth, activated)
    network = para_from_modified(modified, steps)
    assert (network.recurrent.hidden_size, network.recurrent.num_layers) == (width + block_size, 2 * depth)
    x = torch.randint(0, 9, (3, steps, 2)).double() / 8
    x[0] = x[0].round()  # a corner of the inputs that are allowed
    # Nothing is rounded: with 4 halves over time and a quarter in each of at most 3 layers, all numbers are multiples
    # of 2^-(3 + 2 + 3 * 6 + 4), and below 2^53 of these.
    expected = np.stack([run_unit_by_unit(modified, sequence) for sequence in x])
    assert (fractions(modified(x)) == expected).all()
    assert (fractions(network(x)) == expected).all()
    assert len(np.unique(expected)) > 3


@torch.no_grad()
def test_an_input_part_far_below_the_outputs_is_kept() -> None:
    """h_1 = relu(6 h_2(t - 1) - 5) and h_2 = 1 - x lie in [0, 1], and an offset of 1 does not do for -5."""
    recurrent = torch.tensor([[[0.0, 6.0], [0.0, 0.0]]], dtype=DOUBLE)
    weight, bias = torch.tensor([[0.0, 0.0], [-1.0, 0.0]], dtype=DOUBLE), torch.tensor([-5.0, 1.0], dtype=DOUBLE)
    nowhere, identity = torch.tensor([False, False]), torch.eye(2, dtype=DOUBLE)
    modified = ModifiedParaRNN(
        identity[:, :1],
        (ModifiedLayer(recurrent, weight, bias, torch.tensor([True, False])),),
        ModifiedLayer(0 * recurrent, identity, 0 * bias, nowhere),
        identity,
    )
    x = torch.tensor([[[0.0], [1.0], [0.0625], [0.25], [0.5]]], dtype=DOUBLE)
    expected = torch.tensor([[[0, 1], [1, 0], [0, 0.9375], [0.625, 0.75], [0, 0.5]]], dtype=DOUBLE)
    assert torch.equal(para_from_modified(modified, 5)(x), expected)


@pytest.mark.parametrize("activated", [0.0, 0.5, 1.0])
def test_no_unit_falls_below_its_bound_and_unactivated_ones_reach_it(activated: float) -> None:
    steps = 4
    modified = make_modified(4, 2, 2, activated)
    corners = torch.tensor(list(product([0.0, 1.0], repeat=2 * steps)), dtype=DOUBLE).unflatten(1, (steps, 2))
    x = torch.cat([corners, torch.rand(2000, steps, 2, dtype=DOUBLE)])  # an affine function is least at a corner
    x = x @ modified.input_map.T
    for layer, (low_input, low_total) in zip(
        (*modified.layers, modified.aggregate), modified.lower_bounds(steps), strict=True
    ):
        states = layer(x)
        inputs = x @ layer.input.T + layer.bias
        before = torch.cat([torch.zeros_like(states[:, :1]), states[:, :-1]], 1)
        totals = inputs + before @ torch.block_diag(*layer.recurrent).T
        for values, low in ((inputs, low_input), (totals, low_total)):
            assert values.amin((0, 1)).ge(low - 1e-12).all()  # values below 100, so rounding below 100 * 20 * 2^-53
            if activated == 0.0:
                assert torch.allclose(values.amin((0, 1)), low, rtol=0, atol=1e-12)
        x = states


@torch.no_grad()
@pytest.mark.parametrize("block_size", [2, 4, 6])
@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("at", [1, 2, 5])
def test_an_fnn_gives_what_a_para_rnn_gives_at_a_step(at: int, depth: int, block_size: int) -> None:
    size = 12
    for inputs in (3, 14):  # fewer than the units, and more
        network = ParaRNNNetwork(inputs, size, 2, depth, block_size=block_size)
        x = 10 * torch.randn(6, 7, inputs, dtype=DOUBLE)
        fnn = fnn_from_para(network, at)
        flat = x[:, :at].flatten(1)
        expected = run_by_torch(network, x)[:, at - 1]
        tolerance = rounding_bound(network, x)[:, at - 1] + rounding_bound(fnn, flat)
        assert (fnn(flat) - expected).abs().le(tolerance).all()
        assert tolerance.max() < 1e-10
        linears = [module for module in fnn if isinstance(module, nn.Linear)]
        assert len(linears) == (at + 1) * depth + 2
        assert linears[0].in_features == at * inputs
        assert max(linear.out_features for linear in linears) == (2 * at - 1) * size
        middle = [(linear.out_features, linear.in_features) for linear in linears[1:at]]
        assert middle == [((2 * at - 1) * size, (2 * at - 1) * size)] * (at - 1)
        assert linears[at].weight.shape == (at * size, (2 * at - 1) * size)


@torch.no_grad()
@pytest.mark.parametrize("at", [2, 5])
def test_the_bound_covers_the_distance_to_rational_arithmetic(at: int) -> None:
    """Of the outputs as computed, and of the weights as stored, each from what was meant."""
    fnn = make_fnn(2 * at, 4, 3, 2)
    x = torch.rand(2, 5, 2, dtype=DOUBLE)
    network = para_from_fnn(fnn, 5, at)
    bounds, outputs = rounding_bound(network, x)[:, at - 1].numpy(), network(x)[:, at - 1]
    for sequence, output, bound in zip(x, outputs, bounds, strict=True):
        stored = run_exactly(network, sequence)[at - 1]
        meant = run_exactly(fnn, sequence[:at].flatten())
        assert (distance(output, stored) <= bound).all()
        assert (distance(output, meant) <= bound).all()
        assert (abs(stored - meant) <= bound).all()
        flat = sequence[None, :at].flatten(1)
        assert (distance(fnn(flat)[0], meant) <= rounding_bound(fnn, flat)[0].numpy()).all()


@torch.no_grad()
@pytest.mark.parametrize("block_size", [2, 4])
def test_the_bound_covers_any_para_rnn(block_size: int) -> None:
    network = ParaRNNNetwork(2, 8, 3, 3, block_size=block_size)
    x = 5 * torch.randn(2, 6, 2, dtype=DOUBLE)
    for sequence, output, bound in zip(x, network(x), rounding_bound(network, x), strict=True):
        off = distance(output, run_exactly(network, sequence))
        assert (off <= bound.numpy()).all()
        assert 0 < off.max() <= bound.max() < 1e-12


@torch.no_grad()
def test_how_many_steps_double_precision_bears() -> None:
    """A rounding error in layer l at step t counts (2T - l - t choose T - l) times in the last sum."""
    bounds, errors = {}, {}
    for steps in (6, 10, 15):
        fnn = make_fnn(steps, 4, 4, 1)
        x = torch.rand(16, steps, 1, dtype=DOUBLE)
        network = para_from_fnn(fnn, steps, steps)
        bounds[steps] = float(rounding_bound(network, x)[:, -1].max())
        errors[steps] = float((network(x)[:, -1] - fnn(x.flatten(1))).abs().max())
    assert bounds[6] < 3e-9
    assert bounds[10] < 3e-6
    assert bounds[15] > 1e-2
    assert 8 < (bounds[15] / bounds[6]) ** (1 / 9) < 14
    assert errors[6] < errors[10] < errors[15]
    assert errors[15] > 1e-5  # the digits are really gone


@pytest.mark.parametrize(
    ("fnn", "got"),
    [
        (nn.Linear(2, 3), "Linear"),
        (nn.Sequential(), "Sequential"),
        (nn.Sequential(nn.Linear(2, 3), nn.ReLU()), "Linear, ReLU"),
        (nn.Sequential(nn.ReLU(), nn.Linear(2, 3)), "ReLU, Linear"),
        (nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1)), "Linear, Linear"),
        (nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)), "Linear, Tanh, Linear"),
        (nn.Sequential(FullyConnected(2, 2)), "FullyConnected"),
    ],
)
def test_modules_that_are_not_fnns_are_rejected(fnn: nn.Sequential, got: str) -> None:
    with raises(ArgumentTypeError, argument="fnn", got=got):
        para_from_fnn(fnn, 2, 2)


@pytest.mark.parametrize(
    ("call", "argument", "got"),
    [
        (lambda: para_from_fnn(make_fnn(6, 4, 1), 3, 4), "at", 4),
        (lambda: para_from_fnn(make_fnn(6, 4, 1), 0, 1), "steps", 0),
        (lambda: para_from_fnn(make_fnn(6, 4, 1), 3, 0), "at", 0),
        (lambda: para_from_fnn(make_fnn(6, 4, 1), 3, 1.0), "at", 1.0),
        (lambda: para_from_fnn(make_fnn(6, 4, 1), 6, 5), "fnn", 6),  # no multiple of 5 inputs
        (lambda: para_from_fnn(make_fnn(6, 4, 1), 3, 3, 1), "block_size", 1),
        (lambda: para_from_fnn(make_fnn(6, 4, 1), 3, 3, 0), "block_size", 0),
        (lambda: para_from_fnn(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(4, 1)), 2, 2), "fnn", 4),
        (lambda: fnn_from_para(ParaRNNNetwork(1, 2, 1), 0), "at", 0),
    ],
)
def test_rejected_sizes(call: Any, argument: str, got: object) -> None:
    with raises(ArgumentError, argument=argument, got=got):
        call()


def test_weights_that_are_not_finite_are_rejected() -> None:
    fnn = make_fnn(2, 1)
    nn.init.constant_(fnn[0].weight, float("inf"))
    with raises(InputError):
        para_from_fnn(fnn, 2, 2)

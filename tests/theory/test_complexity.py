from __future__ import annotations

from collections.abc import Callable

import matplotlib as mpl
import pytest
import torch
from matplotlib import pyplot as plt
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from parallelrnn.errors import ArgumentError, ArgumentTypeError
from parallelrnn.theory.complexity import Complexity, critical_path, multiply_adds, plot_complexity
from tests.support import raises

SHAPES = [  # input_size, block sizes, length
    (3, (2, 4, 1, 4), 7),
    (1, (2, 2, 2), 5),
    (5, (6,), 4),
    (2, (1, 1, 3), 1),
    (4, (5, 2), 2),
]
BATCH = 3


class PlainLayer:
    """A layer by matrix products of torch alone, a product for each block and step; what FlopCounterMode can count."""

    def __init__(self, input_size: int, sizes: tuple[int, ...]) -> None:
        self.recurrent = [torch.randn(size, size, requires_grad=True) for size in sizes]
        self.projections = [torch.randn(input_size, size, requires_grad=True) for size in sizes]
        self.aggregate = torch.randn(sum(sizes), sum(sizes), requires_grad=True)

    def block(self, k: int, x: Tensor) -> Tensor:
        """The states (T, B, D) of one block for x (T, B, input_size)."""
        h = torch.zeros(x.shape[1], len(self.recurrent[k]))
        states = []
        for step in x:
            h = torch.tanh(h @ self.recurrent[k] + step @ self.projections[k])
            states.append(h)
        return torch.stack(states)

    def states(self, x: Tensor) -> Tensor:
        return torch.cat([self.block(k, x) for k in range(len(self.recurrent))], -1)

    def __call__(self, x: Tensor) -> Tensor:
        return torch.stack([h @ self.aggregate for h in self.states(x)])


def counted(work: Callable[[], object]) -> int:
    """Multiply-adds of one sequence: torch counts a multiplication and an addition, for the whole batch."""
    with FlopCounterMode(display=False) as counter:
        work()
    multiplications, rest = divmod(counter.get_total_flops(), 2 * BATCH)
    assert rest == 0
    return multiplications


@pytest.mark.parametrize("input_gradient", [False, True])
@pytest.mark.parametrize("aggregate", [False, True])
@pytest.mark.parametrize(("input_size", "sizes", "length"), SHAPES)
def test_multiply_adds_are_those_that_torch_counts(
    input_size: int, sizes: tuple[int, ...], length: int, aggregate: bool, input_gradient: bool
) -> None:
    layer = PlainLayer(input_size, sizes)
    x = torch.randn(length, BATCH, input_size, requires_grad=input_gradient)
    outputs: list[Tensor] = []
    forward = counted(lambda: outputs.append(layer(x) if aggregate else layer.states(x)))
    backward = counted(lambda: outputs[0].sum().backward())
    ours = multiply_adds(
        input_size, sum(sizes), length, block_size=list(sizes), aggregate=aggregate, input_gradient=input_gradient
    )
    assert (ours.forward.total, ours.backward.total) == (forward, backward)


@pytest.mark.parametrize(("input_size", "sizes", "length"), SHAPES)
def test_the_forward_critical_path_is_the_longest_block_and_one_aggregate(
    input_size: int, sizes: tuple[int, ...], length: int
) -> None:
    layer = PlainLayer(input_size, sizes)
    x = torch.randn(length, BATCH, input_size)
    longest = max(counted(lambda k=k: layer.block(k, x)) for k in range(len(sizes)))
    one_aggregate = counted(lambda: torch.randn(BATCH, sum(sizes)) @ layer.aggregate)
    ours = critical_path(input_size, sum(sizes), length, block_size=list(sizes)).forward
    assert ours.recurrence + ours.projection == longest
    assert ours.aggregate == one_aggregate


class Counter:
    """An interpreter of matrix products that multiplies entry by entry, leaves out zeros, and counts."""

    def __init__(self) -> None:
        self.multiplications = 0

    def product(self, left: Tensor, right: Tensor) -> Tensor:
        total = torch.zeros(len(left), right.shape[1], dtype=left.dtype)
        for i, k in torch.argwhere(left).tolist():
            for j in torch.argwhere(right[k]).flatten().tolist():
                total[i, j] += left[i, k] * right[k, j]
                self.multiplications += 1
        return total


class Block:
    """A tanh block of random weights, with all that the proof of Theorem 2 takes from a run of it."""

    def __init__(self, size: int, length: int) -> None:
        self.weight = torch.randn(size, size, dtype=torch.float64)
        self.inputs = torch.randn(length, size, dtype=torch.float64)  # U x + b
        self.start = torch.randn(size, dtype=torch.float64)

    def states(self, weight: Tensor) -> list[Tensor]:
        states = [self.start]
        for drive in self.inputs:
            states.append(torch.tanh(weight @ states[-1] + drive))
        return states

    def parts(self, counter: Counter) -> tuple[list[Tensor], list[Tensor]]:
        """B_1 ... B_T, each (D, D^2), and C_2 ... C_T."""
        states = self.states(self.weight)
        slopes = [torch.diag(1 - h**2) for h in states[1:]]
        identity = torch.eye(len(self.weight), dtype=torch.float64)
        direct = [
            counter.product(slope, torch.kron(h[None], identity)) for slope, h in zip(slopes, states[:-1], strict=True)
        ]
        return direct, [counter.product(slope, self.weight) for slope in slopes[1:]]

    def jacobian(self) -> Tensor:
        """Of the last state by vec(W), columns of W one after the other, by torch: (D, D^2)."""
        by_entry = torch.autograd.functional.jacobian(lambda weight: self.states(weight)[-1], self.weight)
        return by_entry.transpose(1, 2).flatten(1)  # type: ignore[union-attr]


@pytest.mark.parametrize(("size", "length"), [(1, 6), (2, 1), (2, 2), (2, 6), (3, 4), (4, 3)])
def test_the_backward_count_is_that_of_the_sum_in_the_proof(size: int, length: int) -> None:
    """Each term from the left, none of them used for another."""
    counter, block = Counter(), Block(size, length)
    direct, passing = block.parts(counter)
    jacobian = direct[-1]
    for j in range(1, length):
        term = passing[-1]
        for i in range(1, j):
            term = counter.product(term, passing[-1 - i])
        jacobian = jacobian + counter.product(term, direct[-1 - j])
    torch.testing.assert_close(jacobian, block.jacobian())  # so what is counted is the Jacobian
    ours = critical_path(1, 3 * size, length, block_size=size)
    assert ours.backward.recurrence == counter.multiplications
    before = counter.multiplications
    counter.product(torch.randn(3 * size, size, dtype=torch.float64), torch.randn(size, size**2, dtype=torch.float64))
    assert ours.backward.aggregate == counter.multiplications - before


@pytest.mark.parametrize(("size", "length"), [(2, 2), (2, 6), (3, 4)])
def test_the_same_jacobian_takes_no_square_of_the_length(size: int, length: int) -> None:
    """Each product of C is the last one times one more: 2 T - 3 products of order D^3 instead of T (T - 1) / 2."""
    counter, block = Counter(), Block(size, length)
    direct, passing = block.parts(counter)
    jacobian, term = direct[-1], passing[-1]
    for j in range(1, length):
        term = term if j == 1 else counter.product(term, passing[-j])
        jacobian = jacobian + counter.product(term, direct[-1 - j])
    torch.testing.assert_close(jacobian, block.jacobian())
    assert counter.multiplications == (2 * length - 1) * size**2 + (2 * length - 3) * size**3


@pytest.mark.parametrize("length", [1, 2, 9, 128])
@pytest.mark.parametrize("hidden_size", [1, 2, 12])
def test_the_counts_are_within_what_the_theorem_says_with_a_constant_of_one(hidden_size: int, length: int) -> None:
    d, d_in, t = hidden_size, 3, length
    dense = critical_path(d_in, d, t, block_size=d, aggregate=False)
    assert dense.forward.total == t * d**2 + t * d * d_in
    assert dense.backward.total <= t**2 * d**3
    for largest in (size for size in (1, 2, 3, 4, 6, 12) if d % size == 0):
        blocks = critical_path(d_in, d, t, block_size=largest)
        assert blocks.forward.total == t * largest**2 + t * largest * d_in + d**2
        assert blocks.backward.total <= t**2 * largest**3 + d * largest**3


def test_unequal_blocks_wait_for_the_largest() -> None:
    """Theorem 2 is about the largest block alone; in total, equal blocks are the cheapest of their number."""
    unequal, equal = critical_path(1, 8, 5, block_size=[6, 1, 1]), critical_path(1, 6, 5, block_size=6)
    assert unequal.forward.recurrence == equal.forward.recurrence
    assert unequal.backward.recurrence == equal.backward.recurrence
    in_pairs = multiply_adds(1, 8, 5, block_size=4).forward.recurrence
    assert all(multiply_adds(1, 8, 5, block_size=[size, 8 - size]).forward.recurrence > in_pairs for size in (1, 2, 3))


@pytest.mark.parametrize("count", [critical_path, multiply_adds])
def test_rejected_arguments(count: Callable[..., Complexity]) -> None:
    sizes = {"input_size": 3, "hidden_size": 8, "length": 4}
    for argument in sizes:
        with raises(ArgumentError, argument=argument, got=0):
            count(**sizes | {argument: 0})
    with raises(ArgumentTypeError, argument="input_size", got=3.0):
        count(3.0, 8, 4)
    for aggregate in ("linear", None):  # the words of a layer
        with raises(ArgumentTypeError, argument="aggregate", got=aggregate):
            count(**sizes, aggregate=aggregate)
    with pytest.raises(ValueError, match=r"hidden_size.* 5"):
        count(1, 5, 3)


def test_the_figure_shows_ratios_to_a_vanilla_rnn() -> None:
    mpl.use("Agg")
    block_sizes = [1, 2, 4, 8]
    ax = plot_complexity(2, 8, 16, block_sizes)
    path, everything, without = (line.get_ydata() for line in ax.lines[:3])
    # By hand for d = 8, d_in = 2, T = 16: blocks of 8 without an aggregate are the vanilla RNN; of 1, they take 8 of
    # its 64 recurrent weights, 16 steps forward and 31 for backward, beside 2 * 16 * 16 for the projection.
    assert list(ax.lines[0].get_xdata()) == block_sizes
    assert without[-1] == 1
    assert without[0] == pytest.approx((47 * 8 + 512) / (47 * 64 + 512))
    assert everything[-1] == pytest.approx(1 + 3 * 16 * 64 / (47 * 64 + 512))
    assert path[0] < 1 < path[-1]
    plt.close("all")

"""The cost of one layer, forward and backward: Theorem 2 of arXiv 2605.02692, and the cost of an implementation.

There are two notions of cost, both for one sequence of T steps:

- `critical_path`, that of the theorem. Blocks run in parallel, and so do the aggregates of all steps, so only the
  largest block and one aggregate count. Backward is the Jacobian of the last state by the recurrent weights.
- `multiply_adds`, everything that has to be computed, in parallel or not. Backward is backpropagation through time,
  which needs no Jacobian: it multiplies one vector by every matrix, from the last step to the first.

A vanilla RNN of the same width is one block without an aggregate: `block_size=hidden_size, aggregate=False`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from parallelrnn.errors import ArgumentTypeError, check_integer
from parallelrnn.interpret.display import optional
from parallelrnn.nn.blocks import BlockSize, parse_block_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Operations:
    """The multiplications of one pass, by purpose."""

    recurrence: int  # W_k
    projection: int  # U_k
    aggregate: int  # W_f

    @property
    def total(self) -> int:
        """All multiplications of the pass."""
        return self.recurrence + self.projection + self.aggregate


@dataclass(frozen=True)
class Complexity:
    """The cost of a layer."""

    forward: Operations
    backward: Operations

    @property
    def total(self) -> int:
        """All multiplications of both passes."""
        return self.forward.total + self.backward.total


def critical_path(
    input_size: int, hidden_size: int, length: int, *, block_size: BlockSize = 2, aggregate: bool = True
) -> Complexity:
    """Count sequential multiplications if everything possible runs in parallel, as in the proof of Theorem 2.

    With D the largest block size, forward is T D^2 + T D d_in + d^2. Backward is the Jacobian

        dh_T / dvec(W) = B_T + sum over j = 1 ... T - 1 of (C_T C_(T-1) ... C_(T-j+1)) B_(T-j),

    with C_t = diag(act') W and B_t = diag(act') (h_(t-1) kron I)^T: (2 T - 1) D^2 for all B and C, and j D^3 for each
    term, as each column of B has one nonzero entry; then d D^3 to multiply it by the block's part of W_f. The order is
    T^2 D^3 + d D^3. The gradients of U, b and W_f are not counted there.

    Examples
    --------
    >>> critical_path(input_size=1, hidden_size=128, length=128, block_size=2).forward.total
    17152
    >>> critical_path(input_size=1, hidden_size=128, length=128, block_size=128, aggregate=False).forward.total
    2113536
    """
    largest = max(_sizes(input_size, hidden_size, length, block_size, aggregate))
    terms = length * (length - 1) // 2  # 1 + 2 + ... + (T - 1)
    return Complexity(
        Operations(length * largest**2, length * largest * input_size, aggregate * hidden_size**2),
        Operations((2 * length - 1) * largest**2 + terms * largest**3, 0, aggregate * hidden_size * largest**3),
    )


def multiply_adds(
    input_size: int,
    hidden_size: int,
    length: int,
    *,
    block_size: BlockSize = 2,
    aggregate: bool = True,
    input_gradient: bool = False,
) -> Complexity:
    """Count all multiply-adds of the matrix products in an implementation.

    Forward uses every weight once per step: T (sum of d_k^2 + d d_in + d^2). Backward uses it twice, for its own
    gradient and for that of its factor; but the state before the first step needs no gradient, and the input only if
    there is another layer below (`input_gradient`). Products with the derivative of the activation, d per step, are not
    counted.

    Examples
    --------
    >>> multiply_adds(input_size=1, hidden_size=128, length=128, block_size=2, aggregate=False).forward.total
    49152
    """
    recurrence = sum(size**2 for size in _sizes(input_size, hidden_size, length, block_size, aggregate))
    projection, mixing = hidden_size * input_size, aggregate * hidden_size**2
    return Complexity(
        Operations(length * recurrence, length * projection, length * mixing),
        Operations((2 * length - 1) * recurrence, (1 + input_gradient) * length * projection, 2 * length * mixing),
    )


def plot_complexity(
    input_size: int, hidden_size: int, length: int, block_sizes: Sequence[int], ax: Axes | None = None
) -> Axes:
    """Draw the operations by block size, relative to a vanilla RNN: the orange curve of Figure 2(b)."""
    if ax is None:
        new: Axes = optional("matplotlib.pyplot").subplots(figsize=(5, 4), layout="constrained")[1]
        ax = new
    shape = (input_size, hidden_size, length)
    curves: tuple[tuple[str, Callable[..., Complexity], bool, str], ...] = (
        ("critical path (Theorem 2)", critical_path, True, "o-"),
        ("total", multiply_adds, True, "s-"),
        ("total without the aggregate", multiply_adds, False, "^--"),
    )
    for name, count, aggregate, style in curves:
        vanilla = count(*shape, block_size=hidden_size, aggregate=False).total
        blocks = [count(*shape, block_size=size, aggregate=aggregate).total for size in block_sizes]
        ax.plot(block_sizes, [total / vanilla for total in blocks], style, markersize=4, label=name)
    ax.axhline(1, color="0.8", linewidth=0.8, zorder=0)
    ax.set_yscale("log")
    ax.set_ylabel("multiplications, forward and backward,\nrelative to a vanilla RNN")
    ax.set_xscale("log", base=2)
    ax.set_xticks(block_sizes, [str(size) for size in block_sizes])
    ax.minorticks_off()
    ax.set_xlabel("block_size")
    ax.legend(fontsize="small", frameon=False)
    return ax


def _sizes(input_size: int, hidden_size: int, length: int, block_size: BlockSize, aggregate: bool) -> tuple[int, ...]:
    for name, value in (("input_size", input_size), ("hidden_size", hidden_size), ("length", length)):
        check_integer(name, value, 1)
    if not isinstance(aggregate, bool):
        raise ArgumentTypeError(argument="aggregate", expected="True (linear) or False (none)", got=aggregate)
    return parse_block_size(hidden_size, block_size).sizes

"""What one layer costs, forward and backward: Theorem 2 of arXiv 2605.02692, and what an implementation does.

Two readings of the word, both for one sequence of T steps:

- `critical_path`, the theorem's own. Blocks run side by side, and so do the aggregates of all steps: what counts is the
  largest block and one aggregate. Backward counts the Jacobian of the last state by the recurrent weights.
- `multiply_adds`, all that has to be computed, side by side or not. Backward is backpropagation through time, which
  needs no Jacobian: it multiplies one vector by every matrix, from the last step to the first.

A vanilla RNN of the same width is one block without an aggregate: `block_size=hidden_size, aggregate=False`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from parallelrnn.interpret.display import optional
from parallelrnn.nn.blocks import BlockSize, parse_block_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Times = Mapping[int, Sequence[float]]  # of each block size: lower quartile, median and upper quartile, in seconds

_COLOURS = {"forward": "#1f6fb4", "backward": "#c7522a", "total": "0.25"}


@dataclass(frozen=True)
class Operations:
    """Multiplications of one pass, by what they are for."""

    recurrence: int  # W_k
    projection: int  # U_k
    aggregate: int  # W_f

    @property
    def total(self) -> int:
        """All of them."""
        return self.recurrence + self.projection + self.aggregate


@dataclass(frozen=True)
class Complexity:
    """What a layer costs."""

    forward: Operations
    backward: Operations

    @property
    def total(self) -> int:
        """Of both passes."""
        return self.forward.total + self.backward.total


def critical_path(
    input_size: int, hidden_size: int, length: int, *, block_size: BlockSize = 2, aggregate: bool = True
) -> Complexity:
    """Multiplications one after the other if all that can run side by side does, as the proof of Theorem 2 has them.

    With D the largest block size, forward is T D^2 + T D d_in + d^2. Backward is the Jacobian

        dh_T / dvec(W) = B_T + sum over j = 1 ... T - 1 of (C_T C_(T-1) ... C_(T-j+1)) B_(T-j),

    with C_t = diag(act') W and B_t = diag(act') (h_(t-1) kron I)^T: (2 T - 1) D^2 for all B and C, and j D^3 for each
    term, as each column of B has one entry that is not zero; then d D^3 to multiply it by the block's part of W_f. The
    order is T^2 D^3 + d D^3. What the gradients of U, b and W_f take is not counted there.

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
    """All multiply-adds of the matrix products, as an implementation does them.

    Forward uses every weight once a step: T (sum of d_k^2 + d d_in + d^2). Backward uses it twice, once for its own
    gradient and once for that of what it multiplies; but the state before the first step needs none, and the input only
    where another layer lies below (`input_gradient`). Products with the activation's derivative, d a step, are left
    out.

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
    input_size: int,
    hidden_size: int,
    length: int,
    block_sizes: Sequence[int],
    times: Mapping[str, Times] | None = None,
    vanilla: Mapping[str, Sequence[float]] | None = None,
    axes: Sequence[Axes] | None = None,
) -> list[Axes]:
    """Operations by block size, relative to a vanilla RNN (Figure 2(b), orange); beside them measured times (2(c)).

    `times` are those of "forward", "backward" or "total", for each block size; `vanilla` are those of an RNN of
    `torch.nn` of the same width. Points are medians, bars reach from quartile to quartile.
    """
    count = 1 if times is None else 2
    if axes is None:
        pyplot = optional("matplotlib.pyplot")
        _, made = pyplot.subplots(1, count, figsize=(5 * count, 4), layout="constrained", squeeze=False)
        axes = list(made[0])
    if len(axes) != count:
        raise ValueError(f"there are {count} panels to draw, got {len(axes)} axes")
    _plot_operations(axes[0], (input_size, hidden_size, length), block_sizes)
    if times is not None:
        _plot_times(axes[1], times, vanilla or {})
    for ax in axes:
        ax.set_xscale("log", base=2)
        ax.set_xticks(block_sizes, [str(size) for size in block_sizes])
        ax.minorticks_off()
        ax.set_xlabel("block_size")
        ax.legend(fontsize="small", frameon=False)
    return list(axes)


def _plot_operations(ax: Axes, shape: tuple[int, int, int], block_sizes: Sequence[int]) -> None:
    curves: tuple[tuple[str, Callable[..., Complexity], bool, str], ...] = (
        ("one after the other (Theorem 2)", critical_path, True, "o-"),
        ("all", multiply_adds, True, "s-"),
        ("all, without the aggregate", multiply_adds, False, "^--"),
    )
    for name, count, aggregate, style in curves:
        vanilla = count(*shape, block_size=shape[1], aggregate=False).total
        blocks = [count(*shape, block_size=size, aggregate=aggregate).total for size in block_sizes]
        ax.plot(block_sizes, [one / vanilla for one in blocks], style, markersize=4, label=name)
    ax.axhline(1, color="0.8", linewidth=0.8, zorder=0)
    ax.set_yscale("log")
    ax.set_ylabel("multiplications, forward and backward,\nrelative to a vanilla RNN")


def _plot_times(ax: Axes, times: Mapping[str, Times], vanilla: Mapping[str, Sequence[float]]) -> None:
    for name, by_size in times.items():
        sizes = sorted(by_size)
        low, median, high = ([1e3 * by_size[size][place] for size in sizes] for place in range(3))
        below = [middle - lower for lower, middle in zip(low, median, strict=True)]
        above = [upper - middle for middle, upper in zip(median, high, strict=True)]
        ax.errorbar(sizes, median, (below, above), fmt="o-", markersize=4, capsize=2, color=_COLOURS[name], label=name)
        if name in vanilla:
            ax.axhline(1e3 * vanilla[name][1], color=_COLOURS[name], linewidth=0.8, linestyle=":")
    if vanilla:
        ax.plot([], [], color="0.4", linewidth=0.8, linestyle=":", label="torch.nn.RNN")
    ax.set_ylim(bottom=0)
    ax.set_ylabel("milliseconds")


def _sizes(input_size: int, hidden_size: int, length: int, block_size: BlockSize, aggregate: bool) -> tuple[int, ...]:
    for name, value in (("input_size", input_size), ("hidden_size", hidden_size), ("length", length)):
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name} should be of type int, got: {type(value).__name__}")
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    if not isinstance(aggregate, bool):
        raise TypeError(f"aggregate: expected True (a linear one) or False (none), got {aggregate!r}")
    return parse_block_size(hidden_size, block_size).sizes

"""Arguments and results of a recurrence of K equal blocks, in one layer and one direction."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

# The state between two steps: (h,), for the LSTM (h, c).
State = tuple[Tensor, ...]

# The gates of each mode, in the order in which torch.nn stacks their weights. reference.py has their equations.
GATES: dict[str, tuple[str, ...]] = {
    "RNN_TANH": ("hidden",),
    "RNN_RELU": ("hidden",),
    "RNN_SIGMOID": ("hidden",),
    "RNN_LINEAR": ("hidden",),
    "LSTM": ("input", "forget", "cell", "output"),
    "GRU": ("reset", "update", "new"),
}

NUM_STATES: dict[str, int] = {mode: 2 if mode == "LSTM" else 1 for mode in GATES}


class Weights(NamedTuple):
    """G gates, K blocks of D units; P = D unless an LSTM projects its blocks to P units."""

    input: Tensor  # (G * K * D, input_size)
    recurrent: Tensor  # (G, K, D, P)
    input_bias: Tensor | None = None  # (G * K * D,)
    recurrent_bias: Tensor | None = None  # (G * K * D,)
    projection: Tensor | None = None  # (K, P, D), LSTM only


def in_blocks(mode: str, recurrent: Tensor) -> Tensor:
    """Return recurrent weights (G, K, D, D) that may come as modules store them, (G * K * D, D)."""
    if recurrent.dim() == 4:
        return recurrent
    size = recurrent.shape[1]
    return recurrent.reshape(len(GATES[mode]), -1, size, size)


class Arguments(NamedTuple):
    """The arguments of a fused recurrence; `dispatch.recurrence` documents them."""

    mode: str
    x: Tensor  # (T, B, input_size)
    weights: Weights
    state: State
    lengths: Tensor | None
    reverse: bool


class Stored(NamedTuple):
    """The results of a fused recurrence at every step: its output, and what else its backward needs."""

    output: Tensor  # (T, B, K * D)
    cells: Tensor | None  # (T, B, K * D), the LSTM's c
    gates: Tensor | None  # (T, B, G * K * D), activated

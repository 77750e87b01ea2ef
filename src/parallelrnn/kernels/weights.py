"""What a recurrence is given, and what it keeps: the weights are those of K equal blocks, one layer, one direction."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

# What goes from one step to the next: (h,), for the LSTM (h, c).
State = tuple[Tensor, ...]

# The modes, and the gates of each in the order of torch.nn, in which every weight of G gates is stacked.
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


class Arguments(NamedTuple):
    """What a fused recurrence is given; `dispatch.recurrence` says what it all is."""

    mode: str
    x: Tensor  # (T, B, input_size)
    weights: Weights
    state: State
    lengths: Tensor | None
    reverse: bool


class Stored(NamedTuple):
    """What a fused recurrence gives for every step: its output, and what else its backward needs, None if nothing."""

    output: Tensor  # (T, B, K * D)
    cells: Tensor | None  # (T, B, K * D), the LSTM's c
    gates: Tensor | None  # (T, B, G * K * D), activated

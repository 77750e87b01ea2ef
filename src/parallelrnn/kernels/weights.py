"""What a recurrence is given: the weights of K equal blocks in one direction of one layer."""

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

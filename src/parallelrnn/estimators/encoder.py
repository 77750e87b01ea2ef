"""The recurrent layer that remembers, in every estimator."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from parallelrnn.nn import ParaGRU, ParaLSTM, ParaRNN
from parallelrnn.nn.initialize import waves_

CELLS = ("linear", "rnn", "lstm", "gru")
Encoder = ParaRNN | ParaLSTM | ParaGRU
_SHORTEST = 3.0  # period in steps of the fastest memory at the start
_HALF_LIFE = 40.0  # steps, of all memory at the start


def make_encoder(
    cell: str, inputs: int, hidden_size: int, num_layers: int, block_size: int, steps: float, segment: int, **more: Any
) -> Encoder:
    """A layer for sequences of so many steps, read `segment` at once; blocks of two start as waves of all periods."""
    options = {"batch_first": True, "block_size": block_size, **more}
    inputs *= segment
    if cell == "lstm":
        return ParaLSTM(inputs, hidden_size, num_layers, **options)
    if cell == "gru":
        return ParaGRU(inputs, hidden_size, num_layers, **options)
    linear = cell == "linear"
    polar = block_size == 2
    layer = ParaRNN(
        inputs,
        hidden_size,
        num_layers,
        "linear" if linear else "tanh",
        bias=not linear,
        form="polar" if polar else "free",
        **options,
    )
    if polar:
        longest = max(4.0, steps / segment)
        count = hidden_size // 2
        periods = torch.logspace(math.log10(_SHORTEST), math.log10(longest), count, dtype=torch.float64).tolist()
        waves_(layer, periods, [max(1.0, _HALF_LIFE / segment)] * count)
    return layer


def in_segments(x: Tensor, segment: int) -> Tensor:
    """(B, L, F) -> (B, L / segment, segment * F), with zeros before the first where L is no multiple."""
    if segment == 1:
        return x
    whole: Tensor = nn.functional.pad(x, (0, 0, -x.shape[1] % segment, 0)).unflatten(1, (-1, segment))
    return whole.flatten(2)

"""The recurrent layer that remembers, in every estimator."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from parallelrnn.errors import ArgumentError
from parallelrnn.nn import ParaGRU, ParaLSTM, ParaRNN
from parallelrnn.nn.initialize import waves_
from parallelrnn.nn.segment_encoder import TransformerEncoder

CELLS = ("linear", "rnn", "lstm", "gru", "brt")
Encoder = ParaRNN | ParaLSTM | ParaGRU | TransformerEncoder
_SHORTEST = 3.0  # period in steps of the fastest memory at the start
_HALF_LIFE = 40.0  # steps, of all memory at the start


def make_encoder(
    cell: str, inputs: int, hidden_size: int, num_layers: int, block_size: int, steps: float, segment: int, **more: Any
) -> Encoder:
    """A layer for sequences of so many steps, read `segment` at once; blocks of two start as waves of all periods."""
    inputs *= segment
    if cell == "brt":
        if more.get("bidirectional"):
            raise ArgumentError("cell='brt' runs forward only; use bidirectional=False")
        return TransformerEncoder(inputs, hidden_size, num_layers, block_size, steps / segment, more["aggregate"])
    options = {"batch_first": True, "block_size": block_size, **more}
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
        periods = torch.logspace(
            math.log10(_SHORTEST), math.log10(longest), count, dtype=torch.float64, device="cpu"
        ).tolist()
        waves_(layer, periods, [max(1.0, _HALF_LIFE / segment)] * count)
    return layer


def check_encoder(made_of: Any, name: str, tensors: dict[str, Tensor]) -> dict[str, bool]:
    """Which words about an encoder agree with its tensors, before memory is taken for what the words say."""
    if made_of.cell == "brt":
        rows, inputs = tensors[f"{name}.transformer.embed.weight"].shape
        last = f"{name}.transformer.layers.{made_of.num_layers - 1}.norm.weight"
    else:
        rows, inputs = tensors[f"{name}.weight_ih_l0"].shape
        last = f"{name}.weight_ih_l{made_of.num_layers - 1}"
    gates = {"lstm": 4, "gru": 3}.get(made_of.cell, 1)
    # A tensor without numbers takes no room in a file, whatever its shape says.
    return {
        "cell": made_of.cell in CELLS,
        "hidden_size": 0 < rows == gates * made_of.hidden_size,
        "inputs": 0 < inputs == made_of.inputs,
        "num_layers": last in tensors and made_of.num_layers <= len(tensors),
    }


def in_segments(x: Tensor, segment: int) -> Tensor:
    """(B, L, F) -> (B, L / segment, segment * F), with zeros before the first where L is no multiple."""
    if segment == 1:
        return x
    whole: Tensor = nn.functional.pad(x, (0, 0, -x.shape[1] % segment, 0)).unflatten(1, (-1, segment))
    return whole.flatten(2)

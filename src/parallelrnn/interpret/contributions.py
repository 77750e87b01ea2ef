"""The output of a layer as a sum over its blocks (Section 3.1 of arXiv 2605.02692)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from parallelrnn.interpret.layers import Layer, linear_map
from parallelrnn.nn import FullyConnected

VARIES_NOT = "the output does not vary over these data, so that there is nothing to share; give longer or other data"


class BlockName(NamedTuple):
    """A block of the last layer."""

    direction: str
    block: int


@dataclass(frozen=True)
class Contributions:
    """Exact additive parts: `parts` summed over the blocks, plus `bias`, is `total`."""

    parts: Tensor  # (T, B, K, out), or as the layer takes its input: (B, T, K, out), (T, K, out)
    bias: Tensor  # (out,)
    total: Tensor  # (T, B, out)
    of: str  # what `total` is: "output", or what enters the part of the aggregate that is not linear
    blocks: tuple[BlockName, ...]

    def shares(self, by_output: bool = False) -> Tensor:
        """The covariance of each block's part with the total, relative to the total's variance: (K,), sums to one.

        Blocks that work against the others have negative shares. Over all outputs together, or of each: (K, out).
        """
        parts = self.parts.flatten(0, -3)  # (N, K, out)
        centred = parts - parts.mean(0)
        total = centred.sum(1)
        covariance = (centred * total[:, None]).mean(0)  # (K, out)
        if not by_output:
            covariance = covariance.sum(-1)
        variance = covariance.sum(0)
        if not (variance > 0).all():
            raise ValueError(VARIES_NOT)
        return covariance / variance


@torch.no_grad()
def contributions(layer: Layer, x: Tensor, hx: object = None) -> Contributions:
    """What each block adds to the output of a layer, or, where its aggregate is not linear, to what enters that.

    Exact for any cell: the blocks meet nowhere but in the aggregate. `aggregate=None`: the output is the blocks' states
    side by side, and each adds its own.
    """
    states = _states(layer, x, hx)
    sizes = layer.block_sizes
    blocks = tuple(
        BlockName(direction, block)
        for direction in ("forward", "reverse")[: layer.num_directions]
        for block in range(layer.num_blocks)
    )
    weight, bias = linear_map(layer)
    columns = weight.split(sizes, 1)
    parts = torch.stack([s @ w.T for s, w in zip(states.split(sizes, -1), columns, strict=True)], -2)
    of = {FullyConnected: "input of the aggregate's tanh", nn.Linear: "output", type(None): "output"}
    return Contributions(
        parts, bias, parts.sum(-2) + bias, of.get(type(layer.aggregate), "input of the aggregate"), blocks
    )


@torch.no_grad()
def leave_one_out(layer: Layer, x: Tensor, hx: object = None) -> Tensor:
    """How the output changes when a block's states are set to zero, block by block: output - output without it.

    (T, B, K, out). Equal to the contributions where the aggregate is linear; elsewhere these effects do not add up.
    """
    states = _states(layer, x, hx)
    aggregate = layer.aggregate or nn.Identity()
    output = aggregate(states)
    effects = []
    for index in range(len(layer.block_sizes)):
        parts = list(states.split(layer.block_sizes, -1))
        parts[index] = torch.zeros_like(parts[index])
        effects.append(output - aggregate(torch.cat(parts, -1)))
    return torch.stack(effects, -2)


def _states(layer: Layer, x: Tensor, hx: object) -> Tensor:
    if not isinstance(layer, Layer):
        raise TypeError(
            f"{type(layer).__name__} has no blocks whose contributions could be told apart; expected ParaRNN, ParaLSTM "
            "or ParaGRU (parallelrnn.from_torch turns nn.RNN, nn.LSTM and nn.GRU into these)"
        )
    if isinstance(x, PackedSequence):
        raise TypeError("contributions takes a tensor; read packed sequences one by one, or pad them")
    states = layer.block_states(x, hx)
    assert isinstance(states, Tensor)
    return states

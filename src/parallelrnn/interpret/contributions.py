"""The output of a layer as a sum over its blocks (Section 3.1 of arXiv 2605.02692)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from parallelrnn.interpret.layers import Layer, as_blocks, as_input, evaluating, linear_map
from parallelrnn.nn import FullyConnected


class NoVariationError(ValueError):
    """Data over which nothing varies that could be shared out."""

    def __init__(self, what: str = "output") -> None:
        super().__init__(
            f"the {what} does not vary over these data, so that there is nothing to share; give longer or other data"
        )


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
    batch_first: bool
    of: str  # what `total` is: "output", or what enters the part of the aggregate that is not linear
    blocks: tuple[BlockName, ...]

    def names(self) -> list[str]:
        """Of the blocks; with their direction where there are two."""
        both = len({block.direction for block in self.blocks}) > 1
        return [f"block {block.block}" + (f", {block.direction}" if both else "") for block in self.blocks]

    def sequence(self, index: int) -> tuple[Tensor, Tensor]:
        """The total (T, out) and the parts (T, K, out) of one sequence of the batch."""
        if self.total.dim() == 2:
            return self.total, self.parts
        axis = 0 if self.batch_first else 1
        return self.total.select(axis, index), self.parts.select(axis, index)

    def shares(self, by_output: bool = False) -> Tensor:
        """The covariance of each block's part with the total, relative to the total's variance: (K,), sums to one.

        Blocks that work against the others have negative shares. Over all outputs together, or of each: (K, out).
        """
        parts = self.parts.flatten(0, -3).double()  # (N, K, out)
        centred = parts - parts.mean(0)
        total = centred.sum(1)
        covariance = (centred * total[:, None]).mean(0)  # (K, out)
        if not by_output:
            covariance = covariance.sum(-1)
        variance = covariance.sum(0)
        if not (variance > 0).all():
            raise NoVariationError
        return covariance / variance


@torch.no_grad()
def contributions(layer: Any, x: Tensor, hx: object = None) -> Contributions:
    """What each block adds to the output of a layer, or, where its aggregate is not linear, to what enters that.

    Exact for any cell: the blocks meet nowhere but in the aggregate. `aggregate=None`: the output is the blocks' states
    side by side, and each adds its own. A layer of `torch.nn` is one block.
    """
    layer, states = _states(layer, x, hx)
    sizes = layer.block_sizes
    blocks = tuple(
        BlockName(direction, block)
        for direction in ("forward", "reverse")[: layer.num_directions]
        for block in range(layer.num_blocks)
    )
    weight, bias = linear_map(layer)
    columns = weight.split(sizes, 1)
    parts = torch.stack([s @ w.T for s, w in zip(states.split(sizes, -1), columns, strict=True)], -2)
    of = "input of the aggregate"
    if isinstance(layer.aggregate, FullyConnected):  # which is a linear map, too
        of = "input of the aggregate's tanh"
    elif layer.aggregate is None or isinstance(layer.aggregate, nn.Linear):
        of = "output"
    return Contributions(
        parts,
        bias,
        parts.sum(-2) + bias,
        layer.batch_first,
        of,
        blocks,
    )


@torch.no_grad()
def leave_one_out(layer: Any, x: Tensor, hx: object = None) -> Tensor:
    """How the output changes when a block's states are set to zero, block by block: output - output without it.

    (T, B, K, out). Equal to the contributions where the aggregate is linear; elsewhere these effects do not add up.
    """
    layer, states = _states(layer, x, hx)
    aggregate = layer.aggregate or nn.Identity()
    output = aggregate(states)
    effects = []
    for index in range(len(layer.block_sizes)):
        parts = list(states.split(layer.block_sizes, -1))
        parts[index] = torch.zeros_like(parts[index])
        effects.append(output - aggregate(torch.cat(parts, -1)))
    return torch.stack(effects, -2)


def _states(layer: Any, x: Tensor, hx: object) -> tuple[Layer, Tensor]:
    """The layer as blocks, and their states, side by side, at every step."""
    blocks: Layer = evaluating(as_blocks(layer))
    states = blocks.block_states(as_input(blocks, x), hx)
    assert isinstance(states, Tensor)
    return blocks, states

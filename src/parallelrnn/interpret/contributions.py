"""The output of a layer as a sum over its blocks (Section 3.1 of arXiv 2605.02692)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from parallelrnn.errors import InputError
from parallelrnn.interpret.layers import Layer, as_blocks, as_input, evaluating, linear_map
from parallelrnn.nn import FullyConnected


class NoVariationError(InputError):
    """An output that is constant over the data, so that it has no shares."""

    def __init__(self) -> None:
        super().__init__("the output does not vary over these data, so shares are undefined", hint="give more data")


class BlockName(NamedTuple):
    """A block of the last layer."""

    direction: str
    block: int


def block_names(layer: Any) -> tuple[BlockName, ...]:
    """Return the blocks of the last layer, in the order in which their states are concatenated."""
    directions = ("forward", "reverse")[: layer.num_directions]
    return tuple(BlockName(direction, block) for direction in directions for block in range(layer.num_blocks))


@dataclass(frozen=True, kw_only=True)
class Contributions:
    """An exact additive decomposition: `parts` summed over the blocks, plus `bias`, is `total`."""

    parts: Tensor  # (T, B, K, out), or in the layer's layout: (B, T, K, out), (T, K, out)
    bias: Tensor  # (out,)
    total: Tensor  # (T, B, out)
    batch_first: bool
    of: str  # what `total` is: "output", or the input of the part of the aggregate that is not linear
    blocks: tuple[BlockName, ...]

    def names(self) -> list[str]:
        """Return the names of the blocks, with the direction if there are two."""
        both = len({block.direction for block in self.blocks}) > 1
        return [f"block {block.block}" + (f", {block.direction}" if both else "") for block in self.blocks]

    def sequence(self, index: int) -> tuple[Tensor, Tensor]:
        """Return the total (T, out) and the parts (T, K, out) of one sequence of the batch."""
        if self.total.dim() == 2:
            return self.total, self.parts
        axis = 0 if self.batch_first else 1
        return self.total.select(axis, index), self.parts.select(axis, index)

    def shares(self, by_output: bool = False) -> Tensor:
        """Return the covariance of each block's part with the total, relative to the total's variance.

        The shares (K,) sum to one; blocks that work against the others have negative shares. They are taken over all
        outputs together or, with `by_output`, for each output: (K, out).
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
    """Decompose the output of a layer, or the input of an aggregate that is not linear, into parts of its blocks.

    The decomposition is exact for any cell, since blocks interact only in the aggregate. With `aggregate=None` the
    output is the concatenation of the blocks' states. A layer of `torch.nn` is one block.
    """
    layer, states = _states(layer, x, hx)
    sizes = layer.block_sizes
    weight, bias = linear_map(layer)
    columns = weight.split(sizes, 1)
    parts = torch.stack([s @ w.T for s, w in zip(states.split(sizes, -1), columns, strict=True)], -2)
    of = "input of the aggregate"
    if isinstance(layer.aggregate, FullyConnected):  # a subclass of nn.Linear, followed by tanh
        of = "input of the aggregate's tanh"
    elif layer.aggregate is None or isinstance(layer.aggregate, nn.Linear):
        of = "output"
    total = parts.sum(-2) + bias
    blocks = block_names(layer)
    return Contributions(parts=parts, bias=bias, total=total, batch_first=layer.batch_first, of=of, blocks=blocks)


@torch.no_grad()
def leave_one_out(layer: Any, x: Tensor, hx: object = None) -> Tensor:
    """Return the change of the output when the states of one block are set to zero, for each block: (T, B, K, out).

    The change is the output minus the output without the block. It equals the block's contribution if the aggregate is
    linear; otherwise these effects do not add up.
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
    """Return the layer as blocks, and the concatenated states of its blocks at every step."""
    blocks: Layer = evaluating(as_blocks(layer))
    states = blocks.block_states(as_input(blocks, x), hx)
    assert isinstance(states, Tensor)
    return blocks, states

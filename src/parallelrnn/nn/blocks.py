"""How the hidden units of a layer fall into blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

BlockSize = int | Sequence[int]


@dataclass(frozen=True)
class Blocks:
    """The sizes of a layer's blocks, in the order in which their states are concatenated."""

    sizes: tuple[int, ...]

    @cached_property
    def groups(self) -> dict[int, tuple[int, ...]]:
        """Blocks of one size run together: size -> the blocks that have it."""
        return {
            size: tuple(block for block, other in enumerate(self.sizes) if other == size)
            for size in dict.fromkeys(self.sizes)
        }

    @property
    def equal(self) -> bool:
        """Whether all blocks have one size, so that they run as one group."""
        return len(self.groups) == 1


def parse_block_size(hidden_size: int, block_size: BlockSize) -> Blocks:
    """Cut `hidden_size` units into blocks: equal ones for an int, for a list these sizes in this order.

    Examples
    --------
    >>> parse_block_size(6, 2).sizes
    (2, 2, 2)
    >>> parse_block_size(7, [2, 2, 3]).sizes
    (2, 2, 3)
    """
    if isinstance(block_size, bool) or not isinstance(block_size, int | Sequence) or isinstance(block_size, str):
        raise TypeError(f"block_size should be an int or a list of ints, got: {type(block_size).__name__}")
    if isinstance(block_size, int):
        if block_size < 1:
            raise ValueError(f"block_size must be at least 1, got {block_size}")
        if hidden_size % block_size:
            raise ValueError(_indivisible(hidden_size, block_size))
        return Blocks((block_size,) * (hidden_size // block_size))
    if any(isinstance(size, bool) or not isinstance(size, int) for size in block_size):
        raise TypeError(f"block_size should be a list of ints, got {list(block_size)}")
    if not block_size:
        raise ValueError(f"block_size={list(block_size)} names no block; hidden_size is {hidden_size}")
    if any(size < 1 for size in block_size):
        raise ValueError(f"every block needs at least 1 unit, got block_size={list(block_size)}")
    if sum(block_size) != hidden_size:
        raise ValueError(
            f"block_size={list(block_size)} adds up to {sum(block_size)} units, but hidden_size is {hidden_size}; "
            f"use hidden_size={sum(block_size)} or other blocks"
        )
    return Blocks(tuple(block_size))


def _indivisible(hidden_size: int, block_size: int) -> str:
    whole, rest = divmod(hidden_size, block_size)
    if whole == 0:
        return f"block_size {block_size} is larger than hidden_size {hidden_size}; use at most {hidden_size}"
    # A rest of one unit joins a block, since a block of size 1 cannot oscillate.
    count, last = (whole - 1, block_size + 1) if rest == 1 else (whole, rest)
    unequal = f"[{block_size}] * {count} + [{last}]" if count > 3 else str([block_size] * count + [last])
    fitting = f"{whole * block_size} or {(whole + 1) * block_size}"
    return (
        f"hidden_size {hidden_size} is not a multiple of block_size {block_size}; "
        f"use {fitting}, or block_size={unequal}"
    )


def select_blocks(tensor: Tensor, sizes: Sequence[int], blocks: Sequence[int], dim: int = -1) -> Tensor:
    """The parts of `tensor` that belong to `blocks`, where `dim` is the concatenation of blocks of these `sizes`."""
    parts = tensor.split(list(sizes), dim)
    return torch.cat([parts[block] for block in blocks], dim)

"""Memory for what is as long as the sequence, used again as soon as it is free.

The first touch of a fresh page costs more than the arithmetic that fills it, and training asks for the same large
tensors at every step. So they come from blocks that return here when the last tensor on them is gone, in huge pages
where the system has them. Free blocks are kept only as far as free and used ones together stay below the most that was
used at one time: a program never holds more than it once needed.
"""

from __future__ import annotations

import math
import mmap
import threading
import weakref

import numpy as np
import torch
from torch import Tensor
from torch.utils import deterministic

LARGE = 2 << 20  # bytes; below, torch's allocator has pages at hand
_GRANULE = 2 << 20  # sizes are multiples of a huge page


class Pool:
    """Blocks of memory, lent to tensors."""

    def __init__(self) -> None:
        self.used = self.most_used = self.free = 0  # bytes
        self._free_blocks: list[mmap.mmap] = []  # the one that was freed last at the end
        # A tensor may be freed by the garbage collector, at any point of any thread.
        self._lock = threading.RLock()

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """`torch.empty` on the CPU."""
        size = math.prod(shape) * dtype.itemsize
        if size < LARGE:
            return torch.empty(shape, dtype=dtype)
        block = self._take(-(-size // _GRANULE) * _GRANULE)
        # The tensor holds the array, and the array the block: when the array goes, no tensor is left.
        array = np.frombuffer(block, dtype=np.uint8, count=size)
        weakref.finalize(array, self._give_back, block).atexit = False
        tensor = torch.from_numpy(array).view(dtype).view(shape)
        if torch.are_deterministic_algorithms_enabled() and deterministic.fill_uninitialized_memory:  # type: ignore[attr-defined]
            tensor.fill_(torch.nan)  # as torch.empty does
        return tensor

    def clear(self) -> None:
        """Give all free blocks back to the system."""
        with self._lock:
            self._free_blocks.clear()
            self.free = 0

    def _take(self, size: int) -> mmap.mmap:
        with self._lock:
            self.used += size
            self.most_used = max(self.most_used, self.used)
            for index in reversed(range(len(self._free_blocks))):
                if len(self._free_blocks[index]) == size:
                    self.free -= size
                    return self._free_blocks.pop(index)
            self._shrink()
        block = mmap.mmap(-1, size)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            block.madvise(mmap.MADV_HUGEPAGE)
        return block

    def _give_back(self, block: mmap.mmap) -> None:
        with self._lock:
            self.used -= len(block)
            self.free += len(block)
            self._free_blocks.append(block)
            self._shrink()

    def _shrink(self) -> None:
        """Let go of the blocks that have been free for longest, until no more is held than was needed."""
        while self._free_blocks and self.used + self.free > self.most_used:
            self.free -= len(self._free_blocks.pop(0))


POOL = Pool()


def empty(*shape: int, dtype: torch.dtype) -> Tensor:
    """`torch.empty` on the CPU, from the pool if it is large."""
    return POOL.empty(shape, dtype)

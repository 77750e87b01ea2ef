"""A pool of memory for tensors as long as the sequence.

The first touch of a fresh page costs more than the arithmetic that fills it, and training allocates the same large
tensors at every step. So they come from blocks that return to a pool when the last tensor on them is gone, in huge
pages where the system has them. The pool keeps free blocks only while free and used ones together stay below the peak
use: a program never holds more than it once needed.
"""

from __future__ import annotations

import math
import mmap
import os
import threading
import weakref
from collections import deque

import numpy as np
import torch
from torch import Tensor
from torch.utils import deterministic

LARGE = 2 << 20  # bytes; smaller tensors come from torch's allocator, which reuses pages itself
_HUGE_PAGE = 2 << 20  # bytes; sizes of blocks are multiples of it


class Pool:
    """Blocks of memory that are lent to tensors."""

    def __init__(self) -> None:
        self.used = self.most_used = self.free = 0  # bytes
        self._free_blocks: list[mmap.mmap] = []  # the most recently freed one last
        # The garbage collector may free a tensor at any point of any thread, even while the lock is held. So returned
        # blocks wait here until somebody with the lock counts them.
        self._returned: deque[mmap.mmap] = deque()
        self._lock = threading.Lock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget_lock)

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Return what `torch.empty` would on the CPU."""
        size = math.prod(shape) * dtype.itemsize
        if size < LARGE:
            return torch.empty(shape, dtype=dtype)
        block = self._take(-(-size // _HUGE_PAGE) * _HUGE_PAGE)
        # The tensor holds the array, and the array holds the block: when the array goes, no tensor is left.
        array = np.frombuffer(block, dtype=np.uint8, count=size)
        weakref.finalize(array, self._returned.append, block).atexit = False
        tensor = torch.from_numpy(array).view(dtype).view(shape)
        if torch.are_deterministic_algorithms_enabled() and deterministic.fill_uninitialized_memory:  # type: ignore[attr-defined]
            tensor.fill_(torch.nan)  # as torch.empty does
        return tensor

    def collect(self) -> None:
        """Take back blocks that are no longer used, and give to the system what exceeds the peak use."""
        with self._lock:
            self._collect()

    def clear(self) -> None:
        """Give all free blocks back to the system."""
        with self._lock:
            self._collect()
            self._free_blocks.clear()
            self.free = 0

    def _take(self, size: int) -> mmap.mmap:
        with self._lock:
            self._collect()
            fitting = [index for index, block in enumerate(self._free_blocks) if len(block) == size]
            if fitting:
                block = self._free_blocks.pop(fitting[-1])
                self.free -= size
            else:
                block = self._new_block(size)
            self.used += size
            self.most_used = max(self.most_used, self.used)
            self._shrink()
        return block

    def _new_block(self, size: int) -> mmap.mmap:
        try:
            return _map_memory(size)
        except (OSError, OverflowError):
            self._free_blocks.clear()
            self.free = 0
        try:
            return _map_memory(size)
        except (OSError, OverflowError) as error:  # OverflowError: the size does not fit into 64 bits
            raise MemoryError(f"not enough memory for a tensor of {size} bytes; use a smaller batch") from error

    def _collect(self) -> None:
        while self._returned:
            block = self._returned.popleft()
            self.used -= len(block)
            self.free += len(block)
            self._free_blocks.append(block)
        self._shrink()

    def _shrink(self) -> None:
        """Release the blocks that have been free for longest, until the pool holds no more than the peak use."""
        while self._free_blocks and self.used + self.free > self.most_used:
            self.free -= len(self._free_blocks.pop(0))

    def _forget_lock(self) -> None:
        """Replace the lock after a fork: a thread of the parent that held it does not exist here to release it."""
        self._lock = threading.Lock()


def _map_memory(size: int) -> mmap.mmap:
    # Private: a forked process, such as a worker of a DataLoader, must not write into its parent's tensors.
    block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        block.madvise(mmap.MADV_HUGEPAGE)
    return block


POOL = Pool()


def empty(*shape: int, dtype: torch.dtype) -> Tensor:
    """Return what `torch.empty` would on the CPU, from the pool if the tensor is large."""
    if math.prod(shape) * dtype.itemsize < LARGE:
        return torch.empty(shape, dtype=dtype)
    return POOL.empty(shape, dtype)

"""Fresh memory for what is as long as the sequence.

The first touch of a page costs more than the arithmetic that fills it: in pages of 4 KiB a fresh tensor fills at about
3 GB/s, in huge pages of 2 MiB at more than 10. Linux gives huge pages to those who ask.
"""

from __future__ import annotations

import ctypes
import mmap

import torch
from torch import Tensor

_HUGE_PAGES = getattr(mmap, "MADV_HUGEPAGE", None)  # on Linux only
_LARGE = 4 << 20  # bytes; below, the allocator has used pages at hand
_madvise = getattr(ctypes.CDLL(None), "madvise", None) if _HUGE_PAGES is not None else None
if _madvise is not None:
    _madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def empty(*shape: int, dtype: torch.dtype) -> Tensor:
    """`torch.empty` on the CPU, in huge pages where it is large and the system has them."""
    tensor = torch.empty(shape, dtype=dtype)
    if _madvise is not None and tensor.nbytes >= _LARGE:
        first = -(-tensor.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
        # Only advice: where it is not taken, and it may be refused, the memory is the same but slower.
        _madvise(first, (tensor.data_ptr() + tensor.nbytes - first) // mmap.PAGESIZE * mmap.PAGESIZE, _HUGE_PAGES)
    return tensor

"""Whether memory was used up: Python, NumPy and the kernels say it by one error, torch by another."""

from __future__ import annotations

_TORCH_SAYS = ("can't allocate memory", "out of memory")  # by a RuntimeError: of processors, of accelerators


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that."""
    by_torch = isinstance(error, RuntimeError) and any(words in str(error) for words in _TORCH_SAYS)
    return by_torch or isinstance(error, MemoryError)

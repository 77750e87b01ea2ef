"""Tensors described in JSON, so that names, dtypes and shapes can be mutated; their values are stored aside."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import Tensor

_LARGEST = 1 << 20  # bytes of a tensor in an input: a file has to hold what it declares
_DTYPES = {"F32": torch.float32, "F64": torch.float64, "BOOL": torch.bool, "I64": torch.int64, "U8": torch.uint8}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


class Numbers:
    """The values of the tensors in the files that inputs started from."""

    def __init__(self) -> None:
        self._known: dict[str, Tensor] = {}

    def describe(self, origin: int, tensors: dict[str, Tensor]) -> dict[str, Any]:
        """Return dtypes and shapes by name, and remember the values."""
        self._known |= {f"{origin}.{name}": tensor for name, tensor in tensors.items()}
        return {name: [_NAMES[tensor.dtype], list(tensor.shape)] for name, tensor in tensors.items()}

    def build(self, origin: int, described: dict[str, Any]) -> dict[str, Tensor]:
        """Return tensors as described, filled with the remembered values as far as they reach."""
        return {str(name): self._tensor(f"{origin}.{name}", *about) for name, about in described.items()}

    def _tensor(self, name: str, dtype: str, shape: list[int]) -> Tensor:
        kind = _DTYPES[dtype]
        if not all(isinstance(length, int) for length in shape):
            raise TypeError("a shape has integers")
        size = prod(shape)
        if not 0 <= size * kind.itemsize <= _LARGEST:
            raise ValueError("too large for an input")
        known = self._known.get(name)
        values = torch.ones(1) if known is None or not known.numel() else known.flatten()
        repeated = values.repeat(-(-size // len(values)))[:size]
        return repeated.to(kind).reshape(shape).contiguous()


# What building an input may raise if a mutation cannot be written to a file.
NOT_BUILT = (AttributeError, LookupError, OSError, OverflowError, RuntimeError, TypeError, ValueError)

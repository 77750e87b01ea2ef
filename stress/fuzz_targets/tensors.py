"""Tensors as JSON says them, so that their names, kinds and shapes can be changed; numbers are kept aside."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path

import torch
from torch import Tensor

from parallelrnn.io import load_tensors, save_tensors

_LARGEST = 1 << 20  # bytes of a tensor that an input may ask for: what a file says, it has to hold
_DTYPES = {"F32": torch.float32, "F64": torch.float64, "BOOL": torch.bool, "I64": torch.int64, "U8": torch.uint8}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


class Numbers:
    """Of the files that inputs started from."""

    def __init__(self) -> None:
        self._known: dict[str, Tensor] = {}

    def describe(self, origin: int, path: Path) -> bytes:
        """Return a file as JSON: metadata, and kinds and shapes of tensors by name; their numbers are kept."""
        metadata, tensors = load_tensors(path)
        self._known |= {f"{origin}.{name}": tensor for name, tensor in tensors.items()}
        described = {name: [_NAMES[tensor.dtype], list(tensor.shape)] for name, tensor in tensors.items()}
        return json.dumps({"from": origin, "metadata": metadata, "tensors": described}).encode()

    def build(self, data: bytes, path: Path) -> int:
        """Write a file as described, with the numbers that were kept as far as they reach; return its origin."""
        document = json.loads(data)
        origin: int = document["from"]
        described = document["tensors"].items()
        tensors = {str(name): self._tensor(f"{origin}.{name}", *about) for name, about in described}
        save_tensors(path, tensors, document["metadata"])
        return origin

    def _tensor(self, name: str, dtype: str, shape: list[int]) -> Tensor:
        kind = _DTYPES[dtype]
        if not all(isinstance(length, int) for length in shape):
            raise TypeError("a shape has integers")
        size = prod(shape)
        if not 0 <= size * kind.itemsize <= _LARGEST:
            raise ValueError("too large for a file of a fuzzer")
        known = self._known.get(name)
        values = torch.ones(1) if known is None or not known.numel() else known.flatten()
        repeated = values.repeat(-(-size // len(values)))[:size]
        return repeated.to(kind).reshape(shape).contiguous()


# What building an input may raise where a mutation made nothing of it that a file can hold.
NOT_BUILT = (AttributeError, LookupError, OSError, OverflowError, RuntimeError, TypeError, ValueError)

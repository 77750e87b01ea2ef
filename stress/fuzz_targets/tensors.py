"""Tensors described in JSON, so that names, dtypes and shapes can be mutated; their values are kept aside."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path

import torch
from torch import Tensor

from parallelrnn.io import load_tensors, save_tensors

_MAX_BYTES = 1 << 20  # of a tensor that an input may declare: a valid file has to hold them
_DTYPES = {"F32": torch.float32, "F64": torch.float64, "BOOL": torch.bool, "I64": torch.int64, "U8": torch.uint8}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


class Values:
    """The values of the tensors in the files that inputs started from."""

    def __init__(self) -> None:
        self._known: dict[str, Tensor] = {}

    def describe(self, origin: int, path: Path) -> bytes:
        """Return a file as JSON: metadata, and dtypes and shapes of tensors by name; their values are kept."""
        metadata, tensors = load_tensors(path)
        self._known |= {f"{origin}.{name}": tensor for name, tensor in tensors.items()}
        described = {name: [_NAMES[tensor.dtype], list(tensor.shape)] for name, tensor in tensors.items()}
        return json.dumps({"from": origin, "metadata": metadata, "tensors": described}).encode()

    def build(self, data: bytes, path: Path) -> int:
        """Write a file as described, with the values that were kept, repeated where too few; return its origin."""
        document = json.loads(data)
        origin: int = document["from"]
        tensors = {str(name): self._tensor(f"{origin}.{name}", *kind) for name, kind in document["tensors"].items()}
        save_tensors(path, tensors, document["metadata"])
        return origin

    def _tensor(self, name: str, dtype: str, shape: list[int]) -> Tensor:
        if not all(isinstance(length, int) for length in shape):
            raise TypeError("a shape has integers")
        size = prod(shape)
        if not 0 <= size * _DTYPES[dtype].itemsize <= _MAX_BYTES:
            raise ValueError("too large for a file of a fuzzer")
        known = self._known.get(name)
        values = torch.ones(1) if known is None or not known.numel() else known.flatten()
        return values.repeat(-(-size // len(values)))[:size].to(_DTYPES[dtype]).reshape(shape).contiguous()


# What building raises for a mutated description that no file can hold.
NOT_BUILT = (AttributeError, LookupError, OSError, OverflowError, RuntimeError, TypeError, ValueError)

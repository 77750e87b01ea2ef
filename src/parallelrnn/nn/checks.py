"""Errors that say what was expected, what came and what to do. Their types are those that `torch.nn` raises."""

from __future__ import annotations

import os
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from parallelrnn.kernels import autocast_enabled

LARGEST_SIZE = 1 << 48  # as many bytes as a processor can address


def check_bool(name: str, value: object) -> None:
    """Refuse anything but True and False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} should be of type bool, got: {type(value).__name__}")


def check_size(name: str, value: object) -> None:
    """Refuse anything but a positive int."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} should be of type int, got: {type(value).__name__}")
    if value <= 0:
        raise ValueError(f"{name} must be greater than zero, got {value}")
    if value > LARGEST_SIZE:
        raise ValueError(f"{name} must be at most 2 to the power of 48, got {value}")


def check_weights(owner: str, count: int, device: Any, dtype: torch.dtype | None) -> None:
    """Refuse weights that cannot be trained, or that the machine's memory cannot hold, before any is made."""
    like = torch.empty(0, device=device, dtype=dtype)
    if not like.is_floating_point() and not like.is_complex():
        raise ValueError(f"{owner}: expected a floating-point dtype, got {dtype}")
    size, memory = count * like.itemsize, _memory()
    if like.device.type == "cpu" and size > memory:
        raise ValueError(
            f"{owner}: {count} weights of {like.dtype} take {size} bytes, and this machine has {memory}; "
            "use smaller sizes"
        )


def check_probability(name: str, value: object) -> None:
    """Refuse anything but a number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) <= 1:
        raise ValueError(
            f"{name} should be a number in range [0, 1] representing the probability of an element being zeroed, "
            f"got {value!r}"
        )


def check_tensor(owner: str, name: str, value: object) -> Tensor:
    """Refuse anything but a tensor, arrays and lists with the call that makes tensors of them."""
    if isinstance(value, Tensor):
        return value
    convertible = isinstance(value, list | np.ndarray)
    advice = "; torch.as_tensor(...) makes one of arrays and lists" if convertible else ""
    raise TypeError(f"{owner}: expected {name} to be a torch.Tensor, got {type(value).__name__}{advice}")


def check_dtype(owner: str, name: str, value: Tensor, weight: Tensor) -> None:
    """Refuse a dtype other than the weights', except where autocast converts."""
    if value.dtype == weight.dtype:
        return
    if not value.is_floating_point():
        raise ValueError(
            f"{owner}: {name} dtype ({value.dtype}) is not a floating-point one. "
            f"Convert {name}: {name}.to({weight.dtype})"
        )
    if autocast_enabled(value.device.type) and torch.float64 not in (value.dtype, weight.dtype):
        return
    raise ValueError(
        f"{owner}: RNN {name} dtype ({value.dtype}) does not match weight dtype ({weight.dtype}). "
        f"Convert {name}: {name}.to({weight.dtype}), or convert model: model.to({value.dtype})"
    )


def _memory() -> int:
    """Bytes of this machine's memory; where it does not tell, as many as can be addressed."""
    if "SC_PHYS_PAGES" not in getattr(os, "sysconf_names", ()):
        return LARGEST_SIZE
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

"""Errors that say what was expected, what came and what to do. Their types are those that `torch.nn` raises."""

from __future__ import annotations

from numbers import Real

import numpy as np
import torch
from torch import Tensor

from parallelrnn.kernels import autocast_enabled


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

"""Blocks of size 2 in polar form: damped rotations whose modulus stays below one whatever the optimiser does.

A block is C(modulus, angle) = modulus * [[cos, sin], [-sin, cos]]. Its parameters are unconstrained: log_rate, the
logarithm of the decay rate, with modulus = exp(-exp(log_rate)) and so half-life = ln 2 / exp(log_rate) steps; and the
angle.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def rotations(modulus: Tensor, angle: Tensor) -> Tensor:
    """The matrices C(modulus, angle), (...) -> (..., 2, 2)."""
    cos, sin = modulus * torch.cos(angle), modulus * torch.sin(angle)
    return torch.stack([torch.stack([cos, sin], -1), torch.stack([-sin, cos], -1)], -2)


def log_modulus(log_rate: Tensor) -> Tensor:
    """Of the unconstrained parameter: never above zero."""
    # At 4 the modulus is 2e-24, zero for all purposes; far beyond, the gradient would be infinity times zero.
    return -torch.exp(log_rate.clamp(max=4))


def polar_blocks(log_rate: Tensor, angle: Tensor) -> Tensor:
    """Blocks from their unconstrained parameters."""
    # exp(-exp(x)) rounds to one for very slow decays; four units of rounding less, the matrix stays a contraction.
    largest = 1 - 4 * torch.finfo(log_rate.dtype).eps
    return rotations(largest * torch.exp(log_modulus(log_rate)), angle)


def modulus_to_log_rate(modulus: Tensor) -> Tensor:
    """The inverse of modulus = exp(-exp(log_rate)), for 0 < modulus < 1."""
    return torch.log(-torch.log(modulus))


def reset_polar(log_rate: Tensor, angle: Tensor) -> None:
    """Draw eigenvalues uniformly from the unit disc's upper half."""
    tiny = torch.finfo(log_rate.dtype).eps
    modulus = torch.rand_like(log_rate).clamp(tiny, 1 - tiny).sqrt()
    log_rate.copy_(modulus_to_log_rate(modulus))
    angle.uniform_(0, math.pi)

"""How far forecasts are off what came."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from parallelrnn.training.trainer import Loss

LOSSES = ("mae", "mse", "huber")


def pinball(quantiles: tuple[float, ...]) -> Loss:
    """The loss whose minimum are quantiles."""

    def loss(forecast: Tensor, future: Tensor, weight: Tensor) -> Tensor:
        levels = torch.tensor(quantiles, dtype=forecast.dtype, device=forecast.device)
        error = future[..., None] - forecast
        each = torch.maximum(levels * error, (levels - 1) * error).mean(-1)
        return (each * weight).sum() / weight.sum().clamp(min=1)

    return loss


def pointwise(name: str) -> Loss:
    """The mean over what was observed of an error's size, square, or of one and then the other."""
    functions = {
        "mae": nn.functional.l1_loss,
        "mse": nn.functional.mse_loss,
        "huber": nn.functional.smooth_l1_loss,
    }
    function = functions[name]

    def loss(forecast: Tensor, future: Tensor, weight: Tensor) -> Tensor:
        each = function(forecast[..., 0], future, reduction="none")
        return (each * weight).sum() / weight.sum().clamp(min=1)

    return loss


def cross_entropy(output: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """The negative logarithm of the probability of the class, on average; outputs (B, classes), classes (B,)."""
    each = nn.functional.cross_entropy(output, target, reduction="none")
    return (each * weight).sum() / weight.sum().clamp(min=1)

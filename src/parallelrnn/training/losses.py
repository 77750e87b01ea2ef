"""Losses: means over the observed values, those of weight above zero."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from parallelrnn.training.trainer import Loss

_POINTWISE = {"mae": nn.functional.l1_loss, "mse": nn.functional.mse_loss, "huber": nn.functional.smooth_l1_loss}
LOSSES = tuple(_POINTWISE)


def pinball(quantiles: tuple[float, ...]) -> Loss:
    """Return the loss whose minimum is at these quantiles; forecasts (..., quantiles), targets (...)."""

    def loss(forecast: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        levels = torch.tensor(quantiles, dtype=forecast.dtype, device=forecast.device)
        error = target[..., None] - forecast
        return _mean(torch.maximum(levels * error, (levels - 1) * error).mean(-1), weight)

    return loss


def pointwise(name: str) -> Loss:
    """Return the mean absolute, squared or Huber error; forecasts (..., 1), targets (...)."""
    function = _POINTWISE[name]
    return lambda forecast, target, weight: _mean(function(forecast[..., 0], target, reduction="none"), weight)


def cross_entropy(output: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """Return the mean cross-entropy; outputs (B, classes), classes (B,)."""
    return _mean(nn.functional.cross_entropy(output, target, reduction="none"), weight)


def _mean(losses: Tensor, weight: Tensor) -> Tensor:
    return (losses * weight).sum() / weight.sum().clamp(min=1)

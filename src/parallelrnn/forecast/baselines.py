"""What every forecaster has to beat: the last value, the last season, and a linear map."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from parallelrnn.forecast.windows import Batch


class Naive(nn.Module):
    """The last value, again and again."""

    def forward(self, batch: Batch) -> Tensor:
        """Forecasts (B, H, C, 1)."""
        return batch.past[:, -1:].expand_as(batch.target)[..., None]


class SeasonalNaive(nn.Module):
    """The last season, again and again."""

    def __init__(self, period: int) -> None:
        super().__init__()
        self.period = period

    def forward(self, batch: Batch) -> Tensor:
        """Forecasts (B, H, C, 1)."""
        steps = torch.arange(batch.target.shape[1]) % self.period - self.period
        return batch.past[:, steps][..., None]


class NLinear(nn.Module):
    """One linear map from the look-back to the horizon, of values less the last (Zeng et al., arXiv 2205.13504)."""

    def __init__(self, lookback: int, horizon: int) -> None:
        super().__init__()
        self.map = nn.Linear(lookback, horizon)

    def forward(self, batch: Batch) -> Tensor:
        """Forecasts (B, H, C, 1)."""
        return self.ahead(batch.past)[..., None]

    def ahead(self, past: Tensor) -> Tensor:
        """What follows a past (B, look-back, C): (B, H, C)."""
        last = past[:, -1:]
        forecast: Tensor = self.map((past - last).transpose(1, 2)).transpose(1, 2) + last
        return forecast

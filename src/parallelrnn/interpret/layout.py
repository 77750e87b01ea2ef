"""The axes of data: (T, B, C) here, and what a layer takes."""

from __future__ import annotations

from typing import Any

from torch import Tensor


def time_first(layer: Any, x: Tensor) -> Tensor:
    """(T, B, C) from what the layer takes: (T, B, C), (B, T, C) if it is batch_first, or one sequence (T, C)."""
    if x.dim() == 2:
        return x[:, None]
    return x.transpose(0, 1) if layer.batch_first else x


def as_taken(layer: Any, series: Tensor) -> Tensor:
    """The way back: what the layer takes from a batch (T, B, C)."""
    return series.transpose(0, 1) if layer.batch_first else series

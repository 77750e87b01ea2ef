"""Intervals by split conformal prediction: how far off forecasts were lately, step by step of the horizon."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_GRID = 200  # levels at which the errors of a series are kept


@dataclass(frozen=True)
class Calibration:
    """Quantiles of absolute errors, of each series: enough for any level."""

    table: Tensor  # (series, _GRID, H, C): the errors at levels 1 / _GRID, 2 / _GRID, ..., 1
    counts: Tensor  # (series,), windows that they come from

    @classmethod
    def of(cls, errors: Sequence[Tensor]) -> Calibration:
        """From the errors (N, H, C) of each series, NaN where the future was not observed."""
        levels = torch.arange(1, _GRID + 1, dtype=torch.float64) / _GRID
        table = torch.stack([_upper_quantiles(one.abs(), levels) for one in errors])
        return cls(table, torch.tensor([len(one) for one in errors]))

    def rows(self, indices: Sequence[int]) -> Calibration:
        """Of some series."""
        return Calibration(self.table[list(indices)], self.counts[list(indices)])

    def half_width(self, level: float) -> Tensor:
        """What to add to a forecast and to take off it, (series, H, C), so that `level` per cent are held.

        The error at rank (n + 1) * level of n, rounded up: held at least so often, if errors go on as they were.
        """
        part = level / 100
        rank = torch.ceil((self.counts + 1) * part) / self.counts  # of n errors, in parts of n
        if (rank > 1).any():
            fewest = int(self.counts.min())
            needed = math.ceil(part / (1 - part))
            raise ValueError(
                f"an interval of {level:g} % takes {needed} windows to calibrate on, and a series has {fewest}; ask "
                "for a lower level, or fit with a larger val_size"
            )
        index = torch.ceil(rank * _GRID).long().clamp(1, _GRID) - 1
        return self.table[torch.arange(len(self.table)), index]


def _upper_quantiles(errors: Tensor, levels: Tensor) -> Tensor:
    """The smallest error that so large a part of all errors (N, H, C) does not exceed, (levels, H, C)."""
    ordered = errors.nan_to_num(nan=-1.0).sort(0).values  # what was not observed comes first
    there = (~errors.isnan()).sum(0)  # (H, C)
    missing = len(errors) - there
    rank = torch.ceil(levels[:, None, None] * there - 1e-9).long().clamp(min=1) - 1 + missing  # (levels, H, C)
    found = ordered.gather(0, rank.clamp(max=len(errors) - 1))
    return torch.where(there > 0, found, torch.full_like(found, math.nan))


def middle_of(quantiles: Sequence[float] | None) -> int:
    """Which of several quantiles is the forecast: the one next to the median."""
    if quantiles is None:
        return 0
    return min(range(len(quantiles)), key=lambda index: abs(quantiles[index] - 0.5))

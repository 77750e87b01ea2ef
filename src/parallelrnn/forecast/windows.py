"""Series made ready for a network: without their cycles, at one scale, cut into windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from parallelrnn.forecast.panel import Array, Series
from parallelrnn.forecast.seasonality import Cycle, fit_cycles

_OFTEN = 3  # one value in so many is the same


@dataclass(frozen=True)
class Profile:
    """What is known of one series beforehand: its level, its scale and its cycles of the calendar."""

    mean: Array  # (C,)
    scale: Array  # (C,), above zero
    cycles: tuple[Cycle, ...]  # of the series as it is
    grain: Array  # (C,), what limits are rounded to: 1 for counts, 0 for what is not rounded

    @classmethod
    def of(cls, series: Series, steps: int, periods: Sequence[float], named: bool = False) -> Profile:
        """From the first so many steps of a series; see `fit_cycles`."""
        values = np.where(series.observed[:steps], series.values[:steps], np.nan)
        if (np.nanmin(values, axis=0) == np.nanmax(values, axis=0)).any():  # what comes later tells more
            values = np.where(series.observed, series.values, np.nan)
        return cls(*_mean_and_scale(values), fit_cycles(series, steps, periods, named), _grain(values))

    def cycle_at(self, positions: NDArray[np.int64]) -> Array:
        """The cycles of the calendar together, (n, C)."""
        total = np.zeros((len(positions), len(self.mean)))
        for cycle in self.cycles:
            total += cycle.at(positions)
        return total

    def to_scale(self, series: Series) -> Array:
        """A series without its cycles, of variance one about."""
        numbers = np.arange(series.position, series.end)
        scaled: Array = (series.values - self.cycle_at(numbers) - self.mean) / self.scale
        return scaled


def observed_mean(past: Tensor, valid: Tensor | None) -> Tensor:
    """The mean over time of windows (B, L, C) where they are there, (B, 1, C)."""
    there = torch.ones_like(past) if valid is None else valid[..., None].expand_as(past).to(past)
    return (past * there).sum(1, keepdim=True) / there.sum(1, keepdim=True).clamp(min=1)


class Batch(NamedTuple):
    """Some windows: L steps of the past, H of the future."""

    past: Tensor  # (B, L, C)
    valid: Tensor | None  # (B, L), where the past is there; None if everywhere
    target: Tensor  # (B, H, C), the future
    weight: Tensor  # (B, H, C), one where the future was observed, zero if the end of the past was not
    covariates: Tensor  # (B, L, P), of the past
    known: Tensor  # (B, L + H, F), covariates known ahead
    static: Tensor  # (B, S)


class Sequences:
    """Many series as one long tensor, from which windows are cut.

    Each series has L steps of padding before it and H after it, so that a window may start before it and end after it;
    a window is named by its series and its origin, the number of steps before its future.
    """

    def __init__(
        self,
        series: Sequence[Series],
        profiles: Sequence[Profile],
        covariates: CovariateScale,
        lookback: int,
        horizon: int,
        ahead: Sequence[Array] | None = None,  # (H, F) each: known covariates after the last step
    ) -> None:
        self.lookback, self.horizon = lookback, horizon
        self.lengths = torch.tensor([len(one) for one in series])
        room = lookback + horizon
        ends = torch.cumsum(self.lengths + room, 0)
        self._bases = ends - self.lengths - room  # where the padding of each begins
        channels = self.channels = series[0].values.shape[1]
        total = int(ends[-1])
        self._values = torch.zeros(total, channels)
        self._observed = torch.zeros(total, channels)
        self._there = torch.zeros(total, 1, dtype=torch.bool)
        self._past = torch.zeros(total, series[0].past.shape[1])
        self._known = torch.zeros(total, series[0].future.shape[1])
        self._static = torch.from_numpy(np.stack([covariates.static(one.static) for one in series])).float()
        for index, (one, profile) in enumerate(zip(series, profiles, strict=True)):
            first = int(self._bases[index]) + lookback
            rows = slice(first, first + len(one))
            self._values[rows] = torch.from_numpy(profile.to_scale(one)).float()
            self._observed[rows] = torch.from_numpy(one.observed).float()
            self._there[rows] = True
            self._past[rows] = torch.from_numpy(covariates.past(one.past)).float()
            known = one.future if ahead is None else np.concatenate([one.future, ahead[index]])
            self._known[first : first + len(known)] = torch.from_numpy(covariates.known(known)).float()

    def origins(self, begin: Sequence[int], end: Sequence[int]) -> Tensor:
        """All windows of each series with an origin in [begin, end): (N, 2), series and origin."""
        limits = enumerate(zip(begin, end, strict=True))
        return torch.cat([self.windows(index, first, last) for index, (first, last) in limits])

    def windows(self, index: int, begin: int, end: int) -> Tensor:
        """Those of one series."""
        origins = torch.arange(begin, max(begin, end))
        return torch.stack([torch.full_like(origins, index), origins], -1)

    def with_future(self, windows: Tensor) -> Tensor:
        """Of some windows, those of whose future anything counts; see `Batch.weight`."""
        series, origin = windows.unbind(-1)
        now = self._bases[series] + origin + self.lookback
        fair = self._observed[now - 1].amin(-1) > 0
        count = nn.functional.pad(self._observed.sum(-1).cumsum(0), (1, 0))
        return windows[fair & (count[now + self.horizon] > count[now])]

    def batch(self, windows: Tensor) -> Batch:
        """The windows (B, 2) of some series and origins."""
        series, origin = windows.unbind(-1)
        start = self._bases[series] + origin
        past, target = self._cut(self._values, start).split([self.lookback, self.horizon], 1)
        observed = self._cut(self._observed, start)[:, self.lookback - 1 :]
        whole = bool((origin >= self.lookback).all())
        return Batch(
            past,
            None if whole else self._cut(self._there, start)[:, : self.lookback, 0],
            target,
            # What fills a gap at the end of the past leads to values after it: such a window would know the future.
            observed[:, 1:] * observed[:, :1].amin(-1, keepdim=True),
            self._cut(self._past, start)[:, : self.lookback],
            self._cut(self._known, start),
            self._static[series],
        )

    def _cut(self, table: Tensor, start: Tensor) -> Tensor:
        """Windows (B, L + H, columns) of a long table, by whole rows of a view of it, not number by number."""
        if not table.shape[1]:
            return table.new_zeros(len(start), self.lookback + self.horizon, 0)
        every = table.unfold(0, self.lookback + self.horizon, 1)  # (starts, columns, L + H)
        return every.index_select(0, start).transpose(1, 2)


@dataclass(frozen=True)
class CovariateScale:
    """Means and deviations of covariates in training."""

    past_mean: Array
    past_scale: Array
    known_mean: Array
    known_scale: Array
    static_mean: Array
    static_scale: Array

    @classmethod
    def of(cls, series: Sequence[Series], steps: Sequence[int]) -> CovariateScale:
        """From the first so many steps of some series."""
        past = np.concatenate([one.past[:n] for one, n in zip(series, steps, strict=True)])
        known = np.concatenate([one.future[:n] for one, n in zip(series, steps, strict=True)])
        static = np.stack([one.static for one in series])
        return cls(*(part for table in (past, known, static) for part in _mean_and_scale(table)))

    def past(self, values: Array) -> Array:
        """At a scale of one."""
        return (values - self.past_mean) / self.past_scale

    def known(self, values: Array) -> Array:
        """At a scale of one."""
        return (values - self.known_mean) / self.known_scale

    def static(self, values: Array) -> Array:
        """At a scale of one."""
        return (values - self.static_mean) / self.static_scale


def _grain(values: Array) -> Array:
    """Of each column, one if it holds whole numbers of which many are the same, such as sales that are often zero.

    A forecast that is off these by a hair would have them outside its interval all at once.
    """
    found = np.zeros(values.shape[1])
    for channel, column in enumerate(values.T):
        there = column[~np.isnan(column)]
        if (there == np.round(there)).all():
            _, times = np.unique(there, return_counts=True)
            found[channel] = len(times) > 1 and times.max() * _OFTEN >= len(there)
    return found


def _mean_and_scale(table: Array) -> tuple[Array, Array]:
    """Of each column, without what is missing; what does not vary but for rounding has a scale of one."""
    scale = np.nanstd(table, axis=0)
    tiny = 1e-9 * np.nanmax(abs(table), axis=0)
    return np.nanmean(table, axis=0), np.where(scale > tiny, scale, 1.0)

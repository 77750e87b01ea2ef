"""What a network sees of series: values or logarithms without their calendar cycles, at one scale, cut into windows."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from parallelrnn.forecast.data import Array, Series

_MAX_LOG = 700.0  # of a value that is still a number
_MAX_BATCH = 2048  # windows that go through a network at once where nothing is learned


@dataclass(frozen=True)
class Cycle:
    """A cycle of one series whose phase is tied to the calendar: a sum of harmonics."""

    period: float  # in steps
    cosines: Array  # (harmonics, C)
    sines: Array  # (harmonics, C)

    def at(self, positions: NDArray[np.int64]) -> Array:
        """Return the cycle at positions of the grid, (n, C)."""
        turns = 2 * math.pi * np.outer(np.arange(1, len(self.cosines) + 1) / self.period, positions)[..., None]
        total: Array = (np.cos(turns) * self.cosines[:, None] + np.sin(turns) * self.sines[:, None]).sum(axis=0)
        return total


@dataclass(frozen=True)
class SeriesScaler:
    """The level, scale and calendar cycles of one series."""

    mean: Array  # (C,)
    scale: Array  # (C,), above zero
    cycles: tuple[Cycle, ...]  # in the units of the series, or of its logarithm
    integer_valued: Array  # (C,), 1 for counts, whose intervals are rounded outward to integers, else 0
    non_negative: Array  # (C,), 1 for series that never fall below zero: neither do their forecasts, nor intervals
    # (C,), above zero for channels that are read as logarithms, of values that are no smaller
    floor: Array = field(default_factory=lambda: np.zeros(1))

    @classmethod
    def fit(
        cls, series: Series, steps: int, cycles: tuple[Cycle, ...] = (), floor: Array | None = None
    ) -> SeriesScaler:
        """Fit level and scale to the first `steps` steps of a series, or to all if it is constant in these."""
        values = np.where(series.observed[:steps], series.values[:steps], np.nan)
        if (np.nanmin(values, axis=0) == np.nanmax(values, axis=0)).any():
            values = np.where(series.observed, series.values, np.nan)
        floor = np.zeros(values.shape[1]) if floor is None else floor
        mean, scale = _mean_and_scale(to_logs(values, floor))
        whole = np.where(series.observed, series.values, np.nan)
        never_negative = (np.nanmin(whole, axis=0) >= 0).astype(np.float64)
        return cls(mean, scale, cycles, _integer_valued(whole), never_negative, floor)

    def invert(self, values: Array) -> Array:
        """Return values (..., C) in the units of the series, of values or logarithms."""
        return np.where(self.floor > 0, np.exp(np.minimum(values, _MAX_LOG)), values)

    def as_relative(self, residuals: Tensor) -> Tensor:
        """Return residuals (N, H, C) at the scale of the network, for intervals as long below as above.

        A forecast that missed by half is as far off above as below, but not its logarithm. So negative residuals of
        logarithms shrink to the size of positive ones that are as far off; see `lower`.
        """
        scale = torch.from_numpy(np.where(self.floor > 0, self.scale, 0.0)).to(residuals)
        fallen = -torch.log1p(-torch.expm1(residuals.clamp(max=0) * scale)) / torch.where(scale > 0, scale, 1.0)
        return torch.where((scale > 0) & (residuals < 0), fallen, residuals)

    def lower(self, middle: Array, width: Array) -> Array:
        """Return the lower limits (H, C) of intervals, given forecasts and half-widths without the scale."""
        values = self.invert(middle)
        relative = np.maximum(2 - np.exp(np.minimum(width, 1.0)), 0.0)  # as far below as the upper limit is above
        return np.where(self.floor > 0, values * relative, self.invert(middle - width))

    def cycles_at(self, positions: NDArray[np.int64]) -> Array:
        """Return the sum of all cycles, (n, C)."""
        total = np.zeros((len(positions), len(self.mean)))
        for cycle in self.cycles:
            total += cycle.at(positions)
        return total

    def transform(self, series: Series) -> Array:
        """Return the values of a series without cycles, with a variance of about one."""
        return self.with_cycles(series) - self.cycles_of(series.position, len(series))

    def with_cycles(self, series: Series) -> Array:
        """Return the values of a series at the scale of the network, its cycles included."""
        return (to_logs(series.values, self.floor) - self.mean) / self.scale

    def cycles_of(self, position: int, steps: int) -> Array:
        """Return the sum of all cycles at the scale of the network, (steps, C)."""
        return self.cycles_at(position + np.arange(steps)) / self.scale


@dataclass(frozen=True)
class CovariateScaler:
    """The mean and standard deviation of each covariate in training."""

    past: Array  # (2, P)
    future: Array  # (2, F)
    static: Array  # (2, S)

    @classmethod
    def fit(cls, series: Sequence[Series], steps: Sequence[int]) -> CovariateScaler:
        """Fit to the first steps of each series, as many as `steps` says."""
        past = np.concatenate([single.past[:n] for single, n in zip(series, steps, strict=True)])
        future = np.concatenate([single.future[:n] for single, n in zip(series, steps, strict=True)])
        tables = (past, future, np.stack([single.static for single in series]))
        return cls(*(np.stack(_mean_and_scale(table)) for table in tables))

    def transform(self, kind: str, values: Array) -> Array:
        """Scale covariates of this kind, "past", "future" or "static"."""
        mean, scale = getattr(self, kind)
        scaled: Array = (values - mean) / scale
        return scaled


def to_logs(values: Array, floor: Array) -> Array:
    """Return values (T, C), as logarithms where there is a floor."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(floor > 0, np.log(np.maximum(values, floor)), values)


class Batch(NamedTuple):
    """Windows: L steps of the past, H of the future."""

    past: Tensor  # (B, L, C)
    valid: Tensor | None  # (B, L), where the series has begun; None if everywhere
    target: Tensor  # (B, H, C), the future
    weight: Tensor  # (B, H, C), one where the future was observed, zero if the end of the past was not
    past_exog: Tensor  # (B, L, P)
    future_exog: Tensor  # (B, L + H, F), covariates known ahead
    static: Tensor  # (B, S)
    local: Tensor | None = None  # (B, C, size), the states of local models at the end of the past
    cycles: Tensor | None = None  # (B, H, C), the calendar cycles of the future, which local models do without


class WindowDataset:
    """Many series as one long tensor, from which windows are cut.

    Each series has L steps of padding before it and H after it, so that windows may begin before it and end after it.
    A window is a row (series, origin): the index of its series, and the number of steps before its future.
    """

    def __init__(
        self,
        series: Sequence[Series],
        scalers: Sequence[SeriesScaler],
        covariates: CovariateScaler,
        lookback: int,
        horizon: int,
        future_exog: Sequence[Array] | None = None,  # (H, F) each, after the last step
    ) -> None:
        self.series, self.scalers = tuple(series), tuple(scalers)
        self.lookback, self.horizon, self.channels = lookback, horizon, series[0].values.shape[1]
        self.lengths = torch.tensor([len(single.values) for single in series])
        padding = lookback + horizon
        ends = torch.cumsum(self.lengths + padding, 0)
        self._starts = ends - self.lengths - padding  # of the padding before each series
        total = int(ends[-1])
        self._values = torch.zeros(total, self.channels)
        self._observed = torch.zeros(total, self.channels)
        self._begun = torch.zeros(total, 1, dtype=torch.bool)
        self._past_exog = torch.zeros(total, series[0].past.shape[1])
        self._future_exog = torch.zeros(total, series[0].future.shape[1])
        self._static = torch.from_numpy(
            np.stack([covariates.transform("static", single.static) for single in series])
        ).float()
        for index, (single, scaler) in enumerate(zip(series, scalers, strict=True)):
            first = int(self._starts[index]) + lookback
            rows = slice(first, first + len(single.values))
            self._values[rows] = torch.from_numpy(scaler.transform(single)).float()
            self._observed[rows] = torch.from_numpy(single.observed).float()
            self._begun[rows] = True
            self._past_exog[rows] = torch.from_numpy(covariates.transform("past", single.past)).float()
            future = single.future if future_exog is None else np.concatenate([single.future, future_exog[index]])
            scaled = torch.from_numpy(covariates.transform("future", future)).float()
            self._future_exog[first : first + len(future)] = scaled
        self._local: Tensor | None = None  # (steps, C, size)
        self._cycles = torch.zeros(0, self.channels)  # what local models do without
        self._first = [0] * len(series)  # the first origin of each at which the states of local models are known

    def with_local(self, states: Sequence[Tensor]) -> WindowDataset:
        """Return the dataset with the states (T, C, size) of local models after the last T steps of each series."""
        dataset, total = copy.copy(self), len(self._values)
        dataset._local = torch.zeros(total, *states[0].shape[1:])
        dataset._cycles = torch.zeros(total, self.channels)
        dataset._first = [len(single) - len(own) + 1 for single, own in zip(self.series, states, strict=True)]
        for index, (single, scaler, own) in enumerate(zip(self.series, self.scalers, states, strict=True)):
            first = int(self._starts[index]) + self.lookback
            end, steps = first + len(single), len(own) + self.horizon
            dataset._local[end - len(own) : end] = own
            cycles = scaler.cycles_of(single.end - len(own), steps)
            dataset._cycles[end - len(own) : end + self.horizon] = torch.from_numpy(cycles)
        return dataset

    @property
    def last(self) -> Tensor:
        """The windows at the ends of all series."""
        return torch.stack([torch.arange(len(self.series)), self.lengths], -1)

    def mean_changes(self, ends: Sequence[int]) -> Tensor:
        """Return the mean absolute changes (series, C) from step to step before `ends`, at the scale of the network.

        NaN where a single value has none.
        """
        total = nn.functional.pad(self._values.double().diff(dim=0).abs().cumsum(0), (0, 0, 1, 0))
        first, steps = self._starts + self.lookback, (torch.tensor(ends) - 1).clamp(min=0)
        return ((total[first + steps] - total[first]) / steps[:, None]).float()

    def origins(self, windows: Tensor) -> NDArray[np.int64]:
        """Return the index of the series of each window, and the grid position where its future begins, (N, 2)."""
        origins: NDArray[np.int64] = windows.numpy().copy()
        origins[:, 1] += np.array([single.position for single in self.series])[origins[:, 0]]
        return origins

    def windows(self, begin: Sequence[int], end: Sequence[int]) -> Tensor:
        """Return all windows (N, 2) of each series with an origin in [begin, end)."""
        limits = enumerate(zip(begin, end, strict=True))
        return torch.cat([self.windows_of(index, first, last) for index, (first, last) in limits])

    def windows_of(self, index: int, begin: int, end: int) -> Tensor:
        """Return the windows (N, 2) of one series, as far as the states of its local models are known."""
        begin = max(begin, self._first[index])
        origins = torch.arange(begin, max(begin, end))
        return torch.stack([torch.full_like(origins, index), origins], -1)

    def with_target(self, windows: Tensor) -> Tensor:
        """Return the windows of whose future anything counts; see `Batch.weight`."""
        series, origin = windows.unbind(-1)
        now = self._starts[series] + origin + self.lookback
        is_fair = self._observed[now - 1].amin(-1) > 0
        count = nn.functional.pad(self._observed.sum(-1).cumsum(0), (1, 0))
        return windows[is_fair & (count[now + self.horizon] > count[now])]

    def batches(self, windows: Tensor) -> Iterator[Batch]:
        """Yield all windows, not too many at once."""
        return map(self.batch, windows.split(_MAX_BATCH))

    def batch(self, windows: Tensor) -> Batch:
        """Return windows (B, 2)."""
        series, origin = windows.unbind(-1)
        start = self._starts[series] + origin
        past, target = self._cut(self._values, start).split([self.lookback, self.horizon], 1)
        observed = self._cut(self._observed, start)[:, self.lookback - 1 :]
        is_full = bool((origin >= self.lookback).all())
        local, cycles = None, None
        if self._local is not None:
            local = self._local[start + self.lookback - 1]
            cycles = self._cut(self._cycles, start)[:, self.lookback :]
        return Batch(
            past=past,
            valid=None if is_full else self._cut(self._begun, start)[:, : self.lookback, 0],
            target=target,
            # What fills a gap at the end of the past leads to values after it: such a window would know the future.
            weight=observed[:, 1:] * observed[:, :1].amin(-1, keepdim=True),
            past_exog=self._cut(self._past_exog, start)[:, : self.lookback],
            future_exog=self._cut(self._future_exog, start),
            static=self._static[series],
            local=local,
            cycles=cycles,
        )

    def _cut(self, table: Tensor, start: Tensor) -> Tensor:
        """Return windows (B, L + H, columns) of a long table, cut by whole rows of a view of it."""
        if not table.shape[1]:
            return table.new_zeros(len(start), self.lookback + self.horizon, 0)
        every = table.unfold(0, self.lookback + self.horizon, 1)  # (starts, columns, L + H)
        return every.index_select(0, start).transpose(1, 2)


def observed_mean(past: Tensor, valid: Tensor | None) -> Tensor:
    """Return the mean over time (B, 1, C) of windows (B, L, C) where they are valid."""
    weight = torch.ones_like(past) if valid is None else valid[..., None].expand_as(past).to(past)
    return (past * weight).sum(1, keepdim=True) / weight.sum(1, keepdim=True).clamp(min=1)


def _integer_valued(values: Array) -> Array:
    """Return for each column 1 if it holds whole numbers that vary, such as sales, else 0.

    An interval that misses a common value by a hair would miss all of these at once.
    """
    is_whole = np.isnan(values) | (values == np.round(values))
    varies = np.nanmin(values, axis=0) < np.nanmax(values, axis=0)
    return np.asarray(is_whole.all(axis=0) & varies, dtype=np.float64)


def _mean_and_scale(table: Array) -> tuple[Array, Array]:
    """Return mean and deviation of each column without its gaps; what only varies by rounding has a scale of one."""
    scale = np.nanstd(table, axis=0)
    tiny = 1e-9 * np.nanmax(abs(table), axis=0)
    return np.nanmean(table, axis=0), np.where(scale > tiny, scale, 1.0)

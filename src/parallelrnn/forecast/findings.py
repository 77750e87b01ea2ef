"""What the data show: trends, calendar cycles, cycles and decays that noise would not show, each with its doubt.

The search is a likelihood-ratio test at every step: a series is noise, a level that may wander and a decay, until a
trend, a calendar cycle or a wave explains it better than such noise does in one of a hundred series. All estimates come
from the exact likelihood of the whole series, so that they do not depend on the look-back of a forecaster.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parallelrnn.classical.structural import Block, Filtered, Parameters, Structural, covariance, maximize
from parallelrnn.forecast.data import Array, Series
from parallelrnn.forecast.seasonality import harmonics

LEVEL = 0.9  # of all intervals
_ALPHA = 0.01  # of false alarms, for each of trends, calendar cycles and waves
_LEAST_TURNS = 3  # of a wave, that the data must hold
_VISIBLE = 0.15  # half-life over period, below which a wave is a decay to the eye: 1 % is left after a turn
_MAX_BLOCKS = 6  # waves and calendar cycles that are looked for
_STARTS = 2  # waves that are tried at a time
_LEAST_GAIN = 3.0  # of log likelihood, as the spectrum has it, for a wave to be tried
_BACKGROUNDS = tuple(  # a level that wanders, and a decay, to start from
    (Block(variance=level, rate=0.0, angle=0.0), Block(variance=decay, rate=rate, angle=0.0))
    for level, decay, rate in ((1e-4, 1.0, 0.3), (1.0, 0.1, 1.0))
)
_MAX_STEPS = 12_000  # of a panel, that findings are read from
_MIN_STEPS = 20  # of a series, that anything can be found in
_WIDTHS = (1, 2, 4, 8, 16, 32, 64, 128)  # of lines, in frequencies that a series can tell apart
_PROFILE_POINTS = 6  # bisections of a limit of a half-life


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A number between the limits of its 90 % interval; NaN if the data do not determine it."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A trend, calendar cycle, cycle, level or decay that the data show."""

    kind: str
    period: Estimate
    half_life: Estimate
    share_forecast: Estimate
    share_series: Estimate


class Search:
    """The search for findings in series (T,) that share their dynamics, NaN where nothing was observed."""

    def __init__(self, series: Sequence[Array], positions: Sequence[int], periods: Sequence[float]) -> None:
        self.series, self.positions = list(series), list(positions)
        self.steps = max(map(len, series))
        candidates = [period for period in periods if _LEAST_TURNS * period <= self.steps]
        self.calendar: tuple[float, ...] = ()
        self.waves: list[int] = []  # the blocks that are findings
        self.model = self._model(())
        self.fit = max((self._refit(self.model, start)[0] for start in _BACKGROUNDS), key=lambda fit: fit.log_likelihood)
        for _ in range(_MAX_BLOCKS):
            wave, chance = self._best_wave()
            calendar = {period: self._with_calendar(period) for period in candidates if period not in self.calendar}
            best = min(calendar, key=lambda period: calendar[period][1], default=None)
            if best is not None and calendar[best][1] * len(candidates) < min(_ALPHA, max(chance, 1e-300)):
                self.calendar = tuple(sorted((*self.calendar, best)))
                self.model, self.fit = self._model(self.calendar), calendar[best][0]
            elif chance < _ALPHA:
                if self._is_visible(wave):
                    self.waves.append(len(wave.blocks) - 1)
                self.fit = wave
            else:
                break

    def _model(self, calendar: Sequence[float]) -> Structural:
        """Return the likelihood with a level, a trend and the lines of these periods as regressors."""
        lines = {p: harmonics(p, [q for q in calendar if q < p], self.steps) for p in sorted(calendar)}
        regressors = []
        for values, position in zip(self.series, self.positions, strict=True):
            time = np.linspace(-1, 1, len(values))
            columns = [np.ones_like(time), time]
            for period, k in ((period, k) for period, ks in lines.items() for k in ks):
                turns = 2 * math.pi * k / period * (position + np.arange(len(values)))
                columns += [np.cos(turns), np.sin(turns)][: 1 if 2 * k == period else 2]
            regressors.append(np.column_stack(columns))
        return Structural(self.series, regressors)

    def _refit(self, model: Structural, blocks: Sequence[Block], **options: Any) -> tuple[Filtered, Array]:
        return maximize(model, Parameters(blocks, self.steps, **options))

    def _with_calendar(self, period: float) -> tuple[Filtered, float]:
        """Return a fit with one more calendar cycle, and the chance that noise has effects as large as its lines."""
        from scipy.stats import f

        model = self._model(sorted((*self.calendar, period)))
        fit, _ = self._refit(model, self.fit.blocks)
        lines = {p: harmonics(p, [q for q in model_periods if q < p], self.steps) for p in model_periods} if (model_periods := sorted((*self.calendar, period))) else {}
        start = 2
        for own in model_periods:
            stop = start + sum(1 if 2 * k == own else 2 for k in lines[own])
            if own == period:
                break
            start = stop
        statistic = 0.0
        for effects, spread in zip(fit.effects[:, start:stop], fit.effect_covariance[:, start:stop, start:stop], strict=True):
            statistic += float(effects @ np.linalg.solve(spread, effects))
        count = (stop - start) * len(self.series)
        freedom = model.counts.sum() - model.effects * len(self.series) - len(fit.blocks)
        return fit, float(f.sf(statistic / count, count, max(1.0, freedom)))

    def _best_wave(self) -> tuple[Filtered, float]:
        """Return the fit with the most likely further wave, and the chance that noise has one as likely."""
        fits = [self._refit(self.model, (*self.fit.blocks, block))[0] for block in self._candidates()]
        best = max(fits, key=lambda fit: fit.log_likelihood, default=self.fit)
        gain = best.log_likelihood - self.fit.log_likelihood
        return best, self.steps / 2 * math.exp(-min(gain, 700.0))

    def _candidates(self) -> list[Block]:
        """Return waves to start from, where the spectrum is highest above that of the fit."""
        size = 1 << (2 * self.steps - 1).bit_length()
        angles = 2 * math.pi * np.arange(size // 2 + 1) / size
        density = self.fit.spectrum(np.maximum(angles, 1e-9))
        edges = np.cumsum(self.model.lengths)[:-1]
        parts = np.split(self.fit.residuals, edges)
        ratio = np.mean([abs(np.fft.rfft(part, size)) ** 2 / len(part) for part in parts], axis=0) * density
        lowest = int(_LEAST_TURNS * size / self.steps)
        ratio[:lowest] = 0.0
        sums = np.concatenate([[0.0], np.cumsum(ratio)])
        per_line = size / self.steps  # frequencies of the transform for each that the series can tell apart
        found: list[tuple[float, int, float, float]] = []
        for width in _WIDTHS:
            points = max(1, round(width * per_line))
            if points > len(ratio) // 4:
                break
            means = (sums[points:] - sums[:-points]) / points
            gains = np.where(means > 1, width * len(parts) * (means - 1 - np.log(np.maximum(means, 1.0))), 0.0)
            best = int(gains.argmax())
            found.append((float(gains[best]), best + points // 2, float(means[best]), width))
        found.sort(reverse=True)
        blocks: list[Block] = []
        for gain, place, mean, width in found:
            angle = float(angles[min(max(place, lowest), len(angles) - 2)])
            if gain > _LEAST_GAIN and len(blocks) < _STARTS and all(abs(angle - b.angle) > 0.02 * angle or width > 2 * self.steps * b.rate for b in blocks):
                variance = max(1e-3, 2 * (mean - 1) * width / self.steps * float(density[place]))
                blocks.append(Block(variance=variance, rate=max(width, 0.1) / self.steps, angle=angle))
        return blocks

    def _is_visible(self, fit: Filtered) -> bool:
        """Return whether the last wave of a fit is likelier than any that fades within a turn."""
        last = len(fit.blocks) - 1
        wave = fit.blocks[last]
        if math.log(2) / wave.rate < _VISIBLE * 2 * math.pi / wave.angle:
            return False
        faded = self._refit(self.model, fit.blocks, fastest_ratio={last: _VISIBLE})[0]
        return fit.log_likelihood - faded.log_likelihood > math.log(1 / _ALPHA)

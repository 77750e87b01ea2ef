"""The search for what series show: trends, calendar cycles and waves that noise would not show.

It is a likelihood-ratio test at every step: a series is noise, a level that may wander and a decay, until a calendar
cycle or a wave explains it better than such noise does in one of a hundred series.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from parallelrnn.classical.structural import Block, Filtered, Parameters, Structural, maximize
from parallelrnn.forecast.data import Array
from parallelrnn.forecast.seasonality import harmonics
from parallelrnn.forecast.shares import SLOW, Part

_ALPHA = 0.01  # of false alarms among waves
_ALPHA_CALENDAR = 0.005  # among calendar cycles
_TREND_GAIN = (0.8, 3.7)  # in log likelihood: of levels that wander on average, and beyond which few of them come
_LEAST_TURNS = 3  # of a wave, that the data must hold
_VISIBLE = 0.15  # half-life over period, below which a wave is a decay to the eye: 1 % is left after a turn
_SHORT_MEMORY = 3.0  # steps; waves of shorter half-lives stand for moving averages and the like
_SHARP = 8  # a wave whose angle is known to one in so many: else anything would look like its harmonic
_MAX_BLOCKS = 5  # waves and calendar cycles that are looked for
_MAX_HIDDEN = 2  # waves that stand for short memory; what takes more has a memory that waves do not describe
_STARTS = 2  # waves that are tried at a time
_MUCH_SIGNAL = 10.0  # variance of blocks relative to the noise, above which there may be too little of it
_FIRST_STEPS = 12  # of a search from each start, of which the best goes on
_WORTH_A_FIT = 0.1  # chance above which a calendar cycle is not looked at more closely
_LEAST_GAIN = 0.5  # as the spectrum has it, for a wave to be tried; relative to what a wave must gain
_BACKGROUNDS = tuple(  # a level that wanders, and a decay, to start from
    (Block(variance=level, rate=0.0, angle=0.0), Block(variance=decay, rate=rate, angle=0.0))
    for level, decay, rate in ((1e-4, 1.0, 0.3), (1e-4, 10.0, 0.1), (1.0, 0.1, 1.0))
)
_WIDTHS = (1, 2, 4, 8, 16, 32, 64, 128)  # of lines, in frequencies that a series can tell apart


class Search:
    """The search for findings in series (T,) that share their dynamics, NaN where nothing was observed."""

    def __init__(self, series: Sequence[Array], positions: Sequence[int], periods: Sequence[float]) -> None:
        self.series, self.positions = list(series), list(positions)
        self.steps = max(map(len, series))
        self.shortest = min(map(len, series))
        candidates = [period for period in periods if _LEAST_TURNS * period <= self.shortest]
        self.calendar: tuple[float, ...] = ()
        self.waves: list[int] = []  # the blocks that are findings
        self.model = self.model_of(())
        self.fit = max(
            (self._refit(self.model, start)[0] for start in _BACKGROUNDS), key=lambda fit: fit.log_likelihood
        )
        hidden = 0
        for _ in range(_MAX_BLOCKS):
            wave, chance = self._best_wave()
            calendar = {period: self._with_calendar(period) for period in candidates if period not in self.calendar}
            best = min(calendar, key=lambda period: calendar[period][1], default=None)
            if best is not None and calendar[best][1] * len(candidates) < min(_ALPHA_CALENDAR, max(chance, 1e-300)):
                self.calendar = tuple(sorted((*self.calendar, best)))
                self.model = calendar[best][0].without_regressors(2)
                self.fit = Filtered(self.model, calendar[best][0].blocks)
                self._drop_waves_of_calendar()
            elif chance < _ALPHA and hidden < _MAX_HIDDEN:
                is_cycle = self._is_visible(wave)
                if is_cycle and not self._is_of_calendar(wave.blocks[-1]):
                    self.waves.append(len(wave.blocks) - 1)
                hidden += not is_cycle
                self.fit = wave
            else:
                break
        self.has_trend = self._trend_gain() > _TREND_GAIN[0] + _TREND_GAIN[1] / math.sqrt(len(self.series))

    def model_of(self, calendar: Sequence[float]) -> Structural:
        """Return the likelihood with a level, a trend and the lines of these periods as regressors."""
        lines = self._lines(calendar)
        regressors = []
        for values, position in zip(self.series, self.positions, strict=True):
            time = np.linspace(-1, 1, len(values))
            columns = [np.ones_like(time), time]
            for period, k in ((period, k) for period, ks in lines.items() for k in ks):
                turns = 2 * math.pi * k / period * (position + np.arange(len(values)))
                columns += [np.cos(turns), np.sin(turns)][: 1 if 2 * k == period else 2]
            regressors.append(np.column_stack(columns))
        return Structural(self.series, regressors)

    def _lines(self, calendar: Sequence[float]) -> dict[float, list[int]]:
        return {p: harmonics(p, [q for q in calendar if q < p], self.shortest) for p in sorted(calendar)}

    def columns_of(self, calendar: Sequence[float], period: float) -> slice:
        """Return which regressors are the lines of a period."""
        start = 2
        for own, ks in self._lines(calendar).items():
            stop = start + sum(1 if 2 * k == own else 2 for k in ks)
            if own == period:
                return slice(start, stop)
            start = stop
        raise LookupError(period)

    def _refit(self, model: Structural, blocks: Sequence[Block], **options: Any) -> tuple[Filtered, Array]:
        return maximize(model, Parameters(blocks, self.steps, **options))

    def _with_calendar(self, period: float) -> tuple[Filtered, float]:
        """Return a fit with one more calendar cycle, and the chance that noise has effects as large as its lines."""
        from scipy.stats import f

        calendar = (*self.calendar, period)
        model, columns = self.model_of(calendar), self.columns_of(calendar, period)
        count = (columns.stop - columns.start) * len(self.series)
        freedom = model.counts.sum() - model.effects * len(self.series) - len(self.fit.blocks)

        def chance(fit: Filtered) -> float:
            return float(f.sf(_wald(fit, columns) / count, count, max(1.0, freedom)))

        fit = Filtered(model, self.fit.blocks)
        if chance(fit) < _WORTH_A_FIT:
            # Blocks hardly depend on the exact effects of the many regressors, which take long to fit with them.
            fit = Filtered(model, self._refit(fit.without_regressors(2), fit.blocks)[0].blocks)
        return fit, chance(fit)

    def _is_of_calendar(self, wave: Block) -> bool:
        """Return whether the series cannot tell a wave from a line of a calendar cycle, which may vary."""
        return wave.size == 2 and any(self.is_of(period, wave) for period in self.calendar)

    def is_of(self, period: float, wave: Block) -> bool:
        """Return whether a wave is a line of this calendar cycle, as it varies: the series cannot tell them apart."""
        lines = [2 * math.pi * k / period for k in self._lines(self.calendar)[period]]
        return any(abs(wave.angle - line) <= max(2 * math.pi / self.steps, 2 * wave.rate) for line in lines)

    def _drop_waves_of_calendar(self) -> None:
        """Remove waves that stood for a calendar cycle until it was there."""
        blocks = self.fit.blocks
        left = [index for index, block in enumerate(blocks) if not self._is_of_calendar(block)]
        if len(left) < len(blocks):
            self.waves = [left.index(index) for index in self.waves if index in left]
            self.fit, _ = self._refit(self.model, [blocks[index] for index in left])

    def _best_wave(self) -> tuple[Filtered, float]:
        """Return the fit with the most likely further wave, and the chance that noise has one as likely."""
        starts = [(*self.fit.blocks, block) for block in self._candidates()]
        if any(block.variance > _MUCH_SIGNAL for block in self.fit.blocks):  # a decay may stand for the noise
            starts += [_with_noise(blocks) for blocks in starts]
        fits = [maximize(self.model, Parameters(blocks, self.steps), iterations=_FIRST_STEPS)[0] for blocks in starts]
        best = max(fits, key=lambda fit: fit.log_likelihood, default=self.fit)
        if best is not self.fit:
            best, _ = self._refit(self.model, best.blocks)
            if any(block.variance > _MUCH_SIGNAL for block in best.blocks):  # a wave may stand for the noise, too
                other, _ = self._refit(self.model, _with_noise(best.blocks))
                best = max(best, other, key=lambda fit: fit.log_likelihood)
            # What the wave taught its neighbours is no merit of the wave.
            without, _ = self._refit(self.model, best.blocks[:-1])
            self.fit = max(self.fit, without, key=lambda fit: fit.log_likelihood)
        gain = best.log_likelihood - self.fit.log_likelihood
        return best, self.steps / 2 * math.exp(-min(max(gain, 0.0), 700.0))

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
            found.append((float(gains[best]), best + points // 2, float(means[best]), float(width)))
        found.sort(reverse=True)
        least = _LEAST_GAIN * math.log(self.steps / 2 / _ALPHA)
        blocks: list[Block] = []
        for gain, place, mean, lines in found:
            angle, rate = float(angles[min(max(place, lowest), len(angles) - 2)]), lines / self.steps
            is_new = all(abs(angle - block.angle) > 0.02 * angle or rate > 2 * block.rate for block in blocks)
            if gain > least and len(blocks) < _STARTS and is_new:
                variance = max(1e-3, 2 * (mean - 1) * rate * float(density[place]))
                blocks.append(Block(variance=variance, rate=rate, angle=angle))
        return blocks

    def _is_visible(self, fit: Filtered) -> bool:
        """Return whether the last wave of a fit turns a few times, and is likelier than all that fade within a turn."""
        wave = fit.blocks[-1]
        if wave.rate >= _faded_rate(wave.angle) or wave.angle * self.steps < 2 * math.pi * _LEAST_TURNS:
            return False
        faded, _ = self._refit(self.model, fit.blocks, least_rate=_faded_rate)
        return fit.log_likelihood - faded.log_likelihood > math.log(1 / _ALPHA)

    def _trend_gain(self) -> float:
        """Return how much likelier series are with a trend than with a level that wanders as far, for each series."""
        model = self.model.with_table(self.model.table[:, :2])
        wandering = [*_BACKGROUNDS[-1], *self.fit.blocks[2:]]
        without = [self._refit(model, blocks)[0].profile_likelihood for blocks in (self.fit.blocks, wandering)]
        return (self.fit.profile_likelihood - max(without)) / len(self.series)

    def cycles(self) -> list[tuple[int, ...]]:
        """Return the waves that are findings, the slowest first, each with those that are its harmonics."""
        cycles: list[tuple[int, ...]] = []
        for wave in sorted(self.waves, key=lambda index: self.fit.blocks[index].angle):
            base = next((own for own in cycles if self._is_harmonic(wave, own[0])), None)
            if base is None:
                cycles.append((wave,))
            else:
                cycles[cycles.index(base)] = (*base, wave)
        return cycles

    def _is_harmonic(self, wave: int, base: int) -> bool:
        """Return whether a wave turns a whole number of times in each turn of a slower one, as far as can be told."""
        blocks = self.fit.blocks[wave], self.fit.blocks[base]
        doubt = max(2 * math.pi / self.steps, *(2 * block.rate for block in blocks))
        turns = self.turns_of(wave, base)
        is_sharp = doubt < blocks[1].angle / _SHARP
        return turns > 1 and is_sharp and abs(blocks[0].angle - turns * blocks[1].angle) <= doubt

    def turns_of(self, wave: int, base: int) -> int:
        """Return how often a wave turns in one turn of another."""
        return round(self.fit.blocks[wave].angle / self.fit.blocks[base].angle)

    def parts(self) -> list[Part]:
        """Return the parts of the trend and of calendar cycles, with the waves by which these vary."""
        parts = [Part(columns=slice(1, 2))] * self.has_trend
        blocks = list(enumerate(self.fit.blocks))
        for period in self.calendar:
            taken = {index for part in parts for index in part.blocks}
            own = [index for index, block in blocks if block.size == 2 and self.is_of(period, block)]
            varying = tuple(index for index in own if index not in taken and index not in self.waves)
            parts.append(Part(columns=self.columns_of(self.calendar, period), blocks=varying))
        return parts

    def rest(self) -> str:
        """Return what most of the series is without its findings, one of `RESTS`."""
        variances = self.fit.smoothed.var(axis=0) / float(self.fit.noise.mean())
        powers = {"noise": 1.0, "level": 0.0, "decay": 0.0}
        for index, (block, variance) in enumerate(zip(self.fit.blocks, variances, strict=True)):
            if index in self.waves or any(self.is_of(period, block) for period in self.calendar if block.size == 2):
                continue
            is_level = block.rate * self.steps < SLOW and block.angle == 0
            is_memory = block.rate <= math.log(2)  # of a step or more
            powers["level" if is_level else "decay" if is_memory else "noise"] += float(variance)
        return max(powers, key=lambda name: powers[name])

    def lines_of(self, period: float) -> list[int]:
        """Return the harmonics of a calendar cycle."""
        return self._lines(self.calendar)[period]


def _faded_rate(angle: float) -> float:
    """Return the rate from which on a wave of this angle is short memory, not a cycle."""
    return math.log(2) / max(_VISIBLE * 2 * math.pi / angle, _SHORT_MEMORY)


def _with_noise(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """Return blocks with variances that leave some noise, from where a search finds its way."""
    scale = max(1.0, sum(block.variance for block in blocks) / _MUCH_SIGNAL)
    return tuple(replace(block, variance=max(block.variance / scale, 1e-6)) for block in blocks)


def _wald(fit: Filtered, columns: slice) -> float:
    """Return the sum over series of the squared effects of some regressors, relative to their covariance."""
    effects, spread = fit.effects[:, columns, None], fit.effect_covariance[:, columns, columns]
    return float((effects * np.linalg.solve(spread, effects)).sum())

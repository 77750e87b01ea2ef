"""What the data show: trends, calendar cycles, cycles and decays that noise would not show, each with its doubt.

The search is a likelihood-ratio test at every step: a series is noise, a level that may wander and a decay, until a
trend, a calendar cycle or a wave explains it better than such noise does in one of a hundred series. All estimates come
from the exact likelihood of the whole series, so that they do not depend on the look-back of a forecaster.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from parallelrnn.classical.structural import Block, Filtered, Parameters, Structural, covariance, maximize
from parallelrnn.forecast.data import Array, Series
from parallelrnn.forecast.seasonality import harmonics
from parallelrnn.forecast.state import ForecasterState
from parallelrnn.interpret.findings import LEVEL, Finding, Findings
from parallelrnn.interpret.uncertainty import Interval

_ALPHA = 0.01  # of false alarms among waves
_ALPHA_CALENDAR = 0.005  # among calendar cycles
_ALPHA_TREND = 0.002  # among trends; a level that wanders drifts more often than its likelihood has it
_LEAST_TURNS = 3  # of a wave, that the data must hold
_VISIBLE = 0.15  # half-life over period, below which a wave is a decay to the eye: 1 % is left after a turn
_SHORT_MEMORY = 3.0  # steps; waves of shorter half-lives stand for moving averages and the like
_MAX_BLOCKS = 5  # waves and calendar cycles that are looked for
_STARTS = 2  # waves that are tried at a time
_MUCH_SIGNAL = 10.0  # variance of blocks relative to the noise, above which there may be too little of it
_LEAST_GAIN = 0.5  # as the spectrum has it, for a wave to be tried; relative to what a wave must gain
_BACKGROUNDS = tuple(  # a level that wanders, and a decay, to start from
    (Block(variance=level, rate=0.0, angle=0.0), Block(variance=decay, rate=rate, angle=0.0))
    for level, decay, rate in ((1e-4, 1.0, 0.3), (1.0, 0.1, 1.0))
)
_MAX_STEPS = 12_000  # of a panel, that findings are read from
_MAX_SERIES = 40  # of a panel, that findings are read from
_MAX_FILTERED = 4000  # steps that shares are measured on
_STRETCHES = 20  # of origins, that the limits of a share are measured by
_RIDGE = 1e-6  # keeps shapes apart that the horizon hardly can
_HORIZON_POINTS = 12  # steps ahead that shares are measured at
_MIN_STEPS = 20  # of a series, that anything can be found in
_WIDTHS = (1, 2, 4, 8, 16, 32, 64, 128)  # of lines, in frequencies that a series can tell apart
_HALF_WIDTH = 1.6449  # of a 90 % interval of a normal distribution, in deviations
_PROFILE_POINTS = 6  # bisections of a limit of a half-life
_PROFILE_STEP = 1.0  # of a log half-life, by which its limits are looked for
_PROFILE_ITERATIONS = 8
_ENDLESS = 10  # lengths of the series; longer half-lives are not told from endless ones


class Search:
    """The search for findings in series (T,) that share their dynamics, NaN where nothing was observed."""

    def __init__(self, series: Sequence[Array], positions: Sequence[int], periods: Sequence[float]) -> None:
        self.series, self.positions = list(series), list(positions)
        self.steps = max(map(len, series))
        candidates = [period for period in periods if _LEAST_TURNS * period <= self.steps]
        self.calendar: tuple[float, ...] = ()
        self.waves: list[int] = []  # the blocks that are findings
        self.model = self._model(())
        self.fit = max(
            (self._refit(self.model, start)[0] for start in _BACKGROUNDS), key=lambda fit: fit.log_likelihood
        )
        for _ in range(_MAX_BLOCKS):
            wave, chance = self._best_wave()
            calendar = {period: self._with_calendar(period) for period in candidates if period not in self.calendar}
            best = min(calendar, key=lambda period: calendar[period][1], default=None)
            if best is not None and calendar[best][1] * len(candidates) < min(_ALPHA_CALENDAR, max(chance, 1e-300)):
                self.calendar = tuple(sorted((*self.calendar, best)))
                self.model, self.fit = self._model(self.calendar), calendar[best][0]
                self._drop_waves_of_calendar()
            elif chance < _ALPHA:
                if not self._is_of_calendar(wave.blocks[-1]) and self._is_visible(wave):
                    self.waves.append(len(wave.blocks) - 1)
                self.fit = wave
            else:
                break

    def _model(self, calendar: Sequence[float]) -> Structural:
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
        return {p: harmonics(p, [q for q in calendar if q < p], self.steps) for p in sorted(calendar)}

    def _columns(self, calendar: Sequence[float], period: float) -> slice:
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
        model, columns = self._model(calendar), self._columns(calendar, period)
        fit, _ = self._refit(model, self.fit.blocks)
        statistic = _wald(fit, columns)
        count = (columns.stop - columns.start) * len(self.series)
        freedom = model.counts.sum() - model.effects * len(self.series) - len(fit.blocks)
        return fit, float(f.sf(statistic / count, count, max(1.0, freedom)))

    def _is_of_calendar(self, wave: Block) -> bool:
        """Return whether the series cannot tell a wave from a line of a calendar cycle, which may vary."""
        return wave.size == 2 and any(self._is_of(period, wave) for period in self.calendar)

    def _is_of(self, period: float, wave: Block) -> bool:
        lines = [2 * math.pi * k / period for k in self._lines(self.calendar)[period]]
        return any(abs(wave.angle - line) * self.steps <= 2 * math.pi for line in lines)

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
        fits = [self._refit(self.model, blocks)[0] for blocks in starts]
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
        """Return whether the last wave of a fit is likelier than any that fades within a turn."""
        wave = fit.blocks[-1]
        if wave.rate >= _faded_rate(wave.angle):
            return False
        faded, _ = self._refit(self.model, fit.blocks, least_rate=_faded_rate)
        return fit.log_likelihood - faded.log_likelihood > math.log(1 / _ALPHA)

    def trend_chance(self) -> float:
        """Return the chance that noise drifts as far."""
        from scipy.stats import chi2

        return float(chi2.sf(_wald(self.fit, slice(1, 2)), len(self.series)))

    def half_life(self, block: int) -> Interval:
        """Return the half-life of a wave or decay and its limits, by the profile of the likelihood."""
        parameters = Parameters(self.fit.blocks, self.steps)
        place = parameters.places.index((block, "rate"))
        fitted, fastest = parameters.start[place], parameters.bounds[place][1]
        slowest = math.log(math.log(2) / (_ENDLESS * self.steps))
        least = self.fit.log_likelihood - _HALF_WIDTH**2 / 2

        def is_likely(rate: float) -> bool:
            profile, _ = maximize(self.model, parameters, {place: rate}, _PROFILE_ITERATIONS)
            return profile.log_likelihood > least

        def limit(step: float, end: float) -> float:
            inside, outside = fitted, fitted + step
            while abs(outside - fitted) < abs(end - fitted) and is_likely(outside):
                inside, outside = outside, outside + step
            for _ in range(_PROFILE_POINTS):
                middle = (inside + outside) / 2
                inside, outside = (middle, outside) if is_likely(middle) else (inside, middle)
            return math.log(2) / math.exp((inside + outside) / 2)

        low = limit(_PROFILE_STEP, fastest)
        if fitted <= slowest or is_likely(slowest):
            return Interval(math.nan, low, math.inf)
        return Interval(math.log(2) / math.exp(fitted), low, limit(-_PROFILE_STEP, slowest))

    def periods_of_waves(self) -> dict[int, Interval]:
        """Return the periods of all waves and their limits, by the curvature of the likelihood."""
        parameters = Parameters(self.fit.blocks, self.steps)
        vector = parameters.start
        deviations = np.sqrt(covariance(self.model, parameters, vector).diagonal())
        periods = {}
        for block in self.waves:
            place = parameters.places.index((block, "angle"))
            turns, width = vector[place], _HALF_WIDTH * deviations[place]
            low, high = self.steps / (turns + width), self.steps / max(turns - width, 1e-9)
            periods[block] = Interval(self.steps / turns, low, high)
        return periods

    def lines_of(self, period: float) -> list[int]:
        """Return the harmonics of a calendar cycle."""
        return self._lines(self.calendar)[period]

    def shares(self, horizon: int, has_trend: bool) -> list[Interval]:
        """Return how much of the variation of the series each finding explains in forecasts of `horizon` steps.

        The trend first, then calendar cycles, then waves. With y the series about its mean, f the forecasts and p a
        finding's part of them, it is (2 <p, y> - <p, f>) / <y, y>: these sum to 1 - <y - f, y - f> / <y, y>.
        """
        columns = [slice(1, 2)] * has_trend + [self._columns(self.calendar, period) for period in self.calendar]
        blocks = self.fit.blocks
        varying: list[list[int]] = [[]] * has_trend  # waves by which a calendar cycle changes
        for period in self.calendar:
            taken = [index for own in varying for index in own]
            own = [i for i, block in enumerate(blocks) if block.size == 2 and self._is_of(period, block)]
            varying.append([index for index in own if index not in taken])
        assigned = [*self.waves, *(index for own in varying for index in own)]
        others = [index for index in range(len(blocks)) if index not in assigned]
        explained: list[list[Array]] = []
        power: list[Array] = []
        for index, states in enumerate(self.fit.filtered_states(_MAX_FILTERED)):
            rows = self.model.rows(index)
            y, x = self.model.table[rows, 0], self.model.table[rows, 1:]
            observed = self.model.observed[rows]
            y = np.where(observed, y - y[observed].mean(), 0.0)
            effects = self.fit.effects[index]
            fixed = [x[:, own] @ effects[own] for own in columns]
            fixed = [part - part.mean() for part in fixed]
            first, products, squares = len(y) // 5, [], []
            ahead_of = self.fit.powers(horizon)  # (H, blocks, units)
            for h in _thin(horizon):
                now, later = slice(first, len(y) - h), slice(first + h, len(y))
                each = (states[now] * ahead_of[h - 1]).sum(-1).T  # (blocks, n)
                parts = [part[later] + each[own].sum(0) for part, own in zip(fixed, varying, strict=True)]
                parts += [each[block] for block in self.waves]
                rest = [each[block] for block in others]
                seen = observed[later]
                forecast = np.sum([*parts, *rest, np.zeros_like(y[later])], axis=0) * seen
                pad = np.zeros(h - 1)
                products.append([np.r_[(2 * y[later] - forecast) * part * seen, pad] for part in parts])
                squares.append(np.r_[y[later] ** 2, pad])
            size = min(map(len, squares))
            explained.append([sum(row[i][:size] for row in products) for i in range(len(products[0]))])
            power.append(sum(row[:size] for row in squares))
        total = np.concatenate(power)
        return [_ratio(np.concatenate(own), total) for own in zip(*explained, strict=True)]


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


def read_findings(state: ForecasterState, series: Sequence[Series]) -> Findings:
    """Return what series show, and how much of that the forecasts of a fitted state contain."""
    found = find(series, state.periods, state.horizon)
    dataset, origins = state.dataset(series), state.sample_origins
    windows = torch.from_numpy(origins - np.array([(0, series[index].position) for index in origins[:, 0]]))
    forecasts = state.forecast(dataset, windows)[0]["yhat"]  # (N, H, C)
    ahead = np.arange(state.horizon)
    actual, scaled = np.full_like(forecasts, np.nan), np.zeros_like(forecasts)
    for row, (index, start) in enumerate(windows.tolist()):
        own, scaler = series[index], state.scalers[index]
        seen = ahead[start + ahead < len(own)]
        values = np.where(own.observed[start + seen], own.values[start + seen], np.nan)
        actual[row, seen] = (values - scaler.mean) / scaler.scale
        scaled[row] = (forecasts[row] - scaler.mean) / scaler.scale
    squares = np.nansum(actual**2)
    explained = float(1 - np.nansum((actual - scaled) ** 2) / squares) if squares > 0 else math.nan
    flat = scaled.transpose(0, 2, 1).reshape(-1, state.horizon)
    shares = forecast_shares(flat, [basis for _, basis in found])
    rows = tuple(replace(finding, share_forecast=share) for (finding, _), share in zip(found, shares, strict=True))
    count = sum(single.values.shape[1] for single in series)
    return Findings(rows=rows, explained=explained, time=state.grid.step, horizon=state.horizon, series=count)


def find(series: Sequence[Series], periods: Sequence[float], horizon: int) -> list[tuple[Finding, Array]]:
    """Return the findings of series, each with its shape over the horizon: a basis (H, 1 or more)."""
    columns = _recent_columns(series)
    if not columns:
        return []
    search = Search([values for values, _ in columns], [position for _, position in columns], periods)
    has_trend = search.trend_chance() < _ALPHA_TREND
    if not (search.waves or search.calendar or has_trend):
        return []
    kinds = ["trend"] * has_trend + ["calendar"] * len(search.calendar) + ["cycle"] * len(search.waves)
    unknown, never = Interval(math.nan, math.nan, math.nan), _exactly(math.inf)
    waves = search.periods_of_waves()
    of_period = [*[unknown] * has_trend, *map(_exactly, search.calendar), *waves.values()]
    of_half_life = [*[never] * (len(kinds) - len(waves)), *(search.half_life(block) for block in waves)]
    shares = search.shares(horizon, has_trend)
    ahead = np.arange(1.0, horizon + 1)
    findings = []
    for kind, period, half_life, share in zip(kinds, of_period, of_half_life, shares, strict=True):
        rate = 0.0 if kind != "cycle" or math.isnan(half_life.estimate) else math.log(2) / half_life.estimate
        ks = search.lines_of(period.estimate) if kind == "calendar" else [1]
        basis = [ahead] if kind == "trend" else []
        if kind != "trend":
            turns = [2 * math.pi * k / period.estimate * ahead for k in ks]
            basis = [np.exp(-rate * ahead) * wave(turn) for turn in turns for wave in (np.cos, np.sin)]
        finding = Finding(kind=kind, period=period, half_life=half_life, share_forecast=unknown, share_series=share)
        findings.append((finding, np.column_stack(basis)))
    return sorted(findings, key=lambda pair: -pair[0].share_series.estimate)


def _exactly(value: float) -> Interval:
    return Interval(value, value, value)


def _recent_columns(series: Sequence[Series]) -> list[tuple[Array, int]]:
    """Return channels of series at unit scale, NaN where not observed, and their positions: the ends of a sample."""
    columns = []
    total = sum(single.values.shape[1] for single in series)
    steps = max(_MIN_STEPS, _MAX_STEPS // total)
    longest = max(steps, _MAX_STEPS // _MAX_SERIES)
    every = max(1, total * longest // _MAX_STEPS)
    for index, (single, channel) in enumerate((s, c) for s in series for c in range(s.values.shape[1])):
        if index % every:
            continue
        values = np.where(single.observed[:, channel], single.values[:, channel], np.nan)[-longest:]
        seen = values[np.isfinite(values)]
        scale = seen.std() if len(seen) else 0.0
        if len(seen) >= _MIN_STEPS and scale > 1e-9 * abs(seen).max():
            columns.append(((values - seen.mean()) / scale, single.end - len(values)))
    return columns


def forecast_shares(forecasts: Array, bases: Sequence[Array]) -> list[Interval]:
    """Return the shares of findings in the movement of forecasts (N, H), on which their shapes are fitted."""
    moves = forecasts - forecasts.mean(axis=1, keepdims=True)
    centred = [basis - basis.mean(axis=0) for basis in bases]
    design = np.column_stack(centred) if centred else np.zeros((forecasts.shape[1], 0))
    ridge = _RIDGE * np.trace(design.T @ design) / max(1, design.shape[1]) * np.eye(design.shape[1])
    weights = np.linalg.lstsq(design.T @ design + ridge, design.T @ moves.T, rcond=None)[0]  # (columns, N)
    edges = np.cumsum([0, *(basis.shape[1] for basis in bases)])
    total = (moves**2).sum(1)
    parts = [centred[i] @ weights[edges[i] : edges[i + 1]] for i in range(len(bases))]
    return [_ratio((part.T * moves).sum(1), total) for part in parts]


def _ratio(above: Array, below: Array) -> Interval:
    """Return the ratio of two sums over origins and its limits, by leaving out stretches of them (jackknife)."""
    if not below.sum() > 0:
        return Interval(math.nan, math.nan, math.nan)
    groups = np.array_split(np.arange(len(above)), min(_STRETCHES, len(above)))
    value = float(above.sum() / below.sum())
    if len(groups) < 2:
        return Interval(value, math.nan, math.nan)
    left = np.array([(above.sum() - above[g].sum()) / max(below.sum() - below[g].sum(), 1e-300) for g in groups])
    from scipy.special import stdtrit

    spread = math.sqrt((len(groups) - 1) / len(groups) * float(((left - left.mean()) ** 2).sum()))
    width = float(stdtrit(len(groups) - 1, (1 + LEVEL / 100) / 2)) * spread
    return Interval(value, max(value - width, min(0.0, value)), min(value + width, max(1.0, value)))


def _thin(horizon: int) -> list[int]:
    """Return steps ahead, evenly spread over the horizon."""
    return sorted({round(h) for h in np.linspace(1, horizon, min(horizon, _HORIZON_POINTS))})

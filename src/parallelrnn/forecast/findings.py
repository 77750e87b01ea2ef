"""What the data show: trends, calendar cycles and cycles that noise would not show, each with its doubt.

All estimates come from the exact likelihood of the whole series, so that they do not depend on the look-back of a
forecaster.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from parallelrnn.classical.structural import Filtered, Parameters, covariance, maximize
from parallelrnn.forecast.data import Array, Series
from parallelrnn.forecast.search import Search
from parallelrnn.forecast.shares import Part, forecast_shares, series_shares, share_deviations, share_interval
from parallelrnn.forecast.state import ForecasterState
from parallelrnn.interpret.findings import Finding, Findings
from parallelrnn.interpret.uncertainty import Interval

_MAX_STEPS = 12_000  # of a panel, that findings are read from
_MAX_SERIES = 40  # of a panel, that findings are read from
_MIN_STEPS = 20  # of a series, that anything can be found in
_HALF_WIDTH = 1.6449  # of a 90 % interval of a normal distribution, in deviations
_PROFILE_POINTS = 6  # rates at most, at which a limit of a half-life is looked for
_PROFILE_TOLERANCE = 0.05  # of such a limit, in deviations
_PROFILE_ITERATIONS = 8
_DEVIATIONS = (0.02, 2.0)  # of the logarithm of a rate: what may be expected of them
_ENDLESS = 10  # lengths of the series; longer half-lives are not told from endless ones


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
    if not (search.waves or search.calendar or search.has_trend):
        return []
    kinds = ["trend"] * search.has_trend + ["calendar"] * len(search.calendar) + ["cycle"] * len(search.waves)
    unknown, never = Interval(math.nan, math.nan, math.nan), _exactly(math.inf)
    parameters = Parameters(search.fit.blocks, search.steps)
    spread = covariance(search.model, parameters, parameters.start)
    half_lives = [_half_life(search, block, spread) for block in search.waves]
    endless = [block for block, fate in zip(search.waves, half_lives, strict=True) if math.isnan(fate.estimate)]
    of_period = [*[unknown] * search.has_trend, *map(_exactly, search.calendar), *_periods(search, spread)]
    of_half_life = [*[never] * (len(kinds) - len(half_lives)), *half_lives]
    shares = _shares(search, horizon, endless)
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


def _periods(search: Search, spread: Array) -> list[Interval]:
    """Return the periods of waves and their limits, by the curvature of the likelihood."""
    parameters = Parameters(search.fit.blocks, search.steps)
    vector, periods = parameters.start, []
    for block in search.waves:
        place = parameters.places.index((block, "angle"))
        turns, width = vector[place], _HALF_WIDTH * math.sqrt(spread[place, place])
        low, high = search.steps / (turns + width), search.steps / max(turns - width, 1e-9)
        periods.append(Interval(search.steps / turns, low, high))
    return periods


def _half_life(search: Search, block: int, spread: Array) -> Interval:
    """Return the half-life of a wave and its limits, by the profile of the likelihood.

    The root of the loss in likelihood is nearly linear in the logarithm of the rate, so that few rates need a look.
    """
    parameters = Parameters(search.fit.blocks, search.steps)
    place = parameters.places.index((block, "rate"))
    vector = parameters.start
    fitted, fastest = vector[place], parameters.bounds[place][1]
    slowest = math.log(math.log(2) / (_ENDLESS * search.steps))
    along = spread[place] / spread[place, place] if spread[place, place] > 0 else np.zeros(len(vector))
    deviation = min(max(math.sqrt(spread[place, place]), _DEVIATIONS[0]), _DEVIATIONS[1])

    def loss(rate: float) -> float:
        start = vector + (rate - fitted) * along
        profile, _ = maximize(search.model, parameters, {place: rate}, _PROFILE_ITERATIONS, start)
        return math.sqrt(2 * max(0.0, search.fit.log_likelihood - profile.log_likelihood))

    def limit(sign: int, end: float) -> float | None:
        """Return the limit of the rate on one side, or None if all rates up to the end are likely."""
        step = _HALF_WIDTH * deviation
        for _ in range(_PROFILE_POINTS):
            step = min(step, abs(end - fitted))
            lost = loss(fitted + sign * step)
            if lost < _HALF_WIDTH and step == abs(end - fitted):
                return None
            if abs(lost - _HALF_WIDTH) < _PROFILE_TOLERANCE:
                break
            step *= min(4.0, _HALF_WIDTH / max(lost, 1e-9))
        return float(fitted + sign * step)

    fast, slow = limit(1, fastest), limit(-1, slowest) if fitted > slowest else None
    low = math.log(2) / math.exp(fastest if fast is None else fast)
    if slow is None:
        return Interval(math.nan, low, math.inf)
    return Interval(math.log(2) / math.exp(fitted), low, math.log(2) / math.exp(slow))


def _shares(search: Search, horizon: int, endless: Sequence[int]) -> list[Interval]:
    """Return the shares of the trend, of calendar cycles and of waves in the series.

    Of `endless` waves the data do not say how they fade, so that their amplitudes are taken as given.
    """
    fixed = search.parts()
    values = series_shares(search.fit, [*fixed, *(Part(blocks=(block,)) for block in search.waves)], horizon)
    blocks = search.fit.blocks
    left = [index for index in range(len(blocks)) if index not in endless]
    fit = Filtered(
        search.model_of(search.calendar, [blocks[block].angle for block in endless]),
        tuple(blocks[index] for index in left),
    )
    parts = [part._replace(blocks=tuple(map(left.index, part.blocks))) for part in fixed]
    for block in search.waves:
        if block in endless:
            first = search.model.effects + 2 * endless.index(block)
            parts.append(Part(columns=slice(first, first + 2)))
        else:
            parts.append(Part(blocks=(left.index(block),)))
    deviations = share_deviations(fit, parts, horizon, search.steps)
    return [share_interval(*pair) for pair in zip(values, deviations, strict=True)]

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
from numpy.typing import NDArray

from parallelrnn.classical.structural import Filtered, Parameters, covariance, maximize
from parallelrnn.forecast.data import Array, Series
from parallelrnn.forecast.search import Search
from parallelrnn.forecast.shares import Part, forecast_shares, series_shares, share_deviations, share_interval
from parallelrnn.forecast.state import ForecasterState
from parallelrnn.forecast.windows import to_logs
from parallelrnn.interpret.findings import Finding, Findings
from parallelrnn.interpret.uncertainty import Interval

_MAX_STEPS = 5000  # of a panel, that findings are read from
_MAX_SERIES = 20  # of a panel, that findings are read from
_NEGLIGIBLE = 0.005  # of the series: findings that explain less, at best, are not worth a sentence
_ROUNDING = 1e-12  # relative to the size of values
_MIN_STEPS = 20  # of a series, that anything can be found in
_HALF_WIDTH = 1.6449  # of a 90 % interval of a normal distribution, in deviations
_PROFILE_POINTS = 6  # values of a parameter at most, at which its limit is looked for
_PROFILE_TOLERANCE = 0.05  # of such a limit, in deviations
_PROFILE_ITERATIONS = 8
_DEVIATIONS = (1e-3, 2.0)  # of a parameter: where the search for its limits starts
_FEW_SWINGS = (1.5, 0.3)  # by how much limits widen: relative to the number of swings, and at most
_AS_LIKELY = 1.0  # a wave that never fades, by the root of its loss
_ENDLESS = 10  # lengths of the series; longer half-lives are not told from endless ones


def read_findings(state: ForecasterState, series: Sequence[Series]) -> Findings:
    """Return what series show, and how much of that the forecasts of a fitted state contain."""
    read = [
        replace(own, values=to_logs(own.values, scaler.floor))
        for own, scaler in zip(series, state.scalers, strict=True)
    ]
    try:
        found, rest = find(read, state.periods, state.horizon)
    except np.linalg.LinAlgError:  # rounding left nothing to read, but the forecasts stand
        found, rest = [], "unknown"
    dataset, origins = state.dataset(series), state.sample_origins
    windows = torch.from_numpy(origins - np.array([(0, series[index].position) for index in origins[:, 0]]))
    forecasts = state.forecast(dataset, windows)[0]["yhat"]  # (N, H, C)
    ahead = np.arange(state.horizon)
    actual, scaled = np.full_like(forecasts, np.nan), np.zeros_like(forecasts)
    for row, (index, start) in enumerate(windows.tolist()):
        own, scaler = series[index], state.scalers[index]
        seen = ahead[start + ahead < len(own)]
        values = np.where(own.observed[start + seen], to_logs(own.values[start + seen], scaler.floor), np.nan)
        actual[row, seen] = (values - scaler.mean) / scaler.scale
        scaled[row] = (to_logs(forecasts[row], scaler.floor) - scaler.mean) / scaler.scale
    ends = np.array(state.trained_until)[origins[:, 0]]
    actual[origins[:, 1] < ends] = np.nan  # training has seen these
    explained = _explained(actual, scaled, origins[:, 0])
    flat = scaled.transpose(0, 2, 1).reshape(-1, state.horizon)
    shares = forecast_shares(flat, [basis for _, basis in found])
    rows = tuple(replace(finding, share_forecast=share) for (finding, _), share in zip(found, shares, strict=True))
    count = sum(single.values.shape[1] for single in series)
    return Findings(
        rows=rows, explained=explained, rest=rest, time=state.grid.step, horizon=state.horizon, series=count
    )


def _explained(actual: Array, forecasts: Array, owners: NDArray[np.int64]) -> float:
    """Return how much of the variation of values (N, H, C) about the mean of their series forecasts explain.

    NaN where nothing was held out, or too little to vary.
    """
    left, total = 0.0, 0.0
    for owner in np.unique(owners):
        own = actual[owners == owner]
        known = np.isfinite(own).any(axis=(0, 1))
        moves = own[..., known] - np.nanmean(own[..., known], axis=(0, 1))
        left += float(np.nansum((own - forecasts[owners == owner]) ** 2))
        total += float(np.nansum(moves**2))
    return 1 - left / total if total > 0 else math.nan


def find(series: Sequence[Series], periods: Sequence[float], horizon: int) -> tuple[list[tuple[Finding, Array]], str]:
    """Return the findings of series, each with its shape over the horizon, a basis (H, 1 or more); and what is left."""
    columns = _recent_columns(series)
    if not columns:
        return [], "unknown"
    search = Search([values for values, _ in columns], [position for _, position in columns], periods)
    if not (search.waves or search.calendar or search.has_trend):
        return [], search.rest()
    parameters = Parameters(search.fit.blocks, search.steps)
    spread = covariance(search.model, parameters, parameters.start)
    unknown, never = Interval(math.nan, math.nan, math.nan), _exactly(math.inf)
    rows = [("trend", unknown, never)] * search.has_trend
    rows += [("calendar", _exactly(period), never) for period in search.calendar]
    lines = [[1]] * search.has_trend + [search.lines_of(period) for period in search.calendar]
    endless: list[int] = []
    for cycle in search.cycles():
        period, half_life = _read_wave(search, cycle[0], spread)
        rows.append(("cycle", period, half_life))
        lines.append([search.turns_of(block, cycle[0]) for block in cycle])
        endless += cycle if math.isnan(half_life.estimate) else ()
    findings = []
    shares = _shares(search, horizon, endless)
    for (kind, period, half_life), ks, (value, deviation) in zip(rows, lines, shares, strict=True):
        share = share_interval(value, deviation * _widening(search, half_life))
        finding = Finding(kind=kind, period=period, half_life=half_life, share_forecast=unknown, share_series=share)
        if not share.high < _NEGLIGIBLE:
            findings.append((finding, _shape(finding, ks, horizon)))
    return sorted(findings, key=lambda pair: -pair[0].share_series.estimate), search.rest()


def _shape(finding: Finding, lines: Sequence[int], horizon: int) -> Array:
    """Return what a finding may look like over the horizon: a basis (H, 1 or more)."""
    ahead = np.arange(1.0, horizon + 1)
    if finding.kind == "trend":
        return ahead[:, None]
    half_life = finding.half_life.estimate
    decay = np.ones(horizon) if math.isnan(half_life) else 0.5 ** (ahead / half_life)
    turns = [2 * math.pi * k / finding.period.estimate * ahead for k in lines]
    return np.column_stack([decay * wave(turn) for turn in turns for wave in (np.cos, np.sin)])


def _exactly(value: float) -> Interval:
    return Interval(value, value, value)


def _recent_columns(series: Sequence[Series]) -> list[tuple[Array, int]]:
    """Return channels of series at unit scale, NaN where not observed, and their positions: the ends of a sample.

    Series much shorter than the others could not tell what these tell, so they are left out.
    """
    channels = [(single, channel) for single in series for channel in range(single.values.shape[1])]
    usable = [pair for pair in channels if _varies(*pair)]
    if not usable:
        return []
    typical = float(np.median([len(single) for single, _ in usable]))
    usable = [(single, channel) for single, channel in usable if 2 * len(single) >= typical]
    sample = [usable[index] for index in _spread_out(len(usable), _MAX_SERIES)]
    columns = []
    for single, channel in sample:
        values = np.where(single.observed[:, channel], single.values[:, channel], np.nan)
        values = values[-min(_MAX_STEPS // len(sample), int(2 * typical)) :]
        if np.isfinite(values).sum() >= _MIN_STEPS and np.nanstd(values) > 0:
            columns.append(((values - np.nanmean(values)) / np.nanstd(values), single.end - len(values)))
    return columns


def _varies(series: Series, channel: int) -> bool:
    """Return whether a channel has values enough, and more variation than rounding."""
    values = series.values[series.observed[:, channel], channel]
    return len(values) >= _MIN_STEPS and values.std() > _ROUNDING * abs(values).max()


def _spread_out(total: int, most: int) -> list[int]:
    """Return at most `most` of the first `total` indices, evenly spread."""
    return [round(index) for index in np.linspace(0, total - 1, min(total, most))]


class _Profile:
    """The likelihood of one parameter of a search's fit, with all others at their best.

    The root of the loss in log likelihood is nearly linear in a parameter, so that few of its values need a look.
    """

    def __init__(self, search: Search, spread: Array, block: int, name: str) -> None:
        self.search, self.parameters = search, Parameters(search.fit.blocks, search.steps)
        self.given: dict[int, float] = {}  # parameters that do not vary, by their places
        self.place = self.parameters.places.index((block, name))
        self.vector, variance = self.parameters.start, float(spread[self.place, self.place])
        self.along = spread[self.place] / variance if variance > 0 else np.zeros(len(self.vector))
        self.deviation = min(max(math.sqrt(variance), _DEVIATIONS[0]), _DEVIATIONS[1])

    @property
    def fitted(self) -> float:
        """The most likely value."""
        return float(self.vector[self.place])

    def limit(self, sign: int, end: float, width: float = _HALF_WIDTH) -> float | None:
        """Return the limit on one side of a 90 % interval, or None if all values up to the end are likely."""
        step, furthest = width * self.deviation, abs(end - self.fitted)
        for _ in range(_PROFILE_POINTS):
            step = min(step, furthest)
            lost = self.loss(self.fitted + sign * step)
            if lost < width and step == furthest:
                return None
            if abs(lost - width) < _PROFILE_TOLERANCE:
                break
            step *= min(4.0, width / max(lost, 1e-9))
        return self.fitted + sign * min(step, furthest)

    def loss(self, value: float) -> float:
        """Return the root of twice the loss in log likelihood at a value."""
        start = self.vector + (value - self.fitted) * self.along
        fixed = {**self.given, self.place: value}
        profile, _ = maximize(self.search.model, self.parameters, fixed, _PROFILE_ITERATIONS, start)
        return math.sqrt(2 * max(0.0, self.search.fit.log_likelihood - profile.log_likelihood))


def _widening(search: Search, half_life: Interval) -> float:
    """Return by how much the limits of a wave are wider than the likelihood has them.

    A wave that fades begins anew every half-life or so; of few such swings, the likelihood is too sure.
    """
    if not math.isfinite(half_life.estimate):
        return 1.0
    swings = math.log(2) * search.steps * len(search.series) / half_life.estimate
    return 1 + min(_FEW_SWINGS[0] / swings, _FEW_SWINGS[1])


def _read_wave(search: Search, block: int, spread: Array) -> tuple[Interval, Interval]:
    """Return the period and the half-life of a wave; NaN for a half-life if the data do not say whether it fades."""
    rate, turns = (_Profile(search, spread, block, name) for name in ("rate", "angle"))
    slowest = math.log(math.log(2) / (_ENDLESS * search.steps))
    lost = rate.loss(slowest) if rate.fitted > slowest else 0.0
    half_life = _half_life(rate, None if lost < _HALF_WIDTH else rate.limit(-1, slowest))
    if lost < _AS_LIKELY:  # else the wave could make up for a wrong period by fading
        place = rate.place
        turns.given[place] = rate.parameters.bounds[place][0]
    width = _HALF_WIDTH * _widening(search, half_life)
    ends = turns.parameters.bounds[turns.place]
    fewest, most = turns.limit(-1, ends[0], width), turns.limit(1, ends[1], width)
    low = search.steps / (ends[1] if most is None else most)
    period = Interval(search.steps / turns.fitted, low, search.steps / (ends[0] if fewest is None else fewest))
    return period, half_life


def _half_life(rate: _Profile, slow: float | None) -> Interval:
    """Return the half-life of a wave and its limits, of which `slow` is the rate of the upper one, if there is one."""
    fastest, longest = rate.parameters.bounds[rate.place][1], float(_ENDLESS * rate.search.steps)
    fast = rate.limit(1, fastest)
    # Beyond a few lengths of the series, a limit would say more about the model than about the data.
    low = min(math.log(2) / math.exp(fastest if fast is None else fast), longest)
    if slow is None:
        return Interval(math.nan, low, math.inf)
    return Interval(math.log(2) / math.exp(rate.fitted), low, math.log(2) / math.exp(slow))


def _shares(search: Search, horizon: int, endless: Sequence[int]) -> list[tuple[float, float]]:
    """Return the shares of the trend, of calendar cycles and of waves in the series, with their logits' deviations.

    Of `endless` waves the data do not say how they fade, so that their amplitudes are taken as given.
    """
    blocks, parts = search.fit.blocks, search.parts()
    whole = Filtered(search.model_of(search.calendar), blocks)
    values = series_shares(whole, [*parts, *(Part(blocks=cycle) for cycle in search.cycles())], horizon)
    left = [index for index in range(len(blocks)) if index not in endless]
    turns = [blocks[block].angle * np.concatenate([np.arange(n) for n in whole.model.lengths]) for block in endless]
    lines = [wave(turn) for turn in turns for wave in (np.cos, np.sin)]
    given = tuple(blocks[index] for index in left)
    fit = Filtered(whole.model.with_table(np.column_stack([whole.model.table, *lines])), given)
    parts = [part._replace(blocks=tuple(map(left.index, part.blocks))) for part in parts]
    first = whole.model.effects
    for cycle in search.cycles():
        if cycle[0] in endless:
            parts.append(Part(columns=slice(first, first + 2 * len(cycle))))
            first += 2 * len(cycle)
        else:
            parts.append(Part(blocks=tuple(map(left.index, cycle))))
    parameters = Parameters(given, search.steps)
    spread = covariance(fit.without_regressors(2), parameters, parameters.start)
    return list(zip(values, share_deviations(fit, parts, horizon, parameters, spread), strict=True))

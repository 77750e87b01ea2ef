"""How much of a series, and of its forecasts, findings make up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from parallelrnn.classical.structural import Filtered, Parameters
from parallelrnn.forecast.data import Array
from parallelrnn.interpret.findings import LEVEL
from parallelrnn.interpret.uncertainty import Interval

_MAX_FILTERED = 4000  # steps that shares are measured on
_HORIZON_POINTS = 12  # steps ahead that shares are measured at
_SETTLING = (5, 100)  # filters settle within a fifth of a series, and within 100 steps
_STRETCHES = 20  # of origins, that the limits of a share of forecasts are measured by
_RIDGE = 1e-6  # keeps shapes apart that the horizon hardly can
_HALF_WIDTH = 1.6449  # of a 90 % interval of a normal distribution, in deviations
_STEP = 1e-2  # of parameters, in numerical derivatives
_EXTREME = 1e-3  # shares are taken as at least this far from 0 and 1 where their limits are computed
SLOW = 10.0  # times that a block forgets itself within a series, below which it is a level that wanders
_MAX_DEVIATION = 3.0  # of the logit of a share


class Part(NamedTuple):
    """What belongs to a finding: some of the regressors, and some of the blocks."""

    columns: slice = slice(0, 0)
    blocks: tuple[int, ...] = ()


def series_shares(fit: Filtered, parts: Sequence[Part], horizon: int) -> list[float]:
    """Return how much of the variation of series each part explains in forecasts of `horizon` steps.

    With y the series about its mean, f the forecasts and p a part of them, it is (2 <p, y> - <p, f>) / <y, y>: these
    sum to 1 - <y - f, y - f> / <y, y>. Forecasts begin once filters have settled, but how far regressors move, such as
    a trend, is measured over the whole series.
    """
    if not parts:
        return []
    taken = {block for part in parts for block in part.blocks}
    rest = [index for index in range(len(fit.blocks)) if index not in taken]
    explained, power = np.zeros(len(parts)), 0.0
    weights = fit.powers(horizon)  # (H, blocks, units)
    for index, states in enumerate(fit.filtered_states(_MAX_FILTERED)):
        rows = fit.model.rows(index)
        observed, x = fit.model.observed[rows], fit.model.table[rows, 1:]
        y = fit.model.table[rows, 0]
        y = np.where(observed, y - y[observed].mean(), 0.0)
        fixed = [_about_mean(x[:, part.columns] @ fit.effects[index, part.columns], observed) for part in parts]
        squares = np.array([*fixed, sum(fixed)]) ** 2 * observed  # the last of all regressors together
        first = min(len(y) // _SETTLING[0], _SETTLING[1])
        for h in sorted({round(h) for h in np.linspace(1, horizon, min(horizon, _HORIZON_POINTS))}):
            if first + h >= len(y):
                continue
            now, later = slice(first, len(y) - h), slice(first + h, len(y))
            each = (states[now] * weights[h - 1]).sum(-1).T  # (blocks, n)
            own = np.array([f[later] + each[list(part.blocks)].sum(0) for f, part in zip(fixed, parts, strict=True)])
            forecast = own.sum(0) + each[rest].sum(0)
            beyond = squares.sum(1) / observed.sum() * observed[later].sum() - squares[:, later].sum(1)
            explained += ((2 * y[later] - forecast) * own * observed[later]).sum(1) + beyond[:-1]
            power += float((y[later] ** 2).sum()) + beyond[-1]
    return [float(share) for share in explained / power] if power > 0 else [math.nan] * len(parts)


def share_deviations(
    fit: Filtered, parts: Sequence[Part], horizon: int, parameters: Parameters, spread: Array
) -> list[float]:
    """Return the standard errors of the logits of these shares; `spread` is the covariance of the parameters.

    A share is E / V: E is the variance that the part adds to the best forecasts, V that of the series. Its logit,
    log E - log (V - E), varies with the parameters of blocks, with which the noise varies, and with the effects of
    regressors.
    """
    model, reduced = fit.model, fit.without_regressors(2)
    rows = [model.rows(index) for index in range(len(model.lengths))]
    seen = [np.flatnonzero(model.observed[own]) for own in rows]
    paths = [model.table[own, 1:] * fit.effects[index] for index, own in enumerate(rows)]  # (T, k) each
    # What wanders slowly beside the parts is taken as it went, not as it might have gone.
    taken = {block for part in parts for block in part.blocks}
    is_slow = [block.rate * parameters.steps < SLOW and index not in taken for index, block in enumerate(fit.blocks)]
    levels = fit.smoothed[:, is_slow].sum(1)
    pairs = list(zip(paths, seen, strict=True))
    wandering = [path.sum(1)[at] + levels[own][at] for (path, at), own in zip(pairs, rows, strict=True)]
    others = float(np.mean([values.var() for values in wandering]))
    fixed = [float(np.mean([path[at, part.columns].sum(1).var() for path, at in pairs])) for part in parts]
    start = parameters.start

    def logits(vector: Array) -> Array:
        blocks = parameters.to_blocks(vector)
        filtered = Filtered(reduced, blocks)
        noise = float(filtered.noise.mean())
        added = noise * filtered.explained(horizon) if blocks else np.zeros(0)
        own = np.array([f + added[list(part.blocks)].sum() for f, part in zip(fixed, parts, strict=True)])
        steady = [block.variance for block, slow in zip(blocks, is_slow, strict=True) if not slow]
        total = noise * (1 + sum(steady)) + others
        values: Array = np.log(np.maximum(own, 1e-12)) - np.log(np.maximum(total - own, 1e-12))
        return values

    try:
        slopes = [(logits(start + step) - logits(start - step)) / (2 * _STEP) for step in _STEP * np.eye(len(start))]
    except np.linalg.LinAlgError:
        return [_MAX_DEVIATION] * len(parts)
    slope = np.array(slopes).reshape(len(start), len(parts))
    variances = np.einsum("pk,pq,qk->k", slope, spread, slope)
    for index, part in enumerate(parts):
        if part.columns.stop > part.columns.start:
            variances[index] += _fixed_variance(fit, part.columns) + 2 / float(model.counts.sum())
    return [min(math.sqrt(max(0.0, value)), _MAX_DEVIATION) for value in variances]


def _fixed_variance(fit: Filtered, columns: slice) -> float:
    """Return the variance of the logarithm of the variance of a sum of regressors, by that of their effects."""
    total, variance = 0.0, 0.0
    for index in range(len(fit.model.lengths)):
        own = fit.model.rows(index)
        x = fit.model.table[own, 1:][fit.model.observed[own], columns]
        moves = (x - x.mean(0)) @ fit.effects[index, columns]
        slope = 2 * (x - x.mean(0)).T @ moves / len(moves)
        total += float((moves**2).mean())
        variance += float(slope @ fit.effect_covariance[index, columns, columns] @ slope)
    return variance / total**2 if total > 0 else 0.0


def share_interval(share: float, deviation: float) -> Interval:
    """Return a share of a series with its limits."""
    if math.isnan(share):
        return Interval(math.nan, math.nan, math.nan)
    share = min(max(share, 0.0), 1.0)  # where parts cancel, one may explain more than all
    inside = min(max(share, _EXTREME), 1 - _EXTREME)
    centre = math.log(inside / (1 - inside))
    low, high = (1 / (1 + math.exp(-centre - sign * _HALF_WIDTH * deviation)) for sign in (-1, 1))
    return Interval(share, min(share, low), max(share, high))


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


def _about_mean(values: Array, observed: NDArray[np.bool_]) -> Array:
    centred: Array = values - values[observed].mean()
    return centred

"""Have errors changed? Recent residuals are compared with earlier ones, and intervals adapt to them.

Errors may grow because a series varies more, or because forecasts miss its level or trend: then errors have a bias,
which may go on growing. Intervals after a change cover the bias, continued in a straight line, and the
scatter about it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parallelrnn.forecast.data import Array

_THRESHOLD = 4.0  # standard errors by which recent errors exceed earlier ones
_LARGER = 1.5  # ratio of recent to earlier errors: less is no change, however certain
_SHIFTED = 0.75  # bias of recent errors relative to the size of earlier ones: likewise
_MOST_LARGER = 0.6  # of the recent errors that exceed the median of earlier ones: a few outliers are no change
_LEAST = 10  # steps that show a change
_MOST = 2 / 3  # of the steps, that may lie after it
_CANDIDATES = 24  # times of a change that are looked at
_MAX_LAG = 40  # steps over which errors are related
_UNRELATED = 0.05  # correlation
_CLEAR = 2.0  # standard errors that a bias has to differ from zero by
_ROUNDING = 1e-9  # of a variance
_FEW = 5  # residuals at a step ahead, too few to tell their bias


def find_change(residuals: Tensor) -> int:
    """Return for how many steps the errors of a series have been larger than before, or biased; 0 if they are not.

    `residuals` (N, H, C) are those of consecutive forecasts, NaN where the future is not known.
    """
    errors = _by_target(residuals.double().numpy())  # (T, H, C)
    near = errors[:, : max(1, errors.shape[1] // 2)]  # forecasts further ahead share more of their errors
    scale = np.nan_to_num(_mean(abs(near), (0,)))
    near = near / np.where(scale > 0, scale, 1.0)
    signed, sizes = _mean(near, (1, 2)), _mean(abs(near), (1, 2))
    known = np.flatnonzero(np.isfinite(sizes))
    signed, sizes = signed[known], sizes[known]
    most = int(_MOST * len(sizes))
    if most < 2 * _LEAST:
        return 0
    candidates = sorted({round(n) for n in np.geomspace(_LEAST, most, _CANDIDATES)})
    grown = (_growth(sizes, n) for n in _possible(sizes, candidates))
    shifted = (_shift(signed, n) for n in _possible(signed, candidates))
    if max(chain(grown, shifted), default=0.0) <= _THRESHOLD:
        return 0
    since = max(range(_LEAST, most + 1), key=lambda n: _likelihood(signed, n))
    return len(errors) - int(known[-since])


def _possible(values: Array, candidates: Sequence[int]) -> list[int]:
    """Return the candidates whose means before and after would differ enough if all values were independent."""
    after = np.array(candidates)
    before = len(values) - after
    sums, squares = (np.cumsum(own) for own in (values, values**2))
    mean = sums[before - 1] / before
    shift = abs((sums[-1] - sums[before - 1]) / after - mean)
    variance = np.maximum(squares[before - 1] / before - mean**2, 0.0) * (1 / after + 1 / before)
    is_clear = shift > (_THRESHOLD - _ROUNDING) * np.sqrt(variance)
    clear: list[int] = after[is_clear].tolist()
    return clear


def adapted_quantiles(residuals: Tensor, since: int, levels: Tensor) -> tuple[Tensor, Tensor]:
    """Return quantiles (levels, H, C) of absolute errors to expect after a change `since` steps ago, and their size.

    The size (H, C) is the root mean square.

    NaN for channels of which too little was observed since.
    """
    errors = _by_target(residuals.double().numpy())[-since:]  # (n, H, C)
    common = _mean(errors, (1,))  # (n, C)
    table = np.full((len(levels), *errors.shape[1:]), np.nan)
    size = np.full(errors.shape[1:], np.nan)
    for channel, path in enumerate(common.T):
        if np.isfinite(path).sum() < _FEW:
            continue
        slope, related, spread = _trend(path)
        for ahead in range(errors.shape[1]):
            own = errors[:, ahead, channel]
            own = np.where(np.isfinite(own), own, path) if np.isfinite(own).sum() < _FEW else own
            steps = np.flatnonzero(np.isfinite(own))
            expected = _expected_errors(own, steps, slope, related, spread, ahead)
            table[:, ahead, channel] = np.quantile(expected, levels.numpy(), method="higher")
            size[ahead, channel] = math.sqrt(float(np.square(expected).mean()))
    return torch.from_numpy(table).to(residuals), torch.from_numpy(size).to(residuals)


def _expected_errors(
    errors: Array, steps: NDArray[np.intp], slope: float, related: float, spread: float, ahead: int
) -> Array:
    """Return the sizes of errors that may follow, as many as there are errors to tell."""
    values, middle = errors[steps], float(np.mean(steps))
    bias = float(values.mean())
    scatter = values - bias - slope * (steps - middle)
    doubt = math.sqrt(related / len(values))
    if not slope and abs(bias) < _CLEAR * doubt * scatter.std():
        bias, scatter = 0.0, values
    distance = len(errors) + ahead - middle  # of the step to be forecast from the middle of those seen
    wider = math.sqrt(1 + doubt**2 + (related * distance**2 / spread if slope else 0.0))
    return np.asarray(abs(bias + slope * distance) + wider * abs(scatter), dtype=np.float64)


def _trend(path: Array) -> tuple[float, float, float]:
    """Return the slope of errors if it is clear, else 0; how many steps count as one; and the spread of the steps."""
    steps = np.flatnonzero(np.isfinite(path))
    away = steps - steps.mean()
    values = path[steps] - path[steps].mean()
    spread = float(away @ away)
    slope = float(away @ values) / spread
    left = values - slope * away
    related = _relatedness(left)
    error = math.sqrt(float(left.var()) * related / spread)
    return slope if abs(slope) > _CLEAR * error else 0.0, related, spread


def _growth(sizes: Array, since: int) -> float:
    """Return by how many standard errors the last sizes exceed those before, 0 if they are not much larger."""
    before, after = sizes[:-since], sizes[-since:]
    if after.mean() < _LARGER * before.mean() or (after > np.median(before)).mean() < _MOST_LARGER:
        return 0.0
    return float(after.mean() - before.mean()) / _standard_error(before, since)


def _shift(errors: Array, since: int) -> float:
    """Return by how many standard errors the mean of the last errors differs from that before, 0 if not by much."""
    before, after = errors[:-since], errors[-since:]
    shift = abs(float(after.mean() - before.mean()))
    return shift / _standard_error(before, since) if shift > _SHIFTED * abs(before - before.mean()).mean() else 0.0


def _standard_error(before: Array, since: int) -> float:
    """Return the standard error of the difference of two means, of so many values and of those before."""
    related = _relatedness(before)
    few = 1 + 2 * related / len(before)  # from few that are related, a standard error is too small
    return few * math.sqrt(float(before.var()) * related * (1 / since + 1 / len(before))) or math.inf


def _likelihood(errors: Array, since: int) -> float:
    """Return how likely errors are that vary about one level before, and about a line since then."""
    before, after = errors[:-since], errors[-since:]
    away = np.arange(since) - (since - 1) / 2
    left = after - after.mean()
    left = left - float(away @ left) / float(away @ away) * away
    least = _ROUNDING * float(errors.var())
    variances = float(before.var()), float(left @ left) / (since - 2)
    return -sum(n * math.log(max(own, least)) for n, own in zip((len(before), since), variances, strict=True))


def _relatedness(values: Array) -> float:
    """Return how many steps of a series count as one independent value."""
    left = values - values.mean()
    power = float(left @ left)
    if power <= 0:
        return 1.0
    lags = range(1, max(2, min(_MAX_LAG, len(left) // 3)))
    total = 1.0
    for lag in lags:
        correlation = float(left[lag:] @ left[:-lag]) / power
        if correlation < _UNRELATED:
            break
        total += 2 * correlation
    return total


def _by_target(residuals: Array) -> Array:
    """Return residuals (N, H, C) by the step that was forecast instead of that it was forecast from, (T, H, C)."""
    count, horizon, channels = residuals.shape
    table = np.full((count + horizon - 1, horizon, channels), np.nan)
    for ahead in range(horizon):
        table[ahead : ahead + count, ahead] = residuals[:, ahead]
    known = np.flatnonzero(np.isfinite(table).any(axis=(1, 2)))
    return table[: known[-1] + 1] if len(known) else table[:0]


def _mean(values: Array, axes: tuple[int, ...]) -> Array:
    """Return means over what is known, NaN where nothing is."""
    known = np.isfinite(values)
    count = known.sum(axis=axes)
    total = np.where(known, values, 0.0).sum(axis=axes)
    mean: Array = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return mean

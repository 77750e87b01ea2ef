"""Forecasts with their intervals and parts, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from torch import Tensor

from parallelrnn.errors import ArgumentError
from parallelrnn.forecast.conformal import Calibration
from parallelrnn.forecast.fitted import Fitted, View
from parallelrnn.forecast.frames import Forecast
from parallelrnn.forecast.panel import Array, Series

_USUAL = (95.0, 80.0)  # per cent
_SAME = 1e-9  # apart, for quantiles


def check_levels(levels: Any) -> tuple[float, ...]:
    """Levels of intervals in per cent."""
    found = []
    for one in (levels,) if isinstance(levels, Real) else levels:
        if isinstance(one, bool) or not isinstance(one, Real) or not 1 <= float(one) < 100:
            raise ArgumentError(f"level: expected per cents from 1 to below 100, such as [80, 95], got {one!r}")
        found.append(float(one))
    return tuple(found)


def usual_levels(fitted: Fitted) -> tuple[float, ...]:
    """The levels that are shown where nobody asks for any, as far as there are data for them; the widest first."""
    if fitted.quantiles is not None:
        return tuple(reversed(_levels_of(fitted.quantiles)))
    return tuple(level for level in _USUAL if fitted.calibration.supports(level))


@dataclass(frozen=True)
class Question:
    """What is wanted of some windows."""

    levels: tuple[float, ...] = ()
    decompose: bool = False
    actual: Sequence[Series] | None = None  # the whole series, to tell what came, and after which time


def answer(view: View, windows: Tensor, question: Question, calibration: Calibration) -> list[Forecast]:
    """Forecasts of some windows, and of each channel; `calibration` is of the series in `view`."""
    fitted = view.fitted
    values = view.forecast(windows)  # (N, H, C, Q)
    point = values[..., fitted.middle]
    limits = _limits(view, windows, values, point, question.levels, calibration)
    parts = view.parts(windows) if question.decompose else None
    names = None if parts is None else parts.names(fitted.grid.step)
    forecasts = []
    for row, (index, origin) in enumerate(windows.tolist()):
        series = view.series[index]
        channels = point.shape[2]
        for channel in range(channels):
            columns: dict[str, Array] = {}
            if question.actual is not None:
                columns["y"] = _observed(question.actual[index], origin, fitted.horizon, channel)
            columns["yhat"] = point[row, :, channel]
            columns |= {name: limit[row, :, channel] for name, limit in limits.items()}
            if parts is not None and names is not None:
                columns["level"] = parts.level[row, :, channel]
                columns |= {name: part[row, :, channel] for name, part in zip(names, parts.parts, strict=True)}
            start = series.position + origin
            cutoff = None if question.actual is None else start - 1
            forecasts.append(Forecast(view.label(index, channel), start, columns, cutoff))
    return forecasts


def _limits(
    view: View, windows: Tensor, values: Array, point: Array, levels: Sequence[float], calibration: Calibration
) -> dict[str, Array]:
    limits: dict[str, Array] = {}
    quantiles = view.fitted.quantiles
    counts = view.grains(windows) > 0
    for level in levels:
        if quantiles is None:
            width = view.half_widths(windows, level, calibration)
            low, high = point - width, point + width
        else:
            low, high = (values[..., _index(quantiles, level, sign)] for sign in (-1, 1))
        limits[f"yhat-lo-{level:g}"] = np.where(counts, np.floor(low), low)
        limits[f"yhat-hi-{level:g}"] = np.where(counts, np.ceil(high), high)
    return limits


def _index(quantiles: Sequence[float], level: float, sign: int) -> int:
    wanted = (1 + sign * level / 100) / 2
    apart = [abs(quantile - wanted) for quantile in quantiles]
    if min(apart) > _SAME:
        allowed = ", ".join(f"{one:g}" for one in _levels_of(quantiles))
        raise ArgumentError(
            f"an interval of {level:g} % needs the quantile {wanted:g}, which was not trained; those trained allow "
            f"{allowed or 'none'}"
        )
    return int(np.argmin(apart))


def _levels_of(quantiles: Sequence[float]) -> list[float]:
    """The levels whose two quantiles are both there."""
    widths = {quantile: abs(2 * quantile - 1) for quantile in quantiles if quantile != 0.5}
    paired = [q for q in widths if any(abs(q + other - 1) < _SAME for other in quantiles)]
    return sorted({round(100 * widths[quantile], 6) for quantile in paired})


def _observed(series: Series, origin: int, horizon: int, channel: int) -> Array:
    values = np.full(horizon, np.nan)
    steps = slice(origin, origin + horizon)
    found = np.where(series.observed[steps, channel], series.values[steps, channel], np.nan)
    values[: len(found)] = found
    return values

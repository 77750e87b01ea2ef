"""What the forecasts of a model that is not linear come to when it runs on them: measured, since no mode tells it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_STEADY = 0.9  # of the variance of one stretch has to be there in the next
_SHORTEST = 16  # steps, in which there is anything to see
_TURNS = 3  # that the series has to hold at least
_REGULAR = 0.5  # of the variance in one wave


@dataclass(frozen=True)
class Cycle:
    """The strongest wave of forecasts that do not come to rest."""

    period: float  # steps
    share: float  # of their variance

    @property
    def is_regular(self) -> bool:
        """Whether that wave is most of it; else the forecasts wander."""
        return self.share >= _REGULAR


def settled_cycle(forecasts: NDArray[np.float64]) -> Cycle | None:
    """The cycle in which forecasts (T, C) of a long run end; None if they come to rest, or grow."""
    if len(forecasts) < _SHORTEST or not np.isfinite(forecasts).all():
        return None
    half = forecasts[len(forecasts) // 2 :]
    before, after = np.array_split(half, 2)
    if after.var(axis=0).sum() <= _STEADY * before.var(axis=0).sum() or not after.var(axis=0).sum() > 0:
        return None
    cycle = _strongest(half[:, half.var(axis=0).argmax()])
    return cycle if cycle.period * _TURNS <= len(half) else None


def _strongest(series: NDArray[np.float64]) -> Cycle:
    """The largest peak of the periodogram, between its frequencies by a parabola through three logarithms."""
    window = np.hanning(len(series))
    power = abs(np.fft.rfft((series - series.mean()) * window)) ** 2
    peak = 1 + int(power[1:-1].argmax())
    before, at, after = np.log(np.maximum(power[peak - 1 : peak + 2], 1e-300))
    bend = before - 2 * at + after
    frequency = (peak + (0.5 * (before - after) / bend if bend < 0 else 0.0)) / len(series)
    near = slice(max(1, peak - 3), peak + 4)  # where the window spreads a single wave
    return Cycle(1 / frequency, float(power[near].sum() / power[1:].sum()))

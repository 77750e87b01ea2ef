"""The cycle that a model which is not linear keeps to when it runs on its own forecasts: no mode, but measured."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from parallelrnn.interpret.freerun import FreeRun

_STEPS = 4096  # of a free run; the first half is thrown away
_LEAST = 1e-6  # variation that counts, relative to what there was at first


@dataclass(frozen=True)
class Cycle:
    """The strongest wave of a free run that does not come to rest."""

    period: float  # steps
    share: float  # of the run's variance


def settled_cycle(run: FreeRun, state: Tensor) -> Cycle | None:
    """The cycle into which the forecasts after a state (1, n) settle; None if they come to rest, or grow."""
    outputs = []
    for _ in range(_STEPS):
        outputs.append(run.output(state)[0].numpy())
        state = run.step(state)
    forecasts = np.stack(outputs)
    first, last = forecasts[: _STEPS // 2], forecasts[_STEPS // 2 :]
    if not np.isfinite(forecasts).all() or last.var(axis=0).sum() <= _LEAST * first.var(axis=0).sum():
        return None
    return _strongest(last[:, last.var(axis=0).argmax()])


def _strongest(series: NDArray[np.float64]) -> Cycle:
    """The largest peak of the periodogram, between its frequencies by a parabola through three logarithms."""
    window = np.hanning(len(series))
    power = abs(np.fft.rfft((series - series.mean()) * window)) ** 2
    peak = 1 + int(power[1:-1].argmax())
    before, at, after = np.log(np.maximum(power[peak - 1 : peak + 2], 1e-300))
    bend = before - 2 * at + after
    frequency = (peak + (0.5 * (before - after) / bend if bend < 0 else 0.0)) / len(series)
    near = slice(max(1, peak - 3), peak + 4)  # where the window spreads a single wave
    return Cycle(1 / frequency if frequency > 0 else math.inf, float(power[near].sum() / power[1:].sum()))

"""Cycles of the calendar: the same at every hour of the day, day of the week or month of the year, once and for all.

A cycle is a sum of harmonics whose phase is tied to the calendar, fitted by least squares. It is taken only where the
series has it: at least one of its lines has to stand out of the spectrum around it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parallelrnn.forecast.panel import Array, Series
from parallelrnn.interpret.display import Step

HARMONICS = 8
_SEEN = 3  # times that a cycle has to come round in the data
_SEEN_IF_NAMED = 2  # the same if a user says that it is there
_OUTSTANDING = 12.0  # times the power around a line; by chance once in 160,000 lines
_AROUND = 25  # frequencies on each side of a line that are looked at
_APART = 6.0  # frequencies from line to line, for some of them to lie between
_NEAR = 10  # the same where lines lie close
_FEWEST = 4  # frequencies that can tell how much noise there is
_GROWN = 1.3  # times the level of the first third in the last, or the other way round
_SECONDS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_CLOCK = (3600.0, 86400.0, 604800.0, 31557600.0)  # hour, day, week and year
_YEAR = {"business days": 260.89, "weeks": 52.1775, "months": 12.0}


@dataclass(frozen=True)
class Cycle:
    """One cycle of one series."""

    period: float  # in steps
    cosines: Array  # (harmonics, C)
    sines: Array  # (harmonics, C)

    def harmonics(self, positions: NDArray[np.int64]) -> Array:
        """What each harmonic adds at some positions of the grid, (harmonics, n, C)."""
        turns = 2 * math.pi * np.outer(np.arange(1, len(self.cosines) + 1) / self.period, positions)[..., None]
        parts: Array = np.cos(turns) * self.cosines[:, None] + np.sin(turns) * self.sines[:, None]
        return parts

    def at(self, positions: NDArray[np.int64]) -> Array:
        """The whole cycle, (n, C)."""
        total: Array = self.harmonics(positions).sum(axis=0)
        return total


def calendar_periods(step: Step) -> list[float]:
    """The cycles of the calendar that steps of this size can show, in steps, the shortest first."""
    if step.unit in _SECONDS:
        periods = [seconds / (step.amount * _SECONDS[step.unit]) for seconds in _CLOCK]
    elif step.unit in _YEAR:
        periods = [5.0 / step.amount] if step.unit == "business days" else []
        periods.append(_YEAR[step.unit] / step.amount)
    else:
        periods = []
    return [period for period in periods if period >= 2]


def fit_cycles(series: Series, steps: int, periods: Sequence[float], named: bool = False) -> tuple[Cycle, ...]:
    """The cycles of these periods that the first so many steps of a series have, by least squares.

    Those that a user has `named` are not looked for but taken, if they come round at all.
    """
    values, observed = series.values[:steps], series.observed[:steps]
    periods = sorted(period for period in periods if period * (_SEEN_IF_NAMED if named else _SEEN) <= steps)
    lines = {period: _lines(period, [p for p in periods if p < period], steps) for period in periods}
    numbers = np.arange(series.position, series.position + steps)
    cosines = {period: np.zeros((HARMONICS, values.shape[1])) for period in periods}
    sines = {period: np.zeros((HARMONICS, values.shape[1])) for period in periods}
    for channel in range(values.shape[1]):
        channel_values = values[:, channel], observed[:, channel], numbers
        kept = periods if named else _outstanding(*channel_values, lines)
        if not named:
            kept = [period for period in kept if not _grows_with_level(*channel_values, period, lines[period])]
        found = _least_squares(*channel_values, {period: lines[period] for period in kept})
        for period, (cosine, sine) in found.items():
            rows = np.array(lines[period]) - 1
            cosines[period][rows, channel], sines[period][rows, channel] = cosine, sine
    cycles = [Cycle(period, cosines[period], sines[period]) for period in periods]
    return tuple(cycle for cycle in cycles if cycle.cosines.any() or cycle.sines.any())


def _lines(period: float, shorter: Sequence[float], steps: int) -> list[int]:
    """The harmonics of a cycle that steps can show and that belong to no shorter cycle."""
    taken = [k / p for p in shorter for k in range(1, HARMONICS + 1)]
    numbers = [k for k in range(1, HARMONICS + 1) if k / period <= 0.5]
    return [k for k in numbers if all(abs(k / period - frequency) * steps > 1 for frequency in taken)]


def _outstanding(
    values: Array, observed: NDArray[np.bool_], numbers: NDArray[np.int64], lines: dict[float, list[int]]
) -> list[float]:
    """The periods of which at least one line stands out of the spectrum around it, shorter ones taken off first."""
    kept: list[float] = []
    for period in lines:
        rest = values - _line_sum(values, observed, numbers, {p: lines[p] for p in kept})
        if _stands_out(rest, period, lines):
            kept.append(period)
    return kept


def _stands_out(values: Array, period: float, lines: dict[float, list[int]]) -> bool:
    steps = len(values)
    time = np.arange(steps)
    flat = values - np.polyval(np.polyfit(time, values, 1), time)
    if flat.std() <= 1e-12 * abs(values).max():  # rounding
        return False
    flat *= np.hanning(steps + 2)[1:-1]  # keeps strong lines from spilling over
    power = abs(np.fft.rfft(flat)) ** 2
    bins = np.arange(len(power))
    between = bins > 0
    for frequency in [k / p for p, numbers in lines.items() for k in numbers]:
        between &= abs(bins - frequency * steps) > 2.5
    close = steps < _APART * period
    without: Array | None = None  # the power once the lines of the period are taken off
    for k in lines[period]:
        place = k / period * steps
        around = power[between & (abs(bins - place) <= _AROUND)]
        if close or len(around) < _FEWEST:
            without = _power_without(values, period, lines[period]) if without is None else without
            noise = _noise_at(place, without) / (1 - period / steps)  # the lines took a part of it with them
        else:
            # The power of noise is exponentially distributed: its mean is its median over ln 2.
            noise = float(np.median(around)) / math.log(2)
        line = abs(flat @ np.exp(-2j * math.pi * k / period * time)) ** 2
        if line > _OUTSTANDING * noise:
            return True
    return False


def _power_without(values: Array, period: float, numbers: list[int]) -> Array:
    """The spectrum of a series without the lines of a period and a straight trend."""
    steps = len(values)
    time = np.arange(steps)
    rest = values - _line_sum(values, np.ones(steps, dtype=bool), time, {period: numbers})
    rest = (rest - np.polyval(np.polyfit(time, rest, 1), time)) * np.hanning(steps + 2)[1:-1]
    power: Array = np.asarray(abs(np.fft.rfft(rest)) ** 2, dtype=np.float64)
    return power


def _noise_at(place: float, power: Array) -> float:
    """The mean power of noise at a frequency whose neighbours are lines: it may fall with it as a power of it."""
    bins = np.arange(1, len(power))
    near = bins[(abs(bins - place) <= _NEAR) & (power[1:] > 0)]
    if len(near) < _FEWEST:
        return math.inf
    frequency, height = np.log(near / place), np.log(power[near])
    slope = min(0.0, float(np.polyfit(frequency, height, 1)[0]))
    # The mean logarithm of exponential noise lies so much below that of its mean.
    return math.exp(float(np.mean(height - slope * frequency)) + np.euler_gamma)


def _grows_with_level(
    values: Array, observed: NDArray[np.bool_], numbers: NDArray[np.int64], period: float, ks: list[int]
) -> bool:
    """Whether a cycle is the larger the higher the level, as in sales that grow: then it is not the same every time."""
    if not (values > 0).all():
        return False
    third = len(values) // 3
    parts = [slice(0, third), slice(len(values) - third, None)]
    if third < 2 * period:
        return False
    size = [_line_sum(values[part], observed[part], numbers[part], {period: ks}).std() for part in parts]
    level = [values[part].mean() for part in parts]
    if not min(size) > 0:
        return False
    growth, of_level = (math.log(pair[1] / pair[0]) for pair in (size, level))
    return abs(of_level) > math.log(_GROWN) and abs(growth - of_level) < abs(of_level) / 2


def _line_sum(
    values: Array, observed: NDArray[np.bool_], numbers: NDArray[np.int64], lines: dict[float, list[int]]
) -> Array:
    """The lines of some periods in a series, added up."""
    total = np.zeros(len(values))
    for period, (cosine, sine) in _least_squares(values, observed, numbers, lines).items():
        turns = 2 * math.pi * np.outer(numbers, np.array(lines[period]) / period)
        total += np.cos(turns) @ cosine + np.sin(turns) @ sine
    return total


def _least_squares(
    values: Array, observed: NDArray[np.bool_], numbers: NDArray[np.int64], lines: dict[float, list[int]]
) -> dict[float, tuple[Array, Array]]:
    """Cosines and sines of the lines of each period, beside a straight trend."""
    frequencies = np.array([k / period for period, ks in lines.items() for k in ks])
    turns = 2 * math.pi * np.outer(numbers, frequencies)
    time = np.linspace(-1, 1, len(values))[:, None]
    terms = np.hstack([np.ones_like(time), time, np.cos(turns), np.sin(turns)])
    fitted = np.linalg.lstsq(terms[observed], values[observed], rcond=1e-9)[0][2:]
    found, start, count = {}, 0, len(frequencies)
    for period, ks in lines.items():
        rows = slice(start, start + len(ks))
        found[period] = (fitted[:count][rows], fitted[count:][rows])
        start = rows.stop
    return found

"""Calendar cycles: the same at every hour of the day, day of the week or month of the year.

A cycle is a sum of harmonics whose phase is tied to the calendar, fitted by least squares. A series has it only if at
least one of its lines stands out of the spectrum around it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from parallelrnn.forecast.data import Array, Series
from parallelrnn.forecast.windows import Cycle, SeriesScaler, to_logs
from parallelrnn.interpret.display import Step

HARMONICS = 8
_MIN_TURNS = 3  # that the data must hold of a cycle
_MIN_TURNS_NAMED = 2  # the same for a cycle that the user names
_OUTSTANDING = 12.0  # times the power around a line; by chance once in 160,000 lines
_NEIGHBOURS = 25  # frequencies on each side of a line that its noise is estimated from
_CLOSE = 6.0  # turns, below which no frequencies lie between the lines
_NEIGHBOURS_CLOSE = 10  # frequencies on each side where lines lie close
_MIN_NEIGHBOURS = 4  # frequencies that can tell how much noise there is
_GROWTH = 1.3  # ratio of the levels of the last and the first third
_SECONDS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_CLOCK = (3600.0, 86400.0, 604800.0, 31557600.0)  # hour, day, week and year
_YEAR = {"business days": 260.89, "weeks": 52.1775, "months": 12.0}


def calendar_periods(step: Step) -> list[float]:
    """Return the periods in steps of the calendar cycles that steps of this size can show, the shortest first."""
    if step.unit in _SECONDS:
        periods = [seconds / (step.amount * _SECONDS[step.unit]) for seconds in _CLOCK]
    elif step.unit in _YEAR:
        periods = [5.0 / step.amount] if step.unit == "business days" else []
        periods.append(_YEAR[step.unit] / step.amount)
    else:
        periods = []
    return [period for period in periods if period >= 2]


def fit_cycles(series: Series, steps: int, periods: Sequence[float], named: bool = False) -> tuple[Cycle, ...]:
    """Fit the cycles of these periods to the first `steps` steps of a series, by least squares.

    Cycles that the user has `named` are not tested but taken, if the data hold them twice.
    """
    values, observed = series.values[:steps], series.observed[:steps]
    periods = sorted(period for period in periods if period * (_MIN_TURNS_NAMED if named else _MIN_TURNS) <= steps)
    lines = {period: harmonics(period, [p for p in periods if p < period], steps) for period in periods}
    numbers = np.arange(series.position, series.position + steps)
    cosines = {period: np.zeros((HARMONICS, values.shape[1])) for period in periods}
    sines = {period: np.zeros((HARMONICS, values.shape[1])) for period in periods}
    for channel in range(values.shape[1]):
        channel_values = values[:, channel], observed[:, channel], numbers
        present = periods if named else _outstanding(*channel_values, lines)
        if not named:
            present = [period for period in present if not _grows_with_level(*channel_values, period, lines[period])]
        coefficients = _least_squares(*channel_values, {period: lines[period] for period in present})
        for period, (cosine, sine) in coefficients.items():
            rows = np.array(lines[period]) - 1
            cosines[period][rows, channel], sines[period][rows, channel] = cosine, sine
    cycles = [Cycle(period, cosines[period], sines[period]) for period in periods]
    return tuple(cycle for cycle in cycles if cycle.cosines.any() or cycle.sines.any())


def fit_scaler(
    series: Series, steps: int, periods: Sequence[float], named: bool = False, floor: Array | None = None
) -> SeriesScaler:
    """Fit level, scale and cycles to the first `steps` steps of a series, or to its logarithms where it has a floor."""
    read = series if floor is None else replace(series, values=to_logs(series.values, floor))
    return SeriesScaler.fit(series, steps, fit_cycles(read, steps, periods, named), floor)


def harmonics(period: float, shorter: Sequence[float], steps: int) -> list[int]:
    """Return the harmonics of a cycle that steps can show and that belong to no shorter cycle."""
    taken = [k / p for p in shorter for k in range(1, HARMONICS + 1)]
    numbers = [k for k in range(1, HARMONICS + 1) if k / period <= 0.5]
    return [k for k in numbers if all(abs(k / period - frequency) * steps > 1 for frequency in taken)]


def _outstanding(
    values: Array, observed: NDArray[np.bool_], numbers: NDArray[np.int64], lines: dict[float, list[int]]
) -> list[float]:
    """Return the periods of which a line stands out of the spectrum around it, shorter ones removed first."""
    present: list[float] = []
    for period in lines:
        rest = values - _line_sum(values, observed, numbers, {p: lines[p] for p in present})
        if _stands_out(rest, period, lines):
            present.append(period)
    return present


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
    close = steps < _CLOSE * period
    without: Array | None = None  # the power once the lines of the period are taken off
    for k in lines[period]:
        place = k / period * steps
        around = power[between & (abs(bins - place) <= _NEIGHBOURS)]
        if close or len(around) < _MIN_NEIGHBOURS:
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
    """Return the spectrum of a series without the lines of a period and a linear trend."""
    steps = len(values)
    time = np.arange(steps)
    rest = values - _line_sum(values, np.ones(steps, dtype=bool), time, {period: numbers})
    rest = (rest - np.polyval(np.polyfit(time, rest, 1), time)) * np.hanning(steps + 2)[1:-1]
    return np.asarray(abs(np.fft.rfft(rest)) ** 2, dtype=np.float64)


def _noise_at(place: float, power: Array) -> float:
    """Return the mean power of noise at a frequency whose neighbours are lines; it may fall as a power of frequency."""
    bins = np.arange(1, len(power))
    near = bins[(abs(bins - place) <= _NEIGHBOURS_CLOSE) & (power[1:] > 0)]
    if len(near) < _MIN_NEIGHBOURS:
        return math.inf
    frequency, height = np.log(near / place), np.log(power[near])
    slope = min(0.0, float(np.polyfit(frequency, height, 1)[0]))
    # The mean logarithm of exponential noise lies below the logarithm of its mean by Euler's constant.
    return math.exp(float(np.mean(height - slope * frequency)) + np.euler_gamma)


def _grows_with_level(
    values: Array, observed: NDArray[np.bool_], numbers: NDArray[np.int64], period: float, ks: list[int]
) -> bool:
    """Return whether a cycle grows with the level, as in growing sales: then it is not the same every time."""
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
    return abs(of_level) > math.log(_GROWTH) and abs(growth - of_level) < abs(of_level) / 2


def _line_sum(
    values: Array, observed: NDArray[np.bool_], numbers: NDArray[np.int64], lines: dict[float, list[int]]
) -> Array:
    """Return the sum of the lines of these periods in a series."""
    total = np.zeros(len(values))
    for period, (cosine, sine) in _least_squares(values, observed, numbers, lines).items():
        turns = 2 * math.pi * np.outer(numbers, np.array(lines[period]) / period)
        total += np.cos(turns) @ cosine + np.sin(turns) @ sine
    return total


def _least_squares(
    values: Array, observed: NDArray[np.bool_], numbers: NDArray[np.int64], lines: dict[float, list[int]]
) -> dict[float, tuple[Array, Array]]:
    """Return cosines and sines of the lines of each period, fitted together with a linear trend."""
    frequencies = np.array([k / period for period, ks in lines.items() for k in ks])
    turns = 2 * math.pi * np.outer(numbers, frequencies)
    time = np.linspace(-1, 1, len(values))[:, None]
    terms = np.hstack([np.ones_like(time), time, np.cos(turns), np.sin(turns)])
    fitted = np.linalg.lstsq(terms[observed], values[observed], rcond=1e-9)[0][2:]
    coefficients, start, count = {}, 0, len(frequencies)
    for period, ks in lines.items():
        rows = slice(start, start + len(ks))
        coefficients[period] = (fitted[:count][rows], fitted[count:][rows])
        start = rows.stop
    return coefficients

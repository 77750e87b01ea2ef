"""Where the waves of a decoder start: at the strongest lines of the spectrum, or else they would not find them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from parallelrnn.estimators.panel import Array


def strongest_periods(series: Sequence[Array], count: int, lookback: int, longest: float) -> list[float]:
    """The periods of the highest peaks of the mean spectrum of some series (T, C), each of variance one about.

    Of periods between 2 steps and `longest`, and of those that so short a look-back cannot tell apart, one; if there
    are too few, log-spaced periods make up the number.
    """
    size = 1 << (max(len(one) for one in series) - 1).bit_length()
    power = np.zeros(size // 2 + 1)
    for one in series:
        for channel in one.T:
            time = np.arange(len(channel))
            flat = channel - np.polyval(np.polyfit(time, channel, min(1, len(channel) - 1)), time)
            power += abs(np.fft.rfft(flat * np.hanning(len(flat)), size)) ** 2 / len(flat)
    inner = np.flatnonzero((power[1:-1] >= power[:-2]) & (power[1:-1] > power[2:])) + 1
    peaks = [int(index) for index in inner if 2 < size / index <= longest]
    found: list[float] = []
    for index in sorted(peaks, key=lambda index: -power[index]):
        if len(found) < count and all(abs(index / size - 1 / period) >= 1 / lookback for period in found):
            found.append(size / index)
    spare: list[float] = np.geomspace(3, max(4.0, longest), count + 2)[1:-1].tolist()
    return found + spare[: count - len(found)]

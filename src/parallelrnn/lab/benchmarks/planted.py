"""Series whose answers are known: waves in noise, with a trend or without, and noise with nothing in it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from parallelrnn.classical.structural import Block, Filtered, Structural
from parallelrnn.forecast.data import Series
from parallelrnn.forecast.shares import Part, series_shares

Array = NDArray[np.float64]
RISE = 4.0  # of a trend over the whole series, in deviations of waves and noise


def _recursion(errors: Array, coefficient: float) -> Array:
    from scipy.signal import lfilter

    filtered: Array = lfilter([1.0], [1.0, -coefficient], errors)
    return filtered


def _garch(rng: np.random.Generator, steps: int) -> Array:
    variance, values = 1.0, []
    for error in rng.standard_normal(steps):
        values.append(math.sqrt(variance) * error)
        variance = 0.05 + 0.1 * values[-1] ** 2 + 0.85 * variance
    return np.array(values)


EMPTY: dict[str, Callable[[np.random.Generator, int], Array]] = {
    "white noise": lambda rng, steps: rng.standard_normal(steps),
    "random walk": lambda rng, steps: rng.standard_normal(steps).cumsum(),
    "AR(1), 0.5": lambda rng, steps: _recursion(rng.standard_normal(steps), 0.5),
    "AR(1), 0.9": lambda rng, steps: _recursion(rng.standard_normal(steps), 0.9),
    "MA(1), 0.6": lambda rng, steps: np.convolve(rng.standard_normal(steps + 1), [1.0, 0.6], "valid"),
    "GARCH": _garch,
    "counts": lambda rng, steps: rng.poisson(3.0, steps).astype(float),
    "heavy tails": lambda rng, steps: rng.standard_t(2.5, steps),
}


class Planted:
    """Waves of equal variance, a trend and white noise of variance one."""

    def __init__(self, periods: Sequence[float], half_life: float | None, trend: bool, ratio: float, length: int):
        self.periods, self.length, self.trend = tuple(periods), length, trend
        self.half_life = math.inf if half_life is None else half_life
        self.rate = 0.0 if half_life is None else math.log(2) / half_life
        self.variance = ratio / len(periods)  # of each wave
        self.slope = RISE * math.sqrt(1 + ratio) / length if trend else 0.0

    def draw(self, seed: int) -> Array:
        """Return a series."""
        # Settings have draws of their own, so that what chance does to one is not repeated in all others.
        about = [self.length, self.trend, *(round(1000 * value) for value in (self.variance, *self.periods, self.rate))]
        rng = np.random.default_rng([seed, *about])
        time = np.arange(self.length)
        series: Array = rng.standard_normal(self.length) + self.slope * time
        for period in self.periods:
            series += self.wave(rng, period)
        return series

    def wave(self, rng: np.random.Generator, period: float) -> Array:
        """Return one wave."""
        from scipy.signal import lfilter

        time = np.arange(self.length)
        if math.isinf(self.half_life):
            sine: Array = math.sqrt(2 * self.variance) * np.cos(2 * math.pi * time / period + rng.uniform(0, 6.3))
            return sine
        modulus = math.exp(-self.rate)
        drive = rng.standard_normal((2, self.length)) * math.sqrt(self.variance * (1 - modulus**2))
        start = rng.standard_normal(2) * math.sqrt(self.variance)
        drive[:, 0] = start
        state = lfilter([1.0], [1.0, -modulus * np.exp(2j * math.pi / period)], drive[0] + 1j * drive[1])
        return np.real(state)

    def true_shares(self, horizon: int) -> list[float]:
        """Return the part of the variation of such series that the best forecasts explain by each wave."""
        total = (1 + self.variance * len(self.periods)) * (1 + RISE**2 / 12 * self.trend)
        if not self.rate:
            return [self.variance / total] * len(self.periods)
        transition, seen, covariance = self.filter()
        ahead = covariance @ seen.T
        filtered = covariance - ahead @ ahead.T / (1 + float((seen @ ahead)[0, 0]))
        known = self.variance * np.eye(len(transition)) - filtered  # of the states as the filter has them
        shares = np.zeros(len(self.periods))
        for _ in range(horizon):
            known = transition @ known @ transition.T
            shares += known[::2, ::2].sum(1)
        return [float(share) for share in shares / horizon / total]

    def observed_shares(self, series: Array, horizon: int) -> list[float]:
        """Return the part of the variation of one such series that the best forecasts explain by each wave."""
        time = np.linspace(-1, 1, self.length)
        model = Structural([series], [np.column_stack([np.ones_like(time), time])])
        angles = [2 * math.pi / period for period in self.periods]
        fit = Filtered(model, tuple(Block(variance=self.variance, rate=self.rate, angle=angle) for angle in angles))
        return series_shares(fit, [Part(blocks=(wave,)) for wave in range(len(angles))], horizon)

    def filter(self) -> tuple[Array, Array, Array]:
        """Return transition, reading and the covariance of predicted states, by the Riccati equation."""
        from scipy.linalg import block_diag, solve_discrete_are

        poles = [np.exp(-self.rate + 2j * math.pi / period) for period in self.periods]
        transition = block_diag(*[np.array([[z.real, z.imag], [-z.imag, z.real]]) for z in poles])
        seen = np.tile([1.0, 0.0], len(poles))[None]
        drive = self.variance * -math.expm1(-2 * self.rate) * np.eye(len(transition))
        return transition, seen, solve_discrete_are(transition.T, seen.T, drive, [[1.0]])


def as_series(values: Array) -> Series:
    """Return an array as a series of days."""
    empty = np.zeros((len(values), 0))
    observed = np.ones((len(values), 1), dtype=bool)
    return Series(
        name="a", position=0, values=values[:, None], observed=observed, past=empty, future=empty, static=empty[0]
    )

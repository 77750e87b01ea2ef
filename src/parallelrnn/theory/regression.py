"""Nonparametric regression on sequences: how fast the excess risk of a fit falls with the number of sequences.

The setting is that of Section 4 of arXiv 2605.02692: X is uniform on [0, 1]^(T x d_in), y = f0(X) + noise, and the
excess risk is E (fit(X) - f0(X))^2. Over all f0 of Hoelder smoothness beta no method is faster than
N^(-2 beta / (d_in T + 2 beta)) (Stone, 1982), and by Corollary 1 empirical risk minimisation over ParaRNNs is as fast,
up to logarithms. This module has targets of known smoothness, samples of them, and the excess risk of any fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from parallelrnn.errors import ArgumentError, check_integer, check_number

Array = NDArray[np.float64]
Predict = Callable[[Array], Array]  # sequences (N, T, C) -> values (N,)
Fit = Callable[[Array, Array], Predict]  # from sequences (N, T, C) and responses (N,)

_BUMP_HEIGHT = math.sqrt(8 / 3)  # of sin^2, so that its mean square over a period is one
_LEVELS = 24  # of a rough target; 2^24 x is exact in double precision for every x that a generator draws
_TEST_SIZE = 20_000  # points at which a fit is compared with its target
_TEST_KEY = 1  # separates the generator of these points from those of samples


class Target(Protocol):
    """A regression function f0 on [0, 1]^(T x d_in)."""

    @property
    def length(self) -> int:
        """The length T of the sequences."""

    @property
    def input_size(self) -> int:
        """The number d_in of inputs per step."""

    @property
    def smoothness(self) -> float:
        """The exact Hoelder smoothness beta; infinite if the function is analytic."""

    def __call__(self, x: Array) -> Array:
        """Return the values (N,) at sequences (N, T, C)."""


@dataclass(frozen=True)
class AnalyticTarget:
    """One bump over the cube, the product of sqrt(8/3) sin^2(pi x) over all coordinates; its mean square is one."""

    length: int
    input_size: int = 1

    @property
    def smoothness(self) -> float:
        """Infinite, since the function is analytic."""
        return math.inf

    def __call__(self, x: Array) -> Array:
        """Return the values (N,) at sequences (N, T, C)."""
        return _bump(_coordinates(self, x))


@dataclass(frozen=True)
class RoughTarget:
    """The sum over levels j of 2^(-beta j) times bumps with random signs, one on each of 2^(j d_in T) equal cells.

    Level j is the analytic target, shrunk to the cells of level j. It is of size 2^(-beta j), and its second
    derivatives are of size 2^((2 - beta) j), so for 0 < beta < 2, beta != 1, the sum has Hoelder smoothness beta. It is
    not smoother anywhere: for opposite corners of a cell, f(corner) - 2 f(centre) + f(opposite) of the level is 2^(1 -
    beta j) times +-1, and higher levels vanish at all three points. These functions prove that the rate is optimal: the
    signs of level j cannot be told from noise with fewer than about 2^((d_in T + 2 beta) j) sequences, so that, on
    average over signs, no method is faster.

    (At beta = 1 the sum is not Lipschitz by a logarithm, and from beta = 2 on the edges of the bumps are too sharp.)
    The sum is truncated after 24 levels.
    """

    smoothness: float
    length: int
    input_size: int = 1
    seed: int = 0  # of the signs

    def __post_init__(self) -> None:
        expected = "a number above 0 and below 2 other than 1 (AnalyticTarget is smooth)"
        check_number("smoothness", self.smoothness, expected, lambda value: 0 < value < 2 and value != 1)

    def __call__(self, x: Array) -> Array:
        """Return the values (N,) at sequences (N, T, C)."""
        points = _coordinates(self, x)
        values = np.zeros(len(points))
        for level in range(_LEVELS):
            place, cell = np.modf(2.0**level * points)  # (N, d_in T) each
            signs = _signs(cell.astype(np.uint64), self.seed * _LEVELS + level)
            values += 2.0 ** (-self.smoothness * level) * signs * _bump(place)
        return values


def minimax_slope(smoothness: float, dimension: int) -> float:
    """Return the slope -2 beta / (dimension + 2 beta) of log risk against log N for Hoelder functions.

    See Theorem 1 of Stone, "Optimal global rates of convergence for nonparametric regression" (1982), and Corollary 1
    of arXiv 2605.02692, with dimension = d_in T. For an analytic function the slope is -1, up to logarithms.
    """
    check_number("smoothness", smoothness, "a number above 0", lambda value: value > 0)
    check_integer("dimension", dimension, 1)
    return -1.0 if math.isinf(smoothness) else -2 * smoothness / (dimension + 2 * smoothness)


def sample(target: Target, size: int, noise: float, seed: int) -> tuple[Array, Array]:
    """Draw sequences (N, T, C), uniform on the cube, and responses (N,) with Gaussian noise of this deviation."""
    random = np.random.default_rng([seed, size])
    x = random.uniform(size=(size, target.length, target.input_size))
    return x, target(x) + noise * random.standard_normal(size)


def distance(predict: Predict, target: Target, seed: int = 0) -> float:
    """Estimate the excess risk E (predict(X) - f0(X))^2 at 20,000 points that are in no sample."""
    random = np.random.default_rng([seed, _TEST_SIZE, _TEST_KEY])
    x = random.uniform(size=(_TEST_SIZE, target.length, target.input_size))
    return float(np.mean((predict(x) - target(x)) ** 2))


@dataclass(frozen=True)
class Risk:
    """The excess risk of one fit."""

    size: int  # N
    seed: int  # of its sample
    excess: float


def excess_risk(
    fit: Fit, target: Target, sizes: Iterable[int], replicates: int, noise: float = 0.5
) -> tuple[Risk, ...]:
    """Compute the excess risk of a fit to a new sample for each size and replicate, whose number is the seed.

    Examples
    --------
    >>> target = AnalyticTarget(length=2)
    >>> def mean(x, y):
    ...     return lambda new: np.full(len(new), y.mean())
    >>> risks = excess_risk(mean, target, sizes=[100, 400], replicates=3)
    >>> [(risk.size, risk.seed) for risk in risks]
    [(100, 0), (100, 1), (100, 2), (400, 0), (400, 1), (400, 2)]
    """
    return tuple(
        Risk(size, seed, distance(fit(*sample(target, size, noise, seed)), target, seed))
        for size in sizes
        for seed in range(replicates)
    )


@dataclass(frozen=True)
class Slope:
    """The slope of log risk against log N, the mean over all replicates."""

    value: float
    standard_error: float  # the standard deviation between replicates over the root of their number
    intercept: float

    def at(self, size: float) -> float:
        """Return the risk on the line at a sample size."""
        return math.exp(self.intercept + self.value * math.log(size))


def slope_of(risks: Sequence[Risk]) -> Slope:
    """Fit a straight line through the logarithms for each replicate, that is, each seed.

    If all replicates have the same sizes, the mean of the lines is the least-squares line through all fits.
    """
    replicates = [[risk for risk in risks if risk.seed == seed] for seed in sorted({risk.seed for risk in risks})]
    if len(replicates) < 2 or any(len({risk.size for risk in replicate}) < 2 for replicate in replicates):
        expected = "at least 2 replicates, each with samples of at least 2 sizes"
        raise ArgumentError(argument="risks", expected=expected, got=f"{len(risks)} of {len(replicates)} replicates")
    lines = np.array([_line(replicate) for replicate in replicates])  # (replicates, 2)
    slope, intercept = lines.mean(axis=0)
    return Slope(float(slope), float(lines[:, 0].std(ddof=1) / math.sqrt(len(lines))), float(intercept))


def _line(risks: Sequence[Risk]) -> Array:
    """Return slope and intercept."""
    return np.polyfit([math.log(risk.size) for risk in risks], [math.log(risk.excess) for risk in risks], 1)


def _coordinates(target: Target, x: Array) -> Array:
    """Flatten each sequence to a row, (N, d_in T)."""
    if np.ndim(x) != 3 or np.shape(x)[1:] != (target.length, target.input_size):
        expected = f"sequences (N, {target.length}, {target.input_size})"
        raise ArgumentError(argument="x", expected=expected, got=np.shape(x))
    return np.asarray(x, dtype=np.float64).reshape(len(x), -1)


def _bump(points: Array) -> Array:
    """Return the bump (N,) at points (N, d_in T); it vanishes, with its slope, if a coordinate is an integer."""
    values: Array = np.prod(_BUMP_HEIGHT * np.sin(np.pi * points) ** 2, axis=1)
    return values


def _signs(cells: NDArray[np.uint64], key: int) -> Array:
    """Return a reproducible fair sign for each cell (N, d_in T)."""
    state = _mixed(np.full(len(cells), key, dtype=np.uint64))
    for coordinate in cells.T:
        state = _mixed(state ^ coordinate)
    signs: Array = 1.0 - 2.0 * (state >> np.uint64(63))
    return signs


def _mixed(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Apply one step of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014)."""
    state = state + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: NDArray[np.uint64] = state ^ (state >> np.uint64(31))
    return mixed

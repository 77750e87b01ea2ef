"""How sure a reading is: features or modes of several fits, matched to each other.

The fits may differ in their seeds, or in the data: bootstrap samples, or the series with one of its stretches left out
(jackknife). A feature has no name that would stay the same from fit to fit, so the closest ones are taken as the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parallelrnn.interpret.dynamics import Dynamics, Table
from parallelrnn.interpret.text import Summary, table
from parallelrnn.interpret.units import Step

Array = NDArray[np.float64]
METHODS = ("quantiles", "jackknife")


@dataclass(frozen=True)
class Interval:
    """An estimate between two limits."""

    estimate: float
    low: float
    high: float

    def format(self, step: Step | None = None) -> str:
        """Estimate and limits, in the words of a calendar or as percentages."""
        if math.isnan(self.estimate):
            return "-"
        if step is None:
            return f"{self.estimate:.1%} ({self.low:.1%} to {self.high:.1%})"
        estimate, low, high = (step.format(value) for value in (self.estimate, self.low, self.high))
        return f"{estimate} ({low} to {high})"


@dataclass(frozen=True)
class Matched:
    """What the fits say of one feature or mode."""

    rows: tuple[Dynamics, ...]  # one of each fit in which it appears
    label: str  # the most frequent type
    frequency: float  # the part of the fits in which it appears
    modulus: Interval
    period: Interval
    half_life: Interval
    share: Interval


@dataclass(frozen=True)
class MatchedTables(Sequence[Matched]):
    """Features or modes of several fits, those that appear most often first."""

    rows: tuple[Matched, ...]
    fits: int
    level: float
    time: Step

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]

    def summary(self, most: int = 20) -> Summary:
        """Intervals for period, half-life and share."""
        names = ("type", "fits", "period", "half-life", "share")
        rows = [
            (
                one.label,
                f"{one.frequency:.0%}",
                "-" if math.isinf(one.period.estimate) else one.period.format(self.time),
                one.half_life.format(self.time),
                one.share.format(),
            )
            for one in self.rows[:most]
        ]
        notes = [f"{self.fits} fits; intervals at {self.level:.0%}. Fits: in how many of them it appears."]
        return table("Fits compared", names, rows, notes)


def match_fits(
    tables: Sequence[Table[Any]], *, level: float = 0.9, method: str = "quantiles", furthest: float = 0.25
) -> MatchedTables:
    """Match the rows of several fits' tables to each other, and give intervals.

    As poles s = -log(eigenvalue) two rows are |s - s'| / (|s| + |s'|) apart, which is relative in half-life and period
    alike: a quarter is a period of 24 beside one of 40. Each table is matched to that which lies nearest to all others,
    so that the sum of these distances is smallest; rows further than `furthest` from each other are not the same.

    `method`: "quantiles" of the fits, for seeds and bootstrap samples; "jackknife", for fits that leave out one stretch
    of the data each, widens the scatter of these fits to that of fits to independent data.
    """
    _check(tables, level, method, furthest)
    reference = _most_central(tables)
    found: list[list[Dynamics]] = [[row] for row in tables[reference]]
    for index, other in enumerate(tables):
        if index == reference:
            continue
        for row, column in _pairs(tables[reference], other, furthest):
            found[row].append(other[column])
    matched = [_matched(rows, len(tables), level, method) for rows in found]
    matched.sort(key=lambda one: (-one.frequency, -(0 if math.isnan(one.share.estimate) else one.share.estimate)))
    return MatchedTables(tuple(matched), len(tables), level, tables[reference].time)


def distances(first: Sequence[Dynamics], second: Sequence[Dynamics]) -> Array:
    """How far apart the rows of two tables are, (len(first), len(second)), from 0 to 1."""
    ours, theirs = _poles(first)[:, None], _poles(second)[None, :]
    size = abs(ours) + abs(theirs)
    relative: Array = abs(ours - theirs) / np.where(size > 0, size, 1.0)
    return relative


def _poles(rows: Sequence[Dynamics]) -> NDArray[np.complex128]:
    # A modulus of zero is gone at once; a rate of 50 a step is that for all purposes.
    return np.array([complex(min(-math.log(max(row.modulus, 1e-22)), 50.0), row.angle) for row in rows], dtype=complex)


def _pairs(first: Sequence[Dynamics], second: Sequence[Dynamics], furthest: float) -> list[tuple[int, int]]:
    """The best assignment of rows to rows, without the pairs that are too far apart."""
    from scipy.optimize import linear_sum_assignment

    cost = np.minimum(distances(first, second), furthest)  # those beyond are all alike: none
    return [(int(i), int(j)) for i, j in zip(*linear_sum_assignment(cost), strict=True) if cost[i, j] < furthest]


def _most_central(tables: Sequence[Table[Any]]) -> int:
    """The table whose rows lie nearest to those of all others."""
    from scipy.optimize import linear_sum_assignment

    totals = np.zeros(len(tables))
    for i, first in enumerate(tables):
        for j in range(i):
            cost = distances(first, tables[j])
            unmatched = abs(len(first) - len(tables[j]))
            total = cost[linear_sum_assignment(cost)].sum() + unmatched
            totals[[i, j]] += total
    return int(totals.argmin())


def _matched(rows: list[Dynamics], fits: int, level: float, method: str) -> Matched:
    def interval(name: str) -> Interval:
        values = np.array([getattr(row, name) for row in rows], dtype=float)
        return _jackknife(values, level) if method == "jackknife" else _quantiles(values, level)

    labels = [row.label for row in rows]
    return Matched(
        tuple(rows),
        max(set(labels), key=labels.count),
        len(rows) / fits,
        interval("modulus"),
        interval("period"),
        interval("half_life"),
        interval("share"),
    )


def _quantiles(values: Array, level: float) -> Interval:
    # Of existing values, since a period or a half-life may be infinite.
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], method="inverted_cdf")
    return Interval(float(np.quantile(values, 0.5, method="inverted_cdf")), float(low), float(high))


def _jackknife(values: Array, level: float) -> Interval:
    """The mean and the normal interval with the jackknife's standard error (Efron and Stein, 1981)."""
    mean = float(values.mean())
    if len(values) < 2 or not np.isfinite(values).all():
        return Interval(mean, math.nan, math.nan)
    error = math.sqrt((len(values) - 1) / len(values) * float(((values - mean) ** 2).sum()))
    width = NormalDist().inv_cdf((1 + level) / 2) * error
    return Interval(mean, mean - width, mean + width)


def _check(tables: Sequence[Table[Any]], level: float, method: str, furthest: float) -> None:
    if len(tables) < 2:
        raise ValueError(f"several fits are compared with each other; got {len(tables)}")
    if any(len(one) == 0 for one in tables):
        raise ValueError("a fit without any features has nothing to match")
    if method not in METHODS:
        raise ValueError(f"method should be one of {', '.join(map(repr, METHODS))}, got {method!r}")
    if not 0 < level < 1 or not 0 < furthest <= 1:
        raise ValueError(f"level and furthest lie between 0 and 1, got {level} and {furthest}")

"""How sure a reading is: features or modes of several fits, matched to each other.

The fits may differ in their seeds, or in the data: bootstrap samples, or the series with one of its stretches left out
(jackknife). A feature has no name that would stay the same from fit to fit, so the closest ones are taken as the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parallelrnn.interpret.dynamics import Row, Table, half_life_of
from parallelrnn.interpret.text import Display, Summary
from parallelrnn.interpret.units import Step

Array = NDArray[np.float64]
METHODS = ("quantiles", "bootstrap", "jackknife")
_SLOW = 0.01  # a step: rates that are smaller are much the same


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
            limits = "" if math.isnan(self.low) else f" ({self.low:.1%} to {self.high:.1%})"
            return f"{self.estimate:.1%}{limits}"
        estimate, low, high = (step.format(value) for value in (self.estimate, self.low, self.high))
        return estimate if math.isnan(self.low) else f"{estimate} ({low} to {high})"


@dataclass(frozen=True)
class Matched:
    """What the fits say of one feature or mode."""

    row: Row  # that to which the others were matched
    rows: tuple[Row, ...]  # one of each fit in which it appears
    label: str  # the most frequent type
    frequency: float  # the part of the fits in which it appears
    modulus: Interval
    period: Interval
    half_life: Interval
    share: Interval


@dataclass(frozen=True)
class MatchedTables(Sequence[Matched]):
    """Features or modes of several fits, those that appear most often first."""

    name: str  # of what was matched
    rows: tuple[Matched, ...]
    fits: int
    level: float
    time: Step

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]

    def summary(self, most: int = 20) -> Summary:
        """The same for the terminal."""
        return self.display(most).text()

    def display(self, most: int = 20) -> Display:
        """Intervals for period, half-life and share, as a table of so many."""
        places = any(one.row.place for one in self.rows)
        names = (*(("layer", "direction", "gate") if places else ()), "type", "fits", "period", "half-life", "share")
        rows = [
            (
                *map(str, one.row.place),
                one.label,
                f"{one.frequency:.0%}",
                "-" if math.isinf(one.period.estimate) else one.period.format(self.time),
                one.half_life.format(self.time),
                one.share.format(),
            )
            for one in self.rows[:most]
        ]
        notes = [f"Intervals at {self.level:.0%}. Fits: in how many of them it appears."]
        return Display(f"{self.name} in {self.fits} fits", names, rows, notes)


def match_fits(
    tables: Sequence[Table[Any]],
    fitted: Table[Any] | None = None,
    *,
    level: float = 0.9,
    method: str = "quantiles",
    furthest: float = 0.25,
) -> MatchedTables:
    """Match the rows of several fits' tables to each other, and give intervals.

    As poles s = -log(eigenvalue) two rows are |s - s'| / (|s| + |s'| + 0.01) apart, which is relative in half-life and
    period alike: a quarter is a period of 24 beside one of 40. The hundredth is for what hardly moves in 100 steps:
    there, levels and slow trends are the same. Each table is matched to that of the fit to the data itself,
    `fitted`, or without it to that which lies nearest to all others, so that the sum of these distances is smallest;
    features of different layers, directions or gates are never matched. A row appears in a fit if its match is no
    further than `furthest`. Intervals are of all matches, near or not: the less sure a row is, the further away are
    some. Where fewer than `level` of the fits have a match there is no interval.

    `method`: "quantiles" of the fits, for seeds. "bootstrap", for fits to series that were drawn anew (see
    `bootstrap_series`): the estimate is that of `fitted`, and Student's interval of the scatter around it.
    "jackknife", for fits that leave out one stretch of the data each: the same, with the scatter widened to that of
    fits to independent data. Both are taken of the logarithms of periods and half-lives.
    """
    _check(tables, fitted, level, method, furthest)
    reference = tables[_most_central(tables)] if fitted is None else fitted
    near: list[list[Row]] = [[] for _ in reference]
    found: list[list[Row]] = [[] for _ in reference]
    for table in tables:
        for row, column, apart in _pairs(reference, table, furthest):
            found[row].append(table[column])
            if apart < furthest:
                near[row].append(table[column])
    matched = [
        _matched(row, close, every, len(tables), level, method, fitted is not None)
        for row, close, every in zip(reference, near, found, strict=True)
    ]
    matched.sort(key=lambda one: (-one.frequency, -(0 if math.isnan(one.share.estimate) else one.share.estimate)))
    return MatchedTables(reference.name, tuple(matched), len(tables), level, reference.time)


def nearest(row: Row, matched: MatchedTables, furthest: float = 0.25) -> Matched | None:
    """What several fits say of a row of one of them."""
    apart = distances([row], [one.row for one in matched])[0]
    best = int(apart.argmin())
    return matched.rows[best] if apart[best] < furthest else None


def distances(first: Sequence[Row], second: Sequence[Row]) -> Array:
    """How far apart the rows of two tables are, (len(first), len(second)), from 0 to 1."""
    ours, theirs = _poles(first)[:, None], _poles(second)[None, :]
    relative: Array = abs(ours - theirs) / (abs(ours) + abs(theirs) + _SLOW)
    return relative


def _poles(rows: Sequence[Row]) -> NDArray[np.complex128]:
    # A modulus of zero is gone at once; a rate of 50 a step is that for all purposes.
    return np.array([complex(min(-math.log(max(row.modulus, 1e-22)), 50.0), row.angle) for row in rows], dtype=complex)


def _pairs(first: Sequence[Row], second: Sequence[Row], furthest: float) -> list[tuple[int, int, float]]:
    """The best assignment of rows to rows at the same places, and how far apart they are."""
    from scipy.optimize import linear_sum_assignment

    apart = distances(first, second)
    elsewhere = np.array([[one.place != other.place for other in second] for one in first])
    # What is beyond counts nearly alike, so that two that are the same are not parted for two that are not.
    cost = np.minimum(apart, furthest) + 1e-3 * apart + 10 * elsewhere
    pairs = zip(*linear_sum_assignment(cost), strict=True)
    return [(int(i), int(j), float(apart[i, j])) for i, j in pairs if not elsewhere[i, j]]


def _most_central(tables: Sequence[Table[Any]]) -> int:
    """The table whose rows lie nearest to those of all others."""
    totals = np.zeros(len(tables))
    for i, first in enumerate(tables):
        for j in range(i):
            pairs = _pairs(first, tables[j], 1.0)
            unmatched = max(len(first), len(tables[j])) - len(pairs)
            totals[[i, j]] += sum(apart for _, _, apart in pairs) + unmatched
    return int(totals.argmin())


def _matched(
    row: Row, near: list[Row], rows: list[Row], fits: int, level: float, method: str, is_estimate: bool
) -> Matched:
    """What the fits say of a row, which is the estimate itself or only one of them."""

    def interval(name: str, logarithmic: bool = False, least: float = -math.inf) -> Interval:
        values = np.array([getattr(one, name) for one in rows], dtype=float)
        values = values[~np.isnan(values)]
        estimate = float(getattr(row, name)) if is_estimate else None
        if len(values) < max(2, level * fits):
            return Interval(float(getattr(row, name)), math.nan, math.nan)
        if method == "quantiles":
            return _quantiles(values, estimate, level)
        # Of the mean of fits that leave one of n stretches out, the variance is (n - 1)^2 / n times theirs.
        wider = (fits - 1) / math.sqrt(fits) if method == "jackknife" else 1.0
        found = _student(values, estimate, level, wider, logarithmic)
        return replace(found, low=max(found.low, least))

    modulus, half_life = interval("modulus", least=0.0), interval("half_life", logarithmic=True)
    if method != "quantiles" and half_life.estimate in (0.0, math.inf) and not math.isnan(modulus.low):
        # These have no logarithm around which anything would scatter.
        low, high = (half_life_of(limit) for limit in (modulus.low, modulus.high))
        half_life = Interval(half_life.estimate, low, high)
    labels = [one.label for one in near] or [row.label]
    return Matched(
        row,
        tuple(near),
        max(sorted(set(labels)), key=lambda label: (labels.count(label), label == row.label)),
        len(near) / fits,
        modulus,
        interval("period", logarithmic=True, least=2.0),
        half_life,
        interval("share"),
    )


def _quantiles(values: Array, estimate: float | None, level: float) -> Interval:
    # Of existing values, since a period or a half-life may be infinite.
    low, middle, high = np.quantile(values, [(1 - level) / 2, 0.5, (1 + level) / 2], method="inverted_cdf")
    return Interval(float(middle) if estimate is None else estimate, float(low), float(high))


def _student(values: Array, estimate: float | None, level: float, wider: float, logarithmic: bool) -> Interval:
    """Student's interval around the estimate, or the mean, of what scatters like the values times `wider`."""
    from scipy.special import stdtrit

    endless = float((~np.isfinite(values)).mean())  # periods of decays, half-lives of what does not fade
    scaled = values[np.isfinite(values)]
    if len(scaled) < 2 or estimate == math.inf or (logarithmic and (estimate == 0 or not scaled.all())):
        return _quantiles(values, estimate, level)
    scaled = np.log(scaled) if logarithmic else scaled
    centre = float(scaled.mean()) if estimate is None else math.log(estimate) if logarithmic else estimate
    width = wider * float(scaled.std(ddof=1)) * float(stdtrit(len(scaled) - 1, (1 + level) / 2))
    low, middle, high = (math.exp(at) if logarithmic else at for at in (centre - width, centre, centre + width))
    return Interval(middle, low, math.inf if endless > (1 - level) / 2 else high)


def _check(tables: Sequence[Table[Any]], fitted: Table[Any] | None, level: float, method: str, furthest: float) -> None:
    if len(tables) < 2:
        raise ValueError(f"several fits are compared with each other; got {len(tables)}")
    if any(len(one) == 0 for one in tables):
        raise ValueError("a fit without any features has nothing to match")
    if method not in METHODS:
        raise ValueError(f"method should be one of {', '.join(map(repr, METHODS))}, got {method!r}")
    if method == "bootstrap" and fitted is None:
        raise ValueError("the bootstrap says how far estimates scatter; give the table of the fit to the data: fitted=")
    if len({table.name for table in (*tables, *([] if fitted is None else [fitted]))}) > 1:
        raise ValueError("recurrence features are no forecast modes; compare tables of one kind")
    if not 0 < level < 1 or not 0 < furthest <= 1:
        raise ValueError(f"level and furthest lie between 0 and 1, got {level} and {furthest}")

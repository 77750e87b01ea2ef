"""How sure a reading is: features or modes of several fits, matched with each other.

The fits may differ in their seeds or in their data: bootstrap series, or the series with one stretch left out
(jackknife). Features have no names that carry over from fit to fit, so the closest ones count as the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from parallelrnn.errors import ArgumentError, InputError, check_choice, check_integer, check_number
from parallelrnn.interpret.display import Display, Step, Summary
from parallelrnn.interpret.dynamics import Row, Table, half_life_of
from parallelrnn.interpret.freerun import FreeRun
from parallelrnn.interpret.layers import as_input, as_taken, time_first

Array = NDArray[np.float64]
METHODS = ("quantiles", "bootstrap", "jackknife")
_SLOW_RATE = 0.01  # per step; slower rates are hardly distinguishable
_MAX_DIGITS = 6  # of a period, if its limits are close
_BURN_IN = 500  # steps of a bootstrap series that are discarded, at most as many as there are data


@dataclass(frozen=True)
class Interval:
    """An estimate between two limits."""

    estimate: float
    low: float
    high: float

    def span(self, step: Step) -> str:
        """Return the limits alone: "23.1 to 24.8 h"."""
        low, high = step.format(self.low), step.format(self.high)
        same = low.partition(" ")[2] in (high.partition(" ")[2], "")
        return f"{low.partition(' ')[0] if same else low} to {high}"

    def format(self, step: Step | None = None) -> str:
        """Return estimate and limits, in calendar units or, without a step, as percentages: "24 (23.1 to 24.8) h"."""
        if math.isnan(self.estimate):
            return "-"
        values = [self.estimate] if math.isnan(self.low) else [self.estimate, self.low, self.high]
        texts = [_percent(value) for value in values] if step is None else _distinct(values, step)
        names = [text.partition(" ")[2] for text in texts]
        units = {name.removesuffix("s") if len(name) > 3 else name for name in names} - {""}  # 1 year, 2 years, inf
        if len(units) > 1:
            return "{} ({} to {})".format(*texts)
        unit = max(names, key=len)
        numbers = [text.partition(" ")[0] for text in texts]
        return numbers[0] + (" ({} to {})".format(*numbers[1:]) if numbers[1:] else "") + f" {unit}"


def _distinct(values: Sequence[float], step: Step) -> list[str]:
    """Return values with as many digits as tell the last two, the limits, apart."""
    for digits in range(3, _MAX_DIGITS + 1):
        texts = [step.format(value, digits=digits) for value in values]
        if values[-1] == values[0] or texts[-1] != texts[-2]:
            break
    return texts


def _percent(share: float) -> str:
    return f"{round(100 * share, 1) + 0.0:.{0 if abs(share) >= 0.0995 else 1}f} %"  # 0.0 %, not -0.0 %


@dataclass(frozen=True, kw_only=True)
class Matched:
    """One feature or mode across fits."""

    row: Row  # the reference, with which the others were matched
    rows: tuple[Row, ...]  # one from each fit in which it appears
    label: str  # the most frequent type
    frequency: float  # the fraction of fits in which it appears
    modulus: Interval
    period: Interval
    half_life: Interval
    share: Interval


@dataclass(frozen=True, kw_only=True)
class MatchedTables(Sequence[Matched]):
    """Features or modes of several fits, the most frequent first."""

    name: str  # of the tables that were matched
    rows: tuple[Matched, ...]
    fits: int
    level: float
    time: Step

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]

    def summary(self, most: int = 20) -> Summary:
        """Return the intervals as text for the terminal."""
        return self.display(most).text()

    def display(self, most: int = 20) -> Display:
        """Return the intervals of period, half-life and share as a table of at most `most` rows."""
        places = any(matched.row.place for matched in self.rows)
        names = (*(("layer", "direction", "gate") if places else ()), "type", "fits", "period", "half-life", "share")
        rows = [
            (
                *map(str, matched.row.place),
                matched.label,
                f"{matched.frequency:.0%}",
                "-" if math.isinf(matched.period.estimate) else matched.period.format(self.time),
                matched.half_life.format(self.time),
                matched.share.format(),
            )
            for matched in self.rows[:most]
        ]
        notes = [f"Intervals at {self.level:.0%}. Fits: the fraction of fits in which the row reappears."]
        return Display(f"{self.name} in {self.fits} fits", names, rows, notes)


@torch.no_grad()
def bootstrap_series(model: Any, readout: nn.Module | None, x: Tensor, count: int = 30, *, seed: int = 0) -> Tensor:
    """Draw series (T, count, C) that are as likely as x, one sequence (T, C), according to the model.

    Each value is the model's forecast from the values before it, plus one of the model's residuals on x, drawn with
    replacement (the residual bootstrap). Fit the model to each series, and `match_fits` says how sure the reading is.
    """
    check_integer("count", count, 1)
    if x.dim() != 2 or len(x) < 2:
        raise ArgumentError(argument="x", expected="one sequence (T, C) of at least 2 steps", got=tuple(x.shape))
    run = FreeRun(model, readout)
    series = time_first(run.layer, as_input(run.layer, x))
    forecasts = time_first(run.layer, run.readout(run.layer(as_taken(run.layer, series))[0]))
    residuals = (series[1:] - forecasts[:-1])[:, 0]
    residuals = residuals - residuals.mean(0)
    random = torch.Generator().manual_seed(seed)
    burn_in = min(_BURN_IN, len(x))
    drawn = residuals[torch.randint(len(residuals), (burn_in + len(x), count), generator=random)]  # (.. + T, count, C)
    values = (_linear_run if run.is_linear else _run)(run, drawn)[burn_in:]
    if not values.isfinite().all():
        raise InputError("the model's own forecasts grow without bound, so no series can be drawn from it")
    return values.to(x) if x.is_floating_point() else values.to(next(model.parameters()))


def _run(run: FreeRun, errors: Tensor) -> Tensor:
    """Return values (T, N, C), each the forecast from the values before it, plus an error."""
    state = torch.zeros(errors.shape[1], run.size, dtype=torch.float64)
    values = []
    for error in errors:
        values.append(run.output(state) + error)
        state = run.after_one(values[-1], state)
    return torch.stack(values)


def _linear_run(run: FreeRun, errors: Tensor) -> Tensor:
    """Compute the same for a linear model from its matrices, hundreds of times faster."""
    origin = torch.zeros(1, run.size, dtype=torch.float64)
    loop, reading = (torch.from_numpy(matrix).T for matrix in run.jacobian(origin[0]))
    output, after = run.output(origin), run.step(origin)
    nudged = run.after_one(
        output + torch.eye(errors.shape[-1], dtype=torch.float64), origin.expand(errors.shape[-1], -1)
    )
    driven = errors @ (nudged - after)  # (T, N, n)
    state = torch.zeros_like(driven[0])
    states = []
    for drive in driven:
        states.append(state)
        state = after + state @ loop + drive
    return output + torch.stack(states) @ reading + errors


def match_fits(
    tables: Sequence[Table[Any]],
    fitted: Table[Any] | None = None,
    *,
    level: float = 0.9,
    method: str = "quantiles",
    furthest: float = 0.25,
) -> MatchedTables:
    """Match the rows of several fits' tables with each other, and compute intervals.

    In terms of poles s = -log(eigenvalue), the distance of two rows is |s - s'| / (|s| + |s'| + 0.01), which is
    relative in half-life and period alike: periods of 24 and 40 are a quarter apart. The 0.01 makes levels and slow
    trends, which hardly move in 100 steps, count as the same. Each table is matched with the reference so that the sum
    of these distances is smallest; features of different layers, directions or gates are never matched. The reference
    is `fitted`, the table of the fit to the data itself, or, without it, the table nearest to all others. A row appears
    in a fit if its match is no further than `furthest`. Intervals use all matches, near or not, so that an uncertain
    row gets a wide interval. If fewer than `level` of the fits have a match, there is no interval.

    `method` is "quantiles" of the fits, for different seeds; "bootstrap", for fits to drawn series (see
    `bootstrap_series`), Student's interval around the estimate of `fitted`; or "jackknife", for fits that each leave
    out one stretch of the data, the same with the scatter widened to that of fits to independent data. The last two use
    the logarithms of periods and half-lives.
    """
    _check(tables, fitted, level, method, furthest)
    reference = tables[_most_central(tables)] if fitted is None else fitted
    near: list[list[Row]] = [[] for _ in reference]
    every: list[list[Row]] = [[] for _ in reference]
    for table in tables:
        for row, column, apart in _pairs(reference, table, furthest):
            every[row].append(table[column])
            if apart < furthest:
                near[row].append(table[column])
    matched = [
        _matched(row, close, rows, len(tables), level, method, fitted is not None)
        for row, close, rows in zip(reference, near, every, strict=True)
    ]
    matched.sort(key=lambda row: (-row.frequency, -(0 if math.isnan(row.share.estimate) else row.share.estimate)))
    return MatchedTables(name=reference.name, rows=tuple(matched), fits=len(tables), level=level, time=reference.time)


def nearest(row: Row, matched: MatchedTables, furthest: float = 0.25) -> Matched | None:
    """Return the match that is nearest to a row, if it is near enough."""
    apart = distances([row], [match.row for match in matched])[0]
    best = int(apart.argmin())
    return matched.rows[best] if apart[best] < furthest else None


def distances(first: Sequence[Row], second: Sequence[Row]) -> Array:
    """Return the distances (len(first), len(second)) of the rows of two tables, from 0 to 1."""
    ours, theirs = _poles(first)[:, None], _poles(second)[None, :]
    return abs(ours - theirs) / (abs(ours) + abs(theirs) + _SLOW_RATE)


def _poles(rows: Sequence[Row]) -> NDArray[np.complex128]:
    # A modulus of zero is gone at once, as is, for all purposes, a rate of 50 per step.
    return np.array([complex(min(-math.log(max(row.modulus, 1e-22)), 50.0), row.angle) for row in rows], dtype=complex)


def _pairs(first: Sequence[Row], second: Sequence[Row], furthest: float) -> list[tuple[int, int, float]]:
    """Return the best assignment of rows to rows at the same places, and their distances."""
    from scipy.optimize import linear_sum_assignment

    apart = distances(first, second)
    elsewhere = np.array([[row.place != other.place for other in second] for row in first])
    # Distances beyond the limit count nearly alike, so that equal rows are not split to bring unequal ones closer.
    cost = np.minimum(apart, furthest) + 1e-3 * apart + 10 * elsewhere
    pairs = zip(*linear_sum_assignment(cost), strict=True)
    return [(int(i), int(j), float(apart[i, j])) for i, j in pairs if not elsewhere[i, j]]


def _most_central(tables: Sequence[Table[Any]]) -> int:
    """Return the index of the table whose rows are nearest to those of all others."""
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
    """Compute the intervals of a row, which is the estimate itself or just one of the fits."""

    def interval(name: str, logarithmic: bool = False, least: float = -math.inf) -> Interval:
        values = np.array([getattr(match, name) for match in rows], dtype=float)
        values = values[~np.isnan(values)]
        estimate = float(getattr(row, name)) if is_estimate else None
        if len(values) < max(2, level * fits):
            return Interval(float(getattr(row, name)), math.nan, math.nan)
        if method == "quantiles":
            return _quantiles(values, estimate, level)
        # The variance of an estimate is (n - 1)^2 / n times that of n fits which leave out one stretch each.
        scale = (fits - 1) / math.sqrt(fits) if method == "jackknife" else 1.0
        limits = _student(values, estimate, level, scale, logarithmic)
        return replace(limits, low=max(limits.low, least))

    modulus, half_life = interval("modulus", least=0.0), interval("half_life", logarithmic=True)
    if method != "quantiles" and half_life.estimate in (0.0, math.inf) and not math.isnan(modulus.low):
        # These have no finite logarithm, so the limits follow from the modulus.
        low, high = (half_life_of(limit) for limit in (modulus.low, modulus.high))
        half_life = Interval(half_life.estimate, low, high)
    labels = [match.label for match in near] or [row.label]
    return Matched(
        row=row,
        rows=tuple(near),
        label=max(sorted(set(labels)), key=lambda label: (labels.count(label), label == row.label)),
        frequency=len(near) / fits,
        modulus=modulus,
        period=interval("period", logarithmic=True, least=2.0),
        half_life=half_life,
        share=interval("share"),
    )


def _quantiles(values: Array, estimate: float | None, level: float) -> Interval:
    # Without interpolation, since a period or a half-life may be infinite.
    low, middle, high = np.quantile(values, [(1 - level) / 2, 0.5, (1 + level) / 2], method="inverted_cdf")
    return Interval(float(middle) if estimate is None else estimate, float(low), float(high))


def _student(values: Array, estimate: float | None, level: float, scale: float, logarithmic: bool) -> Interval:
    """Return Student's interval around the estimate, or the mean, with the standard deviation times `scale`."""
    from scipy.special import stdtrit

    infinite = float((~np.isfinite(values)).mean())  # periods of decays, half-lives of modes that do not fade
    finite = values[np.isfinite(values)]
    if len(finite) < 2 or estimate == math.inf or (logarithmic and (estimate == 0 or not finite.all())):
        return _quantiles(values, estimate, level)
    finite = np.log(finite) if logarithmic else finite
    centre = float(finite.mean()) if estimate is None else math.log(estimate) if logarithmic else estimate
    width = scale * float(finite.std(ddof=1)) * float(stdtrit(len(finite) - 1, (1 + level) / 2))
    low, middle, high = (math.exp(at) if logarithmic else at for at in (centre - width, centre, centre + width))
    return Interval(middle, low, math.inf if infinite > (1 - level) / 2 else high)


def _check(tables: Sequence[Table[Any]], fitted: Table[Any] | None, level: float, method: str, furthest: float) -> None:
    if len(tables) < 2:
        raise ArgumentError(argument="tables", expected="the tables of at least 2 fits", got=len(tables))
    if any(len(table) == 0 for table in tables):
        raise InputError("a fit without features or modes has nothing to match")
    check_choice("method", method, METHODS)
    if method == "bootstrap" and fitted is None:
        expected = "the table of the fit to the data, around which bootstrap fits scatter"
        raise ArgumentError(argument="fitted", expected=expected, got=None)
    if len({table.name for table in (*tables, *([] if fitted is None else [fitted]))}) > 1:
        raise InputError("recurrence features and forecast modes cannot be compared", hint="pass tables of one kind")
    check_number("level", level, "a number between 0 and 1", lambda value: 0 < value < 1)
    check_number("furthest", furthest, "a number above 0, at most 1", lambda value: 0 < value <= 1)

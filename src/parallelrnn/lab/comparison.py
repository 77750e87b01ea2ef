"""Twins against each other: who wins how often, and by how much on the same data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from scipy import stats

from parallelrnn.lab.experiments.models import twin
from parallelrnn.lab.markdown import number
from parallelrnn.lab.picking import Picked, Runs, deviation, mean
from parallelrnn.lab.running.store import Line

REPLICATES = 3  # pairs that a difference takes to be called significant, or not
SOLVED = 0.01  # the adding problem: a run is solved if its last test MSE is below; to guess the mean gives 0.167


@dataclass(frozen=True)
class Wins:
    """How often a model was better than its twin, or as good, and of how many comparisons."""

    wins: int = 0
    compared: int = 0


def winning_counts(rows: Iterable[Mapping[str, float]]) -> dict[str, Wins]:
    """Of rows with an error for each model, as Table 1(a) counts: three decimals, and a tie is a win for both.

    Models without their twin in a row are not compared there.
    """
    counts: dict[str, Wins] = {}
    for row in rows:
        for model, error in row.items():
            if twin(model) in row:
                before = counts.get(model, Wins())
                better = _printed(error) <= _printed(row[twin(model)])
                counts[model] = Wins(before.wins + better, before.compared + 1)
    return counts


@dataclass(frozen=True)
class Twins:
    """A vanilla model and its para one: runs of the same budget, on the seeds that both have."""

    vanilla: Runs
    para: Runs

    def means(self, metric: str) -> dict[str, float]:
        """Of both, by model."""
        return {one.cell["model"]: mean(one.values(metric)) for one in (self.vanilla, self.para)}

    def gain(self, metric: str) -> Difference | None:
        """The para model's less the vanilla one's."""
        return paired_difference(self.para, self.vanilla, metric)


def find_twins(picked: Picked, vanilla: str, **where: Any) -> Twins | None:
    """A model and its para one; None if one was not run, or not with the other's budget, or on none of its seeds."""
    found = paired(*(picked.get(model=model, **where) for model in (vanilla, twin(vanilla))))
    return None if found is None else Twins(*found)


def rows_of_twins(picked: Picked, metric: str) -> list[dict[str, float]]:
    """Mean errors by model over the seeds of both twins, a row for each data set and horizon."""
    rows: dict[tuple[Any, ...], dict[str, float]] = {}
    for one in picked.runs:
        if not one.cell["model"].startswith("Para"):
            place = {name: one.cell[name] for name in ("dataset", "horizon")}
            found = find_twins(picked, one.cell["model"], **place)
            if found is not None:
                rows.setdefault(tuple(place.values()), {}).update(found.means(metric))
    return list(rows.values())


@dataclass(frozen=True)
class Difference:
    """A mean difference over pairs of runs, and its standard error if there is more than one pair."""

    mean: float
    error: float | None
    pairs: int

    @property
    def margin(self) -> float | None:
        """Half of the 95 % interval by Student's t."""
        return self.margin_among(1)

    def margin_among(self, comparisons: int) -> float | None:
        """The same, wide enough that all of so many intervals hold their true differences with 95 % (Bonferroni)."""
        if self.error is None:
            return None
        return self.error * float(stats.t.ppf(1 - 0.025 / comparisons, self.pairs - 1))

    @property
    def is_known(self) -> bool:
        """Whether there are enough pairs to tell, none of which diverged."""
        return self.pairs >= REPLICATES and math.isfinite(self.mean)

    @property
    def is_significant(self) -> bool:
        """Whether zero is outside of the 95 % interval."""
        return self.is_apart(1)

    def is_apart(self, comparisons: int) -> bool:
        """Whether zero is outside of the interval, as one of so many comparisons."""
        margin = self.margin_among(comparisons)
        return self.is_known and margin is not None and abs(self.mean) > margin

    def shows(self, sign: int, at_least: float = 0.0, grain: float = 0.0) -> bool | None:
        """Whether there is a difference of this sign and size; None while the interval neither shows nor excludes it.

        Shown, it is significant and at least so large; excluded, the whole interval is below that. Values that were
        read off every `grain` may be off by that much, and the interval is so much wider.
        """
        if not self.is_known or self.margin is None:
            return None
        middle, margin = sign * self.mean, self.margin + grain
        if middle > margin and middle >= at_least:
            return True
        return False if middle + margin < at_least or middle < -margin else None

    def lies_within(self, bound: float) -> bool | None:
        """Whether there is no difference above this bound, either way; None while the interval does not tell."""
        if not self.is_known or self.margin is None:
            return None
        if abs(self.mean) + self.margin <= bound:
            return True
        return False if abs(self.mean) - self.margin > bound else None

    def lies_above(self, bound: float) -> bool | None:
        """Whether all of the interval is above this bound, or none of it; None if only part of it is."""
        if not self.is_known or self.margin is None:
            return None
        return True if self.mean - self.margin > bound else False if self.mean + self.margin < bound else None

    def __str__(self) -> str:
        margin = "" if self.margin is None else f" ± {number(self.margin, '.2g')}"
        return f"{number(self.mean, '+.3g')}{margin} ({self.pairs} pair{'s' if self.pairs != 1 else ''})"


def paired(one: Runs | None, other: Runs | None) -> tuple[Runs, Runs] | None:
    """Both on the seeds that both have; None if there are none, or if their budgets differ.

    A seed on which both say which data they saw, by a sum or by the variance of its targets, and not the same, is no
    seed that both have.
    """
    if one is None or other is None or one.budget != other.budget:
        return None
    ours, theirs = ({line["seed"]: _seen(line) for line in runs.lines} for runs in (one, other))
    seeds = [
        seed
        for seed, data in ours.items()
        if seed in theirs and all(theirs[seed].get(name, value) == value for name, value in data.items())
    ]
    first, second = (
        replace(runs, lines=tuple(line for line in runs.lines if line["seed"] in seeds)) for runs in (one, other)
    )
    return (first, second) if seeds else None


def _seen(line: Line) -> dict[str, Any]:
    """What a line tells of the data that it is of; the first results had no sums yet."""
    sums = {"data": line["details"].get("data"), "variance": line["metrics"].get("variance")}
    return {name: value for name, value in sums.items() if value is not None}


def paired_difference(one: Runs | None, other: Runs | None, metric: str) -> Difference | None:
    """Of runs on the same data (seed by seed); None if there are none, or if their budgets differ."""
    found = paired(one, other)
    return None if found is None else difference(*(runs.by_seed(metric) for runs in found))


def difference(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Difference | None:
    """Of values by seed; None if no seed has both."""
    found = [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
    if not found:
        return None
    spread = deviation(found)
    return Difference(mean(found), None if spread is None else spread / math.sqrt(len(found)), len(found))


def solved(runs: Runs) -> int:
    """How many runs of the adding problem end below `SOLVED`."""
    return sum(error < SOLVED for error in runs.values("mse"))


def seconds_to_converge(runs: Runs, metric: str = "seconds") -> dict[int, float]:
    """Of the adding problem, by seed: iterations until the test MSE first was below 0.01, at the pace of the run."""
    pace = {line["seed"]: line["metrics"][metric] / line["config"]["iterations"] for line in runs.lines}
    return {seed: count * pace[seed] for seed, count in runs.by_seed("iterations_to_0.01").items()}


def _printed(error: float) -> float:
    """To three decimals; what diverged is worse than anything."""
    return math.inf if math.isnan(error) else float(f"{error:.3f}")

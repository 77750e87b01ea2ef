"""Twins against each other: who wins how often, and by how much on the same data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from parallelrnn.experiments.models import twin
from parallelrnn.experiments.picking import Picked, Runs, deviation, mean


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


def rows_of_twins(picked: Picked, metric: str) -> list[dict[str, float]]:
    """Mean errors by model, a row for each data set and horizon, of models that have a twin of the same budget."""
    rows: dict[tuple[Any, ...], dict[str, float]] = {}
    for one in picked.runs:
        other = picked.get(**one.cell | {"model": twin(one.cell["model"])})
        if other is not None and other.budget == one.budget:
            place = (one.cell["dataset"], one.cell["horizon"])
            rows.setdefault(place, {})[one.cell["model"]] = mean(one.values(metric))
    return list(rows.values())


@dataclass(frozen=True)
class Difference:
    """A mean difference over pairs of runs, and its standard error if there is more than one pair."""

    mean: float
    error: float | None
    pairs: int


def paired_difference(one: Runs | None, other: Runs | None, metric: str) -> Difference | None:
    """Of runs on the same data (seed by seed); None if there are none, or if their budgets differ."""
    if one is None or other is None or one.budget != other.budget:
        return None
    ours, theirs = one.by_seed(metric), other.by_seed(metric)
    found = [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
    if not found:
        return None
    spread = deviation(found)
    return Difference(mean(found), None if spread is None else spread / math.sqrt(len(found)), len(found))


def _printed(error: float) -> float:
    """To three decimals; what diverged is worse than anything."""
    return math.inf if math.isnan(error) else float(f"{error:.3f}")

"""Which runs a table shows: of each cell those of one budget, and the same one for paired models where they have it.

A cell is a place in a table of the paper: a model on some data. What else a configuration holds is a run's budget: how
long, on how many examples, with which sizes and rates. Runs of different budgets are never averaged.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from parallelrnn.errors import InputError
from parallelrnn.lab.experiments.experiment import Experiment
from parallelrnn.lab.experiments.models import twin
from parallelrnn.lab.runs import Run
from parallelrnn.lab.tables import mean

# What tells cells apart, in those experiments that have it; a length only where the paper has several.
CELL = ("dataset", "horizon", "model", "block_size", "noise_variance", "recurrent_scale", "length", "initial", "truth")
SHAPE = ("hidden_size", "length", "batch_size")  # times of another shape are another cell
# What makes a budget small or large, besides the number of steps.
EXAMPLES = ("train", "validation", "test")
SIZES = ("hidden_size", "num_layers", "d_model", "num_states", "transformer_layers", "length")
# What is always shown of a budget.
SHOWN = ("max_epochs", "iterations", "rounds", "train", "epoch_steps", "validation", "test")

_Key = tuple[Any, ...]  # the values of a cell


@dataclass(frozen=True, kw_only=True)
class CellRuns:
    """The runs of a cell with one budget."""

    cell: dict[str, Any]
    budget: dict[str, Any]
    default_budget: dict[str, Any]  # of the experiment's own configuration
    runs: tuple[Run, ...]  # by seed
    is_odd: bool = False  # whether most of its paired models were run with another budget
    is_shorter: bool = False  # whether even the default budget is smaller than the paper's

    def by_seed(self, metric: str) -> dict[int, float]:
        """Return a metric of each replicate that has it."""
        metrics = {run.seed: run.result["metrics"] for run in self.runs}
        return {seed: float(values[metric]) for seed, values in metrics.items() if metric in values}

    def values(self, metric: str) -> list[float]:
        """Return a metric of all replicates that have it."""
        return list(self.by_seed(metric).values())

    @property
    def seconds(self) -> list[float]:
        """The time of each replicate, over all calls that it took."""
        return [float(run.result["metrics"].get("seconds", run.provenance["seconds"])) for run in self.runs]

    @cached_property
    def budget_text(self) -> str:
        """Amount of training and data, and what else differs from the experiment's own configuration."""
        shown = [name for name in SHOWN if name in self.budget and (name != "epoch_steps" or self.budget[name])]
        shown += [name for name in self.budget if name not in shown and self._is_changed(name)]
        parts = [
            f"{name} {_text(self.budget[name])}"
            + (f" (not {_text(self.default_budget[name])})" if self._is_changed(name, new=False) else "")
            for name in shown
        ]
        parts += [f"no {name}" for name in self.default_budget if name not in self.budget]
        return (", ".join(parts) or "none") + ("; shorter than the paper's" if self.is_shorter else "")

    def _is_changed(self, name: str, new: bool = True) -> bool:
        return self.budget[name] != self.default_budget[name] if name in self.default_budget else new


@dataclass(frozen=True)
class Pair:
    """A vanilla model and its para model: runs of the same budget, on the seeds that both have."""

    vanilla: CellRuns
    para: CellRuns

    def means(self, metric: str) -> tuple[float, float]:
        """Return the means of both."""
        return mean(self.vanilla.values(metric)), mean(self.para.values(metric))


@dataclass(frozen=True)
class Selection:
    """The runs that are shown of an experiment, and how many are not."""

    cells: list[dict[str, Any]]  # all of the experiment, run or not
    groups: list[CellRuns]
    other_budgets: int  # runs that are there and not shown
    other_cells: int

    def get(self, **values: Any) -> CellRuns | None:
        """Return the runs of the first cell with these values, or None if there are none."""
        exact = self._by_cell.get(frozenset(values.items()))
        return exact or next((group for group in self.groups if values.items() <= group.cell.items()), None)

    @cached_property
    def _by_cell(self) -> dict[frozenset[Any], CellRuns]:
        return {frozenset(group.cell.items()): group for group in self.groups}

    def values(self, name: str) -> list[Any]:
        """Return the values that cells have under a name."""
        return list(dict.fromkeys(cell[name] for cell in self.cells))

    @cached_property
    def pairs(self) -> list[Pair]:
        """All paired models of the same budget that have a seed in common."""
        pairs = []
        for group in self.groups:
            model = group.cell.get("model", "Para")
            if not model.startswith("Para"):
                pair = paired(group, self.get(**{**group.cell, "model": twin(model)}))
                pairs += [Pair(*pair)] if pair else []
        return pairs


@contextmanager
def malformed_runs_rejected() -> Iterator[None]:
    """Turn errors about runs that no experiment saves into a sentence."""
    try:
        yield
    except InputError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        problem = f"the runs cannot be shown ({type(error).__name__}: {error}): one is not what an experiment saves"
        raise InputError(problem, hint="delete its file") from error


@malformed_runs_rejected()
def select_runs(experiment: Experiment, runs: Iterable[Run]) -> Selection:
    """Select for each group of paired models the largest of the budgets that most have; for others, their largest.

    Paired are a vanilla model and its para model, or all block sizes on the same data.
    """
    cells = [dataclasses.asdict(cell) for cell in experiment.cells()]
    names = _cell_names(experiment, cells)
    defaults = {tuple(cell[name] for name in names): _budget(cell, names) for cell in cells}
    stored: dict[_Key, dict[str, dict[int, Run]]] = {}  # by cell, budget and seed
    other_cells = 0
    for run in runs:
        key = tuple(run.config.get(name) for name in names)
        if key not in defaults:
            other_cells += 1
            continue
        budget = json.dumps(_budget(run.config, names), sort_keys=True)
        stored.setdefault(key, {}).setdefault(budget, {})[run.seed] = run
    paired_cells: dict[_Key, list[_Key]] = {}
    for key in stored:
        paired_cells.setdefault(_shared(names, key), []).append(key)
    chosen = {key: best for keys in paired_cells.values() for key, best in _choose(keys, stored, defaults).items()}
    groups = []
    for key in (key for key in defaults if key in chosen):  # in the order of the experiment
        best, is_odd = chosen[key]
        selected = tuple(run for _, run in sorted(stored[key][best].items()))
        group = CellRuns(
            cell=dict(zip(names, key, strict=True)),
            budget=_budget(selected[0].config, names),
            default_budget=defaults[key],
            runs=selected,
            is_odd=is_odd,
            is_shorter=experiment.shorter,
        )
        groups.append(group)
    count = sum(len(seeds) for budgets in stored.values() for seeds in budgets.values())
    other_budgets = count - sum(len(group.runs) for group in groups)
    return Selection([dict(zip(names, key, strict=True)) for key in defaults], groups, other_budgets, other_cells)


def _choose(
    keys: Sequence[_Key], stored: Mapping[_Key, Mapping[str, Any]], defaults: Mapping[_Key, dict[str, Any]]
) -> dict[_Key, tuple[str, bool]]:
    """Return the budget to show of each of some paired cells, and whether it is not the one that most have."""

    def size(budget: str) -> tuple[Any, ...]:
        return _size(json.loads(budget), defaults[keys[0]])

    counts = Counter(budget for key in keys for budget in stored[key])
    shared = max(counts, key=lambda budget: (counts[budget], size(budget)))
    best = {key: shared if shared in stored[key] else max(stored[key], key=size) for key in keys}
    return {key: (budget, budget != shared) for key, budget in best.items()}


def _size(budget: dict[str, Any], default: dict[str, Any]) -> tuple[Any, ...]:
    """Return what orders budgets: steps, then examples, then sizes; then likeness to the default."""
    counted = budget.get("iterations", budget.get("rounds"))
    epochs, epoch_steps = budget.get("max_epochs", 0), budget.get("epoch_steps")
    if counted is None and epoch_steps:
        counted = epochs * epoch_steps
    steps = (True, epochs) if counted is None else (False, counted)
    amounts = [math.inf if (value := budget.get(name, 0)) is None else value for name in (*EXAMPLES, *SIZES)]
    alike = sum(budget.get(name) == value for name, value in default.items())
    return (steps, amounts, alike, json.dumps(budget, sort_keys=True))


def _cell_names(experiment: Experiment, cells: Sequence[Mapping[str, Any]]) -> list[str]:
    if experiment.name == "speed":
        return list(SHAPE)
    names = [name for name in CELL if name in cells[0]]
    if "length" in names and len({cell["length"] for cell in cells}) == 1:
        names.remove("length")
    return names


def _shared(names: Sequence[str], key: _Key) -> _Key:
    """Return what paired cells have in common."""
    cell = dict(zip(names, key, strict=True))
    if "model" in cell:
        cell["model"] = cell["model"].removeprefix("Para")
    else:
        cell.pop("block_size", None)
    return tuple(cell.items())


def _budget(config: Mapping[str, Any], cell_names: Sequence[str]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name not in cell_names}


def _text(value: Any) -> str:
    return "all" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def paired(group: CellRuns | None, other: CellRuns | None) -> tuple[CellRuns, CellRuns] | None:
    """Return both on the seeds that both have; None if there are none, or if their budgets differ.

    A seed counts only if both saw the same data, as far as their runs say which: by a checksum or by the variance of
    the targets.
    """
    if group is None or other is None or group.budget != other.budget:
        return None
    ours, theirs = ({run.seed: _data(run) for run in cell.runs} for cell in (group, other))
    seeds = [
        seed
        for seed, data in ours.items()
        if seed in theirs and all(theirs[seed].get(name, value) == value for name, value in data.items())
    ]
    first, second = (
        replace(cell, runs=tuple(run for run in cell.runs if run.seed in seeds)) for cell in (group, other)
    )
    return (first, second) if seeds else None


def _data(run: Run) -> dict[str, Any]:
    """Return what a run says of its data; the first results have no checksum."""
    values = {"data": run.result["details"].get("data"), "variance": run.result["metrics"].get("variance")}
    return {name: value for name, value in values.items() if value is not None}


def count_wins(pairs: Iterable[Pair], metrics: Sequence[str] = ("mse", "mae")) -> dict[str, list[bool]]:
    """Return for each model whether it is better than its paired model, or as good, in each comparison.

    As Table 1(a) counts: at three decimals, and a tie is a win for both.
    """
    wins: dict[str, list[bool]] = {}
    for pair in pairs:
        for metric in metrics:
            vanilla, para = (math.inf if math.isnan(error) else float(f"{error:.3f}") for error in pair.means(metric))
            wins.setdefault(pair.vanilla.cell["model"], []).append(vanilla <= para)
            wins.setdefault(pair.para.cell["model"], []).append(para <= vanilla)
    return wins

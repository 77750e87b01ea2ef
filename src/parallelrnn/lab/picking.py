"""Which runs a table shows: of each cell those of one budget, and of twins those of the same where they can be had.

A cell is a place in a table of the paper: a model on some data. What else a configuration holds is the budget of a run:
how long, on how many examples, with which sizes and rates. Runs of different budgets are never averaged.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from parallelrnn.lab.experiments.experiment import Experiment, ExperimentError
from parallelrnn.lab.running.store import Line

# What tells cells apart, in those experiments that have it; a length only where the paper has several.
CELL = ("dataset", "horizon", "model", "block_size", "noise_variance", "recurrent_scale", "length", "initial", "truth")
SHAPE = ("hidden_size", "length", "batch_size")  # times of another shape are another cell
# What makes a budget small or large, besides the number of steps.
EXAMPLES = ("train", "validation", "test")
SIZES = ("hidden_size", "num_layers", "d_model", "num_states", "transformer_layers", "length")
# What is always told of a budget.
TOLD = ("max_epochs", "iterations", "rounds", "train", "epoch_steps", "validation", "test")

NOT_RUN = "not run"  # what is said of a cell without runs

_Key = tuple[Any, ...]  # the values of a cell


@dataclass(frozen=True)
class Runs:
    """What was run of a cell with one budget."""

    cell: dict[str, Any]
    budget: dict[str, Any]
    usual: dict[str, Any]  # the budget that the experiment's own configuration has
    lines: tuple[Line, ...]  # by seed
    apart: bool = False  # whether most of its twins were run with another budget
    shorter: bool = False  # whether even the experiment's own configuration is shorter than the paper's

    def by_seed(self, metric: str) -> dict[int, float]:
        """What each replicate found; those that have no such metric are left out."""
        return {line["seed"]: float(line["metrics"][metric]) for line in self.lines if metric in line["metrics"]}

    def values(self, metric: str) -> list[float]:
        """What the replicates found."""
        return list(self.by_seed(metric).values())

    @property
    def seconds(self) -> list[float]:
        """Of each replicate, over all calls that it took."""
        return [float(line["metrics"].get("seconds", line["seconds"])) for line in self.lines]

    @property
    def budget_in_words(self) -> str:
        """How long and on how much, and what else is not as in the experiment's own configuration."""
        shown = [name for name in TOLD if name in self.budget and (name != "epoch_steps" or self.budget[name])]
        shown += [name for name in self.budget if name not in shown and self._is_changed(name)]
        words = [
            f"{name} {_word(self.budget[name])}"
            + (f" (not {_word(self.usual[name])})" if name in self.usual and self._is_changed(name) else "")
            for name in shown
        ]
        words += [f"no {name}" for name in self.usual if name not in self.budget]
        return (", ".join(words) or "none") + ("; shorter than the paper's" if self.shorter else "")

    @property
    def is_smaller(self) -> bool:
        """Whether it had fewer steps, fewer examples or smaller sizes than the experiment's own configuration asks.

        And always where that one is shorter than the paper's.
        """
        return (
            self.shorter
            or _steps(self.budget) < _steps(self.usual)
            or any(
                _amount(self.budget[name]) < _amount(self.usual[name])
                for name in (*EXAMPLES, *SIZES)
                if name in self.budget and name in self.usual
            )
        )

    def _is_changed(self, name: str) -> bool:
        return name not in self.usual or self.budget[name] != self.usual[name]


@dataclass(frozen=True)
class Picked:
    """What is shown of an experiment, and how many runs are not."""

    cells: list[dict[str, Any]]  # all of the experiment, run or not
    runs: list[Runs]
    other_budgets: int  # runs that are there and not shown
    other_cells: int

    def get(self, **values: Any) -> Runs | None:
        """The runs of the cell with these values; None if it was not run."""
        return next((one for one in self.runs if values.items() <= one.cell.items()), None)

    def all(self, name: str) -> list[Any]:
        """The values that cells have, a block size say."""
        return list(dict.fromkeys(cell[name] for cell in self.cells))


@contextmanager
def refusing_lines() -> Iterator[None]:
    """Say of lines that no run leaves, and that nothing can be made of, that they are such."""
    try:
        yield
    except ExperimentError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ExperimentError(
            f"the results cannot be shown ({type(error).__name__}: {error}): a line is not what a run leaves; mend "
            "or remove it"
        ) from error


@refusing_lines()
def pick(experiment: Experiment, lines: Sequence[Line]) -> Picked:
    """For each group of twins the largest of the budgets that most of them have; for the others the largest they have.

    Twins are a vanilla model and its para one, or all block sizes on the same data.
    """
    cells = [dataclasses.asdict(cell) for cell in experiment.cells()]
    names = _names(experiment, cells)
    usual = {tuple(cell[name] for name in names): _others(cell, names) for cell in cells}
    held: dict[_Key, dict[str, dict[int, Line]]] = {}  # lines by seed, by budget, by cell
    other_cells = 0
    for line in lines:
        key = tuple(line["config"].get(name) for name in names)
        if key not in usual:
            other_cells += 1
            continue
        budget = json.dumps(_others(line["config"], names), sort_keys=True)
        held.setdefault(key, {}).setdefault(budget, {}).setdefault(line["seed"], line)
    groups: dict[_Key, list[_Key]] = {}
    for key in held:
        groups.setdefault(_group(names, key), []).append(key)
    chosen = {key: (best, apart) for group in groups.values() for key, best, apart in _choose(group, held, usual)}
    runs = []
    for key in usual:  # in the order of the experiment
        if key in chosen:
            best, apart = chosen[key]
            found = tuple(line for _, line in sorted(held[key][best].items()))
            own = _others(found[0]["config"], names)
            runs.append(Runs(_cell(names, key), own, usual[key], found, apart, experiment.shorter))
    there = sum(len(lines) for budgets in held.values() for lines in budgets.values())
    return Picked([_cell(names, key) for key in usual], runs, there - sum(len(one.lines) for one in runs), other_cells)


def mean(values: Sequence[float]) -> float:
    """Over replicates."""
    return float(np.mean(values))


def deviation(values: Sequence[float]) -> float | None:
    """The standard deviation over replicates; None of a single one."""
    with np.errstate(invalid="ignore"):  # a run that diverged
        return float(np.std(values, ddof=1)) if len(values) > 1 else None


def conditions(lines: Sequence[Line]) -> str:
    """Where, with what and when runs were made, in a sentence; a run that went on later may have several commits."""

    def all_of(tell: Callable[[Line], Any]) -> str:
        return ", ".join(dict.fromkeys(str(tell(line)) for line in lines))

    machines = all_of(lambda line: "{processor} ({cores} cores, {instruction_set})".format_map(_Told(line["machine"])))
    versions = all_of(lambda line: "torch {torch}, parallelrnn {parallelrnn}".format_map(_Told(line["machine"])))
    threads = all_of(lambda line: _Told(line["machine"])["threads"])
    made_by = [commit for line in lines for commit in (*line.get("commits", ()), line["commit"])]
    commits = ", ".join(dict.fromkeys(_short(commit) for commit in made_by))
    days = sorted({line["started"][:10] for line in lines})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return f"{machines}; threads of each run {threads}; {versions}; commit {commits}; {when}"


class _Told(dict[str, Any]):
    """What is not told is a question mark."""

    def __missing__(self, name: str) -> str:
        return "?"


def _choose(
    group: Sequence[_Key], held: Mapping[_Key, Mapping[str, Any]], usual: Mapping[_Key, dict[str, Any]]
) -> list[tuple[_Key, str, bool]]:
    """Of each cell of a group the budget that is shown, and whether it stands apart."""

    def size(budget: str) -> tuple[Any, ...]:
        return _size(json.loads(budget), usual[group[0]])

    counts: dict[str, int] = {}
    for key in group:
        for budget in held[key]:
            counts[budget] = counts.get(budget, 0) + 1
    shared = max(counts, key=lambda budget: (counts[budget], size(budget)))
    best = {key: shared if shared in held[key] else max(held[key], key=size) for key in group}
    return [(key, budget, budget != shared) for key, budget in best.items()]


def _size(budget: dict[str, Any], usual: dict[str, Any]) -> tuple[Any, ...]:
    """What orders budgets: steps, then examples, then sizes; then likeness to the configuration."""
    amounts = [_amount(budget.get(name, 0)) for name in (*EXAMPLES, *SIZES)]
    alike = sum(budget.get(name) == value for name, value in usual.items())
    return (_steps(budget), amounts, alike, json.dumps(budget, sort_keys=True))


def _steps(budget: Mapping[str, Any]) -> tuple[bool, float]:
    """In all; whole passes over the examples are more than any number that is counted."""
    counted = budget.get("iterations", budget.get("rounds"))
    if counted is not None:
        return (False, counted)
    epochs, steps = budget.get("max_epochs", 0), budget.get("epoch_steps")
    return (True, epochs) if steps is None else (False, epochs * steps)


def _amount(value: float | None) -> float:
    """None means all."""
    return math.inf if value is None else value


def _names(experiment: Experiment, cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """What tells the cells of an experiment apart."""
    if experiment.name == "speed":
        return list(SHAPE)
    names = [name for name in CELL if name in cells[0]]
    if "length" in names and len({cell["length"] for cell in cells}) == 1:
        names.remove("length")
    return names


def _group(names: Sequence[str], key: _Key) -> _Key:
    """What twins have in common."""
    cell = _cell(names, key)
    if "model" in cell:
        cell["model"] = cell["model"].removeprefix("Para")
    else:
        cell.pop("block_size", None)
    return tuple(cell.items())


def _cell(names: Sequence[str], key: _Key) -> dict[str, Any]:
    return dict(zip(names, key, strict=True))


def _others(config: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name not in names}


def _word(value: Any) -> str:
    return "all" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def _short(commit: str) -> str:
    return commit if commit.startswith("version") else commit[:10] + ("+" if commit.endswith("+") else "")

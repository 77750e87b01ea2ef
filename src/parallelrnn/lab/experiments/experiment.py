"""What an experiment is: the cells of a table, each a small frozen configuration, and a function that runs one."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import threading
import time
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from parallelrnn.errors import InputError

Config = TypeVar("Config")
Curve = list[dict[str, float]]
STOP = threading.Event()  # of this process: save a checkpoint and end

_KINDS = {int: "a positive integer", float: "a positive number", str: "text", bool: "true or false", type(None): "none"}


class ExperimentError(InputError):
    """An experiment that cannot be run as asked."""


class OutOfTimeError(Exception):
    """A run that stopped early, after saving what it takes to resume."""


@dataclass(frozen=True)
class Outcome:
    """The result of a run."""

    metrics: dict[str, float]
    curve: Curve = field(default_factory=list)  # of the training, an entry for each epoch
    details: dict[str, Any] = field(default_factory=dict)  # for figures


@dataclass(frozen=True)
class Workspace:
    """Where a run keeps its checkpoint, until when it may work now, and how it reports its progress."""

    directory: Path | None = None
    deadline: float = float("inf")  # of time.monotonic()
    report: Callable[[float], None] = lambda fraction: None  # takes the fraction that is done
    checkpoint_every: float = 60.0  # seconds

    @property
    def checkpoint(self) -> Path | None:
        """The file to resume from."""
        from parallelrnn.training.checkpoint import FILE  # not at the top: it imports torch

        return None if self.directory is None else self.directory / FILE

    @property
    def is_over(self) -> bool:
        """Whether the run has to stop."""
        return time.monotonic() >= self.deadline or STOP.is_set()


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One table or figure of the paper."""

    name: str
    config: type[Any]  # a frozen dataclass, with the paper's values as defaults
    cells: Callable[[], Sequence[Any]]  # what the paper ran
    run: Callable[[Any, int, Workspace], Outcome]  # of a configuration and a seed
    replicates: int  # how often the paper ran each cell; seeds 0, 1, ...
    shorter: bool = False  # whether even the default configuration trains less than the paper
    is_deterministic: Callable[[Any], bool] = lambda config: False  # whether one replicate of a cell is enough

    def jobs(
        self,
        only: Mapping[str, Sequence[str]] | None = None,
        changes: Mapping[str, str] | None = None,
        replicates: int | None = None,
        arguments: Mapping[str, str] | None = None,
    ) -> list[Job]:
        """Return jobs for the cells with some values, with other values changed; one replicate of all after the other.

        Values are text, as on a command line. `arguments` are those that gave the values in `only`, for errors.
        """
        cells: Sequence[Any] = self.cells()
        for name, texts in (only or {}).items():
            argument = (arguments or {}).get(name, "only")
            self._check_name(name, argument)
            known = list(dict.fromkeys(getattr(cell, name) for cell in cells))
            for text in texts:
                if not any(_means(text, value) for value in known):
                    raise self._unknown(name, text, known, argument)
            cells = [cell for cell in cells if any(_means(text, getattr(cell, name)) for text in texts)]
        if not cells:
            raise ExperimentError(f"{self.name} has no cell with all of these values", hint="choose fewer at once")
        changed = {name: self._parse(name, text) for name, text in (changes or {}).items()}
        if "model" in changed:
            models = list(dict.fromkeys(cell.model for cell in self.cells()))
            if changed["model"] not in models:
                raise self._unknown("model", changed["model"], models, "changes")
        cells = [dataclasses.replace(cell, **changed) for cell in cells]
        cells = list(
            dict.fromkeys(cell.without_unused() if hasattr(cell, "without_unused") else cell for cell in cells)
        )
        return [
            Job(self.name, cell, seed)
            for seed in range(replicates or self.replicates)
            for cell in cells
            if not (seed and self.is_deterministic(cell))
        ]

    def _check_name(self, name: str, argument: str) -> None:
        names = [field.name for field in dataclasses.fields(self.config)]
        if name not in names:
            hint = f"choose from {', '.join(names)}"
            raise ExperimentError(f"{self.name} has no {name}", argument=argument, hint=hint)

    def _unknown(self, name: str, value: str, known: Sequence[Any], argument: str) -> ExperimentError:
        choices = ", ".join(map(str, known))
        return ExperimentError(f"{self.name} has no {name} {value!r}", argument=argument, hint=f"choose from {choices}")

    def _parse(self, name: str, text: str) -> Any:
        """Return a value of the configuration from text."""
        self._check_name(name, "changes")
        hint = typing.get_type_hints(self.config)[name]
        kinds = hint.__args__ if isinstance(hint, types.UnionType) else (hint,)
        if type(None) in kinds and text.lower() == "none":
            return None
        if bool in kinds and text.lower() in ("true", "false"):
            return text.lower() == "true"
        for kind in kinds:
            if kind in (int, float, str):
                with suppress(ValueError):
                    value = kind(text)
                    if kind is str or 0 < value < math.inf or (name == "patience" and value == 0):
                        return value
        expected = " or ".join(_KINDS[kind] for kind in kinds)
        problem = f"{self.name} cannot be run with {name} {text!r}"
        raise ExperimentError(problem, argument="changes", hint=f"give {expected}")


def reset_unused(config: Config, names: Sequence[str]) -> Config:
    """Return a configuration with defaults under these names, those that its model does not use."""
    fields = dataclasses.fields(config)  # type: ignore[arg-type]
    defaults: dict[str, Any] = {field.name: field.default for field in fields if field.name in names}
    changed: Config = dataclasses.replace(config, **defaults)  # type: ignore[type-var]
    return changed


def _means(text: str, value: Any) -> bool:
    """Return whether a text stands for a value: 1 is 1.0."""
    if isinstance(value, float):
        with suppress(ValueError):
            return float(text) == value
    return text == str(value)


def run_key(experiment: str, config: Mapping[str, Any], seed: int) -> str:
    """Return the identity of a run: a hash of all that decides its result."""
    content = {"experiment": experiment, "config": config, "seed": seed}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Job:
    """A cell and a seed to run."""

    experiment: str
    config: Any
    seed: int

    @property
    def key(self) -> str:
        """The key of the job's run."""
        return run_key(self.experiment, dataclasses.asdict(self.config), self.seed)

    def __str__(self) -> str:
        values = {
            field.name: getattr(self.config, field.name)
            for field in dataclasses.fields(self.config)
            if field.default is dataclasses.MISSING or getattr(self.config, field.name) != field.default
        }
        return ", ".join([*(f"{name} {value}" for name, value in values.items()), f"seed {self.seed}"])

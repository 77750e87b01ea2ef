"""What an experiment is: cells of a table, each a small frozen configuration, and how one of them is run."""

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

Config = TypeVar("Config")
Curve = list[dict[str, float]]
STOP = threading.Event()  # of this process: keep what there is, and end


_KINDS = {
    int: "a whole number above zero",
    float: "a number above zero",
    str: "a word",
    bool: "true or false",
    type(None): "none",
}


class ExperimentError(ValueError):
    """An experiment that cannot be run as asked."""


class OutOfTimeError(Exception):
    """The time is used up; all that it takes to go on is kept."""


@dataclass(frozen=True)
class Outcome:
    """What a run found."""

    metrics: dict[str, float]
    curve: Curve = field(default_factory=list)  # along the training, a line for each epoch
    details: dict[str, Any] = field(default_factory=dict)  # what figures need besides


@dataclass(frozen=True)
class Workspace:
    """Where a run keeps what it takes to go on, until when it may go on now, and whom it tells how far it is."""

    directory: Path | None = None
    deadline: float = float("inf")  # of time.monotonic()
    tell: Callable[[float], None] = lambda part: None  # the part that is done, 0 to 1
    every: float = 60.0  # seconds between checkpoints

    @property
    def checkpoint(self) -> Path | None:
        """The file that it takes to go on."""
        return None if self.directory is None else self.directory / "training.safetensors"

    @property
    def is_over(self) -> bool:
        """Whether the time is used up, or somebody wants it to stop."""
        return time.monotonic() >= self.deadline or STOP.is_set()


@dataclass(frozen=True)
class Experiment:
    """One table or figure of the paper."""

    name: str
    of: str  # what of the paper
    config: type[Any]  # a frozen dataclass, the paper's values as defaults
    cells: Callable[[], Sequence[Any]]  # what the paper ran
    run: Callable[[Any, int, Workspace], Outcome]  # of a configuration and a seed
    replicates: int  # how often the paper ran each cell; seeds 0, 1, ...
    shorter: bool = False  # whether its own configuration asks for less training than the paper's
    once: Callable[[Any], bool] = lambda config: False  # whether nothing is random about a configuration

    def jobs(
        self,
        only: Mapping[str, Sequence[str]] | None = None,
        changes: Mapping[str, str] | None = None,
        replicates: int | None = None,
    ) -> list[Job]:
        """The cells with these values, changed so, one replicate of all after the other."""
        cells: Sequence[Any] = self.cells()
        for name, texts in (only or {}).items():
            there = list(dict.fromkeys(getattr(cell, self._checked(name)) for cell in cells))
            wanted = [next((value for value in there if _means(text, value)), _Unknown(text)) for text in texts]
            unknown = [value.text for value in wanted if isinstance(value, _Unknown)]
            if unknown:
                raise ExperimentError(
                    f"{self.name}: {name} is one of {', '.join(map(str, there))}; got {', '.join(unknown)}"
                )
            cells = [cell for cell in cells if getattr(cell, name) in wanted]
        if not cells:
            raise ExperimentError(f"{self.name} has no cell in which all of that is so; ask for less at once")
        changed = {name: self._value(name, text) for name, text in (changes or {}).items()}
        models = list(dict.fromkeys(cell.model for cell in self.cells())) if "model" in changed else []
        if models and changed["model"] not in models:
            raise ExperimentError(f"{self.name}: model is one of {', '.join(models)}; got {changed['model']}")
        cells = [dataclasses.replace(cell, **changed) for cell in cells]
        cells = list(dict.fromkeys(cell.settled() if hasattr(cell, "settled") else cell for cell in cells))
        seeds = range(replicates or self.replicates)
        return [Job(self.name, cell, seed) for seed in seeds for cell in cells if not (seed and self.once(cell))]

    def _checked(self, name: str) -> str:
        names = [one.name for one in dataclasses.fields(self.config)]
        if name not in names:
            raise ExperimentError(f"{self.name} has no {name}; what can be chosen are {', '.join(names)}")
        return name

    def _value(self, name: str, text: str) -> Any:
        """A value of a configuration, from text."""
        kind = typing.get_type_hints(self.config)[self._checked(name)]
        kinds = kind.__args__ if isinstance(kind, types.UnionType) else (kind,)
        if type(None) in kinds and text.lower() == "none":
            return None
        if bool in kinds and text.lower() in ("true", "false"):
            return text.lower() == "true"
        for one in kinds:
            if one in (int, float, str):
                with suppress(ValueError):
                    value = one(text)
                    if one is str or 0 < value < math.inf or (name == "patience" and value == 0):
                        return value
        words = " or ".join(_KINDS[one] for one in kinds)
        raise ExperimentError(f"{self.name}: {name} takes {words}, got {text!r}")


def with_usual(config: Config, names: Sequence[str]) -> Config:
    """A configuration with the usual values under these names: those that its model has no use for."""
    usual: dict[str, Any] = {one.name: one.default for one in dataclasses.fields(config) if one.name in names}  # type: ignore[arg-type]
    changed: Config = dataclasses.replace(config, **usual)  # type: ignore[type-var]
    return changed


@dataclass(frozen=True)
class _Unknown:
    text: str


def _means(text: str, value: Any) -> bool:
    """Whether a text is a value: 1 is 1.0."""
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
    """One run: a cell and a seed."""

    experiment: str
    config: Any
    seed: int

    def to_json(self) -> dict[str, Any]:
        """All that decides how it goes."""
        return {"experiment": self.experiment, "config": dataclasses.asdict(self.config), "seed": self.seed}

    @property
    def key(self) -> str:
        """The key of the job's run."""
        return run_key(self.experiment, dataclasses.asdict(self.config), self.seed)

    def __str__(self) -> str:
        values = {
            one.name: getattr(self.config, one.name)
            for one in dataclasses.fields(self.config)
            if one.default is dataclasses.MISSING or getattr(self.config, one.name) != one.default
        }
        return ", ".join([*(f"{name} {value}" for name, value in values.items()), f"seed {self.seed}"])

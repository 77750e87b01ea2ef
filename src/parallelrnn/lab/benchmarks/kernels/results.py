"""All that a benchmark found, as a file of JSON, and back."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from parallelrnn.io import write_text
from parallelrnn.kernels.machine_peak import MachinePeak
from parallelrnn.lab.benchmarks.kernels import BenchError
from parallelrnn.lab.benchmarks.kernels.cases import Case
from parallelrnn.lab.benchmarks.kernels.conditions import Conditions
from parallelrnn.lab.benchmarks.kernels.contenders import why_skipped
from parallelrnn.lab.benchmarks.kernels.gate import Check
from parallelrnn.lab.benchmarks.kernels.memory import Memory
from parallelrnn.lab.benchmarks.kernels.timing import Timing


@dataclass(frozen=True)
class Bound:
    """The least time of a contender's work (see roofline.py), in seconds, and its own time in units of that."""

    seconds: float
    ratio: float | None
    flops: float
    activations: float
    bytes: float


@dataclass(frozen=True)
class Measurement:
    """One case, cell and kind: times by contender, and the bounds of ours."""

    case: Case
    cell: str
    kind: str
    rounds: int  # that were asked for
    timings: dict[str, Timing]
    bounds: dict[str, Bound]

    @property
    def complete(self) -> bool:
        """Whether there is a time for all contenders, but for those that sit out."""
        return all(
            timing.median is not None or why_skipped(name, self.case, self.kind)
            for name, timing in self.timings.items()
        )


@dataclass(frozen=True)
class Run:
    """One call of the command; a file that was resumed has several."""

    date: str
    command: str
    rounds: int
    budget: float  # seconds for each measurement


@dataclass
class Results:
    """Conditions first, then everything that was measured under them."""

    conditions: Conditions
    runs: list[Run] = field(default_factory=list)
    limits: MachinePeak | None = None
    gate: list[Check] = field(default_factory=list)
    cases: list[Measurement] = field(default_factory=list)
    memory: list[Memory] = field(default_factory=list)
    scaling: list[Measurement] = field(default_factory=list)

    @property
    def discards(self) -> int:
        """Windows that were taken again because other processes were at work."""
        return sum(timing.discards for one in self.cases + self.scaling for timing in one.timings.values())

    def find(self, part: str, case: Case, cell: str, kind: str) -> Measurement | None:
        """The measurement of a case among the "cases" or in "scaling"."""
        measurements: list[Measurement] = getattr(self, part)
        wanted = (case, cell, kind)
        return next((one for one in measurements if (one.case, one.cell, one.kind) == wanted), None)

    def find_memory(self, contender: str, case: Case, cell: str) -> Memory | None:
        """The memory that a contender took for a case."""
        wanted = (contender, case, cell)
        return next((one for one in self.memory if (one.contender, one.case, one.cell) == wanted), None)

    def save(self, path: Path) -> None:
        """Write all of it as JSON."""
        write_text(path, json.dumps({**asdict(self), "discards": self.discards}, indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Results:
        """Read what `save` wrote."""
        try:
            return _from_json(json.loads(path.read_text()))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BenchError(
                f"{path} is not a file of results that this version's `parallelrnn bench` wrote ({error!r}); "
                "give another, or measure again"
            ) from error


def _from_json(found: dict[str, Any]) -> Results:
    return Results(
        conditions=Conditions(**found["conditions"]),
        runs=[Run(**run) for run in found["runs"]],
        limits=found["limits"] and MachinePeak(**found["limits"]),
        gate=[Check(**one) for one in found["gate"]],
        cases=[_measurement(one) for one in found["cases"]],
        memory=[replace(Memory(**one), case=Case(**one["case"])) for one in found["memory"]],
        scaling=[_measurement(one) for one in found["scaling"]],
    )


def _measurement(found: dict[str, Any]) -> Measurement:
    return Measurement(
        Case(**found["case"]),
        found["cell"],
        found["kind"],
        found["rounds"],
        {name: _timing(one) for name, one in found["timings"].items()},
        {name: Bound(**one) for name, one in found["bounds"].items()},
    )


def _timing(found: dict[str, Any]) -> Timing:
    return Timing(**{**found, "windows": tuple(found["windows"]), "foreign": tuple(found["foreign"])})

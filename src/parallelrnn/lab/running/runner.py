"""A grid of jobs: what is there already, what is to do, who does it, and how long it will take."""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from parallelrnn.lab.experiments.experiment import ExperimentError, Job
from parallelrnn.lab.running.engines import ENGINES, Event, Settings
from parallelrnn.lab.running.store import Store


@dataclass
class Grid:
    """Jobs and how far they are."""

    jobs: Sequence[Job]
    workers: int
    done: dict[str, float] = field(default_factory=dict)  # seconds that a job took, by its key
    began: dict[str, float] = field(default_factory=dict)  # when, of those that run
    part: dict[str, float] = field(default_factory=dict)  # how far these are
    first: dict[str, float] = field(default_factory=dict)  # how far they were when they were first heard of
    problems: dict[str, str] = field(default_factory=dict)

    def take(self, event: Event) -> None:
        """What an event says."""
        key = event.job.key
        if event.kind == "began":
            self.began[key] = time.monotonic()
        elif event.kind == "moved":
            self.first.setdefault(key, event.part)
            self.part[key] = event.part
        else:
            seconds = time.monotonic() - self.began.pop(key)
            if event.kind == "done":
                self.done[key] = seconds
            elif event.kind == "failed":
                self.problems[key] = event.problem

    @property
    def seconds_left(self) -> float | None:
        """How long the rest will take at the pace so far; None if nothing is known yet."""
        now = time.monotonic()
        costs: dict[str, list[float]] = {}  # of jobs like one, by its model
        left = 0.0
        running = {job.key: job for job in self.jobs if job.key in self.began}
        for job in self.jobs:
            if self.done.get(job.key):
                costs.setdefault(_kind(job), []).append(self.done[job.key])
        for key, job in running.items():
            moved = self.part.get(key, 0.0) - self.first.get(key, 0.0)
            if moved > 0:
                pace = (now - self.began[key]) / moved
                costs.setdefault(_kind(job), []).append(pace)
                left += pace * (1 - self.part[key])
        if not costs:
            return None
        usual = statistics.mean(cost for some in costs.values() for cost in some)
        for job in self.jobs:
            waits = job.key not in self.done and job.key not in self.problems
            if waits and (job.key not in running or job.key not in self.part):
                left += statistics.mean(costs.get(_kind(job), [usual]))
        return left / self.workers

    @property
    def part_done(self) -> float:
        """Of all jobs."""
        return (len(self.done) + sum(self.part[key] for key in self.began if key in self.part)) / max(1, len(self.jobs))


def run(
    jobs: Sequence[Job],
    folder: Path,
    *,
    workers: int = 1,
    threads: int | None = None,
    budget: float | None = None,
    engine: str = "local",
    every: float = 60.0,
    tell: Callable[[Grid, Event], None] = lambda grid, event: None,
) -> Grid:
    """Run what the store does not hold yet, for `budget` seconds at most; what was begun goes on."""
    if engine not in ENGINES:
        raise ExperimentError(f"engine is one of {', '.join(ENGINES)}, got {engine!r}")
    store = Store(folder)
    store.check()
    known = _known(store, jobs)
    grid = Grid(jobs, workers, done={job.key: 0.0 for job in jobs if job.key in known})
    # What was begun comes first: a result that is there serves more than several halves.
    to_do = sorted((job for job in jobs if job.key not in known), key=lambda job: not store.is_begun(job))
    for job in jobs:
        if job.key in known and store.is_begun(job):  # killed between the result and the removal of this
            with store.claim(job):
                pass
    deadline = float("inf") if budget is None else time.monotonic() + budget
    settings = Settings(folder, workers, threads, deadline, every)
    for event in ENGINES[engine](to_do, settings):
        grid.take(event)
        tell(grid, event)
    for key in _known(store, jobs) & {job.key for job in jobs} - grid.done.keys():  # what another command did meanwhile
        grid.done[key] = 0.0
        grid.problems.pop(key, None)
    return grid


def _known(store: Store, jobs: Sequence[Job]) -> set[str]:
    """The keys of results that are there."""
    return {line["key"] for name in {job.experiment for job in jobs} for line in store.lines(name)}


def seconds_of(text: str) -> float:
    """Of a time such as 90s, 45m, 2h or 1h30m."""
    found = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?", text.strip())
    if not text.strip() or found is None:
        raise ExperimentError(f"a time is written like 90s, 45m, 2h or 1h30m, got {text!r}")
    return sum(float(part or 0) * unit for part, unit in zip(found.groups(), (3600, 60, 1), strict=True))


def _kind(job: Job) -> str:
    return f"{job.experiment} {getattr(job.config, 'model', '')}"

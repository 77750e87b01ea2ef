"""Times of several contenders, taken in turns, without the windows in which other processes were at work."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from parallelrnn.lab.benchmarks.kernels import load
from parallelrnn.lab.benchmarks.kernels.contenders import Step

MAX_FOREIGN = 0.12  # processors that others may use while a window is timed
WINDOW = 0.2  # seconds; a step that is shorter is repeated, as the load of less than this cannot be told
TRIES = 8  # for one window
PAUSE = 0.25  # seconds before a window is tried again
MIN_ROUNDS = 3  # however long they take


@dataclass(frozen=True)
class Timing:
    """What was measured of one contender, in seconds; or why nothing was."""

    median: float | None
    spread: float | None = None  # between the quartiles, relative to the median
    fastest: float | None = None
    repetitions: int = 0
    windows: tuple[float, ...] = ()  # the median of each window
    foreign: tuple[float | None, ...] = ()  # processors that others used in each
    discards: int = 0  # windows in which others used too much
    reason: str = ""  # for no times


@dataclass(frozen=True)
class Machine:
    """Where time and load come from."""

    clock: Callable[[], float] = time.perf_counter
    read: Callable[[], load.Reading] = load.read
    pause: Callable[[float], None] = time.sleep


@dataclass
class _Window:
    times: list[float]
    foreign: float | None


@dataclass
class _Record:
    windows: list[_Window] = field(default_factory=list)
    discards: int = 0


def measure(steps: Mapping[str, Step], rounds: int, budget: float, machine: Machine | None = None) -> dict[str, Timing]:
    """Run every step once to warm up, then take turns: a window of each in every round.

    There are `rounds` rounds, or fewer once `budget` seconds have passed, but at least three if so many are asked for.
    """
    machine = machine or Machine()
    for step in steps.values():
        step.prepare()
        step.run()
    records = {name: _Record() for name in steps}
    begin = machine.clock()
    for index in range(rounds):
        if index >= MIN_ROUNDS and machine.clock() - begin >= budget:
            break
        for name, step in steps.items():
            _add_window(records[name], step, machine)
    return {name: _summary(record) for name, record in records.items()}


def _add_window(record: _Record, step: Step, machine: Machine) -> None:
    for attempt in range(TRIES):
        if attempt:
            machine.pause(PAUSE)
        window = _take_window(step, machine)
        if window.foreign is None or window.foreign <= MAX_FOREIGN:
            record.windows.append(window)
            return
        record.discards += 1


def _take_window(step: Step, machine: Machine) -> _Window:
    times = []
    before = machine.read()
    end = before.wall
    while end - before.wall < WINDOW:
        step.prepare()
        begin = machine.clock()
        step.run()
        end = machine.clock()
        times.append(end - begin)
    return _Window(times, load.foreign(before, machine.read()))


def _summary(record: _Record) -> Timing:
    if not record.windows:
        return Timing(
            None,
            discards=record.discards,
            reason=f"other processes used more than {MAX_FOREIGN} of a processor in all {record.discards} windows",
        )
    times = sorted(time for window in record.windows for time in window.times)
    median = statistics.median(times)
    first, _, third = statistics.quantiles(times, method="inclusive") if len(times) > 1 else times * 3
    return Timing(
        median,
        spread=(third - first) / median,
        fastest=times[0],
        repetitions=len(times),
        windows=tuple(statistics.median(window.times) for window in record.windows),
        foreign=tuple(window.foreign for window in record.windows),
        discards=record.discards,
    )

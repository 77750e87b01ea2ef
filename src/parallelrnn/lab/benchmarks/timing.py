"""Times of several contenders that take turns, without the windows in which other processes were busy."""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from torch import Tensor, nn

STAT = Path("/proc/stat")
MAX_FOREIGN = 0.12  # processors that other processes may use while a window is timed
WINDOW = 0.2  # seconds; shorter steps are repeated, since the load over less than this cannot be measured
ATTEMPTS = 8  # at one window
PAUSE = 0.25  # seconds before a window is timed again
MIN_ROUNDS = 3  # whatever the budget
PASSES = ("forward", "backward", "total")
Measured = TypeVar("Measured")
clock, pause = time.perf_counter, time.sleep  # tests have their own


@dataclass(frozen=True)
class Clocks:
    """Clocks read at the same moment, in seconds."""

    wall: float
    busy: float | None  # all processors together; None where the system does not report it
    own: float  # processor time of this process, all threads


def read_clocks() -> Clocks:
    """Return the clocks as they are now."""
    return Clocks(clock(), busy_seconds(), time.process_time())


def busy_seconds(stat: Path = STAT) -> float | None:
    """Return how long all processors together have been busy since the machine started; None without /proc/stat."""
    try:
        fields = stat.read_text().split("\n", 1)[0].split()  # cpu user nice system idle iowait irq softirq steal ...
    except OSError:
        return None
    user, nice, system, _, _, irq, softirq, steal = map(int, fields[1:9])
    return (user + nice + system + irq + softirq + steal) / float(os.sysconf("SC_CLK_TCK"))


def foreign_load(before: Clocks, after: Clocks) -> float | None:
    """Return how many processors other processes used on average, 0.5 being half of one; None if unknown.

    Linux counts in ticks of 10 ms on each processor: over 200 ms on two processors the result is accurate to about
    0.05, and can be negative.
    """
    if before.busy is None or after.busy is None:
        return None
    return (after.busy - before.busy - (after.own - before.own)) / (after.wall - before.wall)


@dataclass(frozen=True)
class Step:
    """The work of one contender: what happens before the clock starts, and what is timed."""

    prepare: Callable[[], None]
    run: Callable[[], None]


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Times of one contender in seconds, or the reason why there are none."""

    median: float | None
    spread: float | None = None  # interquartile range relative to the median
    fastest: float | None = None
    repetitions: int = 0
    windows: tuple[float, ...] = ()  # the median of each window
    foreign: tuple[float | None, ...] = ()  # processors used by others in each window
    discards: int = 0  # windows in which others used too much
    reason: str = ""


@dataclass
class _Record:
    windows: list[tuple[list[float], float | None]] = field(default_factory=list)  # times, and the load of others
    discards: int = 0


def measure(steps: Mapping[str, Step], rounds: int, budget: float) -> dict[str, Timing]:
    """Run every step once to warm up, then time one window of each per round.

    Stops after `rounds` rounds, or once `budget` seconds have passed and three rounds are complete.
    """
    for step in steps.values():
        step.prepare()
        step.run()
    records = {name: _Record() for name in steps}
    begin = clock()
    for index in range(rounds):
        if index >= MIN_ROUNDS and clock() - begin >= budget:
            break
        for name, step in steps.items():
            _add_window(records[name], step)
    return {name: _summarize(record) for name, record in records.items()}


def _add_window(record: _Record, step: Step) -> None:
    for attempt in range(ATTEMPTS):
        if attempt:
            pause(PAUSE)
        times, foreign = _time_window(step)
        if foreign is None or foreign <= MAX_FOREIGN:
            record.windows.append((times, foreign))
            return
        record.discards += 1


def _time_window(step: Step) -> tuple[list[float], float | None]:
    times = []
    before = read_clocks()
    end = before.wall
    while end - before.wall < WINDOW:
        step.prepare()
        begin = clock()
        step.run()
        end = clock()
        times.append(end - begin)
    return times, foreign_load(before, read_clocks())


def _summarize(record: _Record) -> Timing:
    if not record.windows:
        return Timing(
            median=None,
            discards=record.discards,
            reason=f"other processes used more than {MAX_FOREIGN} processors in all {record.discards} windows",
        )
    times = sorted(time for window, _ in record.windows for time in window)
    median = statistics.median(times)
    first, _, third = statistics.quantiles(times, method="inclusive") if len(times) > 1 else times * 3
    return Timing(
        median=median,
        spread=(third - first) / median,
        fastest=times[0],
        repetitions=len(times),
        windows=tuple(statistics.median(window) for window, _ in record.windows),
        foreign=tuple(foreign for _, foreign in record.windows),
        discards=record.discards,
    )


def take_turns(
    steps: Mapping[str, Callable[[], Measured]], rounds: int, progress: Callable[[float], None] = lambda part: None
) -> tuple[list[dict[str, Measured]], int]:
    """Run every step once per round, in random order; return what they measured, and how many rounds were disturbed.

    Every step runs once before, to warm up. A round in which other processes were busy is repeated a few times; it
    counts as disturbed if they never stopped.
    """
    order = random.Random(0)
    names = list(steps)
    measured: list[dict[str, Measured]] = []
    disturbed = 0
    for step in steps.values():
        step()
    for number in range(rounds):
        order.shuffle(names)
        for _ in range(ATTEMPTS):
            before = read_clocks()
            results = {name: steps[name]() for name in names}
            foreign = foreign_load(before, read_clocks())
            quiet = foreign is None or foreign <= MAX_FOREIGN
            if quiet:
                break
            pause(PAUSE)
        disturbed += not quiet
        measured.append(results)
        progress((number + 1) / rounds)
    return measured, disturbed


def seconds_of(work: Callable[[], object]) -> Callable[[], float]:
    """Return a step that does some work and returns how long it took."""

    def step() -> float:
        began = clock()
        work()
        return clock() - began

    return step


def time_passes(layer: nn.Module, x: Tensor, grad: Tensor) -> tuple[float, float]:
    """Return the seconds of the forward and the backward pass of one training step."""
    layer.zero_grad(set_to_none=True)
    began = clock()
    output, _ = layer(x)
    turned = clock()
    output.backward(grad)
    return turned - began, clock() - turned

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from parallelrnn.lab.benchmarks import timing
from parallelrnn.lab.benchmarks.timing import ATTEMPTS, MAX_FOREIGN, WINDOW, Clocks, Step, Timing, measure, take_turns


class Machine:
    """A machine on which time passes only while a step runs; other processes are busy when `others` says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.busy = self.own = 0.0
        self.others: Callable[[float], float] = lambda now: 0.0  # processors, by time
        self.log, self.pauses = "", 0
        monkeypatch.setattr(timing, "clock", lambda: self.now)
        monkeypatch.setattr(timing, "pause", self.pause)
        monkeypatch.setattr(timing, "read_clocks", lambda: Clocks(self.now, self.busy, self.own))

    def run(self, name: str, seconds: float, threads: int = 2) -> None:
        self.log += name
        self.busy += seconds * (threads + self.others(self.now))
        self.own += seconds * threads
        self.now += seconds

    def pause(self, seconds: float) -> None:
        self.pauses += 1
        self.now += seconds

    def step(self, name: str = "x", seconds: float = 1.0, threads: int = 2) -> Step:
        return Step(prepare=lambda: None, run=lambda: self.run(name, seconds, threads))

    def measure(self, step: Step, rounds: int, budget: float = 1e9) -> Timing:
        return measure({"x": step}, rounds, budget)["x"]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_contenders_take_turns_and_short_steps_fill_a_window(machine: Machine) -> None:
    steps = {"short": machine.step("s", WINDOW / 4), "long": machine.step("l", 3 * WINDOW)}
    timings = measure(steps, rounds=2, budget=1e9)
    assert machine.log == "sl" + "ssssl" * 2  # after one warm-up each
    assert timings["short"].median == pytest.approx(WINDOW / 4)
    assert timings["short"].repetitions == 8
    assert len(timings["short"].windows) == 2
    assert timings["long"].repetitions == 2


def test_median_and_spread_are_of_all_repetitions(machine: Machine) -> None:
    lengths = iter([9.0, 1.0, 2.0, 3.0, 4.0, 10.0])  # the first warms up
    times = machine.measure(Step(lambda: None, lambda: machine.run("x", next(lengths))), rounds=5)
    assert times.median == pytest.approx(3)
    assert times.spread == pytest.approx((4 - 2) / 3)
    assert times.fastest == pytest.approx(1)


def test_preparation_is_not_timed(machine: Machine) -> None:
    step = Step(lambda: machine.pause(100), machine.step().run)
    assert machine.measure(step, rounds=1).median == pytest.approx(1)


def test_a_window_with_foreign_load_is_repeated(machine: Machine) -> None:
    # The warm-up ends at 1; in two windows others use half a processor, in the later ones a little of one.
    machine.others = lambda now: 0.5 if now < 3 else MAX_FOREIGN - 0.01
    times = machine.measure(machine.step(), rounds=2)
    assert times.discards == machine.pauses == 2
    assert times.repetitions == 2
    assert times.foreign == pytest.approx((MAX_FOREIGN - 0.01,) * 2)


def test_on_a_machine_that_is_never_idle_there_is_no_time(machine: Machine) -> None:
    machine.others = lambda now: 1.0
    times = machine.measure(machine.step(), rounds=2)
    assert times.median is None
    assert times.discards == 2 * ATTEMPTS
    assert times.reason


def test_our_own_threads_are_not_foreign(machine: Machine) -> None:
    assert machine.measure(machine.step(threads=64), rounds=1).discards == 0


def test_where_load_is_unknown_every_window_counts(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.others = lambda now: 1.0
    monkeypatch.setattr(timing, "read_clocks", lambda: Clocks(machine.now, None, machine.own))
    times = machine.measure(machine.step(), rounds=3)
    assert (times.repetitions, times.discards, times.foreign) == (3, 0, (None,) * 3)


@pytest.mark.parametrize(("rounds", "budget", "expected"), [(100, 0.5, 3), (100, 7.5, 8), (2, 0.0, 2)])
def test_the_budget_ends_the_rounds_but_not_before_three(
    machine: Machine, rounds: int, budget: float, expected: int
) -> None:
    assert machine.measure(machine.step(), rounds, budget).repetitions == expected


def test_busy_time_leaves_idle_time_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing.os, "sysconf", lambda name: 100)
    stat = tmp_path / "stat"
    stat.write_text("cpu  1000 200 30 99999 88888 4 50 600 77777 66666\ncpu0 1 2 3 4 5 6 7 8 9 10\n")
    assert timing.busy_seconds(stat) == pytest.approx(18.84)
    assert timing.busy_seconds(tmp_path / "missing") is None


def test_disturbed_rounds_of_turns_are_repeated(machine: Machine) -> None:
    machine.others = lambda now: 0.0 if 6 < now < 9 else 1.0  # while the first round is repeated
    steps = {name: lambda name=name: machine.run(name, 1.0) or name for name in "ab"}
    rounds, disturbed = take_turns(steps, rounds=2)
    assert rounds == [{"a": "a", "b": "b"}] * 2
    assert disturbed == 1
    assert sorted(machine.log[:2]) == ["a", "b"]  # the warm-up
    assert len(machine.log) == 2 * (1 + 3 + ATTEMPTS)

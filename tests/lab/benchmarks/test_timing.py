from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from parallelrnn.lab.benchmarks import timing as module
from parallelrnn.lab.benchmarks.timing import ATTEMPTS, MAX_FOREIGN, WINDOW, Clocks, Machine, Step, measure, take_turns


@dataclass
class FakeMachine:
    """Time passes only while a step runs; other processes are busy when `others` says so."""

    now: float = 0.0
    busy: float = 0.0
    own: float = 0.0
    others: Callable[[float], float] = lambda now: 0.0  # processors, by time
    log: list[str] = field(default_factory=list)
    pauses: int = 0

    def step(self, name: str, seconds: float, threads: int = 2) -> Step:
        def run() -> None:
            self.log.append(name)
            self.busy += seconds * (threads + self.others(self.now))
            self.own += seconds * threads
            self.now += seconds

        return Step(prepare=lambda: None, run=run)

    def pause(self, seconds: float) -> None:
        self.pauses += 1
        self.now += seconds

    def machine(self) -> Machine:
        return Machine(lambda: self.now, lambda: Clocks(self.now, self.busy, self.own), self.pause)


def test_contenders_take_turns_after_one_warm_up_each() -> None:
    fake = FakeMachine()
    steps = {name: fake.step(name, 2 * WINDOW) for name in "abc"}
    measure(steps, rounds=3, budget=1e9, machine=fake.machine())
    assert "".join(fake.log) == "abc" + "abc" * 3


def test_short_steps_fill_a_window_and_each_is_timed() -> None:
    fake = FakeMachine()
    steps = {"short": fake.step("s", WINDOW / 4), "long": fake.step("l", 3 * WINDOW)}
    timings = measure(steps, rounds=2, budget=1e9, machine=fake.machine())
    assert "".join(fake.log) == "sl" + "ssssl" * 2
    assert timings["short"].median == pytest.approx(WINDOW / 4)
    assert timings["short"].repetitions == 8
    assert len(timings["short"].windows) == 2
    assert timings["long"].repetitions == 2


def test_median_and_spread_are_of_all_repetitions() -> None:
    fake = FakeMachine()
    lengths = iter([9.0, 1.0, 2.0, 3.0, 4.0, 10.0])  # the first warms up
    step = Step(lambda: None, lambda: fake.step("x", next(lengths)).run())
    timing = measure({"x": step}, rounds=5, budget=1e9, machine=fake.machine())["x"]
    assert timing.median == pytest.approx(3)
    assert timing.spread == pytest.approx((4 - 2) / 3)
    assert timing.fastest == pytest.approx(1)


def test_preparation_is_not_timed() -> None:
    fake = FakeMachine()
    step = Step(lambda: fake.pause(100), fake.step("x", 1.0).run)
    assert measure({"x": step}, 1, 1e9, fake.machine())["x"].median == pytest.approx(1)


def test_a_window_with_foreign_load_is_taken_again() -> None:
    # The warm-up ends at 1; two windows in which others use half a processor, the later ones a little of one.
    fake = FakeMachine(others=lambda now: 0.5 if now < 3 else MAX_FOREIGN - 0.01)
    timing = measure({"x": fake.step("x", 1.0)}, rounds=2, budget=1e9, machine=fake.machine())["x"]
    assert timing.discards == 2
    assert fake.pauses == 2
    assert timing.repetitions == 2
    assert timing.foreign == pytest.approx((MAX_FOREIGN - 0.01,) * 2)


def test_on_a_machine_that_is_never_free_there_is_no_time() -> None:
    fake = FakeMachine(others=lambda now: 1.0)
    timing = measure({"x": fake.step("x", 1.0)}, rounds=2, budget=1e9, machine=fake.machine())["x"]
    assert timing.median is None
    assert timing.discards == 2 * ATTEMPTS
    assert timing.reason


def test_our_own_threads_are_not_foreign() -> None:
    fake = FakeMachine()
    timing = measure({"x": fake.step("x", 1.0, threads=64)}, rounds=1, budget=1e9, machine=fake.machine())["x"]
    assert timing.discards == 0


def test_where_load_is_not_known_every_window_counts() -> None:
    fake = FakeMachine(others=lambda now: 1.0)
    machine = Machine(lambda: fake.now, lambda: Clocks(fake.now, None, fake.own), fake.pause)
    timing = measure({"x": fake.step("x", 1.0)}, rounds=3, budget=1e9, machine=machine)["x"]
    assert (timing.repetitions, timing.discards, timing.foreign) == (3, 0, (None,) * 3)


def test_the_budget_ends_the_rounds_but_not_before_three() -> None:
    fake = FakeMachine()
    assert measure({"x": fake.step("x", 1.0)}, 100, 0.5, fake.machine())["x"].repetitions == 3
    assert measure({"x": fake.step("x", 1.0)}, 100, 7.5, fake.machine())["x"].repetitions == 8
    assert measure({"x": fake.step("x", 1.0)}, 2, 0.0, fake.machine())["x"].repetitions == 2


def test_busy_time_leaves_idle_time_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.os, "sysconf", lambda name: 100)
    stat = tmp_path / "stat"
    stat.write_text("cpu  1000 200 30 99999 88888 4 50 600 77777 66666\ncpu0 1 2 3 4 5 6 7 8 9 10\n")
    assert module.busy_seconds(stat) == pytest.approx(18.84)
    assert module.busy_seconds(tmp_path / "missing") is None


def test_disturbed_rounds_of_turns_are_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    loads = iter([1.0, 0.0, *[1.0] * ATTEMPTS])  # of the first round, the same repeated, and the second
    monkeypatch.setattr(module, "foreign_load", lambda before, after: next(loads))
    monkeypatch.setattr(module, "PAUSE", 0)
    log: list[str] = []
    rounds, disturbed = take_turns({name: lambda name=name: log.append(name) or name for name in "ab"}, rounds=2)
    assert rounds == [{"a": "a", "b": "b"}] * 2
    assert disturbed == 1
    assert len(log) == 2 * (1 + 2 + ATTEMPTS)  # with the warm-up

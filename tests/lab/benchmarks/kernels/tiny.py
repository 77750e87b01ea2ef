"""A case that takes no time, and results that nobody measured."""

from __future__ import annotations

import pytest

from parallelrnn.kernels.machine_peak import MachinePeak
from parallelrnn.lab.benchmarks.kernels import run, timing
from parallelrnn.lab.benchmarks.kernels.cases import CASES, QUICK, Case
from parallelrnn.lab.benchmarks.kernels.conditions import Conditions
from parallelrnn.lab.benchmarks.kernels.results import Bound, Measurement, Results, Run
from parallelrnn.lab.benchmarks.kernels.timing import Timing

TINY = Case("S1", length=3, input_size=1, hidden_size=4, batch=2)
LIMITS = MachinePeak(fma=1e9, tanh=1e8, bandwidth=1e9)
CONDITIONS = Conditions(
    processor="some processor",
    cores=2,
    threads=2,
    instruction_set="avx2",
    parallelrnn="0.1.0",
    torch="2.13.0",
    numpy="2.4.6",
    python="3.11.7",
    system="Linux",
    dtype="float32",
    huge_pages="madvise",
    other_load="windows are taken again",
)


def make_tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every case that --quick runs be tiny, every window one step, and the machine a known one."""
    for name in QUICK:
        monkeypatch.setitem(CASES, name, Case(name, TINY.length, TINY.input_size, TINY.hidden_size, TINY.batch))
    monkeypatch.setattr(timing, "WINDOW", 1e-9)
    monkeypatch.setattr(timing, "MAX_FOREIGN", float("inf"))
    monkeypatch.setattr(run.machine_peak, "measure", lambda threads: LIMITS)


def made_up() -> Results:
    """Results of one measurement: torch.nn 20 ms, ours 2, with an aggregate 5, the loop left out."""
    timings = {
        "torch": Timing(0.020, 0.1, 0.019, 2, (0.019, 0.021), (0.01, None), discards=3),
        "blocks": Timing(0.002, 0.04, 0.002, 1, (0.002,), (0.0,)),
        "aggregated": Timing(0.005, 0.02, 0.005, 1, (0.005,), (0.0,)),
        "loop": Timing(None, reason="too slow"),
    }
    bounds = {"blocks": Bound(0.001, 2.0, 10.0, 5.0, 100.0)}
    measurement = Measurement(CASES["S1"], "RNN", "training", 5, timings, bounds)
    return Results(
        CONDITIONS, [Run("2026-01-02T03:04:05+00:00", "parallelrnn bench", 5, 60.0)], LIMITS, cases=[measurement]
    )

"""A case that takes no time, and results that nobody measured."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from parallelrnn.kernels.machine_peak import MachinePeak
from parallelrnn.lab.benchmarks import kernels, timing
from parallelrnn.lab.benchmarks.cases import CASES, QUICK, Case
from parallelrnn.lab.benchmarks.timing import Timing
from parallelrnn.lab.runs import Run

TINY = Case(name="S1", length=3, input_size=1, hidden_size=4, batch=2)
PEAK = MachinePeak(fma=1e9, tanh=1e8, bandwidth=1e9)
MACHINE = {"processor": "some processor", "cores": 2, "threads": 2, "instruction_set": "avx2", "dtype": "float32"}
MACHINE |= {"parallelrnn": "0.1.0", "torch": "2.13.0", "numpy": "2.4.6", "python": "3.11.7", "system": "Linux"}
MACHINE |= {"huge_pages": "madvise", "load": True}


def make_tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every case of --quick tiny, every window one step, and the machine a known one."""
    for name in QUICK:
        monkeypatch.setitem(CASES, name, replace(TINY, name=name))
    monkeypatch.setattr(timing, "WINDOW", 1e-9)
    monkeypatch.setattr(timing, "MAX_FOREIGN", float("inf"))
    monkeypatch.setattr(kernels.machine_peak, "measure", lambda threads: PEAK)


def made_up(case: Case = CASES["S1"], part: str = "cases") -> Run:
    """Return a run of one measurement: torch.nn 20 ms, ours 2, with an aggregate 5, the loop left out."""
    timings = {
        "torch": Timing(median=0.020, spread=0.1, fastest=0.019, repetitions=2, discards=3),
        "blocks": Timing(median=0.002, spread=0.04, fastest=0.002, repetitions=1),
        "aggregated": Timing(median=0.005, spread=0.02, fastest=0.005, repetitions=1),
        "loop": Timing(median=None, reason="too slow"),
    }
    bounds = {"blocks": {"seconds": 0.001, "ratio": 2.0, "flops": 10.0, "activations": 5.0, "bytes": 100.0}}
    measured = {"rounds": 5, "timings": {name: asdict(times) for name, times in timings.items()}, "bounds": bounds}
    command = {"date": "2026-01-02T03:04:05+00:00", "command": "parallelrnn bench", "rounds": 5, "budget": 60.0}
    return Run(
        experiment=kernels.NAME,
        config={"part": part, "case": asdict(case)},
        seed=0,
        result={"times": {"RNN training": measured}, "memory": {"GRU": {"torch": 123_400_000}}, "gate": []},
        provenance={"machine": MACHINE, "machine_peak": asdict(PEAK), "commands": [command]},
    )

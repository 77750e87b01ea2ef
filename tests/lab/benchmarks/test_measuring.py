from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parallelrnn.lab.benchmarks import BenchError
from parallelrnn.lab.benchmarks.measuring import provenance, run_missing
from parallelrnn.lab.runs import RunStore
from tests.support import raises

JOBS: list[tuple[dict[str, Any], int]] = [({"size": size}, seed) for size in (1, 2) for seed in (0, 1)]


def measure(config: dict[str, Any], seed: int) -> dict[str, Any]:
    if config["size"] == 2 and seed == 1:
        raise ValueError("diverged")
    return {"sum": config["size"] + seed}


def test_failed_measurements_are_repeated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, about = RunStore(tmp_path), provenance(1)
    with pytest.raises(SystemExit):
        run_missing(store, "sums", JOBS, measure, about)
    assert "diverged" in capsys.readouterr().out
    saved = {(run.config["size"], run.seed): run.result for run in store.load("sums")}
    assert saved == {(1, 0): {"sum": 1}, (1, 1): {"sum": 2}, (2, 0): {"sum": 2}}
    calls: list[Any] = []
    run_missing(store, "sums", JOBS, lambda config, seed: calls.append((config, seed)) or {"sum": 3}, about)
    assert calls == [({"size": 2}, 1)]
    assert len(store.load("sums")) == 4


def test_runs_under_other_conditions_are_not_added(tmp_path: Path) -> None:
    run_missing(RunStore(tmp_path), "sums", JOBS[:1], measure, provenance(1))
    with raises(BenchError, "threads: 1, 2"):
        run_missing(RunStore(tmp_path), "sums", JOBS, measure, provenance(2))

"""Scores of forecasts of tasks, held to what they are by definition."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from parallelrnn.lab.benchmarks import tasks
from parallelrnn.lab.benchmarks.tasks import LEVELS, METHODS, NAIVE, OURS, TASKS, Task, _scores
from parallelrnn.lab.runs import Run, RunStore


def days(values: list[float], start: str) -> pd.DataFrame:
    return pd.DataFrame({"unique_id": "a", "ds": pd.date_range(start, periods=len(values), freq="D"), "y": values})


def test_scores_are_what_they_are_by_definition() -> None:
    known, actual = days([1.0, 3.0, 2.0, 4.0], "2024-01-01"), days([5.0, 3.0], "2024-01-05")
    forecast = actual.drop(columns="y").assign(yhat=[4.0, 4.0])
    for level in LEVELS:
        forecast[f"yhat-lo-{level}"] = 4.0 - level / 100
        forecast[f"yhat-hi-{level}"] = 4.0 + level / 100
    scores = _scores([(known, actual, forecast)], Task(2, 2, "D", 1, 1.0, 1.0))
    assert scores["mase"] == pytest.approx(1.0)  # both are off by one, which is how much values change in two steps
    assert scores["smape"] == pytest.approx(100 * (1 / 4.5 + 1 / 3.5) / 2)
    assert scores["coverage"] == {"80": 0.0, "95": 0.0}
    pinball = []
    for quantile in np.arange(1, 10) / 10:
        own = 4.0 + 2 * (quantile - 0.5)
        pinball.append(sum(2 * max(quantile * (y - own), (quantile - 1) * (y - own)) for y in (5.0, 3.0)))
    assert scores["wql"] == pytest.approx(np.mean(pinball) / 8)


def test_our_forecasts_are_scored_at_every_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, tables = np.random.default_rng(0), []
    for name in "ab":
        values = 50 + rng.standard_normal(40).cumsum()
        split = ["train"] * 32 + ["test"] * 8
        stamps = pd.date_range("2000-01-01", periods=40, freq="YS")
        tables.append(pd.DataFrame({"unique_id": name, "ds": stamps, "y": values, "split": split}))
    pd.concat(tables).to_csv(tmp_path / "small.csv.gz", index=False)
    monkeypatch.setitem(TASKS, "small", Task(4, 1, "YS", 2, 1.0, 1.0))
    result = tasks.measure(tmp_path, {"task": "small", "method": OURS}, 0)
    assert result["series"] == 2
    assert 0.2 < result["mase"] < 10
    assert 0 < result["wql"] < 0.2


def test_means_are_over_the_tasks_that_all_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        tasks, "PUBLISHED", {"m1_yearly": {"TiRex": (3.7, 0.13)}, "m1_monthly": {"TiRex": (1.3144, 1.0)}}
    )
    store = RunStore(tmp_path / "benchmarks")
    result = {"mase": 1.3144, "wql": 0.1915, "seconds": 1.0, "coverage": {"80": 0.8, "95": 0.95}, "series": 3}
    for method in METHODS:
        store.save(
            Run(
                experiment="tasks",
                config={"task": "m1_monthly", "method": method},
                seed=0,
                result=result,
                provenance={},
            )
        )
    store.save(
        Run(experiment="tasks", config={"task": "m1_yearly", "method": OURS}, seed=0, result=result, provenance={})
    )
    rows = {(row[0], row[1].split(",")[0]): row[2:] for row in tasks.table(tmp_path).rows}
    assert rows["MASE", "relative to the last season"] == ["1.000"] * (len(METHODS) + 1)
    assert rows["MASE", "m1_yearly"] == ["1.314", "-", "-", "-", "(3.7)", "-"]
    assert len(tasks.details(tmp_path).rows) == 2
    assert math.isnan(TASKS["m4_weekly"].naive_wql)
    assert NAIVE in METHODS

"""Verdicts on forecasts follow their rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from parallelrnn.experiments.reading.claims.verdict import FAILS, HOLDS, SMALLER, UNKNOWN
from parallelrnn.experiments.registry import EXPERIMENTS
from parallelrnn.experiments.running.store import Line
from tests.experiments.reading.claims.findings import found
from tests.experiments.reading.lines import line

SETTINGS = list(dict.fromkeys((one.dataset, one.horizon) for one in EXPERIMENTS["forecasting"].cells()))


def forecasts(
    errors: dict[str, Sequence[float]], types: dict[str, int] | None = None, cells: int = 16, **config: Any
) -> list[Line]:
    """Errors of replicates by model, the same in all settings."""
    details = {"features": {"0 reset": types or {}, "1 reset": {"R-1": 1}}}
    return [
        line("forecasting", {"mse": error, "mae": error}, seed, None, details, **place, **config)
        for dataset, horizon in SETTINGS[:cells]
        for model, some in errors.items()
        for seed, error in enumerate(some)
        for place in [{"dataset": dataset, "horizon": horizon, "model": model}]
    ]


@pytest.mark.parametrize(("ratio", "verdict"), [(0.9, HOLDS), (1.01, HOLDS), (1.05, FAILS)])
def test_forecasts(ratio: float, verdict: str) -> None:
    errors = {"GRU": [1.0], "ParaGRU": [ratio]}
    told = found("forecasting", "loss", forecasts(errors), "ParaGRU")
    assert told.verdict == verdict
    assert told.ours.startswith("32 and 0 of 32" if ratio > 1 else "0 and 32 of 32")
    assert found("forecasting", "loss", forecasts(errors, cells=15), "ParaGRU").verdict == UNKNOWN
    assert found("forecasting", "loss", forecasts(errors), "ParaLSTM").verdict == UNKNOWN


def test_forecasts_are_compared_on_common_seeds_and_all_budgets_are_told() -> None:
    lines = forecasts({"GRU": [1.0, 9.0], "ParaGRU": [1.2]})  # the second seed is the vanilla model's alone
    told = found("forecasting", "loss", lines, "ParaGRU")
    assert "MSE +20.0%" in told.ours
    assert told.ours.startswith("32 and 0 of 32")
    last = SETTINGS[-1]
    rest = [one for one in lines if (one["config"]["dataset"], one["config"]["horizon"]) != last]
    short = forecasts({"GRU": [1.0, 1.0], "ParaGRU": [1.0, 1.0]}, max_epochs=5)[-4:]
    told = found("forecasting", "loss", [*rest, *short], "ParaGRU")
    assert told.verdict == FAILS + SMALLER  # one of sixteen is
    assert told.budget.startswith("1 to 2 replicates; 2 budgets: max_epochs 40")
    assert "max_epochs 5 (not 40)" in told.budget


def test_gains() -> None:
    lower = {"GRU": [1.0, 1.1, 1.2], "ParaGRU": [0.9, 1.0, 1.1], "RNN": [1.0, 1.1, 1.2], "ParaRNN": [1.0, 1.11, 1.19]}
    told = found("forecasting", "gain", forecasts(lower))
    assert (told.verdict, told.ours[:51]) == (HOLDS, "MSE significantly lower in 16 and higher in 0 of 32")
    same = lower | {"ParaGRU": lower["ParaRNN"]}
    assert found("forecasting", "gain", forecasts(same)).verdict == FAILS
    two = {model: some[:2] for model, some in lower.items()}
    assert found("forecasting", "gain", forecasts(two)).verdict == UNKNOWN


def test_types_of_trained_models() -> None:
    models = {model: [1.0] for model in ("RNN", "LSTM", "GRU", "ParaGRU")}
    usual = forecasts(models, {"R-1": 3, "C-1": 9})
    told = found("forecasting", "types", usual)
    assert told.verdict == HOLDS
    assert told.ours == "C-1: 432, R-1: 192; 48 trained models, in 48 of 48 cells (3 models, 16 settings)"
    assert found("forecasting", "waves", usual).verdict == HOLDS
    rare = forecasts(models, {"R-1": 9, "C-1": 3, "R-2": 1}, max_epochs=5)
    assert found("forecasting", "types", rare).verdict == FAILS + SMALLER
    assert found("forecasting", "waves", rare).verdict == FAILS + SMALLER
    assert found("forecasting", "types", usual[1:]).verdict == UNKNOWN
    assert found("forecasting", "types", rare[:2]).verdict == FAILS + SMALLER  # one that is there is enough
    assert found("forecasting", "waves", rare[:2]).verdict == UNKNOWN

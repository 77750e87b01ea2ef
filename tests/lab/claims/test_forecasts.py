"""Verdicts on forecasts follow their rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from parallelrnn.lab.claims.verdict import FAILS, HOLDS, SMALLER, UNKNOWN
from parallelrnn.lab.experiments.registry import EXPERIMENTS
from parallelrnn.lab.running.store import Line
from tests.lab.claims.findings import found
from tests.lab.lines import line

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


def varied(*ratios: float, apart: float = 1.0) -> list[Line]:
    """Twins whose ratio of errors is one in each data set; the first setting is far from the others."""
    lines = forecasts({"GRU": [1.0], "ParaGRU": [1.0]})
    for number, one in enumerate(lines[1::2]):
        one["metrics"] = dict.fromkeys(("mse", "mae"), ratios[number // 4] * (apart if number == 0 else 1.0))
    return lines


@pytest.mark.parametrize(
    ("ratios", "apart", "verdict"),
    [
        ((0.9, 0.92, 0.88, 0.9), 1.0, HOLDS),
        ((1.0, 1.01, 0.99, 1.0), 1.0, HOLDS),  # -1.3 % to +1.3 %
        ((1.0, 1.05, 0.95, 1.0), 1.0, UNKNOWN),  # up to +6.7 %
        ((1.05, 1.06, 1.04, 1.05), 1.0, FAILS),
        ((1.010, 1.011, 1.009, 1.010), 1.0, FAILS),  # little, and significant
        ((1.02, 1.03, 1.01, 1.02), 0.2, UNKNOWN),  # one setting alone makes the mean of the others' losses a gain
    ],
)
def test_losses_over_settings(ratios: tuple[float, ...], apart: float, verdict: str) -> None:
    lines = varied(*ratios, apart=apart)
    assert found("forecasting", "loss", lines, "ParaGRU").verdict == verdict
    assert found("forecasting", "loss", lines[:-2], "ParaGRU").verdict == UNKNOWN
    assert found("forecasting", "loss", lines, "ParaLSTM").verdict == UNKNOWN
    assert found("forecasting", "loss", lines[:2], "ParaGRU").ours.endswith("geometric mean of 1 setting")


def test_losses_in_words() -> None:
    """Logarithms of four ratios: mean -0.0006, standard error 0.0204, 3.18 times which is 0.0650."""
    told = found("forecasting", "loss", varied(1.0, 1.05, 0.95, 1.0), "ParaGRU").ours
    assert told == (
        "MSE -0.1% on the geometric mean of 16 settings (-6.4% to +6.7%), +0.0% on the median; -5% on ETTm1-24, "
        "without which the geometric mean is +0.3%, and +5% on ETTh2-24"
    )


def test_the_papers_losses() -> None:
    """The product of sixteen ratios of Table S.4."""
    assert found("forecasting", "loss", [], "ParaGRU").paper == "MSE -6.4% on the geometric mean"


@pytest.mark.parametrize(
    ("ratios", "verdict", "lower"),
    [
        ((0.9, 0.99, 0.9, 0.5), HOLDS, 16),
        ((0.9, 0.99, 1.0, 0.5), UNKNOWN, 12),  # a tie is no win
        ((0.9, 1.1, 0.9, 0.5), UNKNOWN, 12),
        ((1.1, 1.1, 1.01, 2.0), FAILS, 0),
    ],
)
def test_wins_over_settings(ratios: tuple[float, ...], verdict: str, lower: int) -> None:
    lines = varied(*ratios)
    told = found("forecasting", "wins", lines, "ParaGRU")
    assert told.verdict == verdict
    assert told.ours.endswith(f"of 32; MSE lower in {lower} of 16 settings")
    assert found("forecasting", "wins", lines[:-2], "ParaGRU").verdict == UNKNOWN


def test_forecasts_are_compared_on_common_seeds_and_all_budgets_are_told() -> None:
    lines = forecasts({"GRU": [1.0, 9.0], "ParaGRU": [1.2]})  # the second seed is the vanilla model's alone
    told = found("forecasting", "loss", lines, "ParaGRU")
    assert "MSE +20.0%" in told.ours
    assert found("forecasting", "wins", lines, "ParaGRU").ours.startswith("32 and 0 of 32")
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
    words = "of 32 comparisons that have 3 replicates or more, MSE is significantly lower in 16 and higher in 0, each "
    words += "by itself"
    assert (told.verdict, told.ours) == (HOLDS, f"{words}; jointly lower in 16")
    same = lower | {"ParaGRU": lower["ParaRNN"]}
    assert found("forecasting", "gain", forecasts(same)).verdict == UNKNOWN
    alone = lower | {"ParaGRU": [0.9, 1.0, 1.13]}  # -0.09 ± 0.04; among 32, ± 0.43
    told = found("forecasting", "gain", forecasts(alone))
    assert (told.verdict, told.ours) == (UNKNOWN, f"{words}; jointly lower in 0")
    two = {model: some[:2] for model, some in lower.items()}
    assert found("forecasting", "gain", forecasts(two)).verdict == UNKNOWN


def test_types_of_trained_models() -> None:
    models = {model: [1.0] for model in ("RNN", "LSTM", "GRU", "ParaGRU")}
    usual = forecasts(models, {"R-1": 3, "C-1": 9})
    told = found("forecasting", "types", usual)
    assert told.verdict == HOLDS
    assert told.ours == "C-1: 432, R-1: 192; 48 trained models, in 48 of 48 cells (3 models, 16 settings)"
    told = found("forecasting", "waves", usual)
    assert told.verdict == HOLDS
    assert told.ours.endswith("; in para models C-1: 144, R-1: 64"), "which are not judged"
    rare = forecasts(models, {"R-1": 9, "C-1": 3, "R-2": 1}, max_epochs=5)
    assert found("forecasting", "types", rare).verdict == FAILS + SMALLER
    assert found("forecasting", "waves", rare).verdict == FAILS + SMALLER
    assert found("forecasting", "types", usual[1:]).verdict == UNKNOWN
    assert found("forecasting", "types", rare[:2]).verdict == UNKNOWN  # the rest may have few
    assert found("forecasting", "types", forecasts(models, {"R-1": 2000, "R-2": 1})).verdict == HOLDS
    assert found("forecasting", "waves", rare[:2]).verdict == UNKNOWN

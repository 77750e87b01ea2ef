"""Verdicts on accuracies follow their rules."""

from __future__ import annotations

import pytest

from parallelrnn.experiments.reading.claims.verdict import FAILS, HOLDS, UNKNOWN
from parallelrnn.experiments.running.store import Line
from tests.experiments.reading.claims.findings import found
from tests.experiments.reading.lines import line


def accuracies(vanilla: list[float], para: list[float], model: str = "GRU", **more: float) -> list[Line]:
    return [
        line("pmnist", {"accuracy": accuracy, **more}, seed, model=name)
        for name, some in ((model, vanilla), (f"Para{model}", para))
        for seed, accuracy in enumerate(some)
    ]


@pytest.mark.parametrize(
    ("para", "verdict"),
    [
        ([0.92, 0.93, 0.92], HOLDS),
        ([0.90, 0.93, 0.89], UNKNOWN),  # better, but not significantly
        ([0.88, 0.89, 0.88], FAILS),
        ([0.92, 0.93], UNKNOWN),
    ],
)
def test_better_is_significantly_better(para: list[float], verdict: str) -> None:
    assert found("pmnist", "better", accuracies([0.90, 0.90, 0.90], para, "RNN")).verdict == verdict


@pytest.mark.parametrize(
    ("para", "tested", "verdict"),
    [
        (0.89, {}, HOLDS),
        (0.88, {}, FAILS),
        (0.88, {"tested": 10_000}, FAILS),
        (0.85, {"tested": 100}, HOLDS),  # two standard errors are six points
        (0.83, {"tested": 100}, FAILS),
    ],
)
def test_as_accurate(para: float, tested: dict[str, float], verdict: str) -> None:
    lines = accuracies([0.90], [para], **tested)
    told = found("pmnist", "comparable", lines, "ParaGRU")
    assert told.verdict == verdict
    assert told.ours.startswith(f"90.00 % and {100 * para:.2f} %")
    assert told.ours.endswith("1 replicate")
    lines[0]["config"]["max_epochs"] = 3  # a budget that the twin has not
    assert found("pmnist", "comparable", lines, "ParaGRU").verdict == UNKNOWN


def test_guessing_twins_are_not_comparable() -> None:
    assert found("pmnist", "comparable", accuracies([0.11], [0.12]), "ParaGRU").verdict == UNKNOWN


@pytest.mark.parametrize(
    ("dataset", "accuracy", "verdict"),
    [
        ("UCR Worms", 0.65, HOLDS),
        ("UCR Worms", 0.55, UNKNOWN),  # always the largest class has 0.42, with a standard error of 0.08
        ("StandWalkJump", 0.55, HOLDS),
        ("StandWalkJump", 0.48, UNKNOWN),
    ],
)
def test_nor_are_those_that_answer_one_class(dataset: str, accuracy: float, verdict: str) -> None:
    metrics = {"accuracy": accuracy, "tested": 39.0}
    lines = [line("worms", metrics, dataset=dataset.split()[-1], model=model) for model in ("GRU", "ParaGRU")]
    told = found("worms", "comparable", lines, f"{dataset}, not the paper's data: GRU")
    assert (told.verdict, told.paper) == (verdict, "-")

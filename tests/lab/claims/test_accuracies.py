"""Verdicts on accuracies follow their rules."""

from __future__ import annotations

import pytest

from parallelrnn.lab.claims.verdict import FAILS, HOLDS, UNKNOWN
from parallelrnn.lab.running.store import Line
from tests.lab.claims.findings import found
from tests.lab.lines import line


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
    ("para", "verdict"),
    [
        ([0.900, 0.902, 0.898], HOLDS),
        ([0.892, 0.890, 0.891], UNKNOWN),  # 0.9 points behind, ± 0.25
        ([0.88, 0.88, 0.88], FAILS),
        ([0.88, 0.91, 0.92], UNKNOWN),
        ([0.95, 0.96, 0.95], HOLDS),  # far ahead
        ([0.90, 0.90], UNKNOWN),  # two are too few
    ],
)
def test_as_accurate(para: list[float], verdict: str) -> None:
    lines = accuracies([0.90, 0.90, 0.90], para, tested=39)
    assert found("pmnist", "comparable", lines, "ParaGRU").verdict == verdict


def test_twins_that_cannot_be_compared() -> None:
    told = found("pmnist", "comparable", accuracies([0.9], []), "ParaGRU")
    assert (told.verdict, told.ours) == (UNKNOWN, "only GRU was run")
    lines = accuracies([0.9], [0.9])
    lines[0]["config"]["max_epochs"] = 3  # a budget that the twin has not
    told = found("pmnist", "comparable", lines, "ParaGRU")
    assert (told.verdict, told.ours) == (UNKNOWN, "twins have no budget and seed in common")


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
    def told(**more: float) -> tuple[str, str]:
        metrics = {"accuracy": accuracy, "tested": 39.0, **more}
        where = {"dataset": dataset.split()[-1]}
        lines = [
            line("worms", metrics, seed, model=model, **where) for model in ("GRU", "ParaGRU") for seed in range(3)
        ]
        one = found("worms", "comparable", lines, f"{dataset}, not the paper's data: GRU")
        return one.verdict, one.paper

    assert told() == (verdict, "-")
    assert told(largest_class=0.2) == (HOLDS, "-")  # its part of the test that was taken
    assert told(largest_class=0.6) == (UNKNOWN, "-")

"""Verdicts on the adding problem follow their rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from parallelrnn.lab.claims.verdict import FAILS, HOLDS, UNKNOWN
from parallelrnn.lab.running.store import Line
from tests.lab.claims.findings import found
from tests.lab.lines import line


def adding(model: str, errors: list[float], reached: Sequence[float] = (), **config: Any) -> list[Line]:
    spent = 60.0 if model.startswith("Para") else 120.0
    metrics = [{"mse": error, "seconds": 2 * spent, "processor_seconds": spent} for error in errors]
    for one, count in zip(metrics, reached, strict=False):
        one["iterations_to_0.01"] = count
    config = {"length": 100} | config
    return [line("adding", one, seed, model=model, **config) for seed, one in enumerate(metrics)]


@pytest.mark.parametrize(
    ("vanilla", "para", "verdict"),
    [
        ([1e-4, 2e-4, 0.17], [1e-4, 1e-5, 0.17], HOLDS),
        ([1e-4, 2e-4, 1e-4], [2e-3, 1e-3, 1e-3], HOLDS),  # many times as large, and both next to nothing
        ([1e-4, 1e-4, 1e-4], [0.04, 0.05, 0.045], FAILS),
        ([1e-4, 0.17, 0.17], [1e-4, 1e-5, 0.17], UNKNOWN),
        ([1e-4, 1e-4, 1e-4], [1e-4, 1e-5, 0.17], UNKNOWN),  # one that fails may be chance
        ([0.02, 0.02, 0.02], [0.16, 0.16, 0.16], UNKNOWN),  # nobody has solved it
        ([1e-4, 1e-4], [1e-4, 1e-5], UNKNOWN),
    ],
)
def test_the_end_of_adding(vanilla: list[float], para: list[float], verdict: str) -> None:
    lines = [*adding("LSTM", vanilla), *adding("ParaLSTM", para)]
    assert found("adding", "end", lines, "length 100: LSTM").verdict == verdict
    apart = [*adding("LSTM", vanilla), *adding("ParaLSTM", para, iterations=1000)]
    assert found("adding", "end", apart, "length 100: LSTM").verdict == UNKNOWN  # not the same budget


def test_iterations_and_time_to_converge() -> None:
    good, many = [1e-4] * 3, [5000.0, 5500.0, 6000.0]
    fewer, noisy = [4000.0, 4400.0, 5100.0], [4000.0, 5600.0, 5100.0]

    def verdicts(model: str, vanilla: list[float], para: list[float]) -> tuple[str, str]:
        lines = [*adding(model, good, vanilla), *adding(f"Para{model}", good, para)]
        claim = "fewer" if model == "LSTM" else "more"
        iterations = found("adding", claim, lines, "length 100")
        return iterations.verdict, found("adding", "time", lines, f"length 100: {model}").verdict

    assert verdicts("LSTM", many, fewer) == (HOLDS, HOLDS)
    assert verdicts("LSTM", many, noisy) == (UNKNOWN, HOLDS)  # an iteration takes half as long
    assert verdicts("LSTM", many, [count - 500 for count in many]) == (UNKNOWN, HOLDS)  # no more than between two tests
    assert verdicts("LSTM", many, [count - 501 for count in many]) == (HOLDS, HOLDS)
    assert verdicts("LSTM", fewer, many) == (FAILS, HOLDS)
    assert verdicts("GRU", fewer, many) == (HOLDS, HOLDS)
    assert verdicts("GRU", fewer, [3 * count for count in many]) == (HOLDS, FAILS)
    assert verdicts("GRU", fewer, many[:2]) == (UNKNOWN, UNKNOWN)
    lines = [*adding("GRU", good, fewer), *adding("ParaGRU", good, many)]
    assert found("adding", "time", lines, "100: GRU").ours.startswith("9 and 6 s of a processor")
    del lines[0]["metrics"]["processor_seconds"]  # of one run only the clock is known
    told = found("adding", "time", lines, "100: GRU")
    assert told.verdict == UNKNOWN
    assert told.ours.startswith("18 and 11 s by the clock")


@pytest.mark.parametrize(
    ("vanilla", "para", "verdict"),
    [
        ([1e-4, 0.17, 1e-4], [1e-4] * 3, HOLDS),
        ([1e-4, 0.17, 1e-4], [1e-4, 1e-4, 0.17], FAILS),
        ([1e-4] * 3, [1e-4] * 3, UNKNOWN),  # three that did not fail say little
        ([1e-4] * 10, [1e-4] * 10, FAILS),
        ([1e-4, 0.17], [1e-4] * 2, UNKNOWN),
    ],
)
def test_lstm_fails_at_500(vanilla: list[float], para: list[float], verdict: str) -> None:
    lines = [*adding("LSTM", vanilla, length=500), *adding("ParaLSTM", para, length=500)]
    assert found("adding", "fails", lines).verdict == verdict

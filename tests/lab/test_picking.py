"""Runs of one budget are shown, and what is not shown is counted."""

from __future__ import annotations

import math
from typing import Any

import pytest

from parallelrnn.lab.document import section
from parallelrnn.lab.experiments.registry import EXPERIMENTS
from parallelrnn.lab.picking import conditions, deviation, mean, pick
from parallelrnn.lab.running.store import Line
from tests.lab.lines import forecast, line, picked_forecasts


def test_twins_are_shown_with_the_largest_budget_that_both_have() -> None:
    found = picked_forecasts(
        forecast("RNN", 0.1, max_epochs=40),
        forecast("RNN", 0.2, max_epochs=10),
        forecast("RNN", 0.4, seed=1, max_epochs=10),
        forecast("RNN", 0.9, max_epochs=5),
        forecast("ParaRNN", 0.3, max_epochs=10),
        forecast("ParaRNN", 0.8, max_epochs=5),
    )
    vanilla, para = found.get(model="RNN"), found.get(model="ParaRNN")
    assert vanilla.values("mse") == [0.2, 0.4]  # nothing of 40 or 5 epochs among them
    assert para.values("mse") == [0.3]
    assert vanilla.budget["max_epochs"] == para.budget["max_epochs"] == 10
    assert not vanilla.apart
    assert not para.apart
    assert found.other_budgets == 3
    assert found.get(model="GRU") is None


def test_a_budget_is_larger_by_steps_then_examples_then_sizes() -> None:
    def of(seed: int, **config: Any) -> Line:
        return line("pmnist", {"accuracy": 0.5}, seed, model="RNN", **config)

    def shown_of(*lines: Line) -> Line:
        (found,) = pick(EXPERIMENTS["pmnist"], lines).runs
        (shown,) = found.lines
        return shown

    few, many = of(0, max_epochs=50, epoch_steps=10), of(1, max_epochs=5, epoch_steps=200)
    assert shown_of(few, many) == many  # 500 and 1,000 steps
    assert shown_of(many, of(2, max_epochs=1)) == of(2, max_epochs=1)  # a whole pass
    assert shown_of(of(0, hidden_size=8, train=20), of(1, train=10)) == of(0, hidden_size=8, train=20)
    assert shown_of(of(0, hidden_size=64), of(1, hidden_size=32, num_layers=9)) == of(0, hidden_size=64)
    fewer = of(0, max_epochs=5, train=1000)
    every = of(1, max_epochs=5)  # all examples
    longer = of(2, max_epochs=6, train=10)
    for lines, shown in (([fewer, every], every), ([every, longer, fewer], longer)):
        found = pick(EXPERIMENTS["pmnist"], lines).runs
        assert [one.lines for one in found] == [(shown,)]
    narrow = of(3, max_epochs=5, hidden_size=8)
    (found,) = pick(EXPERIMENTS["pmnist"], [narrow, every]).runs  # as long, but not the width of the experiment
    assert found.lines == (every,)
    (found,) = pick(EXPERIMENTS["pmnist"], [narrow]).runs
    assert (
        found.budget_in_words == "max_epochs 5 (not 800), train all, validation all, test all, hidden_size 8 (not 128)"
    )


@pytest.mark.parametrize(
    ("experiment", "config", "smaller"),
    [
        ("pmnist", {}, False),
        ("pmnist", {"max_epochs": 799}, True),
        ("pmnist", {"max_epochs": 10**6, "epoch_steps": 100}, True),  # counted steps, not whole passes
        ("pmnist", {"max_epochs": 900, "train": 1000}, True),
        ("pmnist", {"test": 1000}, True),
        ("pmnist", {"hidden_size": 64}, True),
        ("pmnist", {"num_layers": 1}, True),
        ("pmnist", {"transformer_layers": 2}, True),
        ("pmnist", {"batch_size": 1, "learning_rate": 1.0}, False),
        ("forecasting", {"max_epochs": 20, "epoch_steps": 512}, False),  # as many steps
        ("forecasting", {"epoch_steps": 128}, True),
        ("forecasting", {"d_model": 64}, True),
        ("forecasting", {"num_states": 64}, True),
        ("noise-padded-cifar", {"length": 500}, True),
        ("adding", {"iterations": 30_000}, True),
        ("adding", {"epoch_steps": 250}, False),
        ("feature-evolution", {"max_epochs": 100}, True),  # its own is shorter than the paper's
    ],
)
def test_what_is_smaller_than_asked(experiment: str, config: dict[str, Any], smaller: bool) -> None:
    cell = {"dataset": "ETTh1", "horizon": 24} if experiment == "forecasting" else {}
    (found,) = pick(EXPERIMENTS[experiment], [line(experiment, {}, model="LSTM", **cell, **config)]).runs
    assert found.is_smaller is smaller
    assert found.budget_in_words.endswith("; shorter than the paper's") is (experiment == "feature-evolution")


def test_runs_of_other_cells_are_counted_and_replicates_are_not_counted_twice() -> None:
    again = forecast("RNN", 0.7)
    found = picked_forecasts(forecast("RNN", 0.1), again, forecast("ParaRNN", 0.2, block_size=4))
    assert [one.values("mse") for one in found.runs] == [[0.1]]
    assert (found.other_budgets, found.other_cells) == (0, 1)
    assert "Runs that are not shown: 1 of other cells." in section(
        EXPERIMENTS["forecasting"], [again, forecast("ParaRNN", 0.2, block_size=4)]
    )


def test_means_and_deviations() -> None:
    assert (mean([1.0, 2.0, 6.0]), deviation([1.0, 2.0, 6.0])) == (3.0, pytest.approx(math.sqrt(7)))
    assert deviation([1.0]) is None


def test_conditions_name_all_that_differ() -> None:
    one, other = forecast("RNN", 0.1), forecast("RNN", 0.2, seed=1)
    other |= {"commit": "version 0.2", "started": "2026-02-03T00:00:00", "machine": one["machine"] | {"threads": 2}}
    other["commits"] = ["abcdef0123456789", "version 0.2"]  # went on after a change
    assert conditions([one, other, one]) == (
        "EPYC (2 cores, avx2); threads of each run 1, 2; torch 2.6, parallelrnn 0.1; commit 0123456789+, abcdef0123, "
        "version 0.2; 2026-01-02 to 2026-02-03"
    )

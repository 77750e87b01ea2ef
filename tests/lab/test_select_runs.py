"""Runs of one budget are selected, and models are paired on the same data with the same budget."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from parallelrnn.lab.runs import Run
from parallelrnn.lab.select_runs import CellRuns, Selection, count_wins, paired
from tests.lab.samples import forecast, make_run, select, tradeoff


def get(selection: Selection, **values: Any) -> CellRuns:
    group = selection.get(**values)
    assert group is not None
    return group


def test_paired_models_are_shown_with_the_largest_budget_that_both_have() -> None:
    selection = select(
        forecast("RNN", 0.1, max_epochs=40),
        forecast("RNN", 0.2, max_epochs=10),
        forecast("RNN", 0.4, seed=1, max_epochs=10),
        forecast("RNN", 0.9, max_epochs=5),
        forecast("ParaRNN", 0.3, max_epochs=10),
        forecast("ParaRNN", 0.8, max_epochs=5),
    )
    vanilla, para = get(selection, model="RNN"), get(selection, model="ParaRNN")
    assert vanilla.values("mse") == [0.2, 0.4]  # none of 40 or 5 epochs
    assert para.values("mse") == [0.3]
    assert vanilla.budget["max_epochs"] == para.budget["max_epochs"] == 10
    assert not vanilla.is_odd
    assert not para.is_odd
    assert selection.other_budgets == 3
    assert selection.get(model="GRU") is None


def test_budgets_are_ordered_by_steps_then_examples_then_sizes() -> None:
    def rnn(seed: int, **config: Any) -> Run:
        return make_run("pmnist", {"accuracy": 0.5}, seed, model="RNN", **config)

    def selected(*runs: Run) -> Run:
        (group,) = select(*runs).groups
        (run,) = group.runs
        return run

    few, many = rnn(0, max_epochs=50, epoch_steps=10), rnn(1, max_epochs=5, epoch_steps=200)
    assert selected(few, many) == many  # 500 and 1,000 steps
    assert selected(many, rnn(2, max_epochs=1)) == rnn(2, max_epochs=1)  # a whole pass over the examples
    assert selected(rnn(0, hidden_size=8, train=20), rnn(1, train=10)) == rnn(0, hidden_size=8, train=20)
    assert selected(rnn(0, hidden_size=64), rnn(1, hidden_size=32, num_layers=9)) == rnn(0, hidden_size=64)
    fewer = rnn(0, max_epochs=5, train=1000)
    every = rnn(1, max_epochs=5)  # all examples
    longer = rnn(2, max_epochs=6, train=10)
    assert selected(fewer, every) == every
    assert selected(every, longer, fewer) == longer
    narrow = rnn(3, max_epochs=5, hidden_size=8)
    assert selected(narrow, every) == every  # as long, but narrower than the experiment's own
    (group,) = select(narrow).groups
    assert group.budget_text == "max_epochs 5 (not 800), train all, validation all, test all, hidden_size 8 (not 128)"
    (group,) = select(make_run("feature-evolution", {}, model="LSTM", initial="mixed")).groups
    assert group.budget_text.endswith("; shorter than the paper's")


def test_runs_of_other_cells_are_counted() -> None:
    selection = select(forecast("RNN", 0.1), forecast("ParaRNN", 0.2, block_size=4))
    assert [group.values("mse") for group in selection.groups] == [[0.1]]
    assert (selection.other_budgets, selection.other_cells) == (0, 1)


def test_wins_are_counted_as_they_are_printed() -> None:
    errors = ((0.4841, 0.4844), (0.484, 0.485), (0.5, math.nan))  # printed alike, a tie; worse; diverged
    selections = [select(forecast("RNN", vanilla), forecast("ParaRNN", para)) for vanilla, para in errors]
    wins = count_wins([pair for selection in selections for pair in selection.pairs], ["mse"])
    assert wins == {"RNN": [True, True, True], "ParaRNN": [True, False, False]}
    assert select(forecast("RNN", 0.1), forecast("GRU", 0.2), forecast("naive", 0.0)).pairs == []


def test_models_without_a_common_budget_are_not_paired() -> None:
    selection = select(forecast("RNN", 0.1, max_epochs=40), forecast("ParaRNN", 0.3, max_epochs=10))
    vanilla, para = get(selection, model="RNN"), get(selection, model="ParaRNN")
    assert (vanilla.is_odd, para.is_odd) == (False, True)
    assert selection.pairs == []
    assert paired(vanilla, para) is None


def test_models_are_paired_on_common_seeds() -> None:
    (pair,) = select(forecast("RNN", 0.4), forecast("RNN", 0.9, 1), forecast("ParaRNN", 0.5)).pairs
    assert pair.means("mse") == (0.4, 0.5)
    assert select(forecast("RNN", 0.4), forecast("ParaRNN", 0.5, 1)).pairs == []


def test_only_runs_on_the_same_data_are_paired() -> None:
    runs = tradeoff(2, {0: 2.0, 1: 2.0, 2: 2.0}) + tradeoff(128, {0: 1.0, 1: 1.0, 2: 1.0})
    data = ("a", "a", None, "a", "b", "c")
    known = [
        replace(run, result={**run.result, "details": {} if name is None else {"data": name}})
        for run, name in zip(runs, data, strict=True)
    ]
    selection = select(*known)
    pair = paired(selection.get(block_size=2), selection.get(block_size=128))
    assert pair is not None
    assert [run.seed for run in pair[0].runs] == [0, 2]  # nothing speaks against seed 2

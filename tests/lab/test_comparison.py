"""Twins are compared on the same data, with the same budget."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from parallelrnn.lab.comparison import difference, paired_difference, rows_of_twins, winning_counts
from parallelrnn.lab.document import section
from parallelrnn.lab.experiments.registry import EXPERIMENTS
from parallelrnn.lab.picking import pick
from tests.lab.lines import forecast, picked_forecasts, tradeoff


def test_wins_are_counted_as_they_are_printed() -> None:
    rows = [
        {"RNN": 0.4841, "ParaRNN": 0.4844},  # printed alike, a tie
        {"RNN": 0.484, "ParaRNN": 0.485},
        {"RNN": 0.5, "ParaRNN": math.nan},  # diverged
        {"RNN": 0.1, "GRU": 0.2, "naive": 0.0},  # without their twins
    ]
    counts = winning_counts(rows)
    assert set(counts) == {"RNN", "ParaRNN"}
    assert (counts["RNN"].wins, counts["RNN"].compared) == (3, 3)
    assert (counts["ParaRNN"].wins, counts["ParaRNN"].compared) == (1, 3)


def test_twins_without_a_common_budget_show_theirs_and_are_not_compared() -> None:
    found = picked_forecasts(forecast("RNN", 0.1, max_epochs=40), forecast("ParaRNN", 0.3, max_epochs=10))
    vanilla, para = found.get(model="RNN"), found.get(model="ParaRNN")
    assert (vanilla.apart, para.apart) == (False, True)
    assert rows_of_twins(found, "mse") == []
    assert paired_difference(vanilla, para, "mse") is None
    text = section(EXPERIMENTS["forecasting"], [*vanilla.lines, *para.lines])
    assert "0.548 / 0.100 |" in text  # without bold: nobody won
    assert "0.547 / 0.300† |" in text
    assert "- budget 1: max_epochs 40, epoch_steps 256\n- budget 2: max_epochs 10 (not 40), epoch_steps 256\n" in text
    assert "† Run with another budget" in text


def test_twins_are_compared_on_common_seeds() -> None:
    found = picked_forecasts(forecast("RNN", 0.4), forecast("RNN", 0.9, 1), forecast("ParaRNN", 0.5))
    assert rows_of_twins(found, "mse") == [{"RNN": 0.4, "ParaRNN": 0.5}]
    assert rows_of_twins(picked_forecasts(forecast("RNN", 0.4), forecast("ParaRNN", 0.5, 1)), "mse") == []


def test_only_runs_on_the_same_data_are_pairs() -> None:
    lines = tradeoff(2, {0: 2.0, 1: 2.0, 2: 2.0}) + tradeoff(128, {0: 1.0, 1: 1.0, 2: 1.0})
    for one, data in zip(lines, ("a", "a", None, "a", "b", "c"), strict=True):
        one["details"] = {} if data is None else {"data": data}
    found = pick(EXPERIMENTS["tradeoff"], lines)
    pairs = paired_difference(found.get(block_size=2), found.get(block_size=128), "mse")
    assert pairs is not None
    assert pairs.pairs == 2  # not seed 1; of seed 2 nothing speaks against it


def test_differences_are_those_of_pairs() -> None:
    random = np.random.default_rng(0)
    data, extra = random.normal(size=(2, 6))
    small = tradeoff(2, dict(enumerate(5 + data + 0.1 * extra)) | {8: 1e6})
    large = tradeoff(128, dict(enumerate(4 + data)) | {9: 1e6})  # the last of both without a pair
    found = pick(EXPERIMENTS["tradeoff"], small + large)
    gap = paired_difference(found.get(block_size=2), found.get(block_size=128), "mse")
    assert gap is not None
    assert gap.pairs == 6
    test = stats.ttest_rel(5 + data + 0.1 * extra, 4 + data)
    assert gap.error is not None
    assert gap.mean / gap.error == pytest.approx(test.statistic)  # the same sums, but for rounding
    low, high = test.confidence_interval(0.95)
    assert gap.margin == pytest.approx((high - low) / 2)
    assert gap.is_significant


@pytest.mark.parametrize(("scale", "significant"), [(0.01, True), (0.05, False)])
def test_significance_is_that_of_students_t(scale: float, significant: bool) -> None:
    ours, theirs = {0: 1.1, 1: 1.1 + scale, 2: 1.1 - scale}, dict.fromkeys(range(3), 1.0)
    found = difference(ours, theirs)
    assert found is not None
    assert found.error is not None
    assert found.mean > 2 * found.error  # which is not enough: of three pairs the limit is 4.3
    assert found.is_significant is significant
    assert bool(stats.ttest_rel(list(ours.values()), list(theirs.values())).pvalue < 0.05) is significant
    two = difference({0: 1.1, 1: 1.1001}, theirs)
    assert two is not None
    assert (two.is_known, two.is_significant) == (False, False)  # two pairs are too few

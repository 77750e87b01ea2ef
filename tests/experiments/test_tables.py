from __future__ import annotations

import csv
import json
import math
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from parallelrnn.cli.app import app
from parallelrnn.experiments import paper
from parallelrnn.experiments.comparison import difference, paired_difference, rows_of_twins, winning_counts
from parallelrnn.experiments.picking import conditions, deviation, mean, pick
from parallelrnn.experiments.registry import EXPERIMENTS
from parallelrnn.experiments.speed import PASSES, VANILLA
from parallelrnn.experiments.store import Line, Store
from parallelrnn.experiments.tables import document, section
from tests.experiments.lines import line

PAPER = os.environ.get("PARALLELRNN_PAPER")  # a folder with the paper's tables and text
with_paper = pytest.mark.skipif(PAPER is None, reason="PARALLELRNN_PAPER names no folder with the paper's tables")


def read(name: str) -> list[dict[str, str]]:
    with (Path(PAPER or "") / name).open() as file:
        return list(csv.DictReader(file))


@with_paper
def test_accuracies_are_the_papers() -> None:
    ours = {"pmnist": "pmnist", "pixel_cifar10": "pixel-cifar", "eigenworms": "worms"}
    ours["noise_padded_cifar10"] = "noise-padded-cifar"
    theirs: dict[str, dict[str, float]] = {}
    for row in read("table_1_accuracy.csv"):
        theirs.setdefault(ours[row["task"]], {})[row["model"]] = float(row["accuracy_percent"])
    assert theirs == paper.ACCURACIES


@with_paper
def test_forecasts_are_the_papers() -> None:
    theirs = {}
    for row in read("table_s4_forecasting.csv"):
        dataset = row["dataset"].replace("Weather", "WTH")
        for metric in ("mse", "mae"):
            theirs[dataset, int(row["horizon"]), row["model"], metric] = float(row[metric])
    assert theirs == paper.FORECASTS


@with_paper
def test_deviations_are_the_papers() -> None:
    theirs: dict[float, dict[int, float]] = {}
    for row in read("table_s2_simulation_sd.csv"):
        theirs.setdefault(float(row["noise_variance"]), {})[int(row["block_size"])] = float(row["sd_test_mse"])
    assert theirs == paper.TRADEOFF_SD
    text = (Path(PAPER or "") / "pararnn.tex").read_text()
    for which, name in (
        ("forward", "Forward propagation"),
        ("backward", "Backward propagation"),
        ("total", "Total time"),
    ):
        found = re.search(rf"^\s*{name}\s*&(.*)\\\\", text, re.MULTILINE)
        assert found is not None
        assert [float(value) for value in found[1].split("&")] == list(paper.SPEED_SD[which].values())


def test_the_papers_forecasts_give_its_winning_counts() -> None:
    rows: dict[Any, dict[str, float]] = {}
    for (dataset, horizon, model, metric), error in paper.FORECASTS.items():
        rows.setdefault((dataset, horizon, metric), {})[model] = error
    counts = winning_counts(rows.values())
    assert {model: found.wins for model, found in counts.items()} == paper.WINS
    assert {found.compared for found in counts.values()} == {32}


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


def forecast(model: str, mse: float, seed: int = 0, horizon: int = 24, **config: Any) -> Line:
    metrics = {"mse": mse, "mae": mse / 2}
    if not model.endswith("naive"):
        metrics |= {"epochs": 4, "seconds": 30.0, "parameters": 100}
    return line("forecasting", metrics, seed, dataset="ETTh1", horizon=horizon, model=model, **config)


def picked_forecasts(*lines: Line) -> Any:
    return pick(EXPERIMENTS["forecasting"], lines)


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


def tradeoff(size: int, errors: dict[int, float], **config: Any) -> list[Line]:
    metrics = {"variance": 9.0, "parameters": 10, "epochs": 2, "seconds": 3.0}
    config = {"max_epochs": 2, "recurrent_scale": 0.0884} | config
    return [line("tradeoff", {"mse": mse} | metrics, seed, block_size=size, **config) for seed, mse in errors.items()]


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


def test_only_runs_on_the_same_data_are_pairs() -> None:
    lines = tradeoff(2, {0: 2.0, 1: 2.0, 2: 2.0}) + tradeoff(128, {0: 1.0, 1: 1.0, 2: 1.0})
    for one, data in zip(lines, ("a", "a", None, "a", "b", "c"), strict=True):
        one["details"] = {} if data is None else {"data": data}
    found = pick(EXPERIMENTS["tradeoff"], lines)
    pairs = paired_difference(found.get(block_size=2), found.get(block_size=128), "mse")
    assert pairs is not None
    assert pairs.pairs == 2  # not seed 1; of seed 2 nothing speaks against it


def test_twins_are_compared_on_common_seeds() -> None:
    found = picked_forecasts(forecast("RNN", 0.4), forecast("RNN", 0.9, 1), forecast("ParaRNN", 0.5))
    assert rows_of_twins(found, "mse") == [{"RNN": 0.4, "ParaRNN": 0.5}]
    assert rows_of_twins(picked_forecasts(forecast("RNN", 0.4), forecast("ParaRNN", 0.5, 1)), "mse") == []


def test_means_and_deviations() -> None:
    assert (mean([1.0, 2.0, 6.0]), deviation([1.0, 2.0, 6.0])) == (3.0, pytest.approx(math.sqrt(7)))
    assert deviation([1.0]) is None


def rows_of(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in text.splitlines() if row.startswith("|")]


def test_tradeoff_table() -> None:
    lines = tradeoff(1, {0: 3.0, 1: 5.0}) + tradeoff(2, {0: 2.0, 1: 3.0}) + tradeoff(128, {0: 1.5, 1: 2.5})
    text = section(EXPERIMENTS["tradeoff"], [*lines, *tradeoff(4, {0: 9.0}, max_epochs=1)])
    rows = rows_of(text)
    assert rows[0][3] == "scale 0.0884, noise 1"
    first = {row[0]: row for row in rows[2:11]}
    assert first["1"][3:6] == ["4.000 ± 1.4 (n 2, budget 1)", "not run", "101.00"]
    assert first["4"][3] == "9.000 (n 1, budget 2†)"
    assert first["8"][3] == "not run"
    assert first["mean of the targets"][3] == "9"
    second = {row[0]: row[3] for row in rows[13:21]}
    assert second["1"] == "+2 ± 6.4 (2 pairs)"  # of 1.5 and 2.5, a standard error of 0.5 times 12.7
    assert second["4"] == "-"
    assert second["2, less 1"] == "-1.5 ± 6.4 (2 pairs)"


def test_forecasting_table() -> None:
    lines = [forecast("RNN", value, seed) for seed, value in enumerate((0.5, 0.7))]
    lines += [forecast("ParaRNN", 0.5), forecast("GRU", 0.4), forecast("RNN", 1.0, horizon=48)]
    lines += [forecast("naive", 0.9, seed) for seed in (0, 1)]
    lines += [forecast("Forecaster", value, seed) for seed, value in enumerate((0.2, 0.4))]
    text = section(EXPERIMENTS["forecasting"], lines)
    rows = rows_of(text)
    assert rows[3] == ["ours", "2 of 2", "2 of 2", *["-"] * 6]  # tied on the seed that both have
    of = dict(zip(rows[4], rows[6], strict=True))
    assert (of["data"], of["horizon"]) == ("ETTh1", "24")
    assert of["RNN"] == "0.548 / **0.600 ± 0.141**"
    assert of["ParaRNN"] == "0.547 / **0.500**"
    assert of["GRU"] == "0.513 / 0.400"
    assert of["BRT"] == "0.520 / not run"
    assert of["naive"] == "0.900"  # one replicate: there is nothing random in it
    assert of["NLinear"] == "not run"
    assert of["Forecaster‡"] == "0.300 ± 0.141"
    assert "‡ Forecaster's defaults were chosen among some sixty variants by errors on the test parts of ETT" in text
    assert "2, 4, 30 s (1)" in text
    assert "| 1, 7 s |" in text  # naive: no epochs, no budget, and the seconds of the call
    assert "| 2, 4, 30 s |" in text  # Forecaster


def test_speed_table() -> None:
    metrics = {}
    for name, factor in {"2": 1.0, VANILLA: 4.0}.items():
        for which in PASSES:
            metrics |= {f"{name} {which} {what}": factor * value for what, value in (("mean", 3.0), ("median", 2.0))}
            metrics[f"{name} {which} sd"] = 0.5
    run = line("speed", metrics, details={"foreign_load": 0.4, "disturbed": True})
    text = section(EXPERIMENTS["speed"], [run])
    rows = {row[0]: row for row in rows_of(text)}
    assert rows["2"] == ["2", "3 ± 0.5", "0.12", "3 ± 0.5", "0.34", "3 ± 0.5", "0.38", "4"]
    assert rows[VANILLA][1:3] == ["12 ± 0.5", "-"]
    assert "Other processes took 40% of the processor" in text


def test_classification_tables() -> None:
    metrics = {"epochs": 4, "seconds": 100.0, "parameters": 12345}
    lines = [
        line("worms", {"accuracy": value} | metrics, seed, model="RNN", dataset="Worms")
        for seed, value in enumerate((0.4, 0.5))
    ]
    rows = rows_of(section(EXPERIMENTS["worms"], lines))
    assert ["EigenWorms", "RNN", "43.33", "not run", *["-"] * 5] in rows
    assert ["Worms", "RNN", "-", "45.00 ± 7.07", "2", "4", "25", "12,345", "1"] in rows
    rows = rows_of(section(EXPERIMENTS["pmnist"], [line("pmnist", {"accuracy": 0.9} | metrics, model="GRU")]))
    assert ["GRU", "94.44", "90.00", "1", "4", "25", "12,345", "1"] in rows


def test_feature_tables() -> None:
    history = [
        {"0 input": {"R-4": 2}, "0 forget": {"C-2": 1}},
        {"0 input": {"C-1": 3, "R-1": 2}, "0 forget": {"C-2": 1}},
        {"0 input": {"C-1": 2, "R-1": 4}, "0 forget": {"C-1": 4}},
    ]
    metrics = {"accuracy": 0.25, "epochs": 2, "seconds": 5.0}
    lines = [line("feature-evolution", metrics, details={"features": history}, model="LSTM", initial="mixed")]
    rows = rows_of(section(EXPERIMENTS["feature-evolution"], lines))
    shown = ["LSTM", "mixed", "2 R-4", "4 R-1, 2 C-1", "step 40", "6 C-1, 4 R-1", "25.00", "2", "5", "1"]
    assert shown in rows
    assert ["GRU", "mixed", "not run", *["-"] * 7] in rows
    del lines[0]["details"]["features"][2]
    assert rows_of(section(EXPERIMENTS["feature-evolution"], lines))[7][4] == "not yet"
    features = [{"counts": counts} for counts in ({"R-1": 8}, {"C-1": 3, "R-1": 2})]
    recovered = line(
        "feature-recovery",
        {"first_distance": 12.0, "distance": 0.25, "epochs": 1, "seconds": 5.0},
        curve=[{"training": 0.5, "validation": 0.75}],
        details={"features": features, "true": {"counts": {"C-1": 4}}},
        truth="normal",
        initial="identity",
    )
    shown = ["normal", "identity", "0.5", "0.75", "12", "0.25", "4 C-1", "8 R-1", "3 C-1, 2 R-1", "1", "5", "1"]
    assert shown in rows_of(section(EXPERIMENTS["feature-recovery"], [recovered]))


def test_adding_table() -> None:
    solved = {"mse": 0.002, "seconds": 20.0, "iterations_to_0.01": 1500.0}
    lines = [
        line("adding", solved, 1, model="LSTM", iterations=20_000),
        line("adding", {"mse": 0.1, "seconds": 20.0}, 0, model="LSTM", iterations=20_000),
        line("adding", solved | {"mse": 0.1}, 2, model="LSTM", iterations=20_000),  # was below, and did not stay
    ]
    rows = rows_of(section(EXPERIMENTS["adding"], lines))
    shown = ["1 of 3", "0.1, 0.002, 0.1", "-, 1500, 1500", "20, 20, 20", "1", "1.5", "1"]
    assert ["100", "LSTM", *shown] in rows
    assert ["500", "LSTM", "not run", *["-"] * 6] in rows


def test_all_rows_of_a_table_are_as_long_as_its_header() -> None:
    lines = {"tradeoff": tradeoff(1, {0: 3.0}), "forecasting": [forecast("naive", 0.9)]}
    text = document(lines, {"tradeoff": ["figures/tradeoff.png"]})
    width = 0
    for row in text.splitlines():
        width = (width or row.count("|")) if row.startswith("|") else 0
        assert row.count("|") == width, row
    titles = [title.split(":")[0] for title in re.findall("^## (.*)$", text, re.MULTILINE)]
    assert titles == ["Claims", *EXPERIMENTS]
    assert text.count("\n\nNot run.\n") == len(EXPERIMENTS) - 2
    assert "![tradeoff](figures/tradeoff.png)" in text


def test_conditions_name_all_that_differ() -> None:
    one, other = forecast("RNN", 0.1), forecast("RNN", 0.2, seed=1)
    other |= {"commit": "version 0.2", "started": "2026-02-03T00:00:00", "machine": one["machine"] | {"threads": 2}}
    other["commits"] = ["abcdef0123456789", "version 0.2"]  # went on after a change
    assert conditions([one, other, one]) == (
        "EPYC (2 cores, avx2); threads of each run 1, 2; torch 2.6, parallelrnn 0.1; commit 0123456789+, abcdef0123, "
        "version 0.2; 2026-01-02 to 2026-02-03"
    )


def test_the_command_prints_and_writes(tmp_path: Path) -> None:
    store = Store(tmp_path / "results")
    for one in tradeoff(1, {0: 3.0}):
        store.append(one)
    run = CliRunner().invoke
    printed = run(app, ["reproduce", "tables", "--results", str(store.folder)])
    assert printed.exit_code == 0
    assert "3.000 (n 1, budget 1)" in printed.output
    page = tmp_path / "page.md"
    where = ["--results", str(store.folder), "--out", str(page), "--figures", str(tmp_path / "made" / "figures")]
    written = run(app, ["reproduce", "tables", *where])
    assert (written.exit_code, written.output) == (0, "")
    addresses = re.findall(r"!\[.*?\]\((.*?)\)", page.read_text())
    assert addresses == ["made/figures/tradeoff.png"]
    assert (page.parent / addresses[0]).is_file()


def test_the_command_refuses_in_words(tmp_path: Path) -> None:
    run = CliRunner().invoke
    nothing = run(app, ["reproduce", "tables", "--results", str(tmp_path)])
    assert nothing.exit_code == 3
    assert "there are no results in" in nothing.output
    (tmp_path / "adding.jsonl").write_text(json.dumps(line("adding", {}, model="LSTM"))[:-2] + "\n")
    broken = run(app, ["reproduce", "tables", "--results", str(tmp_path)])
    assert broken.exit_code == 3
    assert "line 1: no result" in broken.output

"""Every table shows the results of runs beside the paper's numbers; the page and its command."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from parallelrnn.cli.app import app
from parallelrnn.lab.benchmarks.timing import PASSES
from parallelrnn.lab.experiments.registry import EXPERIMENTS, TITLES
from parallelrnn.lab.experiments.speed import VANILLA
from parallelrnn.lab.results_page import paired_differences, results_page, section
from parallelrnn.lab.runs import Run, RunStore
from parallelrnn.lab.select_runs import select_runs
from tests.lab.samples import PROVENANCE, forecast, make_run, select, tradeoff


def show(*runs: Run) -> str:
    return section(runs[0].experiment, select(*runs))


def rows_of(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in text.splitlines() if row.startswith("|")]


def test_tradeoff_table() -> None:
    runs = tradeoff(1, {0: 3.0, 1: 5.0}) + tradeoff(2, {0: 2.0, 1: 3.0}) + tradeoff(128, {0: 1.5, 1: 2.5})
    text = show(*runs, *tradeoff(4, {0: 9.0}, max_epochs=1))
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
    runs = [forecast("RNN", value, seed) for seed, value in enumerate((0.5, 0.7))]
    runs += [forecast("ParaRNN", 0.5), forecast("GRU", 0.4), forecast("RNN", 1.0, horizon=48)]
    runs += [forecast("naive", 0.9, seed) for seed in (0, 1)]
    runs += [forecast("Forecaster", value, seed) for seed, value in enumerate((0.2, 0.4))]
    text = show(*runs)
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
    assert "‡ Forecaster" in text
    assert "2, 4, 30 s (1)" in text
    assert "| 1, 7 s |" in text  # naive: no epochs, no budget, and the seconds of the call
    assert "| 2, 4, 30 s |" in text  # Forecaster


def test_speed_table() -> None:
    metrics = {}
    for name, factor in {"2": 1.0, VANILLA: 4.0}.items():
        for which in PASSES:
            metrics |= {f"{name} {which} {kind}": factor * value for kind, value in (("mean", 3.0), ("median", 2.0))}
            metrics[f"{name} {which} sd"] = 0.5
    text = show(make_run("speed", metrics, details={"disturbed_rounds": 40, "disturbed": True}))
    rows = {row[0]: row for row in rows_of(text)}
    assert rows["2"] == ["2", "3 ± 0.5", "0.12", "3 ± 0.5", "0.34", "3 ± 0.5", "0.38", "2", "4"]
    assert rows[VANILLA][1:3] == ["12 ± 0.5", "-"]
    assert "40 of 100" in text


def test_classification_tables() -> None:
    metrics = {"epochs": 4, "seconds": 100.0, "parameters": 12345}
    runs = [
        make_run("worms", {"accuracy": value, "largest_class": 0.375} | metrics, seed, model="RNN", dataset="Worms")
        for seed, value in enumerate((0.4, 0.5))
    ]
    rows = rows_of(show(*runs))
    assert ["EigenWorms", "RNN", "43.33", "not run", *["-"] * 6] in rows
    assert ["Worms", "RNN", "-", "45.00 ± 7.07", "37.50", "2", "4", "25", "12,345", "1"] in rows
    rows = rows_of(show(make_run("pmnist", {"accuracy": 0.9} | metrics, model="GRU")))
    assert ["GRU", "94.44", "90.00", "-", "1", "4", "25", "12,345", "1"] in rows


def test_feature_tables() -> None:
    history = [
        {"0 input": {"R-4": 2}, "0 forget": {"C-2": 1}},
        {"0 input": {"C-1": 3, "R-1": 2}, "0 forget": {"C-2": 1}},
        {"0 input": {"C-1": 2, "R-1": 4}, "0 forget": {"C-1": 4}},
    ]
    metrics = {"accuracy": 0.25, "epochs": 2, "seconds": 5.0}
    lstm = {"model": "LSTM", "initial": "mixed"}
    rows = rows_of(show(make_run("feature-evolution", metrics, details={"features": history}, **lstm)))
    shown = ["LSTM", "mixed", "2 R-4", "4 R-1, 2 C-1", "step 40", "6 C-1, 4 R-1", "25.00", "2", "5", "1"]
    assert shown in rows
    assert ["GRU", "mixed", "not run", *["-"] * 7] in rows
    rows = rows_of(show(make_run("feature-evolution", metrics, details={"features": history[:2]}, **lstm)))
    assert rows[7][4] == "not yet"
    features = [{"counts": counts} for counts in ({"R-1": 8}, {"C-1": 3, "R-1": 2})]
    recovered = make_run(
        "feature-recovery",
        {"first_distance": 12.0, "distance": 0.25, "epochs": 1, "seconds": 5.0},
        curve=[{"training": 0.5, "validation": 0.75}],
        details={"features": features, "true": {"counts": {"C-1": 4}}},
        truth="normal",
        initial="identity",
    )
    shown = ["normal", "identity", "0.5", "0.75", "12", "0.25", "4 C-1", "8 R-1", "3 C-1, 2 R-1", "1", "5", "1"]
    assert shown in rows_of(show(recovered))


def test_adding_table() -> None:
    solved = {"mse": 0.002, "seconds": 20.0, "iterations_to_0.01": 1500.0}
    runs = [
        make_run("adding", solved, 1, model="LSTM", iterations=20_000),
        make_run("adding", {"mse": 0.1, "seconds": 20.0}, 0, model="LSTM", iterations=20_000),
        make_run("adding", solved | {"mse": 0.1}, 2, model="LSTM", iterations=20_000),  # was below, and did not stay
    ]
    rows = rows_of(show(*runs))
    shown = ["1 of 3", "0.1, 0.002, 0.1", "-, 1500, 1500", "20, 20, 20", "1", "1.5", "1"]
    assert ["100", "LSTM", *shown] in rows
    assert ["500", "LSTM", "not run", *["-"] * 6] in rows


def test_paired_differences() -> None:
    forecasts = [forecast("GRU", 1.0), forecast("ParaGRU", 0.9), forecast("GRU", 1.0, horizon=48)]
    forecasts.append(forecast("ParaGRU", 1.1, horizon=48))
    for dataset, ratio in (("ETTh2", 1.2), ("WTH", 0.8)):
        for model, mse in (("GRU", 1.0), ("ParaGRU", ratio)):
            forecasts.append(make_run("forecasting", {"mse": mse}, dataset=dataset, horizon=24, model=model))
    accuracies = {"GRU": (0.5, 0.6, 0.7), "ParaGRU": (0.6, 0.7, 0.9)}
    worms = [
        make_run("worms", {"accuracy": accuracy}, seed, model=model, dataset="Worms")
        for model, values in accuracies.items()
        for seed, accuracy in enumerate(values)
    ]
    table = paired_differences({"forecasting": select(*forecasts), "worms": select(*worms)})
    first, second = table.rows
    change = math.exp((math.log(0.99) + math.log(1.2) + math.log(0.8)) / 4) - 1
    assert first[:2] == ["forecasting", "GRU, ParaGRU"]
    assert "lower in 2 of 4" in first[2]
    assert first[5].startswith(f"{change:+.1%} (")
    assert "3 data sets" in first[5]
    assert second == ["worms, dataset Worms", "GRU, ParaGRU", "accuracy", "60.00", "73.33", "+13.3 ± 14 (3 pairs)"]


def test_odd_budgets_are_marked_and_not_bold() -> None:
    text = show(forecast("RNN", 0.1, max_epochs=40), forecast("ParaRNN", 0.3, max_epochs=10))
    assert "0.548 / 0.100 |" in text  # neither model has won
    assert "0.547 / 0.300† |" in text
    assert "- budget 1: max_epochs 40, epoch_steps 256\n- budget 2: max_epochs 10 (not 40), epoch_steps 256\n" in text
    assert "\n† " in text
    assert "1 of other cells" in show(forecast("RNN", 0.7), forecast("ParaRNN", 0.2, block_size=4))


def test_conditions_name_all_that_differ() -> None:
    changed = {"commit": "version 0.2", "started": "2026-02-03T00:00:00"}
    changed |= {"commits": ["abcdef0123456789", "version 0.2"]}  # it was resumed after a change
    changed |= {"machine": PROVENANCE["machine"] | {"threads": 2}}
    other = replace(forecast("RNN", 0.2, seed=1), provenance=PROVENANCE | changed)
    conditions = show(forecast("RNN", 0.1), other).splitlines()[-1]
    assert conditions == (
        "Conditions: EPYC (2 cores, avx2); threads of each run 1, 2; torch 2.6, parallelrnn 0.1; commit 0123456789+, "
        "abcdef0123, version 0.2; 2026-01-02 to 2026-02-03."
    )


def test_the_page_has_all_experiments_and_even_tables() -> None:
    runs = {"tradeoff": tradeoff(1, {0: 3.0}), "forecasting": [forecast("naive", 0.9)]}
    selections = {name: select_runs(EXPERIMENTS[name], runs.get(name, [])) for name in EXPERIMENTS}
    text = results_page(selections, {"tradeoff": ["figures/tradeoff.png"]})
    width = 0
    for row in text.splitlines():
        width = (width or row.count("|")) if row.startswith("|") else 0
        assert row.count("|") == width, row
    assert [title.split(":")[0] for title in re.findall("^## (.*)$", text, re.MULTILINE)][1:] == list(TITLES)
    assert text.count("\n\nNot run.\n") == len(EXPERIMENTS) - 2
    assert "![tradeoff](figures/tradeoff.png)" in text


def tables(*words: str) -> Result:
    return CliRunner().invoke(app, ["reproduce", "tables", *words])


def test_the_command_prints_and_writes(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "results")
    store.save(tradeoff(1, {0: 3.0})[0])
    printed = tables("--results", str(store.folder))
    assert printed.exit_code == 0
    assert "3.000 (n 1, budget 1)" in printed.output
    page, figures = tmp_path / "page.md", tmp_path / "made" / "figures"
    written = tables("--results", str(store.folder), "--out", str(page), "--figures", str(figures))
    assert (written.exit_code, written.output) == (0, "")
    addresses = re.findall(r"!\[.*?\]\((.*?)\)", page.read_text())
    assert addresses == ["made/figures/tradeoff.png"]
    assert (page.parent / addresses[0]).is_file()


def test_the_command_renews_marked_tables(tmp_path: Path) -> None:
    document = tmp_path / "docs" / "page.md"
    document.parent.mkdir()
    other = document.with_name("other.md")
    other.write_text("| a |")
    document.write_text("before\n<!-- table: experiments -->\nold\n<!-- end table -->\nafter\n")
    assert tables(str(document.parent)).exit_code == 0
    first, *_, last = document.read_text().splitlines()
    assert (first, last) == ("before", "after")
    assert [row.split("`")[1] for row in document.read_text().splitlines() if row.startswith("| `")] == list(TITLES)
    renewed = document.read_text()
    assert tables(str(document)).exit_code == 0
    assert document.read_text() == renewed
    document.write_text("<!-- table: unknown -->\n<!-- end table -->")
    failed = tables(str(tmp_path), "--out", str(tmp_path / "page.md"))
    assert failed.exit_code == 3
    assert "'unknown'" in failed.output
    assert not (tmp_path / "page.md").exists()


@pytest.mark.parametrize("content", [None, "{"])
def test_the_command_rejects_a_folder_without_readable_runs(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "adding").mkdir()
        (tmp_path / "adding" / "0123456789abcdef.json").write_text(content)
    failed = tables("--results", str(tmp_path))
    assert failed.exit_code == 3
    assert ("0123456789abcdef.json" if content else tmp_path.name) in failed.output.replace("\n", "")

"""Every table shows what runs found, the paper's numbers beside."""

from __future__ import annotations

from parallelrnn.lab.benchmarks.timing import PASSES
from parallelrnn.lab.document import section
from parallelrnn.lab.experiments.registry import EXPERIMENTS
from parallelrnn.lab.experiments.speed import VANILLA
from tests.lab.lines import forecast, line, tradeoff


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
    run = line("speed", metrics, details={"disturbed_rounds": 40, "disturbed": True})
    text = section(EXPERIMENTS["speed"], [run])
    rows = {row[0]: row for row in rows_of(text)}
    assert rows["2"] == ["2", "3 ± 0.5", "0.12", "3 ± 0.5", "0.34", "3 ± 0.5", "0.38", "4"]
    assert rows[VANILLA][1:3] == ["12 ± 0.5", "-"]
    assert "Other processes disturbed 40 of 100 rounds" in text


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

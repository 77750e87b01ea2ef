"""The paper's numbers are those that it prints."""

from __future__ import annotations

import csv
import os
import re
from pathlib import Path

import pytest

from parallelrnn.lab import paper
from parallelrnn.lab.experiments.models import twin

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
    names = {"forward": "Forward propagation", "backward": "Backward propagation", "total": "Total time"}
    for which, name in names.items():
        match = re.search(rf"^\s*{name}\s*&(.*)\\\\", text, re.MULTILINE)
        assert match is not None
        assert [float(value) for value in match[1].split("&")] == list(paper.SPEED_SD[which].values())


def test_the_papers_forecasts_give_its_winning_counts() -> None:
    wins = dict.fromkeys(paper.WINS, 0)
    for (dataset, horizon, model, metric), error in paper.FORECASTS.items():
        wins[model] += error <= paper.FORECASTS[dataset, horizon, twin(model), metric]
    assert wins == paper.WINS
    assert len(paper.FORECASTS) == 32 * len(paper.WINS)

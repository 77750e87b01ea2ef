"""Figures of training curves, and what all figures share."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from parallelrnn.lab.experiments.registry import EXPERIMENTS
from parallelrnn.lab.figures import draw
from parallelrnn.lab.select_runs import select_runs
from tests.lab.figures.conftest import FiguresOf
from tests.lab.samples import make_run


def test_pmnist(figures_of: FiguresOf) -> None:
    curve = [{"accuracy": 0.5}, {"accuracy": 0.75}]
    runs = [make_run("pmnist", {"accuracy": 0.7}, 0, curve, model="LSTM", max_epochs=2)]
    runs.append(make_run("pmnist", {"accuracy": 0.7}, 0, curve[:1], model="ParaLSTM", max_epochs=1))
    (figure,) = figures_of(*runs).values()
    titles = {ax.get_title(): ax for ax in figure.axes}
    assert list(titles) == ["RNN", "LSTM", "GRU", "BRT"]
    ax = titles["LSTM"]
    np.testing.assert_allclose(ax.lines[0].get_xydata(), [(1, 50), (2, 75)])
    assert ax.lines[2].get_marker() == "."  # one epoch is no line
    handles, labels = ax.get_legend_handles_labels()
    assert labels == [
        "LSTM (1 run)",
        "LSTM, the paper's test: 94.20 %",
        "ParaLSTM (1 run, another budget)",
        "ParaLSTM, the paper's test: 94.10 %",
    ]
    assert len({(line.get_color(), line._unscaled_dash_pattern) for line in handles}) == 4, "all can be distinguished"
    assert titles["BRT"].get_legend_handles_labels()[1][::2] == ["BRT: not run", "ParaBRT: not run"]
    assert [text.get_text() for text in titles["BRT"].texts] == ["not run"]
    assert not ax.texts
    assert figure.get_supxlabel() == "2 budgets: see the table"


def test_ticks_of_pmnist_are_whole_epochs_and_its_legends_cover_nothing(figures_of: FiguresOf) -> None:
    curve = [{"accuracy": 0.1}, {"accuracy": 0.2}]
    runs = [make_run("pmnist", {"accuracy": 0.7}, 0, curve, model="ParaLSTM", max_epochs=2)]
    runs += [make_run("pmnist", {"accuracy": 0.7}, 0, curve, model="LSTM", max_epochs=2, hidden_size=8, train=50)]
    (figure,) = figures_of(*runs).values()
    figure.draw_without_rendering()  # it was saved with more dots to the inch
    panels = [ax.get_window_extent() for ax in figure.axes]
    legends = [ax.get_legend().get_window_extent() for ax in figure.axes]
    names = [ax.xaxis.label.get_window_extent() for ax in figure.axes]
    foot = figure._supxlabel.get_window_extent()
    for place, legend in enumerate(legends):
        assert not any(legend.overlaps(other) for other in (*panels, *names, foot, *legends[:place]))
        assert figure.bbox.x0 <= legend.x0
        assert legend.x1 <= figure.bbox.x1
    for ax in figure.axes:
        low, high = ax.get_xlim()
        assert [tick for tick in ax.get_xticks() if low <= tick <= high] == [1, 2]


def test_adding(figures_of: FiguresOf) -> None:
    curve = [{"validation": 0.1}, {"validation": 0.001}]
    runs = [make_run("adding", {"mse": 0.001}, seed, curve, model="ParaGRU", length=500) for seed in (0, 1)]
    (figure,) = figures_of(*runs).values()
    titles = {ax.get_title(): ax for ax in figure.axes}
    assert list(titles) == ["LSTM, length 100", "GRU, length 100", "LSTM, length 500", "GRU, length 500"]
    ax = titles["GRU, length 500"]
    np.testing.assert_allclose(ax.lines[0].get_xydata(), [(500, 0.1), (1000, 0.001)])
    assert ax.get_legend_handles_labels()[1] == ["ParaGRU (2 runs)"]
    assert [text.get_text() for text in titles["LSTM, length 100"].texts] == ["not run"]


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_an_experiment_without_runs_has_no_figures(name: str, tmp_path: Path) -> None:
    assert draw(name, select_runs(EXPERIMENTS[name], []), tmp_path) == []
    assert not list(tmp_path.iterdir())


def test_a_long_budget_stays_within_the_figure(figures_of: FiguresOf) -> None:
    small = {"hidden_size": 8, "d_model": 16, "num_heads": 2, "num_states": 4, "validation": 10, "test": 20}
    runs = [make_run("pmnist", {"accuracy": 0.7}, 0, [{"accuracy": 0.1}], model="GRU", max_epochs=2, train=50, **small)]
    (figure,) = figures_of(*runs).values()
    figure.draw_without_rendering()
    assert figure.get_supxlabel().replace("\n", " ").startswith("budget: max_epochs 2 (not 800), train 50 (not all)")
    assert figure._supxlabel.get_window_extent().x1 <= figure.bbox.x1

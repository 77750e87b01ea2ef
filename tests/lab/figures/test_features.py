"""Figures of features during training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from parallelrnn.lab.runs import Run
from tests.lab.figures.conftest import TYPES, FiguresOf
from tests.lab.samples import make_run


def heights(ax: Any, step: float) -> list[float]:
    """Return how high the areas of a stack reach just after a step, from below."""
    tops = []
    for area in ax.collections:
        x, y = area.get_paths()[0].vertices.T
        tops.append(max(y[np.isclose(x, step)]))
    return tops


def test_feature_evolution(figures_of: FiguresOf) -> None:
    history = [{"0 hidden": {"R-4": 1, "C-2": 3}, "1 hidden": {"R-3": 9}}, TYPES | {"1 hidden": {"R-3": 9}}, TYPES]
    runs = [make_run("feature-evolution", {}, details={"features": history}, model="RNN", initial="mixed")]
    (figure,) = figures_of(*runs).values()
    assert len(figure.axes) == 9
    ax = figure.axes[2]
    assert ax.get_title() == "RNN, hidden; mixed"
    assert ax.get_xlim() == (0, 40)  # from the first reading to the last, which is seen from the middle on
    assert heights(ax, 40)[:2] == pytest.approx([0.6, 1.0])  # C-1, and R-1 on it
    assert heights(ax, 30)[:2] == pytest.approx([0.6, 1.0])
    assert ax.get_xticks().tolist() == [0, 10, 20, 30, 40]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["C-1", "R-1", "C-2", "R-4"]  # no other layer's R-3
    assert [other.get_title() for other in figure.axes[:2]] == ["RNN; uniform", "RNN; identity"]
    assert [other.get_title() for other in figure.axes[6:]] == ["GRU; uniform", "GRU; identity", "GRU; mixed"]
    assert all([text.get_text() for text in other.texts] == ["not run"] for other in figure.axes if other is not ax)


def test_features_of_the_longest_run_fill_the_axis(figures_of: FiguresOf) -> None:
    def run(model: str, readings: int, **config: Any) -> Run:
        details = {"features": [TYPES] * readings}
        return make_run("feature-evolution", {}, details=details, model=model, initial="uniform", **config)

    (figure,) = figures_of(run("RNN", 5), run("GRU", 3)).values()
    assert {ax.get_xlim() for ax in figure.axes} == {(0, 80)}
    assert figure.axes[-1].get_xlabel() == "step"
    # Whole passes cannot be counted in steps: then all are counted in epochs.
    runs = [run("RNN", 5), run("GRU", 3, epoch_steps=None)]
    (figure,) = figures_of(*runs).values()
    assert {ax.get_xlim() for ax in figure.axes} == {(0, 4)}
    assert figure.axes[-1].get_xlabel() == "epoch"


def test_feature_recovery(figures_of: FiguresOf) -> None:
    moment = {"counts": {"C-1": 4, "R-7": 1}, "modulus": [0.1, 0.2, 0.3, 0.4, 0.5], "angle": [0, 0.5, 1, 2, 3]}
    details = {"features": [moment | {"distance": 2.0}, moment | {"distance": 1.0}], "true": moment}
    curve = [{"training": 0.5, "validation": 0.4}]
    runs = [
        make_run("feature-recovery", {}, 0, curve, details, truth="mixed", initial=name)
        for name in ("uniform", "mixed")
    ]
    figures = figures_of(*runs)
    assert list(figures) == ["feature-recovery-mixed.png"]
    axes = np.array(figures["feature-recovery-mixed.png"].axes).reshape(5, 2)
    assert [ax.get_title() for ax in axes[0]] == ["uniform", "mixed"]
    assert axes[4, 0].get_xlim() == (0, 1)
    np.testing.assert_allclose(axes[1, 0].lines[0].get_ydata(), [2, 1])
    dashed = [line.get_ydata()[0] for line in axes[3, 1].lines if line.get_linestyle() == "--"]
    assert dashed == moment["angle"]
    (legend,) = figures["feature-recovery-mixed.png"].legends
    assert [text.get_text() for text in legend.get_texts()] == ["C-1", "others"]

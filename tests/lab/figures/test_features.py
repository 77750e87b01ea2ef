from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parallelrnn.lab.running.store import Line
from tests.lab.figures.pictures import TYPES, pictures
from tests.lab.lines import line


def heights(ax: Any, step: float) -> list[float]:
    """How high the areas of a stack reach just after a step, from below."""
    found = []
    for area in ax.collections:
        x, y = area.get_paths()[0].vertices.T
        found.append(max(y[np.isclose(x, step)]))
    return found


def test_feature_evolution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history = [{"0 hidden": {"R-4": 1, "C-2": 3}, "1 hidden": {"R-3": 9}}, TYPES | {"1 hidden": {"R-3": 9}}, TYPES]
    lines = [line("feature-evolution", {}, details={"features": history}, model="RNN", initial="mixed")]
    (figure,) = pictures("feature-evolution", lines, tmp_path, monkeypatch).values()
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


def test_features_of_the_longest_run_fill_the_axis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def of(model: str, readings: int, **config: Any) -> Line:
        details = {"features": [TYPES] * readings}
        return line("feature-evolution", {}, details=details, model=model, initial="uniform", **config)

    (figure,) = pictures("feature-evolution", [of("RNN", 5), of("GRU", 3)], tmp_path, monkeypatch).values()
    assert {ax.get_xlim() for ax in figure.axes} == {(0, 80)}
    assert figure.axes[-1].get_xlabel() == "step"
    # Whole passes cannot be counted in steps: then all are counted in epochs.
    lines = [of("RNN", 5), of("GRU", 3, epoch_steps=None)]
    (figure,) = pictures("feature-evolution", lines, tmp_path, monkeypatch).values()
    assert {ax.get_xlim() for ax in figure.axes} == {(0, 4)}
    assert figure.axes[-1].get_xlabel() == "epoch"


def test_feature_recovery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moment = {"counts": {"C-1": 4, "R-7": 1}, "modulus": [0.1, 0.2, 0.3, 0.4, 0.5], "angle": [0, 0.5, 1, 2, 3]}
    details = {"features": [moment | {"distance": 2.0}, moment | {"distance": 1.0}], "true": moment}
    curve = [{"training": 0.5, "validation": 0.4}]
    lines = [
        line("feature-recovery", {}, 0, curve, details, truth="mixed", initial=name) for name in ("uniform", "mixed")
    ]
    found = pictures("feature-recovery", lines, tmp_path, monkeypatch)
    assert list(found) == ["feature-recovery-mixed.png"]
    axes = np.array(found["feature-recovery-mixed.png"].axes).reshape(5, 2)
    assert [ax.get_title() for ax in axes[0]] == ["uniform", "mixed"]
    assert axes[4, 0].get_xlim() == (0, 1)
    np.testing.assert_allclose(axes[1, 0].lines[0].get_ydata(), [2, 1])
    dashed = [one.get_ydata()[0] for one in axes[3, 1].lines if one.get_linestyle() == "--"]
    assert dashed == moment["angle"]
    (legend,) = found["feature-recovery-mixed.png"].legends
    assert [text.get_text() for text in legend.get_texts()] == ["C-1", "others"]

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parallelrnn.lab.benchmarks.timing import PASSES
from parallelrnn.lab.experiments.speed import VANILLA
from parallelrnn.lab.running.store import Line
from tests.lab.figures.pictures import pictures
from tests.lab.lines import line


def test_tradeoff(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def of(size: int, mse: float, seed: int = 0, **config: Any) -> Line:
        return line("tradeoff", {"mse": mse}, seed, block_size=size, recurrent_scale=0.0884, **config)

    lines = [of(1, 3.0), of(1, 5.0, 1), of(2, 2.0), of(4, 9.0, max_epochs=1)]
    (figure,) = pictures("tradeoff", lines, tmp_path, monkeypatch).values()
    (ax,) = figure.axes  # one scale was run
    points, *_ = ax.containers[0]
    np.testing.assert_allclose(points.get_xydata(), [(1, 4), (2, 2)])  # not block_size 4, of another budget
    assert ax.get_legend_handles_labels()[1] == ["noise variance 1 (1 to 2 runs)\n4: another budget, left out"]
    assert [1.0, 1.0] in [list(one.get_ydata()) for one in ax.lines]  # the noise


def test_speed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"1": 1.0, "128": 8.0, VANILLA: 4.0}
    metrics = {
        f"{name} {which} {what}": time
        for name, time in sizes.items()
        for which in PASSES
        for what in ("mean", "sd", "median")
    }
    (figure,) = pictures("speed", [line("speed", metrics)], tmp_path, monkeypatch).values()
    drawn = {line.get_label(): list(line.get_ydata()) for line in figure.axes[0].lines}
    assert {which: drawn[which] for which in PASSES} == {which: [1.0, 8.0] for which in PASSES}
    assert figure.get_supxlabel() == "budget: rounds 100"

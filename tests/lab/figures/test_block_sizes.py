"""Figures over block sizes."""

from __future__ import annotations

from typing import Any

import numpy as np

from parallelrnn.lab.benchmarks.timing import PASSES
from parallelrnn.lab.experiments.speed import VANILLA
from parallelrnn.lab.runs import Run
from tests.lab.figures.conftest import FiguresOf
from tests.lab.samples import make_run


def test_tradeoff(figures_of: FiguresOf) -> None:
    def run(size: int, mse: float, seed: int = 0, **config: Any) -> Run:
        return make_run("tradeoff", {"mse": mse}, seed, block_size=size, recurrent_scale=0.0884, **config)

    runs = [run(1, 3.0), run(1, 5.0, 1), run(2, 2.0), run(4, 9.0, max_epochs=1)]
    (figure,) = figures_of(*runs).values()
    (ax,) = figure.axes  # one scale was run
    points, *_ = ax.containers[0]
    np.testing.assert_allclose(points.get_xydata(), [(1, 4), (2, 2)])  # not block_size 4, of another budget
    assert ax.get_legend_handles_labels()[1] == ["noise variance 1 (1 to 2 runs)\n4: another budget, left out"]
    assert [1.0, 1.0] in [list(line.get_ydata()) for line in ax.lines]  # the noise


def test_speed(figures_of: FiguresOf) -> None:
    sizes = {"1": 1.0, "128": 8.0, VANILLA: 4.0}
    metrics = {f"{name} {which} median": time for name, time in sizes.items() for which in PASSES}
    (figure,) = figures_of(make_run("speed", metrics)).values()
    drawn = {line.get_label(): list(line.get_ydata()) for line in figure.axes[0].lines}
    assert {which: drawn[which] for which in PASSES} == {which: [1.0, 8.0] for which in PASSES}
    assert figure.get_supxlabel() == "budget: rounds 100"

"""Figures of forecasts."""

from __future__ import annotations

from typing import Any

import numpy as np

from parallelrnn.lab.runs import Run
from tests.lab.figures.conftest import TYPES, FiguresOf
from tests.lab.samples import make_run


def by_row(ax: Any) -> dict[float, str]:
    """Return texts by their height."""
    return {text.get_position()[1]: text.get_text() for text in ax.texts}


def test_forecasting(figures_of: FiguresOf) -> None:
    first = [["R", 0.9, 0.0], ["R", 0.99, np.pi], ["R", 0.5, 0.0], ["R", 0.2, 0.0], ["R", 1.1, 0.0], ["C", 0.8, 0.5]]

    def run(dataset: str, model: str, mse: float, seed: int = 0) -> Run:
        details = {"features": TYPES, "first_layer": first}
        config: dict[str, Any] = {"dataset": dataset, "horizon": 48, "model": model}
        return make_run("forecasting", {"mse": mse, "mae": mse}, seed, None, details, **config)

    runs = [run("WTH", "RNN", 0.5), run("WTH", "ParaRNN", 0.4), run("ETTh1", "GRU", 0.3), run("ETTm1", "GRU", 0.3)]
    runs.append(run("ETTh1", "RNN", 0.3))
    figures = figures_of(*runs)
    assert list(figures) == ["forecasting-types.png", "forecasting-patterns.png", "forecasting-wins.png"]
    ett, wth = figures["forecasting-types.png"].axes
    assert (ett.get_title(), wth.get_title()) == ("ETTh1, ETTm1", "WTH")
    assert by_row(ett) == {0: "ETTh1 alone", **dict.fromkeys((1, 2, 3, 5), "not run")}
    assert by_row(wth) == dict.fromkeys((2, 3, 4, 5), "not run")
    decays, waves = figures["forecasting-patterns.png"].axes
    # Slowest and middle of the decays: what grows, 1.1, and what alternates, at pi, are none.
    assert decays.get_legend_handles_labels()[1] == ["modulus 0.900", "modulus 0.500"]
    lag = np.arange(len(waves.lines[1].get_ydata()))
    np.testing.assert_allclose(waves.lines[1].get_ydata(), (0.8**lag * np.exp(0.5j * lag)).real, atol=1e-12)
    (wins,) = figures["forecasting-wins.png"].axes
    texts = by_row(wins)
    assert [texts[row - 0.2] for row in (0, 1, 7)] == ["7 of 32", "27 of 32", "21 of 32"]
    assert [texts[row + 0.2] for row in (0, 1)] == ["0 of 2", "2 of 2"]
    alone = [texts[row + 0.2] for row in range(2, 8)]
    assert alone == ["not run", "not run", "not compared with its twin", *3 * ["not run"]]
    lengths = [[bar.get_width() for bar in bars] for bars in wins.containers]
    assert lengths == [[32] * 8, [7, 27, 7, 26, 8, 26, 15, 21], [2, 2], [0, 2]]  # 2 of 2 is shorter than 27 of 32
    (legend,) = figures["forecasting-wins.png"].legends
    assert [text.get_text() for text in legend.get_texts()] == ["paper (ETTh1, ETTh2, ETTm1, WTH)", "ours (WTH)"]


def test_baselines_alone_have_no_figures(figures_of: FiguresOf) -> None:
    runs = [make_run("forecasting", {"mse": 1.0, "mae": 1.0}, dataset="WTH", horizon=48, model="naive")]
    assert figures_of(*runs) == {}

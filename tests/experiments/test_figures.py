from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest

from parallelrnn.experiments import figures
from parallelrnn.experiments.figures import draw
from parallelrnn.experiments.registry import EXPERIMENTS
from parallelrnn.experiments.speed import PASSES, VANILLA
from parallelrnn.experiments.store import Line
from tests.experiments.lines import line

TYPES = {"0 hidden": {"C-1": 3, "R-1": 2}}


def pictures(name: str, lines: list[Line], folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The figures that are drawn, by the name of their file."""
    found = {}
    write = figures._write

    def keep(path: Path, figure: Any, runs: Any) -> Path:
        found[path.name] = figure
        return write(path, figure, runs)

    monkeypatch.setattr(figures, "_write", keep)
    assert sorted(path.name for path in draw(EXPERIMENTS[name], lines, folder)) == sorted(found)
    for file in found:
        height, width, _ = mpl.image.imread(folder / file).shape
        assert width == 1350  # 9 inches
        assert height > 300
    assert sorted(path.name for path in folder.iterdir()) == sorted(found)  # and nothing beside them
    return found


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_nothing_is_drawn_of_nothing(name: str, tmp_path: Path) -> None:
    assert draw(EXPERIMENTS[name], [], tmp_path) == []
    assert not list(tmp_path.iterdir())


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
    assert len(figure.axes[0].containers) == len(PASSES)
    assert figure.get_supxlabel() == "budget: rounds 100"


def test_adding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    curve = [{"validation": 0.1}, {"validation": 0.001}]
    lines = [line("adding", {"mse": 0.001}, seed, curve, model="ParaGRU", length=500) for seed in (0, 1)]
    (figure,) = pictures("adding", lines, tmp_path, monkeypatch).values()
    titles = {ax.get_title(): ax for ax in figure.axes}
    assert list(titles) == ["LSTM, length 100", "GRU, length 100", "LSTM, length 500", "GRU, length 500"]
    ax = titles["GRU, length 500"]
    np.testing.assert_allclose(ax.lines[0].get_xydata(), [(500, 0.1), (1000, 0.001)])
    assert ax.get_legend_handles_labels()[1] == ["ParaGRU (2 runs)"]
    assert [text.get_text() for text in titles["LSTM, length 100"].texts] == ["not run"]


def test_pmnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    curve = [{"accuracy": 0.5}, {"accuracy": 0.75}]
    lines = [line("pmnist", {"accuracy": 0.7}, 0, curve, model="LSTM", max_epochs=2)]
    lines.append(line("pmnist", {"accuracy": 0.7}, 0, curve[:1], model="ParaLSTM", max_epochs=1))
    (figure,) = pictures("pmnist", lines, tmp_path, monkeypatch).values()
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
    # What the paper reports is told apart by colour and by dashes, from ours and from the twin's.
    assert len({(one.get_color(), one._unscaled_dash_pattern) for one in handles}) == 4
    assert titles["BRT"].get_legend_handles_labels()[1][::2] == ["BRT: not run", "ParaBRT: not run"]
    assert [text.get_text() for text in titles["BRT"].texts] == ["not run"]
    assert not ax.texts
    assert figure.get_supxlabel() == "2 budgets: see the table"


def test_pmnist_counts_whole_epochs_and_its_legends_cover_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    curve = [{"accuracy": 0.1}, {"accuracy": 0.2}]
    lines = [line("pmnist", {"accuracy": 0.7}, 0, curve, model="ParaLSTM", max_epochs=2)]
    lines += [line("pmnist", {"accuracy": 0.7}, 0, curve, model="LSTM", max_epochs=2, hidden_size=8, train=50)]
    (figure,) = pictures("pmnist", lines, tmp_path, monkeypatch).values()
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


def test_a_long_budget_stays_within_the_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"hidden_size": 8, "d_model": 16, "num_heads": 2, "num_states": 4, "validation": 10, "test": 20}
    lines = [line("pmnist", {"accuracy": 0.7}, 0, [{"accuracy": 0.1}], model="GRU", max_epochs=2, train=50, **small)]
    (figure,) = pictures("pmnist", lines, tmp_path, monkeypatch).values()
    figure.draw_without_rendering()
    assert figure.get_supxlabel().replace("\n", " ").startswith("budget: max_epochs 2 (not 800), train 50 (not all)")
    assert figure._supxlabel.get_window_extent().x1 <= figure.bbox.x1


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


def test_forecasting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = [["R", 0.9, 0.0], ["R", 0.99, np.pi], ["R", 0.5, 0.0], ["R", 0.2, 0.0], ["R", 1.1, 0.0], ["C", 0.8, 0.5]]

    def of(dataset: str, model: str, mse: float, seed: int = 0) -> Line:
        details = {"features": TYPES, "first_layer": first}
        config: dict[str, Any] = {"dataset": dataset, "horizon": 48, "model": model}
        return line("forecasting", {"mse": mse, "mae": mse}, seed, None, details, **config)

    lines = [of("WTH", "RNN", 0.5), of("WTH", "ParaRNN", 0.4), of("ETTh1", "GRU", 0.3), of("ETTm1", "GRU", 0.3)]
    lines.append(of("ETTh1", "RNN", 0.3))
    found = pictures("forecasting", lines, tmp_path, monkeypatch)
    assert list(found) == ["forecasting-types.png", "forecasting-patterns.png", "forecasting-wins.png"]
    ett, wth = found["forecasting-types.png"].axes
    assert (ett.get_title(), wth.get_title()) == ("ETTh1, ETTm1", "WTH")
    assert by_row(ett) == {0: "ETTh1 alone", **dict.fromkeys((1, 2, 3, 5), "not run")}
    assert by_row(wth) == dict.fromkeys((2, 3, 4, 5), "not run")
    decays, waves = found["forecasting-patterns.png"].axes
    # Slowest and middle of the decays: what grows, 1.1, and what alternates, at pi, are none.
    assert decays.get_legend_handles_labels()[1] == ["modulus 0.900", "modulus 0.500"]
    lag = np.arange(len(waves.lines[1].get_ydata()))
    np.testing.assert_allclose(waves.lines[1].get_ydata(), (0.8**lag * np.exp(0.5j * lag)).real, atol=1e-12)
    (wins,) = found["forecasting-wins.png"].axes
    words = by_row(wins)
    assert [words[row - 0.2] for row in (0, 1, 7)] == ["7 of 32", "27 of 32", "21 of 32"]
    assert [words[row + 0.2] for row in (0, 1)] == ["0 of 2", "2 of 2"]
    alone = [words[row + 0.2] for row in range(2, 8)]
    assert alone == ["not run", "not run", "not compared with its twin", *3 * ["not run"]]
    lengths = [[bar.get_width() for bar in bars] for bars in wins.containers]
    assert lengths == [[32] * 8, [7, 27, 7, 26, 8, 26, 15, 21], [2, 2], [0, 2]]  # 2 of 2 is shorter than 27 of 32
    (legend,) = found["forecasting-wins.png"].legends
    assert [text.get_text() for text in legend.get_texts()] == ["paper (ETTh1, ETTh2, ETTm1, WTH)", "ours (WTH)"]


def by_row(ax: Any) -> dict[float, str]:
    """What is written, by where it stands."""
    return {text.get_position()[1]: text.get_text() for text in ax.texts}


def test_neighbours_alone_have_no_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [line("forecasting", {"mse": 1.0, "mae": 1.0}, dataset="WTH", horizon=48, model="naive")]
    assert pictures("forecasting", lines, tmp_path, monkeypatch) == {}

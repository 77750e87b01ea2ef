from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.lab.figures.pictures import pictures
from tests.lab.lines import line


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

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.lab.figures.pictures import pictures
from tests.lab.lines import line


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

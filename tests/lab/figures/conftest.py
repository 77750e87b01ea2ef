"""Figures as they are drawn, to look at what is in them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest

from parallelrnn.lab import figures
from parallelrnn.lab.runs import Run
from tests.lab.samples import select

TYPES = {"0 hidden": {"C-1": 3, "R-1": 2}}
FiguresOf = Callable[..., dict[str, Any]]


@pytest.fixture
def figures_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FiguresOf:
    """Draw the figures of runs; return them by the name of their file."""
    drawn: dict[str, Any] = {}
    write = figures._write

    def keep(path: Path, figure: Any, groups: Any) -> Path:
        drawn[path.name] = figure
        return write(path, figure, groups)

    def draw(*runs: Run) -> dict[str, Any]:
        drawn.clear()
        files = figures.draw(runs[0].experiment, select(*runs), tmp_path)
        assert sorted(path.name for path in files) == sorted(drawn)
        for name in drawn:
            height, width, _ = mpl.image.imread(tmp_path / name).shape
            assert width == 1350  # 9 inches
            assert height > 300
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted(drawn), "and nothing else"
        return dict(drawn)

    monkeypatch.setattr(figures, "_write", keep)
    return draw

"""Figures as they are drawn, to look at what is in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest

from parallelrnn.lab import figures
from parallelrnn.lab.experiments.registry import EXPERIMENTS
from parallelrnn.lab.figures import draw
from parallelrnn.lab.running.store import Line

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

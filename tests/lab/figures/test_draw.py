from __future__ import annotations

from pathlib import Path

import pytest

from parallelrnn.lab.experiments.registry import EXPERIMENTS
from parallelrnn.lab.figures import draw
from tests.lab.figures.pictures import pictures
from tests.lab.lines import line


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_nothing_is_drawn_of_nothing(name: str, tmp_path: Path) -> None:
    assert draw(EXPERIMENTS[name], [], tmp_path) == []
    assert not list(tmp_path.iterdir())


def test_a_long_budget_stays_within_the_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"hidden_size": 8, "d_model": 16, "num_heads": 2, "num_states": 4, "validation": 10, "test": 20}
    lines = [line("pmnist", {"accuracy": 0.7}, 0, [{"accuracy": 0.1}], model="GRU", max_epochs=2, train=50, **small)]
    (figure,) = pictures("pmnist", lines, tmp_path, monkeypatch).values()
    figure.draw_without_rendering()
    assert figure.get_supxlabel().replace("\n", " ").startswith("budget: max_epochs 2 (not 800), train 50 (not all)")
    assert figure._supxlabel.get_window_extent().x1 <= figure.bbox.x1

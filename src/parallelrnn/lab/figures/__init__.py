"""The figures of the experiments as PNG files: those of the paper that show results, and the winning counts."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from parallelrnn.errors import printable
from parallelrnn.interpret.display import optional
from parallelrnn.io import write_bytes
from parallelrnn.lab.figures import block_sizes, curves, features, forecasts
from parallelrnn.lab.figures.style import Drawing
from parallelrnn.lab.select_runs import CellRuns, Selection, malformed_runs_rejected

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@malformed_runs_rejected()
def draw(experiment: str, selection: Selection, folder: str | Path) -> list[Path]:
    """Write the figures of an experiment; none if it has no runs."""
    if not selection.groups or experiment not in _FIGURES:
        return []
    with optional("matplotlib").rc_context({"font.size": 11, "axes.titlesize": 11, "figure.facecolor": "white"}):
        drawings = _FIGURES[experiment](selection)
        return [_write(Path(folder) / f"{name}.png", figure, groups) for name, figure, groups in drawings]


def _write(path: Path, figure: Figure, groups: Sequence[CellRuns]) -> Path:
    """Write a figure, with the budget below it if all runs have the same."""
    budgets = list(dict.fromkeys(group.budget_text for group in groups))
    footer = f"budget: {budgets[0]}" if len(budgets) == 1 else f"{len(budgets)} budgets: see the table"
    style = {"fontsize": "x-small", "color": "0.4", "horizontalalignment": "left", "parse_math": False}
    figure.supxlabel(textwrap.fill(printable(footer), 150), x=0.01, **style)
    png = io.BytesIO()
    figure.savefig(png, format="png", dpi=150)
    return write_bytes(path, png.getvalue())


_FIGURES: dict[str, Callable[[Selection], Iterable[Drawing]]] = {
    "tradeoff": block_sizes.tradeoff,
    "speed": block_sizes.speed,
    "adding": curves.adding,
    "pmnist": curves.pmnist,
    "feature-evolution": features.evolution,
    "feature-recovery": features.recovery,
    "forecasting": forecasts.forecasting,
}

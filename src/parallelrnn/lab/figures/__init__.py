"""The figures of the experiments, as PNG files: those of the paper that show results, and the winning counts."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from parallelrnn.interpret.display import optional, printable
from parallelrnn.io import write_bytes
from parallelrnn.lab.experiments.experiment import Experiment
from parallelrnn.lab.figures import accuracies, adding, block_sizes, features, forecasts
from parallelrnn.lab.figures.parts import Drawn
from parallelrnn.lab.picking import Picked, Runs, pick, refusing_lines
from parallelrnn.lab.running.store import Line

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@refusing_lines()
def draw(experiment: Experiment, lines: Sequence[Line], folder: str | Path) -> list[Path]:
    """Write the figures of an experiment; none of what has no runs."""
    picked = pick(experiment, lines)
    if not picked.runs or experiment.name not in _FIGURES:
        return []
    with optional("matplotlib").rc_context({"font.size": 11, "axes.titlesize": 11, "figure.facecolor": "white"}):
        drawn = _FIGURES[experiment.name](picked)
        return [_write(Path(folder) / f"{name}.png", figure, found) for name, figure, found in drawn]


def _write(path: Path, figure: Figure, found: Sequence[Runs]) -> Path:
    """With the budget in a line at the foot, if all runs have the same."""
    words = list(dict.fromkeys(one.budget_in_words for one in found))
    foot = f"budget: {words[0]}" if len(words) == 1 else f"{len(words)} budgets: see the table"
    foot = textwrap.fill(printable(foot), 150)
    style = {"fontsize": "x-small", "color": "0.4", "horizontalalignment": "left", "parse_math": False}
    figure.supxlabel(foot, x=0.01, **style)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=150)
    return write_bytes(path, picture.getvalue())


_FIGURES: dict[str, Callable[[Picked], Iterable[Drawn]]] = {
    "tradeoff": block_sizes.tradeoff,
    "speed": block_sizes.speed,
    "adding": adding.adding,
    "pmnist": accuracies.pmnist,
    "feature-evolution": features.evolution,
    "feature-recovery": features.recovery,
    "forecasting": forecasts.forecasting,
}

"""What figures share: colours and styles, panels and labels.

Colours differ in brightness too, so that they can be told apart in grey; lines also differ in style.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from parallelrnn.interpret.display import optional
from parallelrnn.lab.select_runs import CellRuns

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 9.0  # inches
DARK, LIGHT, MIDDLE = "#1f3b73", "#e8833a", "#4f9d8f"
STYLES: dict[bool, dict[str, Any]] = {  # by whether it is a para model
    False: {"color": DARK, "linestyle": "-"},
    True: {"color": LIGHT, "linestyle": "--"},
}
# Waves are blue and decays orange; higher orders are dark and hatched.
TYPES = {"C-1": ("#4a86c5", ""), "R-1": ("#f6c39c", ""), "C-2": ("#0a2b4a", "//"), "R-4": ("#8c3517", "\\\\")}
OTHER_TYPES = ("0.6", "..")

Drawing = tuple[str, "Figure", Sequence[CellRuns]]  # a name, the figure, and the runs in it


def panels(rows: int, columns: int, height: float, **options: Any) -> tuple[Figure, Any]:
    """Return a figure that belongs to no window, and its axes (rows, columns)."""
    figure = optional("matplotlib.figure").Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def model_label(model: str, group: CellRuns) -> str:
    """Return the model's name with the number of its runs."""
    return f"{model} ({run_counts([group])}{', another budget' if group.is_odd else ''})"


def run_counts(groups: Sequence[CellRuns]) -> str:
    """Return how many runs each group has: "1 run", "3 runs" or "1 to 3 runs"."""
    counts = sorted({len(group.runs) for group in groups})
    text = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{text} run" if text == "1" else f"{text} runs"


def integer_ticks(ax: Axes) -> None:
    """Put the ticks of the x axis at integers."""
    ax.xaxis.set_major_locator(optional("matplotlib.ticker").MaxNLocator(5, steps=(1, 2, 5, 10), integer=True))


def not_run(ax: Axes) -> None:
    """Say why a panel is empty."""
    ax.text(0.5, 0.5, "not run", transform=ax.transAxes, ha="center", color="0.5")


def add_type_legend(figure: Figure, labels: Iterable[str]) -> None:
    """Put a legend of the feature types that occur above all panels."""
    patch = optional("matplotlib.patches").Patch
    known = [label for label in TYPES if label in set(labels)]
    handles = [
        patch(facecolor=TYPES[type_][0], hatch=TYPES[type_][1], edgecolor="white", label=type_) for type_ in known
    ]
    if set(labels) - set(known):
        handles.append(patch(facecolor=OTHER_TYPES[0], hatch=OTHER_TYPES[1], edgecolor="white", label="others"))
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), frameon=False)


def type_order(label: str) -> int:
    """Return the place of a type among others."""
    return list(TYPES).index(label) if label in TYPES else len(TYPES)

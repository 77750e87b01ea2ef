"""What figures share: colours and styles, panels, and words for what is drawn.

Colours differ in brightness too, so that they can be told apart in grey; lines have different styles besides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from parallelrnn.interpret.display import optional
from parallelrnn.lab.picking import Runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 9.0  # inches
DARK, LIGHT, MIDDLE = "#1f3b73", "#e8833a", "#4f9d8f"
STYLES: dict[bool, dict[str, Any]] = {  # whether it is a para model
    False: {"color": DARK, "linestyle": "-"},
    True: {"color": LIGHT, "linestyle": "--"},
}
# Waves are blue and decays orange; what is of a higher order is dark and hatched.
TYPES = {"C-1": ("#4a86c5", ""), "R-1": ("#f6c39c", ""), "C-2": ("#0a2b4a", "//"), "R-4": ("#8c3517", "\\\\")}
OTHER_TYPES = ("0.6", "..")

Drawn = tuple[str, "Figure", Sequence[Runs]]  # a name, what is drawn, and of what


def panels(rows: int, columns: int, height: float, **options: Any) -> tuple[Figure, Any]:
    """A figure that belongs to no window, and its axes (rows, columns)."""
    figure = optional("matplotlib.figure").Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def named(model: str, one: Runs) -> str:
    """A model, and how many runs of it are drawn."""
    return f"{model} ({replicates([one])}{', another budget' if one.apart else ''})"


def replicates(found: Sequence[Runs]) -> str:
    """How many runs there are of each, in words."""
    counts = sorted({len(one.lines) for one in found})
    words = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{words} run" if words == "1" else f"{words} runs"


def whole_numbers(ax: Axes) -> None:
    """Epochs and steps are whole numbers."""
    ax.xaxis.set_major_locator(optional("matplotlib.ticker").MaxNLocator(5, steps=(1, 2, 5, 10), integer=True))


def not_run(ax: Axes) -> None:
    """An empty panel says why."""
    ax.text(0.5, 0.5, "not run", transform=ax.transAxes, ha="center", color="0.5")


def legend_of_types(figure: Figure, labels: Iterable[str]) -> None:
    """Above all panels, the types that there are."""
    patch = optional("matplotlib.patches").Patch
    known = [label for label in TYPES if label in set(labels)]
    handles = [patch(facecolor=TYPES[one][0], hatch=TYPES[one][1], edgecolor="white", label=one) for one in known]
    if set(labels) - set(known):
        handles.append(patch(facecolor=OTHER_TYPES[0], hatch=OTHER_TYPES[1], edgecolor="white", label="others"))
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), frameon=False)


def order_of_type(label: str) -> int:
    """Where a type stands among others."""
    return list(TYPES).index(label) if label in TYPES else len(TYPES)

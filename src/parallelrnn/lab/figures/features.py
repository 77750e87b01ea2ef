"""Features along the training: Figure 3, and A.1 and A.2."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from parallelrnn.lab.figures.parts import (
    DARK,
    OTHER_TYPES,
    STYLES,
    TYPES,
    Drawn,
    legend_of_types,
    not_run,
    order_of_type,
    panels,
    whole_numbers,
)
from parallelrnn.lab.picking import Picked, Runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PERCENTILES = (5, 25, 50, 75, 95)  # that FeatureTracker keeps
_RECOVERY = ("MSE", "distance to\nthe true matrix", "modulus\n(dashed: true)", "angle\n(dashed: true)", "types")


def evolution(picked: Picked) -> Iterable[Drawn]:
    """Rows of models, columns of initialisations."""
    models, initials = picked.all("model"), picked.all("initial")
    figure, axes = panels(len(models), len(initials), 2.3 * len(models) + 0.4, sharex=True, sharey=True)
    in_steps = all(one.budget["epoch_steps"] for one in picked.runs)
    labels: list[str] = []
    end = 0
    for row, model in zip(axes, models, strict=True):
        for ax, initial in zip(row, initials, strict=True):
            one = picked.get(model=model, initial=initial)
            if one is None:
                ax.set_title(f"{model}; {initial}", fontsize="medium")
                not_run(ax)
                continue
            history = one.lines[0]["details"]["features"]
            gate = next(iter(history[0]))
            steps = one.budget["epoch_steps"] if in_steps else 1
            labels += _stack(ax, [places[gate] for places in history], steps)
            end = max(end, steps * (len(history) - 1))
            ax.set_title(f"{model}, {gate.partition(' ')[2]}; {initial}", fontsize="medium")
    axes[0, 0].set_xlim(0, end)
    for ax in axes[-1]:
        ax.set_xlabel("step" if in_steps else "epoch")
        whole_numbers(ax)
    for ax in axes[:, 0]:
        ax.set_ylabel("part of the features")
    legend_of_types(figure, labels)
    yield "feature-evolution", figure, picked.runs


def recovery(picked: Picked) -> Iterable[Drawn]:
    """A figure for each true matrix."""
    for truth in picked.all("truth"):
        found = [one for initial in picked.all("initial") if (one := picked.get(truth=truth, initial=initial))]
        if found:
            yield f"feature-recovery-{truth}", _draw_recovery(found), found


def _draw_recovery(found: Sequence[Runs]) -> Figure:
    """Rows as in Figure A.1; a column for each initialisation."""
    figure, axes = panels(5, len(found), 11.0, sharex="col", sharey="row")
    labels: list[str] = []
    for column, one in zip(axes.T, found, strict=True):
        line = one.lines[0]
        curve, history, true = line["curve"], line["details"]["features"], line["details"]["true"]
        epochs = range(1, len(curve) + 1)
        for name, style in (("training", STYLES[False]), ("validation", STYLES[True])):
            column[0].plot(epochs, [point[name] for point in curve], label=name, **style)
        column[0].set_yscale("log")
        column[0].set_title(one.cell["initial"])
        column[1].plot([point["distance"] for point in history], color=DARK)
        for ax, name in zip(column[2:4], ("modulus", "angle"), strict=True):
            shades = np.linspace(0.0, 0.65, len(PERCENTILES))
            for place, (percentile, shade) in enumerate(zip(PERCENTILES, shades, strict=True)):
                ax.plot([point[name][place] for point in history], color=str(shade), label=f"{percentile} %")
                ax.axhline(true[name][place], color=str(shade), linestyle="--", linewidth=1)
        labels += _stack(column[4], [point["counts"] for point in history], 1)
        column[4].set_xlim(0, len(history) - 1)
        column[4].set_xlabel("epoch")
        whole_numbers(column[4])
    axes[1, 0].set_ylim(bottom=0)  # once all columns are drawn: it ends their growing with what is in them
    for ax, name in zip(axes[:, 0], _RECOVERY, strict=True):
        ax.set_ylabel(name)
    axes[0, -1].legend(frameon=False, fontsize="small")
    axes[2, -1].legend(frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5))
    legend_of_types(figure, labels)
    return figure


def _stack(ax: Axes, history: Sequence[Mapping[str, int]], steps: int) -> list[str]:
    """Parts of types over training, one on the other; the types that there are.

    Each reading is drawn from the middle before it to the middle after, and so the last one is seen, too.
    """
    labels = sorted({label for counts in history for label in counts}, key=order_of_type)
    x = steps * np.arange(len(history))
    below = np.zeros(len(history))
    for label in labels:
        above = below + [counts.get(label, 0) / sum(counts.values()) for counts in history]
        colour, hatch = TYPES.get(label, OTHER_TYPES)
        ax.fill_between(x, below, above, step="mid", facecolor=colour, hatch=hatch, edgecolor="white", linewidth=0)
        below = above
    ax.set_ylim(0, 1)
    return labels

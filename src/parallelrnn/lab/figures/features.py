"""Recurrence features during training: Figures 3, A.1 and A.2."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from parallelrnn.lab.figures.style import (
    DARK,
    OTHER_TYPES,
    STYLES,
    TYPES,
    Drawing,
    add_type_legend,
    integer_ticks,
    not_run,
    panels,
    type_order,
)
from parallelrnn.lab.select_runs import CellRuns, Selection

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PERCENTILES = (5, 25, 50, 75, 95)  # those of FeatureTracker
_RECOVERY = ("MSE", "distance to\nthe true matrix", "modulus\n(dashed: true)", "angle\n(dashed: true)", "types")


def evolution(selection: Selection) -> Iterable[Drawing]:
    """Draw a row for each model and a column for each initialisation."""
    models, initials = selection.values("model"), selection.values("initial")
    figure, axes = panels(len(models), len(initials), 2.3 * len(models) + 0.4, sharex=True, sharey=True)
    in_steps = all(group.budget["epoch_steps"] for group in selection.groups)
    labels: list[str] = []
    end = 0
    for row, model in zip(axes, models, strict=True):
        for ax, initial in zip(row, initials, strict=True):
            group = selection.get(model=model, initial=initial)
            if group is None:
                ax.set_title(f"{model}; {initial}", fontsize="medium")
                not_run(ax)
                continue
            history = group.runs[0].result["details"]["features"]
            gate = next(iter(history[0]))
            steps = group.budget["epoch_steps"] if in_steps else 1
            labels += _stack(ax, [gates[gate] for gates in history], steps)
            end = max(end, steps * (len(history) - 1))
            ax.set_title(f"{model}, {gate.partition(' ')[2]}; {initial}", fontsize="medium")
    axes[0, 0].set_xlim(0, end)
    for ax in axes[-1]:
        ax.set_xlabel("step" if in_steps else "epoch")
        integer_ticks(ax)
    for ax in axes[:, 0]:
        ax.set_ylabel("part of the features")
    add_type_legend(figure, labels)
    yield "feature-evolution", figure, selection.groups


def recovery(selection: Selection) -> Iterable[Drawing]:
    """Draw a figure for each true matrix."""
    initials = selection.values("initial")
    for truth in selection.values("truth"):
        groups = [group for initial in initials if (group := selection.get(truth=truth, initial=initial))]
        if groups:
            yield f"feature-recovery-{truth}", _draw_recovery(groups), groups


def _draw_recovery(groups: Sequence[CellRuns]) -> Figure:
    """Draw the rows of Figure A.1, with a column for each initialisation."""
    figure, axes = panels(5, len(groups), 11.0, sharex="col", sharey="row")
    labels: list[str] = []
    for column, group in zip(axes.T, groups, strict=True):
        curve, details = group.runs[0].result["curve"], group.runs[0].result["details"]
        history, true = details["features"], details["true"]
        epochs = range(1, len(curve) + 1)
        for name, style in (("training", STYLES[False]), ("validation", STYLES[True])):
            column[0].plot(epochs, [point[name] for point in curve], label=name, **style)
        column[0].set_yscale("log")
        column[0].set_title(group.cell["initial"])
        column[1].plot([point["distance"] for point in history], color=DARK)
        for ax, name in zip(column[2:4], ("modulus", "angle"), strict=True):
            shades = np.linspace(0.0, 0.65, len(PERCENTILES))
            for place, (percentile, shade) in enumerate(zip(PERCENTILES, shades, strict=True)):
                ax.plot([point[name][place] for point in history], color=str(shade), label=f"{percentile} %")
                ax.axhline(true[name][place], color=str(shade), linestyle="--", linewidth=1)
        labels += _stack(column[4], [point["counts"] for point in history], 1)
        column[4].set_xlim(0, len(history) - 1)
        column[4].set_xlabel("epoch")
        integer_ticks(column[4])
    axes[1, 0].set_ylim(bottom=0)  # after all columns are drawn: it ends autoscaling
    for ax, name in zip(axes[:, 0], _RECOVERY, strict=True):
        ax.set_ylabel(name)
    axes[0, -1].legend(frameon=False, fontsize="small")
    axes[2, -1].legend(frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5))
    add_type_legend(figure, labels)
    return figure


def _stack(ax: Axes, history: Sequence[Mapping[str, int]], steps: int) -> list[str]:
    """Draw the shares of types over training, stacked; return the types.

    Each reading extends half a step to both sides, so that the last one is seen too.
    """
    labels = sorted({label for counts in history for label in counts}, key=type_order)
    x = steps * np.arange(len(history))
    below = np.zeros(len(history))
    for label in labels:
        above = below + [counts.get(label, 0) / sum(counts.values()) for counts in history]
        colour, hatch = TYPES.get(label, OTHER_TYPES)
        ax.fill_between(x, below, above, step="mid", facecolor=colour, hatch=hatch, edgecolor="white", linewidth=0)
        below = above
    ax.set_ylim(0, 1)
    return labels

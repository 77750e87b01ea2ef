"""Training curves: accuracies on permuted MNIST, and errors on the adding problem (Figures D.2 to D.5)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from parallelrnn.lab import paper
from parallelrnn.lab.experiments.adding import SOLVED
from parallelrnn.lab.experiments.models import MODELS, twin
from parallelrnn.lab.figures.style import STYLES, Drawing, integer_ticks, model_label, not_run, panels
from parallelrnn.lab.select_runs import CellRuns, Selection

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The paper's accuracies: dots and dashes alternate, so that one shows between the other where both are the same.
PAPER_DASHES = {False: (0, (1.5, 6.5)), True: (5, (3.0, 5.0))}


def pmnist(selection: Selection) -> Iterable[Drawing]:
    """Draw a panel for each vanilla model and its para model."""
    vanilla = [model for model in MODELS if not model.startswith("Para")]
    figure, axes = panels(2, 2, 8.0, sharex=True, sharey=True)
    for ax, kind in zip(axes.flat, vanilla, strict=True):
        groups = {model: selection.get(model=model) for model in (kind, twin(kind))}
        for model, group in groups.items():
            _accuracies(ax, model, group)
        if not any(groups.values()):
            not_run(ax)
        ax.set_title(kind)
        ax.set_xlabel("epoch")
        ax.tick_params(labelbottom=True)
        integer_ticks(ax)
        # Below the axis label, four letters' height down.
        place = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "borderaxespad": 4.4}
        ax.legend(frameon=False, fontsize="small", **place)
    for ax in axes[:, 0]:
        ax.set_ylabel("validation accuracy, %")
    yield "pmnist", figure, selection.groups


def _accuracies(ax: Axes, model: str, group: CellRuns | None) -> None:
    """Draw a line for each run, and the paper's test accuracy."""
    style = STYLES[model.startswith("Para")]
    if group is None:
        ax.plot([], [], linestyle="none", label=f"{model}: not run")
    for number, run in enumerate(group.runs if group else ()):
        accuracies = [100 * point["accuracy"] for point in run.result["curve"]]
        label = model_label(model, group) if not number and group else None
        marker = "." if len(accuracies) == 1 else None
        ax.plot(range(1, len(accuracies) + 1), accuracies, marker=marker, label=label, **style)
    theirs = paper.ACCURACIES["pmnist"][model]
    label = f"{model}, the paper's test: {theirs:.2f} %"
    dashes = PAPER_DASHES[model.startswith("Para")]
    ax.axhline(theirs, color=style["color"], linestyle=dashes, linewidth=1.5, label=label)


def adding(selection: Selection) -> Iterable[Drawing]:
    """Draw a panel for each length and each vanilla model with its para model."""
    lengths = selection.values("length")
    vanilla = [model for model in selection.values("model") if not model.startswith("Para")]
    figure, axes = panels(len(lengths), len(vanilla), 3.2 * len(lengths), sharex=True, sharey=True)
    for row, length in zip(axes, lengths, strict=True):
        for ax, kind in zip(row, vanilla, strict=True):
            for model in (kind, twin(kind)):
                group = selection.get(model=model, length=length)
                for number, run in enumerate(group.runs if group else ()):
                    errors = [point["validation"] for point in run.result["curve"]]
                    label = model_label(model, group) if not number and group else None
                    x = run.config["epoch_steps"] * np.arange(1, len(errors) + 1)
                    ax.plot(x, errors, linewidth=1.2, alpha=0.8, label=label, **STYLES[model != kind])
            ax.axhline(SOLVED, color="0.6", linewidth=1, linestyle=":")
            ax.set_yscale("log")
            ax.set_title(f"{kind}, length {length}")
            if ax.lines[:-1]:
                ax.legend(frameon=False, fontsize="small")
            else:
                not_run(ax)
    for ax in axes[-1]:
        ax.set_xlabel("iterations")
    for ax in axes[:, 0]:
        ax.set_ylabel(f"test MSE (dotted: {SOLVED})")
    yield "adding", figure, selection.groups

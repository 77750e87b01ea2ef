"""Accuracies along the training on permuted MNIST."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from parallelrnn.lab import paper
from parallelrnn.lab.experiments.models import MODELS, twin
from parallelrnn.lab.figures.parts import STYLES, Drawn, named, not_run, panels, whole_numbers
from parallelrnn.lab.picking import Picked, Runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# What the paper reports: dots and dashes in turn, so that one shows between the other where both are the same.
PAPER = {False: (0, (1.5, 6.5)), True: (5, (3.0, 5.0))}


def pmnist(picked: Picked) -> Iterable[Drawn]:
    """A panel for each pair of twins."""
    kinds = [kind for kind in MODELS if not kind.startswith("Para")]
    figure, axes = panels(2, 2, 8.0, sharex=True, sharey=True)
    for ax, kind in zip(axes.flat, kinds, strict=True):
        for model in (kind, twin(kind)):
            _accuracies(ax, model, picked.get(model=model))
        if not any(picked.get(model=model) for model in (kind, twin(kind))):
            not_run(ax)
        ax.set_title(kind)
        ax.set_xlabel("epoch")
        ax.tick_params(labelbottom=True)
        whole_numbers(ax)
        # Under the name of the axis, four heights of a letter down.
        place = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "borderaxespad": 4.4}
        ax.legend(frameon=False, fontsize="small", **place)
    for ax in axes[:, 0]:
        ax.set_ylabel("validation accuracy, %")
    yield "pmnist", figure, picked.runs


def _accuracies(ax: Axes, model: str, one: Runs | None) -> None:
    """A line for each run, and what the paper reports."""
    style = STYLES[model.startswith("Para")]
    if one is None:
        ax.plot([], [], linestyle="none", label=f"{model}: not run")
    for number, line in enumerate(one.lines if one else ()):
        found = [100 * point["accuracy"] for point in line["curve"]]
        label = named(model, one) if not number and one else None
        ax.plot(range(1, len(found) + 1), found, marker="." if len(found) == 1 else None, label=label, **style)
    theirs = paper.ACCURACIES["pmnist"][model]
    words = f"{model}, the paper's test: {theirs:.2f} %"
    ax.axhline(theirs, color=style["color"], linestyle=PAPER[model.startswith("Para")], linewidth=1.5, label=words)

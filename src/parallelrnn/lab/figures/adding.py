"""Errors along the training on the adding problem: Figures D.2 to D.5."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from parallelrnn.lab.comparison import SOLVED
from parallelrnn.lab.experiments.models import twin
from parallelrnn.lab.figures.parts import STYLES, Drawn, named, not_run, panels
from parallelrnn.lab.picking import Picked


def adding(picked: Picked) -> Iterable[Drawn]:
    """A panel for each length and pair of twins."""
    lengths, kinds = picked.all("length"), [model for model in picked.all("model") if not model.startswith("Para")]
    figure, axes = panels(len(lengths), len(kinds), 3.2 * len(lengths), sharex=True, sharey=True)
    for row, length in zip(axes, lengths, strict=True):
        for ax, kind in zip(row, kinds, strict=True):
            for model in (kind, twin(kind)):
                one = picked.get(model=model, length=length)
                for number, line in enumerate(one.lines if one else ()):
                    steps = line["config"]["epoch_steps"]
                    errors = [point["validation"] for point in line["curve"]]
                    label = named(model, one) if not number and one else None
                    x = steps * np.arange(1, len(errors) + 1)
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
    yield "adding", figure, picked.runs

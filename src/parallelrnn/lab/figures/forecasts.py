"""Forecasts: wins, types of features (Figure 1(b)), and the weights that features give to lags."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from parallelrnn.interpret.display import optional
from parallelrnn.lab import paper
from parallelrnn.lab.comparison import Wins, find_twins, rows_of_twins, winning_counts
from parallelrnn.lab.experiments.feature_types import total
from parallelrnn.lab.experiments.models import MODELS, RECURRENT
from parallelrnn.lab.figures.parts import (
    DARK,
    LIGHT,
    OTHER_TYPES,
    STYLES,
    TYPES,
    Drawn,
    legend_of_types,
    order_of_type,
    panels,
)
from parallelrnn.lab.picking import Picked, Runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def forecasting(picked: Picked) -> Iterable[Drawn]:
    """Types, patterns and wins, as far as there are runs."""
    recurrent = [one for one in picked.runs if one.cell["model"] in RECURRENT]
    if recurrent:
        yield "forecasting-types", _draw_types(recurrent), recurrent
    one = picked.get(dataset="WTH", horizon=48, model="RNN")
    if one is not None:
        figure = _draw_patterns(one.lines[0]["details"]["first_layer"])
        figure.suptitle("RNN, WTH, horizon 48, first layer")
        yield "forecasting-patterns", figure, [one]
    counts = winning_counts([*rows_of_twins(picked, "mse"), *rows_of_twins(picked, "mae")])
    if counts:
        compared = [one for one in picked.runs if one.cell["model"] in counts]
        yield "forecasting-wins", _draw_wins(picked, counts), compared


def _draw_wins(picked: Picked, counts: Mapping[str, Wins]) -> Figure:
    """Bars as long as the wins, in pale ones as long as the comparisons."""
    figure, axes = panels(1, 1, 5.2)
    ax = axes[0, 0]
    compared = [
        one.cell["dataset"]
        for one in picked.runs
        if find_twins(picked, one.cell["model"].removeprefix("Para"), **_place(one)) is not None
    ]
    theirs = {model: Wins(wins, 32) for model, wins in paper.WINS.items()}
    for found, shift, name, style in (
        (theirs, -0.2, f"paper ({_listed(picked.all('dataset'))})", {"color": DARK}),
        (counts, 0.2, f"ours ({_listed(compared)})", {"color": LIGHT, "hatch": "//", "edgecolor": "white"}),
    ):
        places = [MODELS.index(model) + shift for model in found]
        ax.barh(places, [one.compared for one in found.values()], 0.36, color="0.92", edgecolor="0.75")
        ax.barh(places, [one.wins for one in found.values()], 0.36, label=name, **style)
        for place, one in zip(places, found.values(), strict=True):
            ax.text(one.compared + 0.3, place, f"{one.wins} of {one.compared}", va="center", fontsize="small")
    for place, model in enumerate(MODELS):
        if model not in counts:
            words = "not compared with its twin" if picked.get(model=model) else "not run"
            ax.text(0.3, place + 0.2, words, va="center", fontsize="small", color="0.5")
    ax.set_yticks(range(len(MODELS)), MODELS)
    ax.set_ylim(len(MODELS) - 0.5, -0.5)
    ax.set_xlim(0, 1.12 * max(one.compared for one in (*theirs.values(), *counts.values())))
    ax.xaxis.set_major_locator(optional("matplotlib.ticker").MultipleLocator(8))
    ax.set_xlabel("comparisons won or tied against the twin, by MSE and by MAE (pale: all)")
    figure.legend(frameon=False, loc="outside upper center", ncols=2)
    return figure


def _place(one: Runs) -> dict[str, Any]:
    return {name: one.cell[name] for name in ("dataset", "horizon")}


def _listed(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))


def _draw_types(found: Sequence[Runs]) -> Figure:
    """Of the tables of ETT together, and of WTH."""
    families = [[one for one in found if one.cell["dataset"].startswith(family)] for family in ("ETT", "WTH")]
    families = [family for family in families if family]
    figure, axes = panels(1, len(families), 3.2, sharey=True)
    labels: list[str] = []
    for ax, family in zip(axes[0], families, strict=True):
        datasets = _listed(one.cell["dataset"] for one in family)
        for place, model in enumerate(RECURRENT):
            runs = [one for one in family if one.cell["model"] == model]
            if not runs:
                ax.text(0.5, place, "not run", ha="center", va="center", color="0.5")
                continue
            labels += _bar_of_types(ax, place, runs)
            own = _listed(one.cell["dataset"] for one in runs)
            if own != datasets:
                box = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
                ax.text(0.98, place, f"{own} alone", ha="right", va="center", fontsize="small", bbox=box)
        ax.set_yticks(range(len(RECURRENT)), RECURRENT)
        ax.set_ylim(len(RECURRENT) - 0.5, -0.5)
        ax.set_xlim(0, 1)
        ax.set_title(datasets)
        ax.set_xlabel("part of the features")
    legend_of_types(figure, labels)
    return figure


def _bar_of_types(ax: Axes, place: int, found: Sequence[Runs]) -> list[str]:
    """Parts of types over data sets, horizons, layers and gates, one after the other; the types that there are."""
    counts: dict[str, int] = {}
    for line in (line for one in found for line in one.lines):
        for label, count in total(line["details"]["features"]).items():
            counts[label] = counts.get(label, 0) + count
    left = 0.0
    for label in sorted(counts, key=order_of_type):
        colour, hatch = TYPES.get(label, OTHER_TYPES)
        part = counts[label] / sum(counts.values())
        ax.barh(place, part, left=left, color=colour, hatch=hatch, edgecolor="white")
        left += part
    return list(counts)


def _draw_patterns(features: Sequence[Sequence[Any]]) -> Figure:
    """Of decays and of waves that fade the slowest one and the one in the middle: modulus^lag cos(lag angle).

    Only such waves as turn before they are gone: one whose period is long for its modulus looks like a decay.
    """
    figure, axes = panels(1, 2, 3.6, sharey=True)
    for ax, kind, name in zip(axes[0], "RC", ("decays, type R", "waves, type C"), strict=True):
        moduli = sorted(
            (m, a) for k, m, a in features if k == kind and m < 1 and (_turns(m, a) if kind == "C" else a < 1)
        )
        slowest = moduli[-1][0] if moduli else 0.0
        lag = np.arange(1 + min(96, max(12, 0 if slowest <= 0 else round(np.log(0.02) / np.log(slowest)))))
        ax.axhline(0, color="0.8", linewidth=0.8)
        for (modulus, angle), style in zip(_slowest_and_middle(moduli), STYLES.values(), strict=False):
            words = f"modulus {modulus:.3f}" + (f", period {2 * np.pi / angle:.1f}" if kind == "C" else "")
            ax.plot(lag, modulus**lag * np.cos(angle * lag), marker=".", label=words, **style)
        ax.set_title(name)
        ax.set_xlabel("lag (steps)")
        if moduli:
            ax.legend(frameon=False, fontsize="small")
    axes[0, 0].set_ylabel("weight")
    return figure


def _turns(modulus: float, angle: float) -> bool:
    """Whether a tenth of a wave is left when it first is at its lowest."""
    return angle > 0 and bool(modulus ** (np.pi / angle) >= 0.1)


def _slowest_and_middle(features: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Of features ordered by modulus."""
    return [features[at] for at in dict.fromkeys((len(features) - 1, (len(features) - 1) // 2)) if at >= 0]

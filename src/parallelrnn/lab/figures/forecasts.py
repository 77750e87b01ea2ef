"""Forecasts: wins, types of features (Figure 1(b)), and the weights of lags in features (Figure 1(a))."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from parallelrnn.interpret.display import optional
from parallelrnn.lab import paper
from parallelrnn.lab.experiments.feature_types import total
from parallelrnn.lab.experiments.models import MODELS, RECURRENT
from parallelrnn.lab.figures.style import (
    DARK,
    LIGHT,
    OTHER_TYPES,
    STYLES,
    TYPES,
    Drawing,
    add_type_legend,
    panels,
    type_order,
)
from parallelrnn.lab.select_runs import CellRuns, Selection, count_wins

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def forecasting(selection: Selection) -> Iterable[Drawing]:
    """Draw types, patterns and wins, as far as there are runs."""
    recurrent = [group for group in selection.groups if group.cell["model"] in RECURRENT]
    if recurrent:
        yield "forecasting-types", _draw_types(recurrent), recurrent
    group = selection.get(dataset="WTH", horizon=48, model="RNN")
    if group is not None:
        figure = _draw_patterns(group.runs[0].result["details"]["first_layer"])
        figure.suptitle("RNN, WTH, horizon 48, first layer")
        yield "forecasting-patterns", figure, [group]
    if selection.pairs:
        compared = {pair.para.cell["model"].removeprefix("Para") for pair in selection.pairs}
        groups = [group for group in selection.groups if group.cell["model"].removeprefix("Para") in compared]
        yield "forecasting-wins", _draw_wins(selection), groups


def _draw_wins(selection: Selection) -> Figure:
    """Draw bars as long as the wins, on pale ones as long as the comparisons."""
    figure, axes = panels(1, 1, 5.2)
    ax = axes[0, 0]
    ours = {model: (sum(wins), len(wins)) for model, wins in count_wins(selection.pairs).items()}
    theirs = {model: (wins, 32) for model, wins in paper.WINS.items()}
    datasets = _listed(pair.para.cell["dataset"] for pair in selection.pairs)
    for counts, shift, name, style in (
        (theirs, -0.2, f"paper ({_listed(selection.values('dataset'))})", {"color": DARK}),
        (ours, 0.2, f"ours ({datasets})", {"color": LIGHT, "hatch": "//", "edgecolor": "white"}),
    ):
        places = [MODELS.index(model) + shift for model in counts]
        wins, compared = zip(*counts.values(), strict=True)
        ax.barh(places, compared, 0.36, color="0.92", edgecolor="0.75")
        ax.barh(places, wins, 0.36, label=name, **style)
        for place, won, count in zip(places, wins, compared, strict=True):
            ax.text(count + 0.3, place, f"{won} of {count}", va="center", fontsize="small")
    for place, model in enumerate(MODELS):
        if model not in ours:
            text = "not compared with its twin" if selection.get(model=model) else "not run"
            ax.text(0.3, place + 0.2, text, va="center", fontsize="small", color="0.5")
    ax.set_yticks(range(len(MODELS)), MODELS)
    ax.set_ylim(len(MODELS) - 0.5, -0.5)
    ax.set_xlim(0, 1.12 * max(compared for _, compared in (*theirs.values(), *ours.values())))
    ax.xaxis.set_major_locator(optional("matplotlib.ticker").MultipleLocator(8))
    ax.set_xlabel("comparisons won or tied against the twin, by MSE and by MAE (pale: all)")
    figure.legend(frameon=False, loc="outside upper center", ncols=2)
    return figure


def _listed(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))


def _draw_types(groups: Sequence[CellRuns]) -> Figure:
    """Draw a panel for the ETT tables together, and one for WTH."""
    families = [[group for group in groups if group.cell["dataset"].startswith(family)] for family in ("ETT", "WTH")]
    families = [family for family in families if family]
    figure, axes = panels(1, len(families), 3.2, sharey=True)
    labels: list[str] = []
    for ax, family in zip(axes[0], families, strict=True):
        datasets = _listed(group.cell["dataset"] for group in family)
        for place, model in enumerate(RECURRENT):
            of_model = [group for group in family if group.cell["model"] == model]
            if not of_model:
                ax.text(0.5, place, "not run", ha="center", va="center", color="0.5")
                continue
            labels += _type_bar(ax, place, of_model)
            own = _listed(group.cell["dataset"] for group in of_model)
            if own != datasets:
                box = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
                ax.text(0.98, place, f"{own} alone", ha="right", va="center", fontsize="small", bbox=box)
        ax.set_yticks(range(len(RECURRENT)), RECURRENT)
        ax.set_ylim(len(RECURRENT) - 0.5, -0.5)
        ax.set_xlim(0, 1)
        ax.set_title(datasets)
        ax.set_xlabel("part of the features")
    add_type_legend(figure, labels)
    return figure


def _type_bar(ax: Axes, place: int, groups: Sequence[CellRuns]) -> list[str]:
    """Draw the shares of types over data sets, horizons, layers and gates in one bar; return the types."""
    counts: Counter[str] = Counter()
    for run in (run for group in groups for run in group.runs):
        counts.update(total(run.result["details"]["features"]))
    left = 0.0
    for label in sorted(counts, key=type_order):
        colour, hatch = TYPES.get(label, OTHER_TYPES)
        share = counts[label] / sum(counts.values())
        ax.barh(place, share, left=left, color=colour, hatch=hatch, edgecolor="white")
        left += share
    return list(counts)


def _draw_patterns(features: Sequence[Sequence[Any]]) -> Figure:
    """Draw the slowest and the median decay and wave: modulus^lag cos(lag angle).

    Only waves that turn before they vanish: one whose period is long for its modulus looks like a decay.
    """
    figure, axes = panels(1, 2, 3.6, sharey=True)
    for ax, kind, name in zip(axes[0], "RC", ("decays, type R", "waves, type C"), strict=True):
        moduli = sorted(
            (m, a) for k, m, a in features if k == kind and m < 1 and (_turns(m, a) if kind == "C" else a < 1)
        )
        slowest = moduli[-1][0] if moduli else 0.0
        lag = np.arange(1 + min(96, max(12, 0 if slowest <= 0 else round(np.log(0.02) / np.log(slowest)))))
        ax.axhline(0, color="0.8", linewidth=0.8)
        for (modulus, angle), style in zip(_slowest_and_median(moduli), STYLES.values(), strict=False):
            label = f"modulus {modulus:.3f}" + (f", period {2 * np.pi / angle:.1f}" if kind == "C" else "")
            ax.plot(lag, modulus**lag * np.cos(angle * lag), marker=".", label=label, **style)
        ax.set_title(name)
        ax.set_xlabel("lag (steps)")
        if moduli:
            ax.legend(frameon=False, fontsize="small")
    axes[0, 0].set_ylabel("weight")
    return figure


def _turns(modulus: float, angle: float) -> bool:
    """Return whether a tenth of a wave is left at its first minimum."""
    return angle > 0 and bool(modulus ** (np.pi / angle) >= 0.1)


def _slowest_and_median(features: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return two of the features, which are ordered by modulus."""
    return [features[at] for at in dict.fromkeys((len(features) - 1, (len(features) - 1) // 2)) if at >= 0]

"""The figures of the experiments, as PNG files: those of the paper that show results, and the winning counts.

Colours differ in brightness too, so that they can be told apart in grey; lines have different styles besides.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from parallelrnn.experiments import paper
from parallelrnn.experiments.comparison import SOLVED, Wins, find_twins, rows_of_twins, winning_counts
from parallelrnn.experiments.experiment import Experiment
from parallelrnn.experiments.feature_types import total
from parallelrnn.experiments.models import MODELS, RECURRENT, twin
from parallelrnn.experiments.picking import Picked, Runs, deviation, mean, pick
from parallelrnn.experiments.speed import PASSES, VANILLA
from parallelrnn.experiments.store import Line
from parallelrnn.files import write_bytes
from parallelrnn.interpret.optional import optional

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 9.0  # inches
DARK, LIGHT, MIDDLE = "#1f3b73", "#e8833a", "#4f9d8f"
STYLES: dict[bool, dict[str, Any]] = {  # whether it is a para model
    False: {"color": DARK, "linestyle": "-"},
    True: {"color": LIGHT, "linestyle": "--"},
}
# What the paper reports: dots and dashes in turn, so that one shows between the other where both are the same.
PAPER = {False: (0, (1.5, 6.5)), True: (5, (3.0, 5.0))}
# Waves are blue and decays orange; what is of a higher order is dark and hatched.
TYPES = {"C-1": ("#4a86c5", ""), "R-1": ("#f6c39c", ""), "C-2": ("#0a2b4a", "//"), "R-4": ("#8c3517", "\\\\")}
OTHER_TYPES = ("0.6", "..")
PERCENTILES = (5, 25, 50, 75, 95)  # that FeatureTracker keeps

Drawn = tuple[str, "Figure", Sequence[Runs]]  # a name, what is drawn, and of what


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
    figure.supxlabel(textwrap.fill(foot, 150), fontsize="x-small", color="0.4", x=0.01, horizontalalignment="left")
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=150)
    return write_bytes(path, picture.getvalue())


def _panels(rows: int, columns: int, height: float, **options: Any) -> tuple[Figure, Any]:
    """A figure that belongs to no window, and its axes (rows, columns)."""
    figure = optional("matplotlib.figure").Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def _tradeoff(picked: Picked) -> Iterable[Drawn]:
    scales = [scale for scale in picked.all("recurrent_scale") if picked.get(recurrent_scale=scale)]
    figure, axes = _panels(1, len(scales), 4.2)
    sizes = picked.all("block_size")
    shown: list[Runs] = []
    for ax, scale in zip(axes[0], scales, strict=True):
        for variance, colour, style in zip(picked.all("noise_variance"), (DARK, LIGHT), ("o-", "s--"), strict=False):
            kind = {"recurrent_scale": scale, "noise_variance": variance}
            found = [one for size in sizes if (one := picked.get(block_size=size, **kind))]
            there = [one for one in found if not one.apart]
            apart = ", ".join(str(one.cell["block_size"]) for one in found if one.apart)
            shown += there
            if there:
                words = f"({_replicates(there)})" + (f"\n{apart}: another budget, left out" if apart else "")
                errors = [one.values("mse") for one in there]
                ax.errorbar(
                    [one.cell["block_size"] for one in there],
                    [mean(one) for one in errors],
                    [deviation(one) or 0.0 for one in errors],
                    fmt=style,
                    color=colour,
                    capsize=3,
                    label=f"noise variance {variance:g} {words}",
                )
                ax.axhline(variance, color=colour, linestyle=":", linewidth=1.5)
        _by_size(ax, sizes)
        _plain_log(ax)
        ax.set_title(f"recurrent_scale {scale:g}" + (", the paper's data" if scale == 1 else ""))
        ax.legend(frameon=False, fontsize="small")
    axes[0, 0].set_ylabel("test MSE, and sd over runs\n(dotted: the noise)")
    yield "tradeoff", figure, shown


def _speed(picked: Picked) -> Iterable[Drawn]:
    one, sizes = picked.runs[0], paper.BLOCK_SIZES
    figure, axes = _panels(1, 1, 4.5)
    ax = axes[0, 0]
    for which, colour, style in zip(PASSES, (DARK, MIDDLE, LIGHT), ("o-", "^-.", "s--"), strict=True):
        there = [size for size in sizes if one.values(f"{size} {which} mean")]
        means, deviations = ([mean(one.values(f"{s} {which} {what}")) for s in there] for what in ("mean", "sd"))
        ax.errorbar(there, means, deviations, fmt=style, color=colour, capsize=3, label=which)
        ax.axhline(mean(one.values(f"{VANILLA} {which} mean")), color=colour, linestyle=":", linewidth=1.5)
    ax.plot([], [], color="0.4", linestyle=":", label=VANILLA)
    _by_size(ax, sizes)
    _plain_log(ax)
    ax.set_ylabel("milliseconds, mean and sd of a pass")
    ax.legend(frameon=False)
    yield "speed", figure, picked.runs


def _adding(picked: Picked) -> Iterable[Drawn]:
    lengths, kinds = picked.all("length"), [model for model in picked.all("model") if not model.startswith("Para")]
    figure, axes = _panels(len(lengths), len(kinds), 3.2 * len(lengths), sharex=True, sharey=True)
    for row, length in zip(axes, lengths, strict=True):
        for ax, kind in zip(row, kinds, strict=True):
            for model in (kind, twin(kind)):
                one = picked.get(model=model, length=length)
                for number, line in enumerate(one.lines if one else ()):
                    steps = line["config"]["epoch_steps"]
                    errors = [point["validation"] for point in line["curve"]]
                    label = _named(model, one) if not number and one else None
                    x = steps * np.arange(1, len(errors) + 1)
                    ax.plot(x, errors, linewidth=1.2, alpha=0.8, label=label, **STYLES[model != kind])
            ax.axhline(SOLVED, color="0.6", linewidth=1, linestyle=":")
            ax.set_yscale("log")
            ax.set_title(f"{kind}, length {length}")
            if ax.lines[:-1]:
                ax.legend(frameon=False, fontsize="small")
            else:
                _not_run(ax)
    for ax in axes[-1]:
        ax.set_xlabel("iterations")
    for ax in axes[:, 0]:
        ax.set_ylabel(f"test MSE (dotted: {SOLVED})")
    yield "adding", figure, picked.runs


def _pmnist(picked: Picked) -> Iterable[Drawn]:
    kinds = [kind for kind in MODELS if not kind.startswith("Para")]
    figure, axes = _panels(2, 2, 8.0, sharex=True, sharey=True)
    for ax, kind in zip(axes.flat, kinds, strict=True):
        for model in (kind, twin(kind)):
            _accuracies(ax, model, picked.get(model=model))
        if not any(picked.get(model=model) for model in (kind, twin(kind))):
            _not_run(ax)
        ax.set_title(kind)
        ax.set_xlabel("epoch")
        ax.tick_params(labelbottom=True)
        _whole(ax)
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
        label = _named(model, one) if not number and one else None
        ax.plot(range(1, len(found) + 1), found, marker="." if len(found) == 1 else None, label=label, **style)
    theirs = paper.ACCURACIES["pmnist"][model]
    words = f"{model}, the paper's test: {theirs:.2f} %"
    ax.axhline(theirs, color=style["color"], linestyle=PAPER[model.startswith("Para")], linewidth=1.5, label=words)


def _feature_evolution(picked: Picked) -> Iterable[Drawn]:
    models, initials = picked.all("model"), picked.all("initial")
    figure, axes = _panels(len(models), len(initials), 2.3 * len(models) + 0.4, sharex=True, sharey=True)
    in_steps = all(one.budget["epoch_steps"] for one in picked.runs)
    labels: list[str] = []
    end = 0
    for row, model in zip(axes, models, strict=True):
        for ax, initial in zip(row, initials, strict=True):
            one = picked.get(model=model, initial=initial)
            if one is None:
                ax.set_title(f"{model}; {initial}", fontsize="medium")
                _not_run(ax)
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
        _whole(ax)
    for ax in axes[:, 0]:
        ax.set_ylabel("part of the features")
    _legend_of_types(figure, labels)
    yield "feature-evolution", figure, picked.runs


def _feature_recovery(picked: Picked) -> Iterable[Drawn]:
    for truth in picked.all("truth"):
        found = [one for initial in picked.all("initial") if (one := picked.get(truth=truth, initial=initial))]
        if found:
            yield f"feature-recovery-{truth}", _recovery(found), found


_RECOVERY = ("MSE", "distance to\nthe true matrix", "modulus\n(dashed: true)", "angle\n(dashed: true)", "types")


def _recovery(found: Sequence[Runs]) -> Figure:
    """Rows as in Figure A.1; a column for each initialisation."""
    figure, axes = _panels(5, len(found), 11.0, sharex="col", sharey="row")
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
        column[1].set_ylim(bottom=0)
        for ax, name in zip(column[2:4], ("modulus", "angle"), strict=True):
            shades = np.linspace(0.0, 0.65, len(PERCENTILES))
            for place, (percentile, shade) in enumerate(zip(PERCENTILES, shades, strict=True)):
                ax.plot([point[name][place] for point in history], color=str(shade), label=f"{percentile} %")
                ax.axhline(true[name][place], color=str(shade), linestyle="--", linewidth=1)
        labels += _stack(column[4], [point["counts"] for point in history], 1)
        column[4].set_xlim(0, len(history) - 1)
        column[4].set_xlabel("epoch")
        _whole(column[4])
    for ax, name in zip(axes[:, 0], _RECOVERY, strict=True):
        ax.set_ylabel(name)
    axes[0, -1].legend(frameon=False, fontsize="small")
    axes[2, -1].legend(frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5))
    _legend_of_types(figure, labels)
    return figure


def _forecasting(picked: Picked) -> Iterable[Drawn]:
    recurrent = [one for one in picked.runs if one.cell["model"] in RECURRENT]
    if recurrent:
        yield "forecasting-types", _draw_types(recurrent), recurrent
    one = picked.get(dataset="WTH", horizon=48, model="RNN")
    if one is not None:
        yield "forecasting-patterns", _draw_patterns(one.lines[0]["details"]["first_layer"]), [one]
    counts = winning_counts([*rows_of_twins(picked, "mse"), *rows_of_twins(picked, "mae")])
    if counts:
        compared = [one for one in picked.runs if one.cell["model"] in counts]
        yield "forecasting-wins", _draw_wins(picked, counts), compared


def _draw_wins(picked: Picked, counts: Mapping[str, Wins]) -> Figure:
    """Bars as long as the wins, in pale ones as long as the comparisons."""
    figure, axes = _panels(1, 1, 5.2)
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
    figure, axes = _panels(1, len(families), 3.2, sharey=True)
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
    _legend_of_types(figure, labels)
    return figure


def _bar_of_types(ax: Axes, place: int, found: Sequence[Runs]) -> list[str]:
    """Parts of types over data sets, horizons, layers and gates, one after the other; the types that there are."""
    counts: dict[str, int] = {}
    for line in (line for one in found for line in one.lines):
        for label, count in total(line["details"]["features"]).items():
            counts[label] = counts.get(label, 0) + count
    left = 0.0
    for label in sorted(counts, key=_order):
        colour, hatch = TYPES.get(label, OTHER_TYPES)
        part = counts[label] / sum(counts.values())
        ax.barh(place, part, left=left, color=colour, hatch=hatch, edgecolor="white")
        left += part
    return list(counts)


def _draw_patterns(features: Sequence[Sequence[Any]]) -> Figure:
    """Of decays and of waves that fade the slowest one and the one in the middle: modulus^lag cos(lag angle)."""
    figure, axes = _panels(1, 2, 3.6, sharey=True)
    for ax, kind, name in zip(axes[0], "RC", ("decays, type R", "waves, type C"), strict=True):
        moduli = sorted((m, a) for k, m, a in features if k == kind and m < 1 and (kind == "C" or a < 1))
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


def _slowest_and_middle(features: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Of features ordered by modulus."""
    return [features[at] for at in dict.fromkeys((len(features) - 1, (len(features) - 1) // 2)) if at >= 0]


def _stack(ax: Axes, history: Sequence[Mapping[str, int]], steps: int) -> list[str]:
    """Parts of types over training, one on the other; the types that there are.

    Each reading is drawn from the middle before it to the middle after, and so the last one is seen, too.
    """
    labels = sorted({label for counts in history for label in counts}, key=_order)
    x = steps * np.arange(len(history))
    below = np.zeros(len(history))
    for label in labels:
        above = below + [counts.get(label, 0) / sum(counts.values()) for counts in history]
        colour, hatch = TYPES.get(label, OTHER_TYPES)
        ax.fill_between(x, below, above, step="mid", facecolor=colour, hatch=hatch, edgecolor="white", linewidth=0)
        below = above
    ax.set_ylim(0, 1)
    return labels


def _legend_of_types(figure: Figure, labels: Iterable[str]) -> None:
    patch = optional("matplotlib.patches").Patch
    known = [label for label in TYPES if label in set(labels)]
    handles = [patch(facecolor=TYPES[one][0], hatch=TYPES[one][1], edgecolor="white", label=one) for one in known]
    if set(labels) - set(known):
        handles.append(patch(facecolor=OTHER_TYPES[0], hatch=OTHER_TYPES[1], edgecolor="white", label="others"))
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), frameon=False)


def _order(label: str) -> int:
    return list(TYPES).index(label) if label in TYPES else len(TYPES)


def _named(model: str, one: Runs) -> str:
    return f"{model} ({_replicates([one])}{', another budget' if one.apart else ''})"


def _replicates(found: Sequence[Runs]) -> str:
    counts = sorted({len(one.lines) for one in found})
    words = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{words} run" if words == "1" else f"{words} runs"


def _by_size(ax: Axes, sizes: Sequence[int]) -> None:
    ax.set_xscale("log", base=2)
    ax.set_xticks(sizes, [str(size) for size in sizes])
    ax.set_xlabel("block_size")


def _plain_log(ax: Axes) -> None:
    """A logarithmic axis whose ticks are numbers as people write them."""
    ticker = optional("matplotlib.ticker")
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.yaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
    ax.minorticks_off()


def _whole(ax: Axes) -> None:
    """Epochs and steps are whole numbers."""
    ax.xaxis.set_major_locator(optional("matplotlib.ticker").MaxNLocator(5, steps=(1, 2, 5, 10), integer=True))


def _not_run(ax: Axes) -> None:
    ax.text(0.5, 0.5, "not run", transform=ax.transAxes, ha="center", color="0.5")


_FIGURES: dict[str, Callable[[Picked], Iterable[Drawn]]] = {
    "tradeoff": _tradeoff,
    "speed": _speed,
    "adding": _adding,
    "pmnist": _pmnist,
    "feature-evolution": _feature_evolution,
    "feature-recovery": _feature_recovery,
    "forecasting": _forecasting,
}

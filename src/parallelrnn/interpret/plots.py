"""Figures of what a model says, drawn by matplotlib; each function draws into axes and returns them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from parallelrnn.errors import ArgumentError, InputError
from parallelrnn.interpret.colours import COLOURS, colour_of_type
from parallelrnn.interpret.contributions import Contributions
from parallelrnn.interpret.display import optional
from parallelrnn.interpret.dynamics import Dynamics, Table
from parallelrnn.interpret.response import ImpulseResponse
from parallelrnn.interpret.tracking import FeatureTracker

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MARKER_AREAS = (20.0, 600.0)  # of the smallest and the largest share, in points squared


def plot_disk(table: Table[Any], ax: Axes | None = None, labels: int = 6) -> Axes:
    """Draw eigenvalues in the unit disk, pairs at both places: area by share, the most important labelled by period."""
    ax = _axes(ax)
    circle = np.exp(1j * np.linspace(0, 2 * math.pi, 361))
    ax.plot(circle.real, circle.imag, color="0.6", linewidth=1)
    ax.axhline(0, color="0.9", linewidth=0.8, zorder=0)
    ax.axvline(0, color="0.9", linewidth=0.8, zorder=0)
    areas = _areas(table)
    for kind, name in (("C", "waves"), ("R", "decays")):
        chosen = [(row.eigenvalue, area) for row, area in zip(table, areas, strict=True) if row.kind == kind]
        points = [(z, area) for value, area in chosen for z in dict.fromkeys((value, value.conjugate()))]
        ax.scatter(
            [z.real for z, _ in points],
            [z.imag for z, _ in points],
            s=[area for _, area in points],
            color=COLOURS[kind],
            alpha=0.55,
            linewidths=0,
        )
        if chosen:  # all markers in the legend have the same size
            ax.scatter([], [], s=40, color=COLOURS[kind], alpha=0.55, linewidths=0, label=f"{name} ({len(chosen)})")
    waves = [row for row in table.most_important(labels) if row.kind == "C"]
    sizes = {id(row): area for row, area in zip(table, areas, strict=True)}
    for row in waves:
        inwards = -1 if row.eigenvalue.real > 0 else 1
        ax.annotate(
            table.time.format(row.period),
            (row.eigenvalue.real, row.eigenvalue.imag),
            xytext=(inwards * (2 + math.sqrt(sizes[id(row)]) / 2), 0),  # beside the point
            textcoords="offset points",
            ha="right" if inwards < 0 else "left",
            va="center",
            fontsize="small",
        )
    ax.set_aspect("equal")
    ax.set_xticks([-1, -0.5, 0, 0.5, 1])
    ax.set_yticks([-1, -0.5, 0, 0.5, 1])
    ax.set_xlabel("real part")
    ax.set_ylabel("imaginary part")
    if len(table):
        ax.legend(loc="lower left", fontsize="small", frameon=False)
    return ax


def plot_curves(rows: Sequence[Dynamics], lags: int = 50, ax: Axes | None = None, most: int = 8) -> Axes:
    """Draw what is left of an input, lag by lag: the decays and waves of Figure 1(a).

    For order 1 the curve is modulus^lag cos(angle lag). For order n it is the corner of the Jordan block's power,
    (lag choose n - 1) eigenvalue^(lag - n + 1), which is what reaches the far end of the chain. Curves that rise above
    1 are scaled down to 1.
    """
    ax = _axes(ax)
    lag = np.arange(lags + 1)
    ax.axhline(0, color="0.8", linewidth=0.8, zorder=0)
    for row in list(rows)[:most]:
        ways = np.array([math.comb(int(at), row.order - 1) for at in lag])
        after = np.maximum(lag - row.order + 1, 0)
        curve = ways * row.modulus**after * np.cos(row.angle * after)
        if row.order > 1 and row.modulus < 1:
            curve = curve / max(1.0, abs(curve).max())
        name = f"{row.label}: modulus {row.modulus:.3f}" + (f", period {row.period:.3g}" if row.kind == "C" else "")
        ax.plot(lag, curve, linestyle="-" if row.kind == "C" else "--", label=name)
    ax.set_ylim(-1.1, 1.1)  # growing curves leave the picture
    ax.set_xlabel("lag (steps)")
    ax.set_ylabel("weight")
    ax.legend(fontsize="small", frameon=False)
    return ax


def plot_counts(models: Mapping[str, Mapping[str, int]], ax: Axes | None = None) -> Axes:
    """Draw the fraction of each feature type, model by model (Figure 1(b)), from the `counts()` of each."""
    ax = _axes(ax)
    labels = sorted({label for counts in models.values() for label in counts})
    left = np.zeros(len(models))
    for label in labels:
        parts = np.array([counts.get(label, 0) / max(1, sum(counts.values())) for counts in models.values()])
        ax.barh(list(models), parts, left=left, label=label, color=colour_of_type(label))
        left += parts
    ax.invert_yaxis()
    ax.set_xlabel("fraction of the features")
    ax.legend(fontsize="small", frameon=False, ncols=len(labels), loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return ax


def plot_tracking(tracker: FeatureTracker, axes: Sequence[Axes] | None = None) -> list[Axes]:
    """Draw metrics, distance to the truth, percentiles of modulus and angle, and counts by type, over training."""
    if not tracker.history:
        raise InputError("the tracker has no records", hint="call tracker.record() while the model is trained")
    frame = tracker.to_frame()
    metrics = sorted({name for snapshot in tracker.history for name in snapshot.metrics})
    labels = sorted({label for snapshot in tracker.history for label in snapshot.counts})
    panels: list[tuple[str, list[str]]] = [
        ("metrics", metrics),
        ("distance to the true matrices", ["distance"] if "distance" in frame else []),
        ("modulus", [name for name in frame if name.startswith("modulus ")]),
        ("angle", [name for name in frame if name.startswith("angle ")]),
        ("features", labels),
    ]
    panels = [panel for panel in panels if panel[1]]
    axes = _stacked(axes, len(panels), height=2.2)
    for ax, (title, names) in zip(axes, panels, strict=True):
        for name in names:
            colour = colour_of_type(name) if title == "features" else None
            ax.plot(frame["step"], frame[name], label=name.removeprefix(f"{title} "), color=colour)
        ax.set_ylabel(names[0] if title == "metrics" and len(names) == 1 else title)
        if len(names) > 1 or title == "features":
            ax.legend(fontsize="small", frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    axes[-1].set_xlabel("step")
    return list(axes)


def plot_contributions(
    contributions: Contributions, sequence: int = 0, output: int = 0, most: int = 5, axes: Sequence[Axes] | None = None
) -> list[Axes]:
    """Draw the output over time and, below it, the parts of the most important blocks and of all others together."""
    total, parts = (tensor[..., output].cpu() for tensor in contributions.sequence(sequence))
    names = contributions.names()
    order = contributions.shares().abs().argsort(descending=True).tolist()  # for or against
    curves = [(names[index], parts[:, index]) for index in order[:most]]
    if len(order) > most:
        curves.append((f"{len(order) - most} others", parts[:, order[most:]].sum(-1)))
    axes = _stacked(axes, 1 + len(curves), height=1.3)
    axes[0].plot(total, color="0.2")
    axes[0].set_ylabel(contributions.of if len(contributions.of) < 12 else "total")
    for ax, (name, curve) in zip(axes[1:], curves, strict=True):
        ax.axhline(0, color="0.85", linewidth=0.8, zorder=0)
        ax.plot(curve, color=COLOURS["C"])
        ax.set_ylabel(name, rotation=0, ha="right")
    axes[-1].set_xlabel("step")
    return list(axes)


def plot_response(response: ImpulseResponse, input: int = 0, output: int = 0, ax: Axes | None = None) -> Axes:
    """Draw the response to an input by lag: mean and band over the data, and the curve without the activation."""
    ax = _axes(ax)
    lags = np.arange(len(response.mean))
    ax.axhline(0, color="0.85", linewidth=0.8, zorder=0)
    ax.fill_between(
        lags,
        response.low[:, input, output],
        response.high[:, input, output],
        color=COLOURS["C"],
        alpha=0.2,
        linewidth=0,
        label=f"{response.band:.0%} of {response.places} places",
    )
    ax.plot(lags, response.mean[:, input, output], color=COLOURS["C"], label="mean")
    if response.linear is not None:
        curve = response.linear[:, input, :, output].sum(axis=-1)
        limits = ax.get_ylim()  # of the response itself: without its activation a layer may diverge
        ax.plot(lags, curve, color=COLOURS["R"], linestyle="--", label="without activation")
        largest = max(map(abs, limits))
        ax.set_ylim(np.clip(curve.min(), -3 * largest, limits[0]), np.clip(curve.max(), limits[1], 3 * largest))
    ax.set_xlabel("lag (steps)")
    ax.set_ylabel("change of the output per unit")
    ax.legend(fontsize="small", frameon=False)
    return ax


def _areas(table: Table[Any]) -> list[float]:
    """Return marker areas in proportion to positive shares; all equal if there are none."""
    if not table.has_shares:
        return [60.0] * len(table)
    shares = [0.0 if math.isnan(row.share) else max(0.0, row.share) for row in table]
    largest = max(shares) or 1.0
    least, most = _MARKER_AREAS
    return [least + (most - least) * share / largest for share in shares]


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    new: Axes = optional("matplotlib.pyplot").subplots(layout="constrained")[1]
    return new


def _stacked(axes: Sequence[Axes] | None, count: int, height: float) -> Sequence[Axes]:
    if axes is None:
        pyplot = optional("matplotlib.pyplot")
        _, new = pyplot.subplots(count, 1, sharex=True, figsize=(8, height * count), layout="constrained")
        return list(np.atleast_1d(new))
    if len(axes) != count:
        raise ArgumentError(argument="axes", expected=f"{count} axes", got=len(axes))
    return axes

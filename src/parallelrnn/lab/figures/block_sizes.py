"""Errors and times over block sizes: Figures 2(c) and D.1."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from parallelrnn.interpret.display import optional
from parallelrnn.lab.benchmarks.timing import PASSES
from parallelrnn.lab.experiments.speed import VANILLA
from parallelrnn.lab.experiments.tradeoff import BLOCK_SIZES
from parallelrnn.lab.figures.style import DARK, LIGHT, MIDDLE, Drawing, panels, run_counts
from parallelrnn.lab.select_runs import CellRuns, Selection
from parallelrnn.lab.tables import deviation, mean

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def tradeoff(selection: Selection) -> Iterable[Drawing]:
    """Draw a panel for each scale of the recurrent weights, with a line for each noise variance."""
    scales = [scale for scale in selection.values("recurrent_scale") if selection.get(recurrent_scale=scale)]
    figure, axes = panels(1, len(scales), 4.2)
    sizes = selection.values("block_size")
    drawn: list[CellRuns] = []
    for ax, scale in zip(axes[0], scales, strict=True):
        variances = selection.values("noise_variance")
        for variance, colour, style in zip(variances, (DARK, LIGHT), ("o-", "s--"), strict=False):
            data = {"recurrent_scale": scale, "noise_variance": variance}
            groups = [group for size in sizes if (group := selection.get(block_size=size, **data))]
            shown = [group for group in groups if not group.is_odd]
            odd = ", ".join(str(group.cell["block_size"]) for group in groups if group.is_odd)
            drawn += shown
            if shown:
                counts = f"({run_counts(shown)})" + (f"\n{odd}: another budget, left out" if odd else "")
                errors = [group.values("mse") for group in shown]
                ax.errorbar(
                    [group.cell["block_size"] for group in shown],
                    [mean(values) for values in errors],
                    [deviation(values) or 0.0 for values in errors],
                    fmt=style,
                    color=colour,
                    capsize=3,
                    label=f"noise variance {variance:g} {counts}",
                )
                ax.axhline(variance, color=colour, linestyle=":", linewidth=1.5)
        _over_sizes(ax, sizes)
        _plain_log(ax)
        ax.set_title(f"recurrent_scale {scale:g}" + (", the paper's data" if scale == 1 else ""))
        ax.legend(frameon=False, fontsize="small")
    axes[0, 0].set_ylabel("test MSE, and sd over runs\n(dotted: the noise)")
    yield "tradeoff", figure, drawn


def speed(selection: Selection) -> Iterable[Drawing]:
    """Draw medians, a line for each pass: a disturbed round moves means."""
    group = selection.groups[0]
    figure, axes = panels(1, 1, 4.5)
    ax = axes[0, 0]
    for which, colour, style in zip(PASSES, (DARK, MIDDLE, LIGHT), ("o-", "^-.", "s--"), strict=True):
        sizes = [size for size in BLOCK_SIZES if group.values(f"{size} {which} median")]
        medians = [mean(group.values(f"{size} {which} median")) for size in sizes]
        ax.plot(sizes, medians, style, color=colour, label=which)
        ax.axhline(mean(group.values(f"{VANILLA} {which} median")), color=colour, linestyle=":", linewidth=1.5)
    ax.plot([], [], color="0.4", linestyle=":", label=VANILLA)
    _over_sizes(ax, BLOCK_SIZES)
    ax.set_ylim(0)
    ax.set_ylabel("milliseconds, median of a pass")
    ax.legend(frameon=False, loc="lower center", ncols=4)
    yield "speed", figure, selection.groups


def _over_sizes(ax: Axes, sizes: Sequence[int]) -> None:
    ax.set_xscale("log", base=2)
    ax.set_xticks(sizes, [str(size) for size in sizes])
    ax.set_xlabel("block_size")


def _plain_log(ax: Axes) -> None:
    """Make the y axis logarithmic, with plain numbers at its ticks."""
    ticker = optional("matplotlib.ticker")
    ax.set_yscale("log")
    low, high = ax.get_ylim()
    subs = (1.0, 2.0, 5.0) if high > 10 * low else (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)
    ax.yaxis.set_major_locator(ticker.LogLocator(subs=subs))
    ax.yaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
    ax.minorticks_off()

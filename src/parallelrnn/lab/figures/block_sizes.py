"""Errors and times over block sizes: Figures 2(c) and D.1."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from parallelrnn.interpret.display import optional
from parallelrnn.lab.benchmarks.kernels.turns import PASSES
from parallelrnn.lab.experiments.speed import VANILLA
from parallelrnn.lab.experiments.tradeoff import BLOCK_SIZES
from parallelrnn.lab.figures.parts import DARK, LIGHT, MIDDLE, Drawn, panels, replicates
from parallelrnn.lab.picking import Picked, Runs, deviation, mean

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def tradeoff(picked: Picked) -> Iterable[Drawn]:
    """A panel for each scale of the recurrent weights, a line for each noise."""
    scales = [scale for scale in picked.all("recurrent_scale") if picked.get(recurrent_scale=scale)]
    figure, axes = panels(1, len(scales), 4.2)
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
                words = f"({replicates(there)})" + (f"\n{apart}: another budget, left out" if apart else "")
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


def speed(picked: Picked) -> Iterable[Drawn]:
    """A line for each pass, of medians, as the verdict is: a round that was disturbed moves means."""
    one, sizes = picked.runs[0], BLOCK_SIZES
    figure, axes = panels(1, 1, 4.5)
    ax = axes[0, 0]
    for which, colour, style in zip(PASSES, (DARK, MIDDLE, LIGHT), ("o-", "^-.", "s--"), strict=True):
        there = [size for size in sizes if one.values(f"{size} {which} median")]
        medians = [mean(one.values(f"{size} {which} median")) for size in there]
        ax.plot(there, medians, style, color=colour, label=which)
        ax.axhline(mean(one.values(f"{VANILLA} {which} median")), color=colour, linestyle=":", linewidth=1.5)
    ax.plot([], [], color="0.4", linestyle=":", label=VANILLA)
    _by_size(ax, sizes)
    ax.set_ylim(0)
    ax.set_ylabel("milliseconds, median of a pass")
    ax.legend(frameon=False, loc="lower center", ncols=4)
    yield "speed", figure, picked.runs


def _by_size(ax: Axes, sizes: Sequence[int]) -> None:
    ax.set_xscale("log", base=2)
    ax.set_xticks(sizes, [str(size) for size in sizes])
    ax.set_xlabel("block_size")


def _plain_log(ax: Axes) -> None:
    """A logarithmic axis whose ticks are numbers as people write them."""
    ticker = optional("matplotlib.ticker")
    ax.set_yscale("log")
    low, high = ax.get_ylim()
    subs = (1.0, 2.0, 5.0) if high > 10 * low else (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)
    ax.yaxis.set_major_locator(ticker.LogLocator(subs=subs))
    ax.yaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
    ax.minorticks_off()

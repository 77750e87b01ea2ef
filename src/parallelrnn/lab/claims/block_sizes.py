"""What the trade-off of block sizes and their times say."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping

import numpy as np
from scipy import optimize, stats

from parallelrnn.lab import paper
from parallelrnn.lab.claims.features import FALL, fall
from parallelrnn.lab.claims.verdict import DRAWN, NOT_OF_PAPER, Finding, Told
from parallelrnn.lab.comparison import paired, paired_difference
from parallelrnn.lab.experiments.speed import VANILLA
from parallelrnn.lab.experiments.tradeoff import BLOCK_SIZES, EDGE
from parallelrnn.lab.picking import Picked, Runs, deviation, mean

_DROP = 0.05  # of the error of block_size 1, what a substantial drop is at least
_LEARNED = 0.8  # of the targets' variance, below which the best model has learned something
_DESCRIBED = ("length", "hidden_size", "train")  # what makes the data the paper's
_UNLEARNED = (
    f"; nothing is said while even the best MSE is above {_LEARNED:.0%} of the targets' variance, and with the paper's "
    f"data it cannot be told if validation errors then fall by less than {FALL:.0%} an epoch"
)
_SPREADS = 5  # replicates that standard deviations are compared of
_SAME = 0.05  # of the error of block_size 128, within which an error is the same
_STRAIGHT = 0.1  # of a time, how far it may be off a straight line


def tradeoff(name: str, picked: Picked) -> Iterator[Finding]:
    """Errors by block size, for each noise and each scale of the recurrent weights."""
    said = paper.CLAIMS[name]
    for variance, scale in itertools.product((1.0, 5.0), (1.0, EDGE)):
        kind = {"noise_variance": variance, "recurrent_scale": scale}
        by_size = {size: one for size in BLOCK_SIZES if (one := picked.get(block_size=size, **kind)) is not None}
        about = f"noise variance {variance:g}, recurrent weights N(0, {'1' if scale == 1 else '1/128'})"
        more = "" if variance == 1 else ", more noise"
        sds = paper.TRADEOFF_SD[variance]
        rest = max(sds[size] for size in BLOCK_SIZES[1:])
        rule = f"the MSE at block_size 2 is significantly lower than at 1, by {_DROP:.0%} of that or more; it does not "
        rule += f"if the 95 % interval excludes that{_UNLEARNED}"
        drawn = DRAWN if scale == 1 else NOT_OF_PAPER
        yield _if_learned(_drop(by_size), by_size, scale).of(said[f"drop{more}"], about, drawn, rule)
        rule = f"the 95 % intervals of all differences to 128, jointly (Bonferroni), lie within {_SAME:.0%} of the MSE "
        rule += f"at 128; it does not if one differs significantly, jointly too, however little{_UNLEARNED}"
        yield _if_learned(_level(by_size), by_size, scale).of(said[f"level{more}"], about, drawn, rule)
        rule = f"the variance at 1 is significantly larger than any other, by F tests of {_SPREADS} replicates or more "
        rule += f"that all have; it does not if another is significantly larger, jointly (Bonferroni){_UNLEARNED}"
        of_paper = f"sd {sds[1]:g}; others at most {rest:g}" if scale == 1 else NOT_OF_PAPER
        yield _if_learned(_spread(by_size), by_size, scale).of(said["spread"], about, of_paper, rule)


def _drop(by_size: Mapping[int, Runs]) -> Told:
    runs = paired(by_size.get(1), by_size.get(2))
    found = paired_difference(by_size.get(2), by_size.get(1), "mse")
    if runs is None or found is None:
        return Told()
    one, two = (mean(some.values("mse")) for some in runs)
    return Told(f"{one:.3g} and {two:.3g}, difference {found}", found.shows(-1, _DROP * one), runs)


def _level(by_size: Mapping[int, Runs]) -> Told:
    """One that differs is enough to refute; it takes all to confirm."""
    sizes = BLOCK_SIZES[1:-1]
    found = {size: paired_difference(by_size.get(size), by_size.get(128), "mse") for size in sizes}
    there = {size: one for size, one in found.items() if one is not None}
    if not there:
        return Told()
    largest = max(there, key=lambda size: abs(there[size].mean))
    apart = [str(size) for size, one in there.items() if one.is_apart(len(sizes))]
    ours = f"{len(there)} of {len(sizes)} sizes; the largest difference to 128 is {there[largest]}, of {largest}"
    ours += f"; significant, jointly: {', '.join(apart) or 'none'}"
    falls = [fall(line["curve"]) for size in (*there, 128) for line in by_size[size].lines if line["curve"]]
    if falls:
        ours += f"; validation errors change by {-min(falls):+.2%} to {-max(falls):+.2%} an epoch at the end"
    same = _SAME * mean(by_size[128].values("mse"))
    margins = [one.margin_among(len(sizes)) if one.is_known else None for one in there.values()]
    near = [
        margin is not None and abs(one.mean) + margin <= same
        for one, margin in zip(there.values(), margins, strict=True)
    ]
    holds = False if apart else True if all(near) and len(there) == len(sizes) else None
    return Told(ours, holds, [by_size[size] for size in (*there, 128)])


def _spread(by_size: Mapping[int, Runs]) -> Told:
    there = [one for one in by_size.values() if not one.apart]
    if not there:
        return Told()
    seeds = set.intersection(*(set(one.by_seed("mse")) for one in there))
    sds = {one.cell["block_size"]: deviation([one.by_seed("mse")[seed] for seed in seeds]) for one in there}
    known = {size: sd for size, sd in sds.items() if sd is not None and math.isfinite(sd)}
    ours = f"{len(there)} of {len(BLOCK_SIZES)} sizes on {len(seeds)} common seeds"
    if known:
        ours += "; sd " + ", ".join(f"{size}: {sd:.2g}" for size, sd in known.items())
    if len(known) < len(BLOCK_SIZES) or len(seeds) < _SPREADS:
        return Told(ours, None, there)
    widest = max(sd for size, sd in known.items() if size != 1)
    alone, jointly = (
        float(stats.f.ppf(1 - 0.025 / count, len(seeds) - 1, len(seeds) - 1)) for count in (1, len(known) - 1)
    )
    one, other = known[1] ** 2, widest**2
    return Told(ours, True if one > alone * other else False if other > jointly * one else None, there)


def _if_learned(told: Told, by_size: Mapping[int, Runs], scale: float) -> Told:
    """As it is, unless even the best model hardly is better than the mean of the targets.

    If nothing is learned any more of as many sequences as the paper has, its data cannot be learned so.
    """
    errors = [(mean(one.values("mse")), mean(one.values("variance"))) for one in by_size.values() if _measured(one)]
    if len(told.runs) < 2 or not errors:
        return told
    best, variance = min(errors, key=lambda one: one[0] / one[1])
    if best < _LEARNED * variance:
        return told
    ours = f"{told.ours}; the best MSE is {best:.3g}, and the variance of the targets {variance:.3g}"
    described = all(one.budget[name] == one.usual[name] for one in told.runs for name in _DESCRIBED)
    falls = [fall(line["curve"]) for one in told.runs for line in one.lines]
    return Told(ours, None, told.runs, untold=scale == 1 and described and max(falls) < FALL)


def _measured(one: Runs) -> bool:
    return bool(one.values("variance")) and math.isfinite(mean(one.values("mse")))


def speed(name: str, picked: Picked) -> Iterator[Finding]:
    """How times grow with block sizes."""
    runs = picked.get()
    rule = f"in every run the median time of 128 is above that of 1 by more than {_STRAIGHT:.0%}, and a straight line "
    rule += f"is within {_STRAIGHT:.0%} of all times, on a machine at rest; it does not if that is so in none"
    told = Told() if runs is None else _line(runs)
    yield told.of(paper.CLAIMS[name]["linear"], "on a CPU; the paper says it of a V100", DRAWN, rule)


def _line(runs: Runs) -> Told:
    """Of medians, averaged over runs; the verdict is of each."""
    medians = {size: runs.values(f"{size} total median") for size in BLOCK_SIZES}
    times = {size: mean(some) for size, some in medians.items() if some}
    ours = "median ms " + ", ".join(f"{size}: {time:.1f}" for size, time in times.items())
    vanilla = runs.values(f"{VANILLA} total median")
    if vanilla:
        ours += f"; {VANILLA} {mean(vanilla):.1f}"
    disturbed = any(line["details"].get("disturbed") for line in runs.lines)
    if disturbed:
        ours += "; disturbed by other processes"
    if len(times) < len(BLOCK_SIZES):
        return Told(ours, None, [runs])
    start, slope, off = _straight(times)
    ours += f"; the best straight line is {start:.1f} + {slope:.3f} block_size, and up to {off:.1%} off"
    single = [{size: line["metrics"].get(f"{size} total median") for size in BLOCK_SIZES} for line in runs.lines]
    straight = {_grows_straight(times) for times in single if None not in times.values()}
    return Told(ours, None if disturbed or len(straight) != 1 else straight.pop(), [runs])


def _grows_straight(times: Mapping[int, float]) -> bool:
    grows = times[BLOCK_SIZES[-1]] > (1 + _STRAIGHT) * times[BLOCK_SIZES[0]]
    return grows and _straight(times)[2] <= _STRAIGHT


def _straight(times: Mapping[int, float]) -> tuple[float, float, float]:
    """Start and slope of the best straight line, and how far a time is off it at most, in parts of itself.

    The best is the one that is least off: a linear programme in start, slope and off.
    """
    sizes, taken = (np.array(list(some), dtype=float) for some in (times, times.values()))
    line = np.stack([np.ones_like(sizes), sizes], 1)
    above, below = (np.column_stack([sign * line, -taken]) for sign in (1, -1))
    limits = np.concatenate([taken, -taken])
    bounds = [(None, None), (None, None), (0, None)]
    found = optimize.linprog([0, 0, 1], np.concatenate([above, below]), limits, bounds=bounds)
    start, slope, off = map(float, found.x)
    return start, slope, off

"""What the paper claims, what the runs say, and a verdict by a rule that is stated with each.

Differences are of runs of the same budget and paired by seed; they are significant where their 95 % interval by
Student's t does not hold zero, which takes three pairs. Where a rule takes runs that are not there, the verdict is that
nothing is known yet; where runs were shorter than the paper's, on fewer examples or with smaller models, the verdict
says that it is of this budget.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from parallelrnn.experiments import paper
from parallelrnn.experiments.comparison import (
    REPLICATES,
    Difference,
    Twins,
    difference,
    find_twins,
    paired,
    paired_difference,
    rows_of_twins,
    seconds_to_converge,
    solved,
    winning_counts,
)
from parallelrnn.experiments.feature_types import Types, total
from parallelrnn.experiments.models import twin
from parallelrnn.experiments.picking import Picked, Runs, deviation, mean
from parallelrnn.experiments.speed import VANILLA
from parallelrnn.experiments.tradeoff import EDGE

HOLDS, FAILS, UNKNOWN = "holds", "does not hold", "not yet known"
UNTOLD = "cannot be told: the data as described cannot be learned"
SMALLER = " at this budget"
NOT_RUN = "not run"
DRAWN = "drawn only"

_DROP = 0.05  # of the error of block_size 1, what a substantial drop is at least
_LEARNED = 0.8  # of the targets' variance, below which the best model has learned something
_SPREADS = 5  # replicates that standard deviations are compared of
_LINEAR = (0.75, 1.25)  # slopes of log time over log block_size
_LINEAR_FROM = 8
_LOSS = 1.02  # times the twin's error, on the geometric mean
_GAINS = 20  # comparisons, of which one may seem better by chance
_POINT = 0.01  # of accuracy
_CHANCE = 1.2  # times the accuracy of guessing, above which something was learned
_CLASSES = {"EigenWorms": 5, "Worms": 5, "StandWalkJump": 3}  # those of images are ten
_GAP = 0.05  # between percentiles, below which they are the same
_LOW = frozenset(("R-1", "C-1"))
_OF_FIGURE_3 = _LOW | {"R-4", "C-2"}

All = Mapping[str, Picked]  # what was picked of each experiment


@dataclass(frozen=True)
class Finding:
    """A claim, and what came of it."""

    claim: paper.Claim
    about: str  # the data or models it is looked at with
    paper: str  # its number
    ours: str
    budget: str
    rule: str  # by which it holds
    verdict: str

    @property
    def text(self) -> str:
        """The claim, and with what it is looked at."""
        return f"{self.claim.text} ({self.about})" if self.about else self.claim.text


@dataclass(frozen=True)
class _Told:
    """What runs say by a rule."""

    ours: str = NOT_RUN
    holds: bool | None = None  # None: they are too few to tell
    runs: Sequence[Runs] = ()
    untold: bool = False  # whether they could not tell, however many they were

    @property
    def verdict(self) -> str:
        if self.untold:
            return UNTOLD
        if self.holds is None:
            return UNKNOWN
        return (HOLDS if self.holds else FAILS) + (SMALLER if any(one.is_smaller for one in self.runs) else "")

    def of(self, claim: paper.Claim, about: str, of_paper: str, rule: str) -> Finding:
        return Finding(claim, about, of_paper, self.ours, budgets(self.runs), rule, self.verdict)


def findings(picked: All) -> list[Finding]:
    """Every claim in the order of the paper."""
    return [finding for name, tell in _EXPERIMENTS.items() for finding in tell(name, picked[name])]


def budgets(runs: Sequence[Runs]) -> str:
    """How many replicates, and which budgets they had."""
    if not runs:
        return "-"
    words = list(dict.fromkeys(one.budget_in_words for one in runs))
    named = words[0] if len(words) == 1 else f"{len(words)} budgets: {' / '.join(words)}"
    return f"{_replicates(runs)}; {named}"


def _tradeoff(name: str, picked: Picked) -> Iterator[Finding]:
    said = paper.CLAIMS[name]
    for variance, scale in itertools.product((1.0, 5.0), (1.0, EDGE)):
        kind = {"noise_variance": variance, "recurrent_scale": scale}
        by_size = {size: one for size in paper.BLOCK_SIZES if (one := picked.get(block_size=size, **kind)) is not None}
        about = f"noise variance {variance:g}, recurrent weights N(0, {'1' if scale == 1 else '1/128'})"
        more = "" if variance == 1 else ", more noise"
        sds = paper.TRADEOFF_SD[variance]
        rest = max(sds[size] for size in paper.BLOCK_SIZES[1:])
        rule = f"block_size 2 less 1 is significant, and {_DROP:.0%} of the MSE at 1 or more"
        yield _if_learned(_drop(by_size), by_size, scale).of(said[f"drop{more}"], about, DRAWN, rule)
        rule = "no block_size from 2 to 64 differs significantly from 128"
        yield _if_learned(_level(by_size), by_size, scale).of(said[f"level{more}"], about, DRAWN, rule)
        rule = f"the sd at 1 is the largest, of {_SPREADS} replicates that all have"
        of_paper = f"sd {sds[1]:g}; others at most {rest:g}"
        yield _if_learned(_spread(by_size), by_size, scale).of(said["spread"], about, of_paper, rule)


def _drop(by_size: Mapping[int, Runs]) -> _Told:
    runs = paired(by_size.get(1), by_size.get(2))
    found = paired_difference(by_size.get(2), by_size.get(1), "mse")
    if runs is None or found is None:
        return _Told()
    one, two = (mean(some.values("mse")) for some in runs)
    holds = found.is_significant and -found.mean >= _DROP * one
    return _Told(f"{one:.3g} and {two:.3g}, difference {found}", holds if found.is_known else None, runs)


def _level(by_size: Mapping[int, Runs]) -> _Told:
    """One that differs is enough to refute; it takes all to confirm."""
    sizes = paper.BLOCK_SIZES[1:-1]
    found = {size: paired_difference(by_size.get(size), by_size.get(128), "mse") for size in sizes}
    there = {size: one for size, one in found.items() if one is not None}
    if not there:
        return _Told()
    largest = max(there, key=lambda size: abs(there[size].mean))
    apart = [str(size) for size, one in there.items() if one.is_significant]
    ours = f"{len(there)} of {len(sizes)} sizes; the largest difference to 128 is {there[largest]}, of {largest}"
    ours += f"; significant: {', '.join(apart) or 'none'}"
    whole = len(there) == len(sizes) and all(one.is_known for one in there.values())
    holds = False if apart else True if whole else None
    return _Told(ours, holds, [by_size[size] for size in (*there, 128)])


def _spread(by_size: Mapping[int, Runs]) -> _Told:
    there = [one for one in by_size.values() if not one.apart]
    if not there:
        return _Told()
    seeds = set.intersection(*(set(one.by_seed("mse")) for one in there))
    sds = {one.cell["block_size"]: deviation([one.by_seed("mse")[seed] for seed in seeds]) for one in there}
    known = {size: sd for size, sd in sds.items() if sd is not None and math.isfinite(sd)}
    ours = f"{len(there)} of {len(paper.BLOCK_SIZES)} sizes on {len(seeds)} common seeds"
    if known:
        ours += "; sd " + ", ".join(f"{size}: {sd:.2g}" for size, sd in known.items())
    whole = len(known) == len(paper.BLOCK_SIZES) and len(seeds) >= _SPREADS
    return _Told(ours, max(known, key=known.__getitem__) == 1 if whole else None, there)


def _if_learned(told: _Told, by_size: Mapping[int, Runs], scale: float) -> _Told:
    """As it is, unless even the best model hardly is better than the mean of the targets."""
    errors = [(mean(one.values("mse")), mean(one.values("variance"))) for one in by_size.values() if _measured(one)]
    if len(told.runs) < 2 or not errors:
        return told
    best, variance = min(errors, key=lambda one: one[0] / one[1])
    if best < _LEARNED * variance:
        return told
    ours = f"{told.ours}; the best MSE is {best:.3g}, and the variance of the targets {variance:.3g}"
    return _Told(ours, None, told.runs, untold=scale == 1)


def _measured(one: Runs) -> bool:
    return bool(one.values("variance")) and math.isfinite(mean(one.values("mse")))


def _speed(name: str, picked: Picked) -> Iterator[Finding]:
    runs = picked.get()
    low, high = _LINEAR
    rule = f"log time over log block_size has a slope of {low} to {high} from {_LINEAR_FROM} on, on a machine at rest"
    told = _Told() if runs is None else _slope(runs)
    yield told.of(paper.CLAIMS[name]["linear"], "", DRAWN, rule)


def _slope(runs: Runs) -> _Told:
    """Of medians, averaged over runs."""
    medians = {size: runs.values(f"{size} total median") for size in paper.BLOCK_SIZES}
    times = {size: mean(some) for size, some in medians.items() if some}
    ours = "median ms " + ", ".join(f"{size}: {time:.1f}" for size, time in times.items())
    vanilla = runs.values(f"{VANILLA} total median")
    if vanilla:
        ours += f"; {VANILLA} {mean(vanilla):.1f}"
    wide = {size: time for size, time in times.items() if size >= _LINEAR_FROM}
    slopes = [_slope_of(some) for some in (times, wide)]
    if slopes[0] is not None:
        ours += f"; slope {slopes[0]:.2f}"
    if slopes[1] is not None:
        ours += f", from {_LINEAR_FROM} on {slopes[1]:.2f}"
    disturbed = any(line["details"].get("disturbed") for line in runs.lines)
    if disturbed:
        ours += "; disturbed by other processes"
    holds = None if disturbed or slopes[1] is None else _LINEAR[0] <= slopes[1] <= _LINEAR[1]
    return _Told(ours, holds, [runs])


def _slope_of(times: Mapping[int, float]) -> float | None:
    if len(times) < 3:
        return None
    return float(np.polyfit(np.log(list(times)), np.log(list(times.values())), 1)[0])


def _forecasting(name: str, picked: Picked) -> Iterator[Finding]:
    said = paper.CLAIMS[name]
    settings = list(dict.fromkeys((cell["dataset"], cell["horizon"]) for cell in picked.cells))
    counts = winning_counts([*rows_of_twins(picked, "mse"), *rows_of_twins(picked, "mae")])
    everyone: list[Twins] = []
    for vanilla in ("RNN", "LSTM", "GRU", "BRT"):
        found = [find_twins(picked, vanilla, dataset=dataset, horizon=horizon) for dataset, horizon in settings]
        twins = [one for one in found if one is not None]
        everyone += twins
        told = _Told()
        if twins:
            wins = [counts[model] for model in (vanilla, twin(vanilla))]
            ratio = _geometric_mean([_ratio(one) for one in twins])
            ours = f"{wins[0].wins} and {wins[1].wins} of {wins[0].compared} wins; MSE {ratio - 1:+.1%} on the "
            ours += f"geometric mean of {len(twins)} settings"
            whole = len(twins) == len(settings) and math.isfinite(ratio)
            told = _Told(ours, ratio <= _LOSS if whole else None, _of(twins))
        of_paper = f"{paper.WINS[vanilla]} and {paper.WINS[twin(vanilla)]} of 32 wins"
        rule = f"the geometric mean of MSE ratios over all {len(settings)} settings is at most {_LOSS}"
        yield told.of(said["loss"], f"{vanilla}, {twin(vanilla)}", of_paper, rule)
    lower = [
        error < paper.FORECASTS[dataset, horizon, twin(model), metric]
        for (dataset, horizon, model, metric), error in paper.FORECASTS.items()
        if metric == "mse" and model.startswith("Para")
    ]
    of_paper = f"MSE lower in {sum(lower)} of {len(lower)} comparisons"
    rule = f"MSE is significantly lower in more than 1 of {_GAINS} comparisons, of {_GAINS} or more"
    yield _gain(everyone).of(said["gain"], "", of_paper, rule)
    yield from _types(picked, len(settings))


def _ratio(twins: Twins) -> float:
    vanilla, para = twins.means("mse").values()
    return para / vanilla


def _geometric_mean(ratios: Sequence[float]) -> float:
    return math.exp(mean([math.log(ratio) for ratio in ratios]))


def _gain(twins: Sequence[Twins]) -> _Told:
    if not twins:
        return _Told()
    found = [gain for one in twins if (gain := one.gain("mse")) is not None and gain.is_known]
    lower, higher = (sum(gain.is_significant and gain.mean * sign > 0 for gain in found) for sign in (-1, 1))
    ours = f"MSE significantly lower in {lower} and higher in {higher} of {len(found)} comparisons"
    ours += f" that have {REPLICATES} replicates"
    return _Told(ours, _GAINS * lower > len(found) if len(found) >= _GAINS else None, _of(twins))


def _types(picked: Picked, settings: int) -> Iterator[Finding]:
    said = paper.CLAIMS["forecasting"]
    vanilla = ("RNN", "LSTM", "GRU")
    trained = [one for one in picked.runs if one.cell["model"] in vanilla]
    counts = _sum(total(line["details"].get("features", {})) for one in trained for line in one.lines)
    whole = len(trained) == len(vanilla) * settings and bool(counts)
    ours = NOT_RUN
    if trained:
        ours = f"{_listed(counts)}; {sum(len(one.lines) for one in trained)} trained models, in {len(trained)} of "
        ours += f"{len(vanilla) * settings} cells ({len(vanilla)} models, {settings} settings)"
    only = _Told(ours, counts.keys() <= _LOW if whole else None, trained)
    yield only.of(said["types"], "", "no other types", "no other type in any cell, and all cells were run")
    waves = _Told(ours, counts.get("C-1", 0) > counts.get("R-1", 0) if whole else None, trained)
    yield waves.of(said["waves"], "", DRAWN, "there are more C-1 than R-1, and all cells were run")


_IMAGES = {
    "pmnist": "permuted MNIST",
    "pixel-cifar": "pixel-by-pixel CIFAR-10",
    "noise-padded-cifar": "noise-padded CIFAR-10",
}
_WORMS = {"EigenWorms": "EigenWorms", "Worms": "UCR Worms", "StandWalkJump": "StandWalkJump"}


def _accuracies(name: str, picked: Picked) -> Iterator[Finding]:
    """Twins on one data set; those that the paper does not have, under their own names and where there are runs."""
    if name in _IMAGES:
        yield from _accuracy(name, picked, _IMAGES[name], 10)
        return
    for dataset, title in _WORMS.items():
        if dataset == "EigenWorms":
            yield from _accuracy(name, picked, title, _CLASSES[dataset], dataset=dataset)
        elif picked.get(dataset=dataset) is not None:
            title = f"{title}, not the paper's data"
            yield from _accuracy(name, picked, title, _CLASSES[dataset], of_paper=False, dataset=dataset)


def _accuracy(
    name: str, picked: Picked, title: str, classes: int, *, of_paper: bool = True, **where: str
) -> Iterator[Finding]:
    said, numbers = paper.CLAIMS[name], paper.ACCURACIES[name]
    for vanilla in ("RNN", "LSTM", "GRU", "BRT"):
        if vanilla in numbers:
            para = twin(vanilla)
            better = "better" in said and vanilla == ("BRT" if name == "worms" else "RNN")
            theirs = f"{numbers[vanilla]:.2f} % and {numbers[para]:.2f} %" if of_paper else "-"
            rule = "the difference is above zero and significant"
            if not better:
                rule = f"at most {100 * _POINT:g} point behind, or two binomial standard errors of the test set"
            told = _compared(find_twins(picked, vanilla, **where), better, classes)
            about = title if better else f"{title}: {vanilla}, {para}"
            yield told.of(said["better" if better else "comparable"], about, theirs, rule)


def _compared(twins: Twins | None, better: bool, classes: int) -> _Told:
    gain = None if twins is None else twins.gain("accuracy")
    if twins is None or gain is None:
        return _Told()
    runs = (twins.vanilla, twins.para)
    accuracies = list(twins.means("accuracy").values())
    ours = " and ".join(f"{100 * accuracy:.2f} %" for accuracy in accuracies)
    ours += f", difference in points {_in_points(gain)}"
    if max(accuracies) <= _CHANCE / classes:
        return _Told(f"{ours}; hardly above guessing one of {classes}", None, runs)
    if better:
        return _Told(ours, gain.is_significant and gain.mean > 0 if gain.is_known else None, runs)
    tested = [count for one in runs for count in one.values("tested")]
    error = math.sqrt(max(accuracies) * (1 - max(accuracies)) / min(tested)) if tested else 0.0
    allowed = max(_POINT, 2 * error)
    ours += f"; {100 * allowed:.2f} behind are allowed; {_replicates(runs)}"
    return _Told(ours, gain.mean > -allowed - 1e-9, runs)  # a point behind is a point, whatever rounding says


def _in_points(gain: Difference) -> Difference:
    return Difference(100 * gain.mean, None if gain.error is None else 100 * gain.error, gain.pairs)


def _evolution(name: str, picked: Picked) -> Iterator[Finding]:
    said, runs = paper.CLAIMS[name], picked.runs
    whole = len(runs) == len(picked.cells)
    histories = [[total(places) for places in line["details"]["features"]] for one in runs for line in one.lines]
    last = _sum(history[-1] for history in histories)
    ever = _sum(types for history in histories for types in history)
    others = {label: count for label, count in ever.items() if label not in _OF_FIGURE_3}
    ours = f"{_listed(last)} at the end of {len(histories)} runs" if runs else NOT_RUN
    seen = f"{_listed(others) or 'none'} in {sum(map(len, histories))} readings" if runs else NOT_RUN
    low = _Told(ours, last.keys() <= _LOW if whole else None, runs)
    yield low.of(said["low"], "", DRAWN, "all features of all layers and gates are, at the end of every run")
    waves = _Told(ours, last.get("C-1", 0) > last.get("R-1", 0) if whole else None, runs)
    yield waves.of(said["waves"], "", DRAWN, "there are more C-1 than R-1 at the end, over all runs")
    none = _Told(seen, not others if whole else None, runs)
    yield none.of(said["others"], "", "none", "none in any reading of any layer or gate")


def _recovery(name: str, picked: Picked) -> Iterator[Finding]:
    said = paper.CLAIMS[name]
    for truth in ("normal", "mixed"):
        runs = [one for one in picked.runs if one.cell["truth"] == truth]
        whole = len(runs) == sum(cell["truth"] == truth for cell in picked.cells)
        about = "true matrix of normal entries" if truth == "normal" else "true features R-4 and C-2"
        parts = {one.cell["initial"]: mean(one.values("distance")) / mean(one.values("first_distance")) for one in runs}
        told = _Told()
        if runs:
            ours = "distance after over before: " + ", ".join(f"{start} {part:.2f}" for start, part in parts.items())
            told = _Told(ours, all(part < 0.5 for part in parts.values()) if whole else None, runs)
        rule = "the distance at the end is below half of that at the beginning, from each initialisation"
        yield told.of(said["matrix"], about, DRAWN, rule)
        if truth == "normal":
            rule = f"the mean gap of five percentiles is halved, or below {_GAP}, from each initialisation"
            yield _percentiles(runs, whole).of(said["percentiles"], about, DRAWN, rule)
        last = _sum(line["details"]["features"][-1]["counts"] for one in runs for line in one.lines)
        told = _Told(f"{_listed(last)} at the end", last.keys() <= _LOW if whole else None, runs) if runs else _Told()
        yield told.of(said["types"], about, DRAWN, "all features are R-1 or C-1 at the end")


def _percentiles(runs: Sequence[Runs], whole: bool) -> _Told:
    """How far moduli and angles are from the true ones, before and after."""
    words, near = [], []
    for one in runs:
        for what in ("modulus", "angle"):
            before, after = (mean([_gap(line["details"], what, at) for line in one.lines]) for at in (0, -1))
            words.append(f"{what} {one.cell['initial']} {before:.2f} to {after:.2f}")
            near.append(after < max(before / 2, _GAP))
    return _Told("gap of " + ", ".join(words), all(near) if whole else None, runs) if runs else _Told()


def _gap(details: Mapping[str, Any], what: str, at: int) -> float:
    """Between percentiles that were found at some epoch and the true ones, on average."""
    return mean(
        [abs(one - true) for one, true in zip(details["features"][at][what], details["true"][what], strict=True)]
    )


def _adding(name: str, picked: Picked) -> Iterator[Finding]:
    said = paper.CLAIMS[name]
    for length, vanilla in itertools.product((100, 500), ("LSTM", "GRU")):
        twins = find_twins(picked, vanilla, length=length)
        about = f"length {length}: {vanilla}, {twin(vanilla)}"
        rule = "as many replicates of the para model as of the other end below 0.01, or more; three of each"
        yield _ends(twins).of(said["end"], about, DRAWN, rule)
        if (length, vanilla) == (500, "LSTM"):
            rule = "some of LSTM and none of ParaLSTM end above 0.01; ten replicates to say that LSTM never does"
            yield _fails(twins).of(said["fails"], "", "2 of 10 and 0 of 10 fail", rule)
        fewer = vanilla == "LSTM"
        rule = f"iterations to a test MSE below 0.01, paired by seed, are significantly {'fewer' if fewer else 'more'}"
        told = _until(twins, lambda runs: runs.by_seed("iterations_to_0.01"), "iterations", -1 if fewer else 1)
        yield told.of(said["fewer" if fewer else "more"], f"length {length}", DRAWN, rule)
        rule = "these iterations times seconds per iteration, paired by seed, are significantly less"
        told = _until(twins, seconds_to_converge, "s on a machine with other load", -1)
        yield told.of(said["time"], about, "not given", rule)


def _ends(twins: Twins | None) -> _Told:
    if twins is None:
        return _Told()
    runs = (twins.vanilla, twins.para)
    vanilla, para = map(solved, runs)
    errors = " and ".join(", ".join(f"{error:.1e}" for error in one.values("mse")) for one in runs)
    known = len(twins.para.lines) >= REPLICATES and (vanilla or para)
    ours = f"{vanilla} and {para} of {len(twins.para.lines)} below 0.01; last test MSE {errors}"
    return _Told(ours, para >= vanilla if known else None, runs)


def _fails(twins: Twins | None) -> _Told:
    """The paper's LSTM failed in two of ten: three that do not fail are no refutation."""
    if twins is None:
        return _Told()
    runs = (twins.vanilla, twins.para)
    count = len(twins.para.lines)
    vanilla, para = (count - solved(one) for one in runs)
    told = para or vanilla or count >= 10
    ours = f"{vanilla} and {para} of {count} fail"
    return _Told(ours, bool(vanilla and not para) if told and count >= REPLICATES else None, runs)


def _until(twins: Twins | None, measure: Callable[[Runs], dict[int, float]], unit: str, sign: int) -> _Told:
    """Whether the para model takes less of something (sign -1) until it converges, or more."""
    if twins is None:
        return _Told()
    runs = (twins.vanilla, twins.para)
    vanilla, para = map(measure, runs)
    gain = difference(para, vanilla)
    if gain is None:
        return _Told("no seed on which both came below 0.01", None, runs)
    both = [seed for seed in vanilla if seed in para]
    means = " and ".join(f"{mean([one[seed] for seed in both]):,.0f}" for one in (vanilla, para))
    ours = f"{means} {unit}, difference {gain}; both came below 0.01 in {gain.pairs} of {len(runs[0].lines)}"
    return _Told(ours, gain.is_significant and gain.mean * sign > 0 if gain.is_known else None, runs)


def _of(twins: Sequence[Twins]) -> list[Runs]:
    return [runs for one in twins for runs in (one.vanilla, one.para)]


def _replicates(runs: Sequence[Runs]) -> str:
    counts = [len(one.lines) for one in runs]
    if min(counts) < max(counts):
        return f"{min(counts)} to {max(counts)} replicates"
    return f"{counts[0]} replicate{'s' if counts[0] != 1 else ''}"


def _sum(some: Iterable[Types]) -> Types:
    return total({str(number): types for number, types in enumerate(some)})


def _listed(counts: Types) -> str:
    return ", ".join(f"{label}: {count:,}" for label, count in sorted(counts.items()))


_EXPERIMENTS: dict[str, Callable[[str, Picked], Iterator[Finding]]] = {
    "tradeoff": _tradeoff,
    "speed": _speed,
    "forecasting": _forecasting,
    **dict.fromkeys((*_IMAGES, "worms"), _accuracies),
    "feature-evolution": _evolution,
    "feature-recovery": _recovery,
    "adding": _adding,
}

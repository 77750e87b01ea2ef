"""What the adding problem says of twins."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

from parallelrnn.lab import paper
from parallelrnn.lab.claims.verdict import DRAWN, Finding, Told, unpaired
from parallelrnn.lab.comparison import REPLICATES, SOLVED, Twins, difference, find_twins, seconds_to_converge, solved
from parallelrnn.lab.experiments.models import twin
from parallelrnn.lab.picking import Picked, Runs, mean

_PROCESSOR = "processor_seconds"


def adding(name: str, picked: Picked) -> Iterator[Finding]:
    """Where twins end, and how long they take until they converge."""
    said = paper.CLAIMS[name]
    for length, vanilla in itertools.product((100, 500), ("LSTM", "GRU")):
        twins = find_twins(picked, vanilla, length=length)
        # Of twins that cannot be compared the same is told, whatever the question.
        alone = unpaired(picked, vanilla, length=length)
        about = f"length {length}: {vanilla}, {twin(vanilla)}"
        rule = f"the 95 % interval of the difference of last test MSEs lies within ±{SOLVED} (to guess gives 0.167); "
        rule += "it does not if it lies outside; nothing is said where no run of either ends below that"
        yield (_ends(twins) if twins else alone).of(said["end"], about, DRAWN, rule)
        if (length, vanilla) == (500, "LSTM"):
            rule = "some of LSTM and none of ParaLSTM end above 0.01; ten replicates to say that LSTM never does"
            yield (_fails(twins) if twins else alone).of(said["fails"], "", "2 of 10 and 0 of 10 fail", rule)
        way, other, sign = ("fewer", "more", -1) if vanilla == "LSTM" else ("more", "fewer", 1)
        rule = f"iterations to a test MSE below 0.01, paired by seed, are significantly {way}, by more than lie "
        rule += f"between two tests; it does not if they are as clearly {other}"
        yield (_iterations(twins, sign) if twins else alone).of(said[way], f"length {length}", DRAWN, rule)
        rule = "these iterations times a processor's seconds per iteration, paired by seed, are significantly less; it "
        rule += "does not if they are significantly more"
        yield (_time(twins) if twins else alone).of(said["time"], about, "not given", rule)


def _ends(twins: Twins) -> Told:
    runs = (twins.vanilla, twins.para)
    vanilla, para = map(solved, runs)
    gain = twins.gain("mse")
    errors = " and ".join(", ".join(f"{error:.1e}" for error in one.values("mse")) for one in runs)
    ours = f"{vanilla} and {para} of {len(twins.para.lines)} below {SOLVED}; last test MSE {errors}"
    if gain is None or not (vanilla or para):
        return Told(ours, None, runs)
    first, second = (mean(one.values("mse")) for one in runs)
    ours += f", difference {gain}, {second / first:.2g} times the vanilla model's"
    return Told(ours, gain.lies_within(SOLVED), runs)


def _fails(twins: Twins) -> Told:
    """The paper's LSTM failed in two of ten: three that do not fail are no refutation."""
    runs = (twins.vanilla, twins.para)
    count = len(twins.para.lines)
    vanilla, para = (count - solved(one) for one in runs)
    told = para or vanilla or count >= 10
    ours = f"{vanilla} and {para} of {count} fail"
    return Told(ours, bool(vanilla and not para) if told and count >= REPLICATES else None, runs)


def _iterations(twins: Twins, sign: int) -> Told:
    """Whether the para model takes more until it converges, or fewer (sign -1)."""
    between = twins.para.lines[0]["config"]["epoch_steps"]
    return _until(twins, lambda runs: runs.by_seed("iterations_to_0.01"), "iterations", sign, between)


def _time(twins: Twins) -> Told:
    """Whether the para model takes less; by the clock nothing is told, since others may have been at work."""
    if all(_PROCESSOR in line["metrics"] for runs in (twins.vanilla, twins.para) for line in runs.lines):
        return _until(twins, lambda runs: seconds_to_converge(runs, _PROCESSOR), "s of a processor", -1)
    by_clock = _until(twins, seconds_to_converge, "s by the clock, beside other work", -1)
    return replace(by_clock, holds=None)


def _until(twins: Twins, measure: Callable[[Runs], dict[int, float]], unit: str, sign: int, grain: float = 0.0) -> Told:
    """Of something that is read off every `grain`, until both converge."""
    runs = (twins.vanilla, twins.para)
    vanilla, para = map(measure, runs)
    gain = difference(para, vanilla)
    if gain is None:
        return Told("no seed on which both came below 0.01", None, runs)
    both = [seed for seed in vanilla if seed in para]
    means = " and ".join(f"{mean([one[seed] for seed in both]):,.0f}" for one in (vanilla, para))
    ours = f"{means} {unit}, difference {gain}; both came below 0.01 in {gain.pairs} of {len(runs[0].lines)}"
    return Told(ours, gain.shows(sign, grain=grain), runs)

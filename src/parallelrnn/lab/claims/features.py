"""What is said by features along the training: how they evolve, and whether true ones are found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from parallelrnn.lab import paper
from parallelrnn.lab.claims.counts import LOW, RARE_IN_WORDS, are_rare, listed, summed
from parallelrnn.lab.claims.verdict import DRAWN, Finding, Told
from parallelrnn.lab.experiments.feature_types import Types, total
from parallelrnn.lab.picking import NOT_RUN, Picked, Runs, mean

_OF_FIGURE_3 = LOW | {"R-4", "C-2"}
_MOST = 0.95  # of the features, what "predominantly" means
_GAP = 0.05  # between percentiles, below which they are the same
FALL = 0.01  # of the validation error in an epoch, above which a training is not over
_LEARNED = 0.5  # of the first validation error, above which hardly anything was learned
_WAIT = f"; nothing is said before the validation error is below half of the first and falls by less than {FALL:.0%} "
_WAIT += "an epoch"


def evolution(name: str, picked: Picked) -> Iterator[Finding]:
    """Which types there are along the training, and at its end."""
    said, runs = paper.CLAIMS[name], picked.runs
    whole = len(runs) == len(picked.cells)
    histories = [[total(places) for places in line["details"]["features"]] for one in runs for line in one.lines]
    last = summed(history[-1] for history in histories)
    ever = summed(types for history in histories for types in history)
    others = {label: count for label, count in ever.items() if label not in _OF_FIGURE_3}
    ours = f"{listed(last)} at the end of {len(histories)} runs" if runs else NOT_RUN
    seen = NOT_RUN
    if runs:
        seen = f"{listed(others) or 'none'}, of {sum(ever.values()):,} in {sum(map(len, histories))} readings"
    ends = [_low_part(history[-1]) for history in histories]
    if runs:
        ours += f", {min(ends):.1%} or more low-order in each"
    low = Told(ours, _concentrated(ends) if whole else None, runs)
    rule = f"{_MOST:.0%} or more of the features of all layers and gates are of these types at the end of every run"
    yield low.of(said["low"], "", DRAWN, rule)
    waves = Told(ours, last.get("C-1", 0) > last.get("R-1", 0) if whole else None, runs)
    yield waves.of(said["waves"], "", DRAWN, "there are more C-1 than R-1 at the end, over all runs")
    none = Told(seen, are_rare(others, ever, whole), runs)
    yield none.of(
        said["others"], "", "none", f"of the features in all readings of all layers and gates {RARE_IN_WORDS}"
    )


def recovery(name: str, picked: Picked) -> Iterator[Finding]:
    """Whether the true matrix and its features are found."""
    said = paper.CLAIMS[name]
    for truth in ("normal", "mixed"):
        runs = [one for one in picked.runs if one.cell["truth"] == truth]
        whole = len(runs) == sum(cell["truth"] == truth for cell in picked.cells)
        about = "true matrix of normal entries" if truth == "normal" else "true features R-4 and C-2"
        parts = {one.cell["initial"]: mean(one.values("distance")) / mean(one.values("first_distance")) for one in runs}
        falls = [fall(line["curve"]) for one in runs for line in one.lines]
        is_over = whole and all(_is_over(line["curve"]) for one in runs for line in one.lines)
        told = Told()
        if runs:
            ours = "distance after over before: " + ", ".join(f"{start} {part:.2f}" for start, part in parts.items())
            ours += f"; the validation error changes by {-max(falls):+.1%} an epoch at the end"
            told = Told(ours, _once_over(all(part < 0.5 for part in parts.values()), whole, is_over), runs)
        rule = "the distance at the end is below half of that at the beginning, from each initialisation" + _WAIT
        yield told.of(said["matrix"], about, DRAWN, rule)
        if truth == "normal":
            rule = f"the mean gap of five percentiles is halved, or below {_GAP}, from each initialisation{_WAIT}"
            yield _percentiles(runs, whole, is_over).of(said["percentiles"], about, DRAWN, rule)
        rule = f"{_MOST:.0%} or more of the features are R-1 or C-1 at the end of every run{_WAIT}"
        yield _types(runs, whole, is_over).of(said["types"], about, DRAWN, rule)


def _types(runs: Sequence[Runs], whole: bool, is_over: bool) -> Told:
    last = [line["details"]["features"][-1]["counts"] for one in runs for line in one.lines]
    if not last:
        return Told()
    ends = [_low_part(counts) for counts in last]
    ours = f"{listed(summed(last))} at the end, {min(ends):.1%} or more low-order in each run"
    return Told(ours, _once_over(_concentrated(ends), whole, is_over), runs)


def _low_part(counts: Types) -> float:
    """Of features, those of types R-1 and C-1."""
    return sum(counts.get(label, 0) for label in LOW) / sum(counts.values())


def _concentrated(parts: Sequence[float]) -> bool:
    return min(parts) >= _MOST


def _is_over(curve: Sequence[Mapping[str, float]]) -> bool:
    """Whether a training has learned something, and goes on learning next to nothing."""
    return fall(curve) < FALL and curve[-1]["validation"] < _LEARNED * curve[0]["validation"]


def fall(curve: Sequence[Mapping[str, float]]) -> float:
    """Of the validation error in each of the last epochs, three or as many as there are."""
    steps = min(3, len(curve) - 1)
    if steps < 1:
        return 1.0
    return float(1 - (curve[-1]["validation"] / curve[-1 - steps]["validation"]) ** (1 / steps))


def _once_over(holds: bool, whole: bool, is_over: bool) -> bool | None:
    """What converges in the end need not have begun to before, and what is there then need not stay."""
    return holds if whole and is_over else None


def _percentiles(runs: Sequence[Runs], whole: bool, is_over: bool) -> Told:
    """How far moduli and angles are from the true ones, before and after."""
    words, near = [], []
    for one in runs:
        for what in ("modulus", "angle"):
            before, after = (mean([_gap(line["details"], what, at) for line in one.lines]) for at in (0, -1))
            words.append(f"{what} {one.cell['initial']} {before:.2f} to {after:.2f}")
            near.append(after < max(before / 2, _GAP))
    return Told("gap of " + ", ".join(words), _once_over(all(near), whole, is_over), runs) if runs else Told()


def _gap(details: Mapping[str, Any], what: str, at: int) -> float:
    """Between percentiles that were found at some epoch and the true ones, on average."""
    return mean(
        [abs(one - true) for one, true in zip(details["features"][at][what], details["true"][what], strict=True)]
    )

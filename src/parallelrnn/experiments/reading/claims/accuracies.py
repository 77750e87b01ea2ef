"""What accuracies say of twins: on images, and on long recordings."""

from __future__ import annotations

import math
from collections.abc import Iterator

from parallelrnn.experiments.models import twin
from parallelrnn.experiments.reading import paper
from parallelrnn.experiments.reading.claims.verdict import Finding, Told, replicates
from parallelrnn.experiments.reading.comparison import Difference, Twins, find_twins
from parallelrnn.experiments.reading.picking import Picked

IMAGES = {
    "pmnist": "permuted MNIST",
    "pixel-cifar": "pixel-by-pixel CIFAR-10",
    "noise-padded-cifar": "noise-padded CIFAR-10",
}
_WORMS = {"EigenWorms": "EigenWorms", "Worms": "UCR Worms", "StandWalkJump": "StandWalkJump"}
_CLASSES = {"EigenWorms": 5, "Worms": 5, "StandWalkJump": 3}  # those of images are ten
_POINT = 0.01  # of accuracy
_CHANCE = 1.2  # times the accuracy of guessing, above which something was learned


def classification(name: str, picked: Picked) -> Iterator[Finding]:
    """Twins on one data set; those that the paper does not have, under their own names and where there are runs."""
    if name in IMAGES:
        yield from _accuracy(name, picked, IMAGES[name], 10)
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


def _compared(twins: Twins | None, better: bool, classes: int) -> Told:
    gain = None if twins is None else twins.gain("accuracy")
    if twins is None or gain is None:
        return Told()
    runs = (twins.vanilla, twins.para)
    accuracies = list(twins.means("accuracy").values())
    ours = " and ".join(f"{100 * accuracy:.2f} %" for accuracy in accuracies)
    ours += f", difference in points {_in_points(gain)}"
    if max(accuracies) <= _CHANCE / classes:
        return Told(f"{ours}; hardly above guessing one of {classes}", None, runs)
    if better:
        return Told(ours, gain.is_significant and gain.mean > 0 if gain.is_known else None, runs)
    tested = [count for one in runs for count in one.values("tested")]
    error = math.sqrt(max(accuracies) * (1 - max(accuracies)) / min(tested)) if tested else 0.0
    allowed = max(_POINT, 2 * error)
    ours += f"; {100 * allowed:.2f} behind are allowed; {replicates(runs)}"
    return Told(ours, gain.mean > -allowed - 1e-9, runs)  # a point behind is a point, whatever rounding says


def _in_points(gain: Difference) -> Difference:
    return Difference(100 * gain.mean, None if gain.error is None else 100 * gain.error, gain.pairs)

"""What accuracies say of twins: on images, and on long recordings."""

from __future__ import annotations

import math
from collections.abc import Iterator

from parallelrnn.lab import paper
from parallelrnn.lab.claims.verdict import NOT_OF_PAPER, Finding, Told, unpaired
from parallelrnn.lab.comparison import Difference, Twins, find_twins
from parallelrnn.lab.experiments.models import twin
from parallelrnn.lab.picking import Picked, mean

IMAGES = {
    "pmnist": "permuted MNIST",
    "pixel-cifar": "pixel-by-pixel CIFAR-10",
    "noise-padded-cifar": "noise-padded CIFAR-10",
}
_WORMS = {"EigenWorms": "EigenWorms", "Worms": "UCR Worms", "StandWalkJump": "StandWalkJump"}
# The largest class, which a model without any knowledge would always answer, where results do not hold its part of the
# test: 109 of 258 worms, and of the same recordings in EigenWorms about as many; of images a tenth, in the test of
# MNIST 1135 of 10,000.
_LARGEST = {"EigenWorms": 0.42, "Worms": 0.42, "StandWalkJump": 1 / 3}
_LARGEST |= {"pmnist": 0.1135, "pixel-cifar": 0.1, "noise-padded-cifar": 0.1}
_POINT = 0.01  # of accuracy


def classification(name: str, picked: Picked) -> Iterator[Finding]:
    """Twins on one data set; those that the paper does not have, under their own names and where there are runs."""
    if name in IMAGES:
        yield from _accuracy(name, picked, IMAGES[name], _LARGEST[name])
        return
    for dataset, title in _WORMS.items():
        if dataset == "EigenWorms":
            yield from _accuracy(name, picked, title, _LARGEST[dataset], dataset=dataset)
        elif picked.get(dataset=dataset) is not None:
            title = f"{title}, not the paper's data"
            yield from _accuracy(name, picked, title, _LARGEST[dataset], of_paper=False, dataset=dataset)


def _accuracy(
    name: str, picked: Picked, title: str, largest: float, *, of_paper: bool = True, **where: str
) -> Iterator[Finding]:
    said, numbers = paper.CLAIMS[name], paper.ACCURACIES[name]
    for vanilla in ("RNN", "LSTM", "GRU", "BRT"):
        if vanilla in numbers:
            para = twin(vanilla)
            better = "better" in said and vanilla == ("BRT" if name == "worms" else "RNN")
            theirs = f"{numbers[vanilla]:.2f} % and {numbers[para]:.2f} %" if of_paper else NOT_OF_PAPER
            rule = "the difference is above zero and significant; it does not if it is below and significant"
            if not better:
                rule = f"the 95 % interval of the difference is above -{100 * _POINT:g} point, also where the para "
                rule += "model is far ahead; it does not if it is below"
            rule += "; nothing is told by models that hardly beat always answering the largest class"
            twins = find_twins(picked, vanilla, **where)
            told = unpaired(picked, vanilla, **where) if twins is None else _compared(twins, better, largest)
            about = title if better else f"{title}: {vanilla}, {para}"
            yield told.of(said["better" if better else "comparable"], about, theirs, rule)


def _compared(twins: Twins, better: bool, largest: float) -> Told:
    gain = twins.gain("accuracy")
    if gain is None:
        return Told()
    runs = (twins.vanilla, twins.para)
    accuracies = list(twins.means("accuracy").values())
    ours = " and ".join(f"{100 * accuracy:.2f} %" for accuracy in accuracies)
    ours += f", difference in points {_in_points(gain)}"
    tested = min((int(count) for one in runs for count in one.values("tested")), default=None)
    constant = [value for one in runs for value in one.values("largest_class")]
    if constant:
        largest = mean(constant)
    if max(accuracies) <= largest + max(_POINT, 2 * _error(largest, tested)):
        return Told(f"{ours}; hardly above the largest class, {largest:.1%}", None, runs)
    if better:
        return Told(ours, gain.shows(1), runs)
    return Told(ours, gain.lies_above(-_POINT), runs)


def _error(accuracy: float, tested: int | None) -> float:
    """The standard error of an accuracy on so many examples."""
    return math.sqrt(accuracy * (1 - accuracy) / tested) if tested else 0.0


def _in_points(gain: Difference) -> Difference:
    return Difference(100 * gain.mean, None if gain.error is None else 100 * gain.error, gain.pairs)

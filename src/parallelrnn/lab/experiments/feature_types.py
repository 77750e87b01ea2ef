"""Recurrence features of trained models, for Figures 1 and 3 of arXiv 2605.02692."""

from __future__ import annotations

from collections import Counter

from torch import nn

from parallelrnn.interpret.features import features_of_blocks
from parallelrnn.nn import recurrent_blocks

Types = dict[str, int]


def types_of(network: nn.Module) -> dict[str, Types]:
    """Return how many features of each type there are, by layer and gate: `0 input`, say."""
    counts: dict[str, Types] = {}
    for feature in features_of_blocks(list(recurrent_blocks(network))):
        types = counts.setdefault(f"{feature.layer} {feature.gate}".strip(), {})
        types[feature.label] = types.get(feature.label, 0) + 1
    return counts


def first_layer_features(network: nn.Module) -> list[tuple[str, float, float]]:
    """Return kind, modulus and angle of the features of the first layer's first gate."""
    features = [feature for feature in features_of_blocks(list(recurrent_blocks(network))) if feature.layer == 0]
    return [(feature.kind, feature.modulus, feature.angle) for feature in features if feature.gate == features[0].gate]


def total(types: dict[str, Types]) -> Types:
    """Return the counts over all layers and gates."""
    summed: Counter[str] = Counter()
    for counts in types.values():
        summed.update(counts)
    return summed

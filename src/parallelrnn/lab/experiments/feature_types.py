"""Which recurrence features trained models have: what Figures 1 and 3 of arXiv 2605.02692 show."""

from __future__ import annotations

from typing import Any

from torch import nn

from parallelrnn.interpret.features import features_of_blocks
from parallelrnn.nn import recurrent_blocks

Types = dict[str, int]


def types_of(network: nn.Module) -> dict[str, Types]:
    """How many features of each type, by layer and gate of the network's recurrent layer, `0 input` say."""
    found: dict[str, Types] = {}
    for feature in features_of_blocks(list(recurrent_blocks(network))):
        place = f"{feature.layer} {feature.gate}".strip()
        types = found.setdefault(place, {})
        types[feature.label] = types.get(feature.label, 0) + 1
    return found


def first_layer_features(network: nn.Module) -> list[tuple[str, float, float]]:
    """Kind, modulus and angle of the features of the first layer and its first gate."""
    features = [one for one in features_of_blocks(list(recurrent_blocks(network))) if one.layer == 0]
    return [(one.kind, one.modulus, one.angle) for one in features if one.gate == features[0].gate]


def total(types: dict[str, Types]) -> Types:
    """Over all layers and gates."""
    summed: dict[str, Any] = {}
    for one in types.values():
        for label, count in one.items():
            summed[label] = summed.get(label, 0) + count
    return summed

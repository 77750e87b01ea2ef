"""What a model of sequences says: how it remembers, and what each block adds to its outputs."""

from __future__ import annotations

import copy
from contextlib import suppress
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from parallelrnn.interpret.contributions import BlockName, Contributions, NoVariationError
from parallelrnn.interpret.display import Step, Summary
from parallelrnn.interpret.features import Features, Shares, features_of_blocks
from parallelrnn.nn import recurrent_blocks
from parallelrnn.nn.encoder import Encoder
from parallelrnn.nn.segment_encoder import TransformerEncoder


@dataclass(frozen=True)
class SequenceExplanation:
    """What was learned: recurrence features with their shares, and the exact parts of some outputs, block by block."""

    features: Features
    components: Contributions  # parts (N, K, outputs)

    @classmethod
    @torch.no_grad()
    def of(cls, layer: Encoder, states: Tensor, segment: int, scale: Tensor, level: Tensor) -> SequenceExplanation:
        """From the states (N, d) that a layer's linear aggregate gets; outputs are times `scale`, plus `level`."""
        aggregate = layer.aggregate
        assert isinstance(aggregate, nn.Linear)
        shares = None
        if not isinstance(layer, TransformerEncoder):  # whose outputs are no sum over features
            with suppress(NoVariationError):
                shares = Shares(layer, states)
        learned = copy.deepcopy(layer).float()  # in the precision of the training, which decides what is told apart
        steps = segment * (layer.steps_per_update if isinstance(layer, TransformerEncoder) else 1)
        features = replace(features_of_blocks(recurrent_blocks(learned), shares), time=Step(steps))
        sizes = layer.block_sizes
        pairs = zip(states.double().split(sizes, 1), aggregate.weight.double().split(sizes, 1), strict=True)
        parts = torch.stack([state @ weight.T for state, weight in pairs], 1) * scale.double()
        bias = aggregate.bias.double() * scale.double() + level.double()
        names = [
            BlockName(direction, block)
            for direction in ("forward", "reverse")[: layer.num_directions]
            for block in range(layer.num_blocks)
        ]
        total = parts.sum(1) + bias
        components = Contributions(
            parts=parts, bias=bias, total=total, batch_first=True, of="output", blocks=tuple(names)
        )
        return cls(features, components)

    def summary(self, most: int = 5) -> Summary:
        """The features that carry most, for the terminal."""
        return self.features.summary(most)

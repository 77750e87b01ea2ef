"""The network behind `SequenceRegressor` and `SequenceClassifier`, and what it says of itself."""

from __future__ import annotations

import copy
from contextlib import suppress
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from parallelrnn.errors import check_choice
from parallelrnn.interpret.contributions import Contributions, NoVariationError, block_names
from parallelrnn.interpret.display import Step, Summary
from parallelrnn.interpret.features import Features, Shares, features_of_blocks
from parallelrnn.io import check_agreement, check_counts, check_shapes, shapes_of, tensors_under
from parallelrnn.nn import recurrent_blocks
from parallelrnn.nn.encoder import TransformerEncoder, check_encoder, in_segments, make_encoder
from parallelrnn.sequence.data import SequenceBatch

READOUTS = ("last", "mean")


@dataclass(frozen=True, kw_only=True)
class SequenceConfig:
    """Configuration of a sequence network."""

    channels: int
    outputs: int
    cell: str
    block_size: int
    hidden_size: int
    num_layers: int
    bidirectional: bool
    segment: int
    readout: str
    dropout: float
    steps: int  # of a typical sequence, for which memory is initialised

    @property
    def inputs(self) -> int:
        """The number of values that the cell reads at once."""
        return self.segment * self.channels

    @property
    def width(self) -> int:
        """The size of the state, of both directions."""
        return self.hidden_size * (2 if self.bidirectional else 1)


class SequenceNetwork(nn.Module):
    """The states of a recurrent layer's blocks, at the last step or their mean, through one linear map.

    So an output is a sum over blocks.
    """

    def __init__(self, config: SequenceConfig) -> None:
        super().__init__()
        self.config = config
        self.layer = make_encoder(
            config, config.steps, config.bidirectional, aggregate=nn.Linear(config.width, config.outputs)
        )
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, batch: SequenceBatch) -> Tensor:
        """Return outputs (B, outputs)."""
        outputs: Tensor = self.layer.aggregate(self.dropout(self.state(batch)))  # type: ignore[misc]
        return outputs

    def state(self, batch: SequenceBatch) -> Tensor:
        """Return what the linear map gets, (B, d), directions side by side."""
        config = self.config
        x = in_segments(batch.x, config.segment)
        lengths = None
        if batch.lengths is not None:
            lengths = (batch.lengths // config.segment).cpu()
            x = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)  # type: ignore[assignment]
        if config.readout == "last":
            return self.layer.last_state(x)
        states = self.layer.block_states(x)
        if lengths is None:
            return states.mean(1)  # type: ignore[union-attr]
        padded, _ = pad_packed_sequence(states, batch_first=True)  # type: ignore[arg-type]
        return torch.sum(padded, 1) / lengths[:, None].to(padded)  # zeros after the end


def load_network(config: SequenceConfig, tensors: dict[str, Tensor]) -> SequenceNetwork:
    """Return a network with the weights of a file, after all tensors of the file were found to fit the config."""
    check_counts(config)
    check_choice("readout", config.readout, READOUTS)
    outputs, width = tensors["network.layer.aggregate.weight"].shape
    checks = {
        **check_encoder(config, "network.layer", tensors),
        "bidirectional": width == config.width == tensors["sample"].shape[1],
        "channels": tensors["scale.mean"].shape == (config.channels,),
        "outputs": outputs == config.outputs == len(tensors["target.level"]),
    }
    check_agreement(checks)
    expected = shapes_of(lambda: SequenceNetwork(config), "network.")
    expected |= {"scale.mean": (config.channels,), "scale.deviation": (config.channels,)}
    expected |= {"target.scale": (outputs,), "target.level": (outputs,), "sample": (len(tensors["sample"]), width)}
    check_shapes(expected, tensors)
    with torch.random.fork_rng(devices=[]):
        network = SequenceNetwork(config)
    network.load_state_dict(tensors_under("network.", tensors))
    return network


@dataclass(frozen=True)
class SequenceExplanation:
    """Recurrence features with their shares, and the exact contribution of each block to the outputs."""

    features: Features
    components: Contributions  # parts (N, K, outputs)

    @classmethod
    @torch.no_grad()
    def of(cls, network: SequenceNetwork, states: Tensor, scale: Tensor, level: Tensor) -> SequenceExplanation:
        """Explain a network by states (N, d) that its linear map gets; outputs are times `scale`, plus `level`."""
        layer = network.layer
        aggregate = layer.aggregate
        assert isinstance(aggregate, nn.Linear)
        shares, steps = None, network.config.segment
        if isinstance(layer, TransformerEncoder):  # whose outputs are no sum over features
            steps *= layer.steps_per_update
        else:
            with suppress(NoVariationError):
                shares = Shares(layer, states)
        trained = copy.deepcopy(layer).float()  # features are told apart in the precision of the training
        features = replace(features_of_blocks(recurrent_blocks(trained), shares), time=Step(steps))
        sizes = layer.block_sizes
        pairs = zip(states.double().split(sizes, 1), aggregate.weight.double().split(sizes, 1), strict=True)
        parts = torch.stack([state @ weight.T for state, weight in pairs], 1) * scale.double()
        bias = aggregate.bias.double() * scale.double() + level.double()
        total, blocks = parts.sum(1) + bias, block_names(layer)
        components = Contributions(parts=parts, bias=bias, total=total, batch_first=True, of="output", blocks=blocks)
        return cls(features, components)

    def summary(self, most: int = 5) -> Summary:
        """Return a table of the features with the largest shares, for the terminal."""
        return self.features.summary(most)

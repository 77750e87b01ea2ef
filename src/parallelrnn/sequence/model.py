"""The network behind `SequenceRegressor` and `SequenceClassifier`: blocks that remember, and one linear map."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from parallelrnn.nn.encoder import in_segments, make_encoder
from parallelrnn.sequence.data import SequenceBatch

READOUTS = ("last", "mean")


@dataclass(frozen=True)
class SequenceArchitecture:
    """What a network is made of."""

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
    steps: int  # of a typical sequence, for memory to start with

    @property
    def inputs(self) -> int:
        """Numbers that the cell reads at once."""
        return self.segment * self.channels


class SequenceNetwork(nn.Module):
    """The states of a recurrent layer's blocks, at the last step or on average over all, through one linear map.

    So an output is a sum over blocks.
    """

    def __init__(self, made_of: SequenceArchitecture) -> None:
        super().__init__()
        self.made_of = made_of
        width = made_of.hidden_size * (2 if made_of.bidirectional else 1)
        self.layer = make_encoder(
            made_of.cell,
            made_of.channels,
            made_of.hidden_size,
            made_of.num_layers,
            made_of.block_size,
            made_of.steps,
            made_of.segment,
            bidirectional=made_of.bidirectional,
            aggregate=nn.Linear(width, made_of.outputs),
        )
        self.dropout = nn.Dropout(made_of.dropout)

    def forward(self, batch: SequenceBatch) -> Tensor:
        """Outputs (B, outputs)."""
        outputs: Tensor = self.layer.aggregate(self.dropout(self.state(batch)))  # type: ignore[misc]
        return outputs

    def state(self, batch: SequenceBatch) -> Tensor:
        """What the linear map gets, (B, d), directions side by side."""
        x = in_segments(batch.x, self.made_of.segment)
        if batch.lengths is None:
            return self.layer.last_state(x) if self.made_of.readout == "last" else self._states(x).mean(1)
        lengths = (batch.lengths // self.made_of.segment).cpu()
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        if self.made_of.readout == "last":
            return self.layer.last_state(packed)
        states, _ = pad_packed_sequence(self.layer.block_states(packed), batch_first=True)  # type: ignore[arg-type]
        return torch.sum(states, 1) / lengths[:, None].to(states)  # zeros after the end

    def _states(self, x: Tensor) -> Tensor:
        states: Tensor = self.layer.block_states(x)  # type: ignore[assignment]
        return states

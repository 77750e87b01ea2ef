"""A Block-Recurrent Transformer where estimators expect a recurrent layer."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from parallelrnn.nn import BlockRecurrentTransformer

_SEGMENTS = 4  # of a typical sequence
_STATES = 16
_HEADS, _HEAD_SIZE = 8, 16  # as many heads at most, and as wide at least, as sizes allow


class TransformerEncoder(nn.Module):
    """What the tokens of a Block-Recurrent Transformer are at each step, or at the last.

    Its outputs are no sum over blocks: feed-forward layers mix them. Its memory, the projections of its states, is read
    like that of other cells.
    """

    num_directions = num_blocks = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        block_size: int,
        steps: float,
        aggregate: nn.Module | None,
    ) -> None:
        super().__init__()
        heads = min(_HEADS, max(1, hidden_size // _HEAD_SIZE))
        while hidden_size % heads:
            heads -= 1
        self.block_sizes = (hidden_size,)
        self.transformer = BlockRecurrentTransformer(
            input_size,
            hidden_size,
            num_layers,
            heads,
            _STATES,
            max(1, round(steps / _SEGMENTS)),
            recurrent_layers=(max(0, num_layers - 2),),  # before the last
            attention="para",
            block_size=block_size,
        )
        self.aggregate = aggregate

    @property
    def steps_per_update(self) -> int:
        """How many steps of its input it takes until states move."""
        return self.transformer.segment_length or 1

    def block_states(self, x: Tensor | PackedSequence) -> Tensor | PackedSequence:
        """(B, T, hidden_size)."""
        if isinstance(x, Tensor):
            tokens: Tensor = self.transformer(x)[0]
            return tokens
        padded, lengths = pad_packed_sequence(x, batch_first=True)
        tokens = self.transformer(padded, lengths=lengths)[0]
        return nn.utils.rnn.pack_padded_sequence(tokens, lengths, batch_first=True, enforce_sorted=False)

    def last_state(self, x: Tensor | PackedSequence) -> Tensor:
        """(B, hidden_size)."""
        if isinstance(x, Tensor):
            last: Tensor = self.transformer(x)[0][:, -1]
            return last
        padded, lengths = pad_packed_sequence(x, batch_first=True)
        tokens = self.transformer(padded, lengths=lengths)[0]
        of_each: Tensor = tokens[torch.arange(len(tokens)), lengths - 1]
        return of_each

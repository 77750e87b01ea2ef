"""Encoders by the name of their cell: the recurrent layer of every estimator."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from parallelrnn.errors import ArgumentError
from parallelrnn.nn import BlockRecurrentTransformer, ParaGRU, ParaLSTM, ParaRNN
from parallelrnn.nn.initialize import waves_
from parallelrnn.nn.waves import log_spaced

CELLS = ("linear", "rnn", "lstm", "gru", "brt")
_SHORTEST_PERIOD = 3.0  # steps, of the fastest wave at the start
_HALF_LIFE = 40.0  # steps, of all waves at the start
_SEGMENTS = 4  # of a Block-Recurrent Transformer in a typical sequence
_STATES = 16
_HEADS, _HEAD_SIZE = 8, 16  # as many heads at most, and as wide at least, as sizes allow


class TransformerEncoder(nn.Module):
    """A Block-Recurrent Transformer with the interface of a recurrent layer: its tokens stand for states.

    Its outputs are no sum over blocks: feed-forward layers mix them. The projections of its states are read like the
    recurrent matrices of other cells.
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
        """Return how many steps of its input it takes until states move."""
        return self.transformer.segment_length or 1

    def block_states(self, x: Tensor | PackedSequence) -> Tensor | PackedSequence:
        """Return the tokens of all steps, (B, T, hidden_size)."""
        if isinstance(x, Tensor):
            tokens: Tensor = self.transformer(x)[0]
            return tokens
        return pack_padded_sequence(*self._packed_tokens(x), batch_first=True, enforce_sorted=False)

    def last_state(self, x: Tensor | PackedSequence) -> Tensor:
        """Return the tokens of the last step, (B, hidden_size)."""
        if isinstance(x, Tensor):
            last: Tensor = self.transformer(x)[0][:, -1]
            return last
        tokens, lengths = self._packed_tokens(x)
        return tokens[torch.arange(len(tokens)), lengths - 1]

    def _packed_tokens(self, x: PackedSequence) -> tuple[Tensor, Tensor]:
        padded, lengths = pad_packed_sequence(x, batch_first=True)
        return self.transformer(padded, lengths=lengths)[0], lengths


Encoder = ParaRNN | ParaLSTM | ParaGRU | TransformerEncoder


def check_block_size(hidden_size: int, block_size: int) -> None:
    """Raise unless all blocks of an encoder are of equal size."""
    if hidden_size % block_size:
        expected = f"a multiple of block_size {block_size}"
        raise ArgumentError(argument="hidden_size", expected=expected, got=hidden_size)


def make_encoder(config: Any, steps: int, bidirectional: bool = False, *, aggregate: nn.Module | None) -> Encoder:
    """Return the layer of a configuration for sequences of this many steps; blocks of two start as waves."""
    sizes, reads = (config.inputs, config.hidden_size, config.num_layers), steps / config.segment
    if config.cell == "brt":
        if bidirectional:
            expected = "False with cell='brt', which runs forward"
            raise ArgumentError(argument="bidirectional", expected=expected, got=True)
        return TransformerEncoder(*sizes, config.block_size, reads, aggregate)
    options: dict[str, Any] = {"block_size": config.block_size, "bidirectional": bidirectional, "aggregate": aggregate}
    if config.cell in ("lstm", "gru"):
        return (ParaLSTM if config.cell == "lstm" else ParaGRU)(*sizes, batch_first=True, **options)
    activation, form = "linear" if config.cell == "linear" else "tanh", "polar" if config.block_size == 2 else "free"
    layer = ParaRNN(*sizes, activation, activation != "linear", batch_first=True, form=form, **options)
    if form == "polar":
        periods = log_spaced(_SHORTEST_PERIOD, max(4.0, reads), config.hidden_size // 2)
        waves_(layer, periods, [max(1.0, _HALF_LIFE / config.segment)] * len(periods))
    return layer


def check_encoder(config: Any, name: str, tensors: dict[str, Tensor]) -> dict[str, bool]:
    """Return which metadata of an encoder agree with its tensors, before memory is allocated for what they say."""
    if config.cell == "brt":
        rows, inputs = tensors[f"{name}.transformer.embed.weight"].shape
        last = f"{name}.transformer.layers.{config.num_layers - 1}.norm.weight"
    else:
        rows, inputs = tensors[f"{name}.weight_ih_l0"].shape
        last = f"{name}.weight_ih_l{config.num_layers - 1}"
    gates = {"lstm": 4, "gru": 3}.get(config.cell, 1)
    # An empty tensor takes no room in a file, whatever its shape says.
    return {
        "cell": config.cell in CELLS,
        "hidden_size": 0 < rows == gates * config.hidden_size,
        "inputs": 0 < inputs == config.inputs,
        "num_layers": last in tensors and config.num_layers <= len(tensors),
    }


def in_segments(x: Tensor, segment: int) -> Tensor:
    """Return (B, L, F) as (B, L / segment, segment * F), with zeros before the first step if L is no multiple."""
    if segment == 1:
        return x
    segments: Tensor = nn.functional.pad(x, (0, 0, -x.shape[1] % segment, 0)).unflatten(1, (-1, segment))
    return segments.flatten(2)

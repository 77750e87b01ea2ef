"""The Block-Recurrent Transformer, vanilla and para (Hutchins et al., 2022; Sections 5 and 6.2 of arXiv 2605.02692).

A long sequence is read segment by segment. Within a segment all tokens are computed together: each sees itself and a
window of tokens before it, those of the previous segment through a cache of their keys and values. A recurrent layer
also has state vectors, which carry older information from segment to segment. Its contract:

- Tokens attend to tokens, causally, and to the states as they were before this segment. Both results are concatenated
  and projected; a residual connection and a feed-forward layer follow.
- States attend to states and to the tokens of the finished segment, with separate queries for each, and with the same
  keys and values that tokens attend to. Both results are concatenated and projected, and a gate takes them up.
- States have learned ids, added after their norm, and a learned initial value.

In the para form the projections of the state are block-diagonal, and each block is a head; tokens keep their heads.
Since no token sees a later one, the padding after the end of a sequence needs no mask.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from parallelrnn.errors import ArgumentError, ArgumentTypeError, TensorError, check_choice, check_integer, check_number
from parallelrnn.nn.attention import projection_blocks
from parallelrnn.nn.blocks import RecurrentBlock, check_memory, check_size, check_tensor
from parallelrnn.nn.token_layers import GATES, Cache, RecurrentTokenLayer, TokenLayer

ATTENTIONS = ("para", "multihead")


class BlockRecurrentState(NamedTuple):
    """Everything that one call passes to the next."""

    states: tuple[Tensor, ...]  # of each recurrent layer, (B, num_states, d), after the last complete segment
    previous: tuple[Cache, ...]  # of each layer, the previous segment
    current: tuple[Cache, ...]  # of each layer, the tokens so far of the unfinished segment
    ragged: bool = False  # sequences ended at different steps, so they cannot be continued together

    def detach(self) -> BlockRecurrentState:
        """Return the state detached from the graph, so that no gradient flows back."""
        previous, current = (
            tuple(Cache(*(tensor.detach() for tensor in cache)) for cache in caches)
            for caches in (self.previous, self.current)
        )
        return BlockRecurrentState(tuple(states.detach() for states in self.states), previous, current, self.ragged)


class BlockRecurrentTransformer(nn.Module):
    """A Transformer that reads segment by segment and remembers in state vectors.

    Parameters
    ----------
    input_size, d_model
        The size of the input at each step, and of the tokens and states inside.
    num_layers, num_heads
        The layers of the Transformer, and the heads with which tokens attend.
    num_states
        State vectors of each recurrent layer.
    segment_length, num_segments
        The number of steps in a segment; or the number of segments, about equal, into which the sequence of each call
        is cut, so that outputs depend on its length. Give one of them. By default segments have 64 steps.
    recurrent_layers
        Which layers have states; by default the last but one, or the only one. Use `()` for none and
        `range(num_layers)` for all.
    attention
        "para": block-diagonal projections of the state, with one head for each block of `block_size`. "multihead":
        dense ones with `num_heads` heads.
    gate
        How states take up an update: "bias" (a learned moving average), "full" (weights that depend on the update) or
        "lstm".
    truncate
        The number of segments of a call after which gradients stop; by default they flow through all. At least two,
        since a state matters in the segment after it. A given state is part of the graph unless it is detached.
    dropout
        The dropout of what attention and feed-forward layers add.

    Notes
    -----
    A call returns y (B, T, d_model) and a `BlockRecurrentState`, from which the next call continues. With
    `segment_length`, a sequence given in parts, wherever it is cut, has the same outputs as in one call.

    Examples
    --------
    >>> model = BlockRecurrentTransformer(3, 16, num_heads=2, num_states=4, segment_length=8)
    >>> y, state = model(torch.zeros(5, 20, 3))  # two segments, and four steps of a third
    >>> y.shape, state.states[0].shape
    (torch.Size([5, 20, 16]), torch.Size([5, 4, 16]))
    """

    def __init__(
        self,
        input_size: int,
        d_model: int,
        num_layers: int = 3,
        num_heads: int = 8,
        num_states: int = 32,
        segment_length: int | None = None,
        *,
        num_segments: int | None = None,
        recurrent_layers: Sequence[int] | None = None,
        attention: str = "para",
        block_size: int = 2,
        gate: str = "bias",
        truncate: int | None = None,
        dropout: float = 0.0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        sizes = {"input_size": input_size, "d_model": d_model, "num_layers": num_layers, "num_heads": num_heads}
        for name, size in (sizes | {"num_states": num_states, "block_size": block_size}).items():
            check_size(name, size)
        for name, optional in (("segment_length", segment_length), ("num_segments", num_segments)):
            if optional is not None:
                check_size(name, optional)
        check_number("dropout", dropout, "a probability from 0 to 1", lambda p: 0 <= p <= 1)
        if d_model % num_heads:
            raise ArgumentError(argument="d_model", expected=f"a multiple of num_heads {num_heads}", got=d_model)
        check_choice("attention", attention, ATTENTIONS)
        check_choice("gate", gate, GATES)
        if segment_length is not None and num_segments is not None:
            raise ArgumentError(argument="num_segments", expected="None if segment_length is given", got=num_segments)
        if truncate is not None:
            check_integer("truncate", truncate, 2)  # within one segment no state would learn
        in_layers = num_layers * d_model * (12 * d_model + num_heads)  # at least
        check_memory(d_model * (input_size + 2 * num_states) + in_layers, device, dtype)
        self.input_size, self.d_model, self.num_states = input_size, d_model, num_states
        self.segment_length = 64 if segment_length is num_segments is None else segment_length
        self.num_segments, self.truncate = num_segments, truncate
        recurrent = _indices((max(-2, -num_layers),) if recurrent_layers is None else recurrent_layers, num_layers)
        options: dict[str, Any] = {"device": device, "dtype": dtype}
        self.embed = nn.Linear(input_size, d_model, **options)
        layers: list[TokenLayer] = []
        for index in range(num_layers):
            if index in recurrent:
                state_options = (num_states, block_size if attention == "para" else None, gate)
                layers.append(RecurrentTokenLayer(d_model, num_heads, dropout, *state_options, **options))
            else:
                layers.append(TokenLayer(d_model, num_heads, dropout, **options))
        self.layers = nn.ModuleList(layers)
        self.norm = nn.LayerNorm(d_model, **options)

    def forward(
        self, x: Tensor, state: BlockRecurrentState | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, BlockRecurrentState]:
        """Run over sequences x (B, T, input_size), of which the first `lengths` (B,) steps of each are real.

        Steps that are not real are ignored, change no state, and have output zero.
        """
        self._check_input(x)
        batch, steps, _ = x.shape
        real = self._real(x, lengths)
        if real is not None:
            x = x.masked_fill(~real[..., None], 0.0)  # padding may be NaN
        state = self.initial_state(batch) if state is None else self._check_state(state, batch)
        tokens: Tensor = self.embed(x)  # (B, T, d)
        outputs = []
        begin, finished = 0, 0  # steps done, and segments finished
        for end in self._ends(steps, state.current[0].keys.shape[1]):
            output, state = self._run_layers(tokens[:, begin:end], state, self._window(steps))
            outputs.append(output)
            begin = end
            if end < steps or self._is_complete(state):
                state = self._next_segment(state, None if real is None else real[:, end - 1])
                finished += 1
                if self.truncate is not None and finished % self.truncate == 0:
                    state = state.detach()
        y: Tensor = self.norm(torch.cat(outputs, 1))
        if real is not None:
            y, state = y.masked_fill(~real[..., None], 0.0), state._replace(ragged=True)
        return y, state

    def initial_state(self, batch: int) -> BlockRecurrentState:
        """Return the state before the first step."""
        empty = (self._empty_cache(batch),) * len(self.layers)
        states = tuple(layer.initial.expand(batch, -1, -1) for layer in self.recurrent_layers)
        return BlockRecurrentState(states, empty, empty)

    @property
    def recurrent_layers(self) -> list[RecurrentTokenLayer]:
        """The layers with states."""
        return [layer for layer in self.layers if isinstance(layer, RecurrentTokenLayer)]

    def recurrent_blocks(self) -> Iterator[RecurrentBlock]:
        """Iterate over the recurrent matrices, by which states enter queries, keys and values, by layer and block."""
        for index, layer in enumerate(self.recurrent_layers):
            yield from projection_blocks(dict(layer.of_states.items()), index)

    def _run_layers(
        self, tokens: Tensor, state: BlockRecurrentState, window: int
    ) -> tuple[Tensor, BlockRecurrentState]:
        """Run all layers over tokens (B, N, d) of one segment."""
        states, extended = iter(state.states), []
        for layer, previous, current in zip(self.layers, state.previous, state.current, strict=True):
            layer_states = next(states) if isinstance(layer, RecurrentTokenLayer) else None
            tokens, segment = layer(tokens, previous, current, window, layer_states)
            extended.append(segment)
        return tokens, state._replace(current=tuple(extended))

    def _next_segment(self, state: BlockRecurrentState, complete: Tensor | None) -> BlockRecurrentState:
        """Update the states by the finished segment, for those sequences (B,) that have all of it."""
        states, after = iter(state.states), []
        for layer, segment in zip(self.layers, state.current, strict=True):
            if isinstance(layer, RecurrentTokenLayer):
                before = next(states)
                new = layer.update(before, segment)
                after.append(new if complete is None else torch.where(complete[:, None, None], new, before))
        empty = (self._empty_cache(len(state.current[0].keys)),) * len(self.layers)
        return BlockRecurrentState(tuple(after), state.current, empty, state.ragged)

    def _ends(self, steps: int, done: int) -> list[int]:
        """Return where segments of a call end; `done` steps of the first one came in the previous call."""
        if self.segment_length is None:
            count = min(steps, self.num_segments or 1)
            return [steps * (index + 1) // count for index in range(count)]
        return [*range(self.segment_length - done, steps, self.segment_length), steps]

    def _is_complete(self, state: BlockRecurrentState) -> bool:
        return self.segment_length is None or state.current[0].keys.shape[1] == self.segment_length

    def _window(self, steps: int) -> int:
        """Return how far back a token sees: as many steps as a segment has."""
        return self.segment_length or -(-steps // (self.num_segments or 1))

    def _empty_cache(self, batch: int) -> Cache:
        empty = self.embed.weight.new_zeros(batch, 0, self.d_model)
        return Cache(empty, empty)

    def _check_input(self, x: object) -> None:
        x = check_tensor("x", x, self.embed.weight)
        if x.dim() != 3 or x.shape[2] != self.input_size or not x.shape[1]:
            expected = f"sequences (B, T, {self.input_size}) of at least one step"
            raise TensorError(argument="x", expected=expected, got=tuple(x.shape))

    def _real(self, x: Tensor, lengths: object) -> Tensor | None:
        """Return which steps are real, (B, T), or None if all are."""
        if lengths is None:
            return None
        if self.segment_length is None:
            problem = "num_segments cuts all sequences at the same steps, so they need the same length"
            raise ArgumentError(problem, argument="lengths", got=lengths, hint="use {segment_length}")
        batch, steps, _ = x.shape
        expected = f"{batch} integers from 0 to {steps}"
        try:
            real = torch.as_tensor(lengths, device=x.device)
        except (RuntimeError, TypeError, ValueError) as error:
            raise ArgumentTypeError(argument="lengths", expected=expected, got=lengths) from error
        integers = not real.is_floating_point() and not real.is_complex() and real.dtype != torch.bool
        if not integers or real.shape != (batch,) or not bool(((real >= 0) & (real <= steps)).all()):
            raise ArgumentError(argument="lengths", expected=expected, got=real.tolist())
        if bool((real == steps).all()):
            return None
        return torch.arange(steps, device=x.device) < real[:, None]

    def _check_state(self, state: object, batch: int) -> BlockRecurrentState:
        """Return a state of this model and batch; raise for any other."""
        if not isinstance(state, BlockRecurrentState):
            expected = "the BlockRecurrentState of an earlier call"
            raise ArgumentTypeError(argument="state", expected=expected, got=type(state))
        hint = "a state belongs to one model and batch size"
        shapes = [tuple(states.shape) for states in state.states]
        expected_shapes = [(batch, self.num_states, self.d_model)] * len(self.recurrent_layers)
        if shapes != expected_shapes or len(state.previous) != len(self.layers):
            expected = f"states {expected_shapes} and {len(self.layers)} caches"
            raise TensorError(argument="state", expected=expected, got=(shapes, len(state.previous)), hint=hint)
        dtype, length = self.embed.weight.dtype, self.segment_length
        for cache in (*state.previous, *state.current):
            size, steps, width = cache.keys.shape
            too_long = length is not None and steps > length
            if cache.keys.dtype != dtype or (size, width) != (batch, self.d_model) or too_long:
                expected = f"caches ({batch}, at most {length}, {self.d_model}) of {dtype}"
                got = (tuple(cache.keys.shape), cache.keys.dtype)
                raise TensorError(argument="state", expected=expected, got=got, hint=hint)
        if state.ragged:
            problem = "sequences of this state ended at different steps, so they cannot be continued together"
            raise TensorError(problem, argument="state", hint="run each sequence separately, without {lengths}")
        return state


def _indices(layers: Sequence[int], count: int) -> set[int]:
    """Return layers as indices from 0 to count - 1."""
    expected = f"a sequence of integers from {-count} to {count - 1}"
    if not isinstance(layers, Sequence):
        raise ArgumentTypeError(argument="recurrent_layers", expected=expected, got=layers)
    if any(isinstance(layer, bool) or not isinstance(layer, int) or not -count <= layer < count for layer in layers):
        raise ArgumentError(argument="recurrent_layers", expected=expected, got=layers)
    return {layer % count for layer in layers}

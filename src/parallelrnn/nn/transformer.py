"""The Block-Recurrent Transformer, vanilla and para (Hutchins et al., 2022; Sections 5 and 6.2 of arXiv 2605.02692).

A long sequence is read segment by segment. Within a segment all tokens are computed together: each sees itself and a
window of tokens before it, those of the previous segment through a cache of their keys and values. A recurrent layer
moreover has state vectors, which carry what is older from segment to segment. Its contract:

- tokens attend to tokens, causally, and to the states as they were before this segment; both results are concatenated
  and projected; a residual connection and a feed-forward layer follow;
- states attend to states and to the tokens of the segment that is over, with queries of their own for each, and with
  the same keys and values that tokens attend to; both results are concatenated and projected, and a gate takes them up;
- states have learned ids, added after their norm, and a learned initial value.

In the para form the projections of the state are block-diagonal, and each block is a head; tokens keep their heads.
Since no token sees a later one, what follows the end of a sequence in a padded batch needs no mask.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from parallelrnn.kernels.attention import attention
from parallelrnn.nn.attention import BlockLinear, projection_blocks
from parallelrnn.nn.checks import check_dtype, check_probability, check_size, check_tensor, check_weights
from parallelrnn.nn.gates import GATES, make_gate
from parallelrnn.nn.matrices import RecurrentBlock
from parallelrnn.nn.positions import RelativePositions

ATTENTIONS = ("para", "multihead")


class Cache(NamedTuple):
    """What tokens leave for later ones, in one layer."""

    keys: Tensor  # (B, M, d)
    values: Tensor  # (B, M, d)

    def with_more(self, keys: Tensor, values: Tensor) -> Cache:
        """And those of the tokens after them."""
        return Cache(torch.cat([self.keys, keys], 1), torch.cat([self.values, values], 1))


class BlockRecurrentState(NamedTuple):
    """All that goes on from one call to the next."""

    states: tuple[Tensor, ...]  # of each recurrent layer, (B, num_states, d), after the last whole segment
    previous: tuple[Cache, ...]  # of each layer, the segment before
    current: tuple[Cache, ...]  # of each layer, the segment that is not over; none of its tokens if there is none
    ragged: bool = False  # sequences ended at different steps, so that they cannot go on together

    def detach(self) -> BlockRecurrentState:
        """The same, without the history by which gradients would flow back."""
        previous, current = (
            tuple(Cache(*(tensor.detach() for tensor in cache)) for cache in caches)
            for caches in (self.previous, self.current)
        )
        return BlockRecurrentState(tuple(states.detach() for states in self.states), previous, current, self.ragged)


class BlockRecurrentTransformer(nn.Module):
    """A Transformer that reads segment by segment and remembers by state vectors.

    Parameters
    ----------
    input_size, d_model
        The size of what comes in at each step, and of the tokens and states inside.
    num_layers, num_heads
        Of the Transformer; heads are those by which tokens attend.
    num_states
        State vectors of each recurrent layer.
    segment_length, num_segments
        How many steps a segment has; or into how many segments, about equal, the sequence of each call is cut, so that
        outputs depend on its length. Give one of them; by default segments have 64 steps.
    recurrent_layers
        Which layers have states; by default the last but one, or the only one. None is `()`, and all are
        `range(num_layers)`.
    attention
        "para", block-diagonal projections of the state, one head for each block of `block_size`; or "multihead", dense
        ones with `num_heads` heads.
    gate
        How states take up what is new: "bias", "full" or "lstm"; see `parallelrnn.nn.gates`.
    truncate
        After how many segments of a call gradients stop; by default they flow through all. At least two, since a state
        counts in the segment after it. A state that is given is part of the graph unless it is detached.
    dropout
        Of what attention and feed-forward layers add.

    Notes
    -----
    A call gives y (B, T, d_model) and a `BlockRecurrentState`. Passed to the next call it goes on from there: with
    `segment_length`, a sequence given in parts, wherever it is cut, has the outputs that it has as a whole.

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
        check_probability("dropout", dropout)
        if d_model % num_heads:
            raise ValueError(f"d_model {d_model} is not a multiple of num_heads {num_heads}")
        if attention not in ATTENTIONS:
            raise ValueError(f"attention is one of {', '.join(map(repr, ATTENTIONS))}, got {attention!r}")
        if gate not in GATES:
            raise ValueError(f"gate is one of {', '.join(map(repr, GATES))}, got {gate!r}")
        if segment_length is not None and num_segments is not None:
            raise ValueError("give segment_length or num_segments, not both")
        if truncate is not None and (isinstance(truncate, bool) or not isinstance(truncate, int) or truncate < 2):
            raise ValueError(
                f"truncate: expected after how many segments gradients stop, two or more, got {truncate!r}; within one "
                "no state would learn"
            )
        in_layers = num_layers * d_model * (12 * d_model + num_heads)  # at least
        check_weights(type(self).__name__, d_model * (input_size + 2 * num_states) + in_layers, device, dtype)
        self.input_size, self.d_model, self.num_states = input_size, d_model, num_states
        self.segment_length = 64 if segment_length is num_segments is None else segment_length
        self.num_segments, self.truncate = num_segments, truncate
        recurrent = _which((max(-2, -num_layers),) if recurrent_layers is None else recurrent_layers, num_layers)
        options: dict[str, Any] = {"device": device, "dtype": dtype}
        self.embed = nn.Linear(input_size, d_model, **options)
        layers: list[TokenLayer] = []
        for index in range(num_layers):
            if index in recurrent:
                of_states = (num_states, block_size if attention == "para" else None, gate)
                layers.append(RecurrentTokenLayer(d_model, num_heads, dropout, *of_states, **options))
            else:
                layers.append(TokenLayer(d_model, num_heads, dropout, **options))
        self.layers = nn.ModuleList(layers)
        self.norm = nn.LayerNorm(d_model, **options)

    def forward(
        self, x: Tensor, state: BlockRecurrentState | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, BlockRecurrentState]:
        """Run over sequences x (B, T, input_size), of which the first `lengths` (B,) steps of each are real.

        Steps that are not real change no states, are not looked at, and have output zero.
        """
        self._check_input(x)
        batch, steps, _ = x.shape
        real = self._real(x, lengths)
        if real is not None:
            x = x.masked_fill(~real[..., None], 0.0)  # whatever stood there
        state = self.initial_state(batch) if state is None else self._checked(state, batch)
        tokens: Tensor = self.embed(x)  # (B, T, d)
        outputs = []
        begin, over = 0, 0  # steps done, and segments that are over
        for end in self._ends(steps, state.current[0].keys.shape[1]):
            output, state = self._tokens(tokens[:, begin:end], state, self._window(steps))
            outputs.append(output)
            begin = end
            if end < steps or self._is_over(state):
                state = self._next_segment(state, None if real is None else real[:, end - 1])
                over += 1
                if self.truncate is not None and over % self.truncate == 0:
                    state = state.detach()
        y: Tensor = self.norm(torch.cat(outputs, 1))
        if real is not None:
            y, state = y.masked_fill(~real[..., None], 0.0), state._replace(ragged=True)
        return y, state

    def initial_state(self, batch: int) -> BlockRecurrentState:
        """Before anything was read."""
        nothing = (self._nothing(batch),) * len(self.layers)
        states = tuple(layer.initial.expand(batch, -1, -1) for layer in self.recurrent_layers)
        return BlockRecurrentState(states, nothing, nothing)

    @property
    def recurrent_layers(self) -> list[RecurrentTokenLayer]:
        """Those with states."""
        return [layer for layer in self.layers if isinstance(layer, RecurrentTokenLayer)]

    def recurrent_blocks(self) -> Iterator[RecurrentBlock]:
        """The recurrent matrices: how the state enters queries, keys and values, by recurrent layer and block."""
        for index, layer in enumerate(self.recurrent_layers):
            yield from projection_blocks(dict(layer.of_states.items()), index)

    def _tokens(self, tokens: Tensor, state: BlockRecurrentState, window: int) -> tuple[Tensor, BlockRecurrentState]:
        """All layers over some tokens (B, N, d) of one segment."""
        states, current = iter(state.states), []
        for layer, before, now in zip(self.layers, state.previous, state.current, strict=True):
            own = next(states) if isinstance(layer, RecurrentTokenLayer) else None
            tokens, now = layer(tokens, before, now, window, own)
            current.append(now)
        return tokens, state._replace(current=tuple(current))

    def _next_segment(self, state: BlockRecurrentState, whole: Tensor | None) -> BlockRecurrentState:
        """The segment is over: states take it up, of those sequences (B,) that had all of it."""
        states, after = iter(state.states), []
        for layer, now in zip(self.layers, state.current, strict=True):
            if isinstance(layer, RecurrentTokenLayer):
                before = next(states)
                new = layer.update(before, now)
                after.append(new if whole is None else torch.where(whole[:, None, None], new, before))
        nothing = (self._nothing(len(state.current[0].keys)),) * len(self.layers)
        return BlockRecurrentState(tuple(after), state.current, nothing, state.ragged)

    def _ends(self, steps: int, done: int) -> list[int]:
        """Where segments end in a call, or the call does; `done` steps of the first came in the call before."""
        if self.segment_length is None:
            count = min(steps, self.num_segments or 1)
            return [steps * (index + 1) // count for index in range(count)]
        return [*range(self.segment_length - done, steps, self.segment_length), steps]

    def _is_over(self, state: BlockRecurrentState) -> bool:
        return self.segment_length is None or state.current[0].keys.shape[1] == self.segment_length

    def _window(self, steps: int) -> int:
        """How far back a token sees: as many steps as a segment has."""
        return self.segment_length or -(-steps // (self.num_segments or 1))

    def _nothing(self, batch: int) -> Cache:
        none = self.embed.weight.new_zeros(batch, 0, self.d_model)
        return Cache(none, none)

    def _check_input(self, x: object) -> None:
        x = check_tensor(type(self).__name__, "x", x)
        if x.dim() != 3 or x.shape[2] != self.input_size or not x.shape[1]:
            raise ValueError(f"x: expected sequences (B, T, {self.input_size}) of a step or more, got {tuple(x.shape)}")
        check_dtype(type(self).__name__, "x", x, self.embed.weight)

    def _real(self, x: Tensor, lengths: object) -> Tensor | None:
        """Which steps are real, (B, T)."""
        if lengths is None:
            return None
        if self.segment_length is None:
            raise ValueError("sequences of different lengths need segment_length; num_segments cuts all at one place")
        batch, steps, _ = x.shape
        try:
            found = torch.as_tensor(lengths, device=x.device)
        except (RuntimeError, TypeError, ValueError) as error:
            raise TypeError(f"lengths: expected {batch} whole numbers, got {lengths!r}") from error
        whole = not found.is_floating_point() and not found.is_complex() and found.dtype != torch.bool
        if not whole or found.shape != (batch,) or not bool(((found >= 0) & (found <= steps)).all()):
            raise ValueError(f"lengths: expected {batch} whole numbers from 0 to {steps}, got {found.tolist()}")
        if bool((found == steps).all()):
            return None
        return torch.arange(steps, device=x.device) < found[:, None]

    def _checked(self, state: object, batch: int) -> BlockRecurrentState:
        if not isinstance(state, BlockRecurrentState):
            raise TypeError(f"state: expected the BlockRecurrentState of an earlier call, got {type(state).__name__}")
        shapes = [tuple(states.shape) for states in state.states]
        expected = [(batch, self.num_states, self.d_model)] * len(self.recurrent_layers)
        if shapes != expected or len(state.previous) != len(self.layers):
            raise ValueError(
                f"state: expected states {expected} and caches of {len(self.layers)} layers, got {shapes} and "
                f"{len(state.previous)}; it is of another model or batch"
            )
        weight, length = self.embed.weight, self.segment_length
        for cache in (*state.previous, *state.current):
            if cache.keys.dtype != weight.dtype or cache.keys.shape[::2] != (batch, self.d_model):
                raise ValueError(
                    f"state: expected caches ({batch}, ..., {self.d_model}) of {weight.dtype}, got "
                    f"{tuple(cache.keys.shape)} of {cache.keys.dtype}; it is of another model or batch"
                )
            if length is not None and cache.keys.shape[1] > length:
                raise ValueError(
                    f"state: its segments have {cache.keys.shape[1]} steps or more, and those of this model {length}"
                )
        if state.ragged:
            raise ValueError(
                "state: it is of sequences that ended before their padding did, which cannot go on together; run "
                "each by itself, without lengths"
            )
        return state


class TokenLayer(nn.Module):
    """A layer of a Transformer with a window: norm, attention, residual; norm, feed-forward, residual."""

    projected: tuple[str, ...] = ("query", "key", "value")  # of tokens

    def __init__(self, d_model: int, num_heads: int, dropout: float, *, results: int = 1, **options: Any) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.norm = nn.LayerNorm(d_model, **options)
        self.project = nn.Linear(d_model, len(self.projected) * d_model, **options)
        self.positions = RelativePositions(num_heads, **options)
        self.out = nn.Linear(results * d_model, d_model, **options)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(d_model, **options),
            nn.Linear(d_model, 4 * d_model, **options),
            nn.GELU(),
            nn.Linear(4 * d_model, d_model, **options),
            nn.Dropout(dropout),
        )
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, tokens: Tensor, previous: Cache, current: Cache, window: int, states: Tensor | None
    ) -> tuple[Tensor, Cache]:
        """Tokens (B, N, d) that go on with the current segment; and that segment, with them."""
        query, key, value, *others = self.project(self.norm(tokens)).chunk(len(self.projected), -1)
        current = current.with_more(key, value)
        result = self._attend(query, previous.with_more(*current), window)
        if states is not None:
            result = torch.cat([result, self._look_up(others[0], states)], -1)
        tokens = tokens + self.dropout(self.out(result))
        return tokens + self.feed_forward(tokens), current

    def _attend(self, query: Tensor, seen: Cache, window: int) -> Tensor:
        """Each token to itself and to the window before it."""
        q, k, v = (_heads(tensor, self.num_heads) for tensor in (query, *seen))  # (B, heads, N, D)
        new, count = q.shape[2], k.shape[2]
        scores = q @ k.mT / math.sqrt(q.shape[-1]) + self.positions(new, count - new, window)
        found: Tensor = scores.softmax(-1) @ v
        return found.transpose(1, 2).flatten(2)

    def _look_up(self, query: Tensor, states: Tensor) -> Tensor:
        raise NotImplementedError("a layer without states has nothing to look up")


class RecurrentTokenLayer(TokenLayer):
    """A layer whose tokens also see states, and whose states see tokens."""

    projected = (*TokenLayer.projected, "state_query")

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        dropout: float,
        num_states: int,
        block_size: int | None,  # of the state's projections; None for dense ones
        gate: str,
        **options: Any,
    ) -> None:
        super().__init__(d_model, num_heads, dropout, results=2, **options)
        self.state_heads = num_heads if block_size is None else d_model // block_size
        self.initial = nn.Parameter(0.02 * torch.randn(num_states, d_model, **options))
        self.ids = nn.Parameter(0.02 * torch.randn(num_states, d_model, **options))
        self.state_norm = nn.LayerNorm(d_model, **options)
        names = ("query", "cross_query", "key", "value")
        self.of_states = nn.ModuleDict(
            {
                name: nn.Linear(d_model, d_model, **options)
                if block_size is None
                else BlockLinear(d_model, block_size, **options)
                for name in names
            }
        )
        self.state_out = nn.Linear(2 * d_model, d_model, **options)
        self.gate = make_gate(gate, d_model, **options)

    def update(self, states: Tensor, segment: Cache) -> Tensor:
        """The states (B, S, d) after a segment."""
        named = self._named(states)
        keys, values = self.of_states["key"](named), self.of_states["value"](named)
        among_states = attention(self.of_states["query"](named), keys, values, self.state_heads)
        about_tokens = attention(self.of_states["cross_query"](named), *segment, self.state_heads)
        after: Tensor = self.gate(states, self.state_out(torch.cat([among_states, about_tokens], -1)))
        return after

    def _look_up(self, query: Tensor, states: Tensor) -> Tensor:
        named = self._named(states)
        return attention(query, self.of_states["key"](named), self.of_states["value"](named), self.num_heads)

    def _named(self, states: Tensor) -> Tensor:
        named: Tensor = self.state_norm(states) + self.ids
        return named


def _heads(x: Tensor, num_heads: int) -> Tensor:
    """(B, N, heads * D) -> (B, heads, N, D)."""
    parted: Tensor = x.unflatten(-1, (num_heads, -1))
    return parted.transpose(1, 2)


def _which(layers: Sequence[int], count: int) -> set[int]:
    if not isinstance(layers, Sequence):
        raise TypeError(f"recurrent_layers: expected a sequence of numbers, got {layers!r}")
    found = set()
    for layer in layers:
        if isinstance(layer, bool) or not isinstance(layer, int) or not -count <= layer < count:
            raise ValueError(f"recurrent_layers: expected numbers from {-count} to {count - 1}, got {layer!r}")
        found.add(layer % count)
    return found

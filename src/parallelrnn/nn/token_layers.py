"""The layers of a Block-Recurrent Transformer: tokens with a window, tokens with states, and the gates of states."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from parallelrnn.kernels.attention import attention
from parallelrnn.nn.attention import BlockLinear

# Relative positions as in T5: near distances have a bucket each, farther ones share buckets of growing ranges.
_NUM_BUCKETS = 32
_NUM_EXACT = 16  # distances with a bucket of their own
_FARTHEST = 512  # all distances beyond it share the last bucket


class Cache(NamedTuple):
    """The keys and values that tokens leave for later ones, in one layer."""

    keys: Tensor  # (B, M, d)
    values: Tensor  # (B, M, d)

    def extended(self, keys: Tensor, values: Tensor) -> Cache:
        """Return the cache followed by the keys and values of later tokens."""
        return Cache(torch.cat([self.keys, keys], 1), torch.cat([self.values, values], 1))


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
        """Return tokens (B, N, d) that continue the current segment, and the segment extended by them."""
        query, key, value, *others = self.project(self.norm(tokens)).chunk(len(self.projected), -1)
        current = current.extended(key, value)
        result = self._attend(query, previous.extended(*current), window)
        if states is not None:
            result = torch.cat([result, self._look_up(others[0], states)], -1)
        tokens = tokens + self.dropout(self.out(result))
        return tokens + self.feed_forward(tokens), current

    def _attend(self, query: Tensor, cache: Cache, window: int) -> Tensor:
        """Let each token attend to itself and to the window before it."""
        q, k, v = (_split_heads(tensor, self.num_heads) for tensor in (query, *cache))  # (B, heads, N, D)
        new, count = q.shape[2], k.shape[2]
        scores = q @ k.mT / math.sqrt(q.shape[-1]) + self.positions(new, count - new, window)
        mixed: Tensor = scores.softmax(-1) @ v
        return mixed.transpose(1, 2).flatten(2)

    def _look_up(self, query: Tensor, states: Tensor) -> Tensor:
        raise NotImplementedError("only a RecurrentTokenLayer has states")


class RecurrentTokenLayer(TokenLayer):
    """A layer whose tokens also attend to states, and whose states attend to tokens."""

    projected = (*TokenLayer.projected, "state_query")

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        dropout: float,
        num_states: int,
        block_size: int | None,  # of the projections of states; None for dense ones
        gate: str,
        **options: Any,
    ) -> None:
        super().__init__(d_model, num_heads, dropout, results=2, **options)
        self.state_heads = num_heads if block_size is None else d_model // block_size
        self.initial = nn.Parameter(0.02 * torch.randn(num_states, d_model, **options))
        self.ids = nn.Parameter(0.02 * torch.randn(num_states, d_model, **options))
        self.state_norm = nn.LayerNorm(d_model, **options)
        names = ("query", "cross_query", "key", "value")
        size, projection = (d_model, nn.Linear) if block_size is None else (block_size, BlockLinear)
        self.of_states = nn.ModuleDict({name: projection(d_model, size, **options) for name in names})
        self.state_out = nn.Linear(2 * d_model, d_model, **options)
        self.gate = make_gate(gate, d_model, **options)

    def update(self, states: Tensor, segment: Cache) -> Tensor:
        """Return the states (B, S, d) after a segment."""
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


def _split_heads(x: Tensor, num_heads: int) -> Tensor:
    heads: Tensor = x.unflatten(-1, (num_heads, -1))
    return heads.transpose(1, 2)  # (B, N, heads * D) -> (B, heads, N, D)


class RelativePositions(nn.Module):
    """A learned number for each head and distance, added to its scores; minus infinity beyond the window and ahead."""

    def __init__(self, num_heads: int, **options: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(num_heads, _NUM_BUCKETS, **options))

    def forward(self, new: int, old: int, window: int) -> Tensor:
        """Return what to add to the scores of `new` tokens after `old` ones, (heads, new, old + new)."""
        farthest = min(window, old + new - 1)
        by_distance = self.weight[:, _buckets(farthest + 1, self.weight.device)]  # (heads, farthest + 1)
        # Key j lies old + i - j behind token i, so the row of each token is a stretch of one line, read backwards.
        line = nn.functional.pad(by_distance, (new - 1, old + new - 1 - farthest), value=-math.inf).flip(-1)
        return line.unfold(-1, old + new, 1).flip(-2)


def _buckets(count: int, device: torch.device) -> Tensor:
    """Return the buckets of the distances 0, 1, ..., (count,)."""
    distance = torch.arange(count, device=device)
    far = torch.log(distance.clamp(min=_NUM_EXACT) / _NUM_EXACT) / math.log(_FARTHEST / _NUM_EXACT)  # from 0 to 1
    shared = _NUM_EXACT + (far * (_NUM_BUCKETS - _NUM_EXACT)).long().clamp(max=_NUM_EXACT - 1)
    return torch.where(distance < _NUM_EXACT, distance, shared)


# The gates: how states take up an update. The fixed and the LSTM gate of Hutchins et al. (2022), and one between them.


class BiasGate(nn.Module):
    """s' = g * s + (1 - g) * (W_z h + b_z), with a constant g = sigmoid(b_g): a learned moving average.

    At the start g is sigmoid(1), about 0.73.
    """

    def __init__(self, size: int, **options: Any) -> None:
        super().__init__()
        self.new = nn.Linear(size, size, **options)
        self.keep = nn.Parameter(torch.ones(size, **options))

    def forward(self, states: Tensor, h: Tensor) -> Tensor:
        """Return states (..., size) after the update h."""
        g = torch.sigmoid(self.keep)
        after: Tensor = g * states + (1 - g) * self.new(h)
        return after


class FullGate(nn.Module):
    """s' = g * s + (1 - g) * (W_z h + b_z), with g = sigmoid(W_g h + b_g), which depends on the update h."""

    def __init__(self, size: int, **options: Any) -> None:
        super().__init__()
        self.new = nn.Linear(size, size, **options)
        self.keep = nn.Linear(size, size, **options)
        nn.init.ones_(self.keep.bias)

    def forward(self, states: Tensor, h: Tensor) -> Tensor:
        """Return states (..., size) after the update h."""
        g = torch.sigmoid(self.keep(h))
        after: Tensor = g * states + (1 - g) * self.new(h)
        return after


class LSTMGate(nn.Module):
    """s' = f * s + i * tanh(W_z h + b_z), with f = sigmoid(W_f h + b_f + 1) and i = sigmoid(W_i h + b_i - 1).

    So states mostly stay as they are at the start.
    """

    def __init__(self, size: int, **options: Any) -> None:
        super().__init__()
        self.new = nn.Linear(size, size, **options)
        self.forget = nn.Linear(size, size, **options)
        self.input = nn.Linear(size, size, **options)

    def forward(self, states: Tensor, h: Tensor) -> Tensor:
        """Return states (..., size) after the update h."""
        f, i = torch.sigmoid(self.forget(h) + 1), torch.sigmoid(self.input(h) - 1)
        return f * states + i * torch.tanh(self.new(h))


_KINDS = {"bias": BiasGate, "full": FullGate, "lstm": LSTMGate}
GATES = tuple(_KINDS)


def make_gate(kind: str, size: int, **options: Any) -> nn.Module:
    """Return a gate by its name."""
    return _KINDS[kind](size, **options)

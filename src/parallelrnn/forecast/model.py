"""The network behind a forecaster: an encoder that remembers the window, and a decoder that continues it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from parallelrnn.forecast.windows import Batch, observed_mean
from parallelrnn.nn import WaveDecoder
from parallelrnn.nn.encoder import in_segments, make_encoder

DECODERS = ("waves", "linear")
NORMALIZATIONS = ("mean", "last", "standard", None)
_FLOOR = 0.1  # of the deviation by which a window is divided, so that a calm one does not explode


@dataclass(frozen=True)
class Architecture:
    """What a network is made of."""

    lookback: int
    horizon: int
    cell: str
    decoder: str
    block_size: int
    hidden_size: int
    num_layers: int
    num_waves: int
    num_decays: int
    normalize: str | None
    segment: int
    gate: bool
    dropout: float
    channels: int = 1  # of a series
    past: int = 0  # covariates of the past
    future: int = 0  # covariates known ahead
    static: int = 0
    quantiles: int = 1  # forecasts of each value; one is the middle

    @property
    def inputs(self) -> int:
        """Numbers that the encoder reads at once."""
        return self.segment * (self.channels + self.past + self.future)

    @property
    def outputs(self) -> int:
        """Numbers forecast at each step."""
        return self.channels * self.quantiles


class LinearDecoder(nn.Module):
    """A forecast of each step by weights of its own."""

    def __init__(self, input_size: int, output_size: int, horizon: int) -> None:
        super().__init__()
        self.output_size = output_size
        self.map = nn.Linear(input_size, horizon * output_size)
        nn.init.zeros_(self.map.weight)
        nn.init.zeros_(self.map.bias)

    def forward(self, state: Tensor, horizon: int) -> Tensor:
        """(B, input_size) -> (B, H, output_size)."""
        forecast: Tensor = self.map(state).unflatten(-1, (horizon, self.output_size))
        return forecast


class Network(nn.Module):
    """Forecasts of windows at one scale.

    What covariates that are known ahead add is a linear effect, the same at all times; the rest of the window, less its
    mean or last value, is read by recurrent blocks, whose last state sets what the decoder continues. Before it does,
    a state of unusual size is made smaller, and each unit may be turned down by a gate that sees them all: memory stays
    what it is, and what is out of the ordinary counts less.
    """

    decoder: WaveDecoder | LinearDecoder

    def __init__(self, made_of: Architecture) -> None:
        super().__init__()
        self.made_of = made_of
        self.encoder = make_encoder(
            made_of.cell,
            made_of.channels + made_of.past + made_of.future,
            made_of.hidden_size,
            made_of.num_layers,
            made_of.block_size,
            made_of.lookback,
            made_of.segment,
            aggregate=None,
        )
        self.gate = nn.Linear(made_of.hidden_size, made_of.hidden_size) if made_of.gate else None
        if self.gate is not None:
            nn.init.zeros_(self.gate.weight)
            nn.init.zeros_(self.gate.bias)
        self.dropout = nn.Dropout(made_of.dropout)
        self.effect = nn.Linear(made_of.future, made_of.channels, bias=False) if made_of.future else None
        if self.effect is not None:
            nn.init.zeros_(self.effect.weight)
        features = made_of.hidden_size + made_of.static
        if made_of.decoder == "waves":
            self.decoder = WaveDecoder(features, made_of.outputs, made_of.num_waves, made_of.num_decays)
        else:
            self.decoder = LinearDecoder(features, made_of.outputs, made_of.horizon)

    def forward(self, batch: Batch) -> Tensor:
        """Forecasts (B, H, channels, quantiles)."""
        held = self.read(batch)
        return held.forecast(self.decoder(held.state, self.made_of.horizon), self.made_of)

    def read(self, batch: Batch) -> Encoded:
        """What the encoder holds at the end of a window, and what the decoder's output is scaled by and added to."""
        past, added = self._without_effects(batch)
        level, scale = self._normalization(past, batch.valid)
        return Encoded(self._state(batch, (past - level) / scale), level, scale, added)

    def _state(self, batch: Batch, window: Tensor) -> Tensor:
        """What is known at the end of a window (B, L, C), (B, hidden_size + static)."""
        x = window if batch.valid is None else window * batch.valid[..., None]
        if self.made_of.past or self.made_of.future:
            x = torch.cat([x, batch.covariates, batch.known[:, : self.made_of.lookback]], -1)
        x = in_segments(x, self.made_of.segment)
        if batch.valid is None or self.made_of.cell == "linear":  # zeros leave a linear memory empty
            last = self.encoder.last_state(x)
        else:
            last = self.encoder.last_state(self._packed(x, batch.valid))
        if self.gate is not None:
            last = last / torch.sqrt(1 + (last**2).mean(-1, keepdim=True))
            last = last * torch.sigmoid(self.gate(last))
        last = self.dropout(last)
        return torch.cat([last, batch.static], -1) if self.made_of.static else last

    def _without_effects(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The past less the effects of known covariates, and those effects in the future, (B, H, C)."""
        if self.effect is None:
            return batch.past, torch.zeros_like(batch.target)
        effects: Tensor = self.effect(batch.known)
        before, after = effects.split([self.made_of.lookback, self.made_of.horizon], 1)
        return batch.past - before, after

    def _normalization(self, past: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor]:
        """The level (B, 1, C) that is taken off a window and given back, and the scale (B, 1, C)."""
        how = self.made_of.normalize
        one = torch.ones_like(past[:, :1])
        if how is None:
            return torch.zeros_like(one), one
        if how == "last":
            return past[:, -1:], one
        mean = observed_mean(past, valid)
        if how == "mean":
            return mean, one
        return mean, observed_mean((past - mean) ** 2, valid).sqrt() + _FLOOR

    def _packed(self, x: Tensor, valid: Tensor) -> nn.utils.rnn.PackedSequence:
        """Sequences that begin where their data do, since gates and biases would act on the padding before."""
        lengths = -(-valid.sum(1) // self.made_of.segment)
        steps = x.shape[1]
        rows = (steps - lengths)[:, None] + torch.arange(steps, device=x.device)
        moved = torch.gather(x, 1, rows.clamp(max=steps - 1)[..., None].expand_as(x))
        return pack_padded_sequence(moved, lengths.cpu(), batch_first=True, enforce_sorted=False)


@dataclass(frozen=True)
class Encoded:
    """What a network holds at the end of windows; forecasts follow from it."""

    state: Tensor  # (B, features)
    level: Tensor  # (B, 1, C)
    scale: Tensor  # (B, 1, C)
    added: Tensor  # (B, H, C), by covariates that are known ahead

    def forecast(self, decoded: Tensor, made_of: Architecture) -> Tensor:
        """Forecasts (B, H, C, Q) from what a decoder makes of the state, (B, H, C * Q)."""
        shaped: Tensor = decoded.unflatten(-1, (made_of.channels, made_of.quantiles))
        return shaped * self.scale[..., None] + (self.level + self.added)[..., None]

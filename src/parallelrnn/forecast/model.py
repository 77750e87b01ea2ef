"""The network behind a forecaster: an encoder that remembers the window, and a decoder that continues it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from parallelrnn.forecast.local import Bank
from parallelrnn.forecast.windows import Batch, observed_mean
from parallelrnn.nn import WaveDecoder
from parallelrnn.nn.encoder import in_segments, make_encoder

DECODERS = ("waves", "linear")
NORMALIZATIONS = ("mean", "last", "standard", "middle", None)
_MIN_SCALE = 0.1  # added to the deviation that a window is divided by, so that a calm one does not explode


@dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """The architecture of a network."""

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
    ungated: int = 0  # units that the gate leaves as they are, the last ones
    channels: int = 1  # of a series
    past: int = 0  # past covariates
    future: int = 0  # covariates known ahead
    static: int = 0  # static covariates
    quantiles: int = 1  # forecasts of each value, of which one is the median
    share: float = 1.0  # of the network in forecasts; the rest is that of local models
    season: int = 1  # the period of local models

    @property
    def inputs(self) -> int:
        """The numbers that the encoder reads at once."""
        return self.segment * (self.channels + self.past + self.future)

    @property
    def outputs(self) -> int:
        """The numbers forecast at each step."""
        return self.channels * self.quantiles


@dataclass(frozen=True)
class EncodedWindows:
    """State of a network at the end of windows, from which their forecasts follow."""

    state: Tensor  # (B, features)
    level: Tensor  # (B, 1, C)
    scale: Tensor  # (B, 1, C)
    exog_effect: Tensor  # (B, H, C), of covariates known ahead
    local: Tensor  # (B, H, C, parts), of local models: see `local.PARTS`; or (B, H, C, 0)

    @classmethod
    def cat(cls, parts: Sequence[EncodedWindows]) -> EncodedWindows:
        """Join several batches."""
        names = ("state", "level", "scale", "exog_effect", "local")
        return cls(*(torch.cat([getattr(part, name) for part in parts]) for name in names))

    def forecast(self, decoded: Tensor) -> Tensor:
        """Return forecasts (B, H, C, Q) from the decoder's output (B, H, C * Q)."""
        shaped: Tensor = decoded.unflatten(-1, (self.level.shape[-1], -1))
        return shaped * self.scale[..., None] + (self.level + self.exog_effect + self.local.sum(-1))[..., None]


class LinearDecoder(nn.Module):
    """Forecasts each step with weights of its own."""

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
    """Forecasts windows at one scale.

    Covariates known ahead have a linear effect, the same at all times. Recurrent blocks read the rest of the window,
    less its level, and their last state sets what the decoder continues. Before it does, the gate shrinks one half of
    the state, that of fast waves if blocks are waves, where its size is unusual, and may turn each of its units down,
    so that outliers count less. The other half stays as it is, so that what lasts is not lost.
    """

    decoder: WaveDecoder | LinearDecoder

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = make_encoder(config, config.lookback, aggregate=None)
        gated = config.hidden_size - config.ungated
        self.gate = nn.Linear(gated, gated) if config.gate else None
        if self.gate is not None:
            nn.init.zeros_(self.gate.weight)
            nn.init.zeros_(self.gate.bias)
        self.dropout = nn.Dropout(config.dropout)
        self.effect = nn.Linear(config.future, config.channels, bias=False) if config.future else None
        if self.effect is not None:
            nn.init.zeros_(self.effect.weight)
        features = config.hidden_size + config.static
        if config.decoder == "waves":
            self.decoder = WaveDecoder(features, config.outputs, config.num_waves, config.num_decays)
        else:
            self.decoder = LinearDecoder(features, config.outputs, config.horizon)

    @cached_property
    def readout(self) -> Tensor:
        """The map from states of local models to the parts of their forecasts."""
        return Bank(self.config.season, self.config.horizon).readout

    def forward(self, batch: Batch) -> Tensor:
        """Return forecasts (B, H, channels, quantiles)."""
        return self.decode(self.encode(batch))

    def decode(self, encoded: EncodedWindows) -> Tensor:
        """Return the forecasts (B, H, channels, quantiles) of encoded windows."""
        return encoded.forecast(self.decoder(encoded.state, self.config.horizon))

    def encode(self, batch: Batch) -> EncodedWindows:
        """Read windows: return the last state, and what the decoder's output is scaled by and added to."""
        past, effect = batch.past, torch.zeros_like(batch.target)
        if self.effect is not None:
            before, effect = self.effect(batch.future_exog).split([self.config.lookback, self.config.horizon], 1)
            past = past - before
        level, scale = self._normalization(past, batch.valid)
        share = self.config.share
        if share == 0:  # what the encoder would say does not count
            state = past.new_zeros(len(past), self.config.hidden_size + self.config.static)
        else:
            state = self._state(batch, (past - level) / scale)
        return EncodedWindows(state, share * level, share * scale, share * effect, self._local(batch))

    def _local(self, batch: Batch) -> Tensor:
        """Return the parts of local models (B, H, C, parts), the last of which takes the calendar cycles off again."""
        share = 1 - self.config.share
        if share == 0:
            return batch.target.new_zeros(*batch.target.shape, 0)
        if batch.local is None or batch.cycles is None:
            raise ValueError("the windows of a forecaster with local models need their states")
        parts = torch.einsum("bcs,shp->bhcp", batch.local, self.readout.to(batch.local))
        return share * torch.cat([parts, -batch.cycles[..., None]], -1)

    def _state(self, batch: Batch, window: Tensor) -> Tensor:
        """Return the features (B, hidden_size + static) at the end of windows (B, L, C)."""
        x = window if batch.valid is None else window * batch.valid[..., None]
        if self.config.past or self.config.future:
            x = torch.cat([x, batch.past_exog, batch.future_exog[:, : self.config.lookback]], -1)
        x = x if self.config.segment == 1 else in_segments(x, self.config.segment)
        if batch.valid is None or self.config.cell == "linear":  # zeros leave a linear memory empty
            last = self.encoder.last_state(x)
        else:
            last = self.encoder.last_state(self._packed(x, batch.valid))
        if self.gate is not None:
            gated, rest = last.split([self.gate.in_features, self.config.ungated], -1)
            gated = gated / torch.sqrt(1 + (gated**2).mean(-1, keepdim=True))
            last = torch.cat([gated * torch.sigmoid(self.gate(gated)), rest], -1)
        last = self.dropout(last)
        return torch.cat([last, batch.static], -1) if self.config.static else last

    def _normalization(self, past: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the level (B, 1, C) that is taken off a window and given back, and its scale (B, 1, C)."""
        unit = torch.ones_like(past[:, :1])
        if self.config.normalize is None:
            return torch.zeros_like(unit), unit
        if self.config.normalize == "last":
            return past[:, -1:], unit
        mean = observed_mean(past, valid)
        if self.config.normalize == "mean":
            return mean, unit
        scale = observed_mean((past - mean) ** 2, valid).sqrt() + _MIN_SCALE
        return mean if self.config.normalize == "standard" else (mean + past[:, -1:]) / 2, scale

    def _packed(self, x: Tensor, valid: Tensor) -> nn.utils.rnn.PackedSequence:
        """Return sequences that begin where their data do: gates and biases would act on the padding before."""
        lengths = -(-valid.sum(1) // self.config.segment)
        steps = x.shape[1]
        rows = (steps - lengths)[:, None] + torch.arange(steps, device=x.device)
        moved = torch.gather(x, 1, rows.clamp(max=steps - 1)[..., None].expand_as(x))
        return pack_padded_sequence(moved, lengths.cpu(), batch_first=True, enforce_sorted=False)

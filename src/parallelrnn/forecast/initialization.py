"""Where training starts: what is known beforehand about waves and effects is put into a network."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from parallelrnn.forecast.model import Architecture, Network
from parallelrnn.forecast.options import Options
from parallelrnn.forecast.panel import Array, Panel, Series
from parallelrnn.forecast.windows import CovariateScale, Profile, Sequences, observed_mean
from parallelrnn.nn import WaveDecoder

_SEGMENT = 24  # steps that gated cells read at once, about
_MANY = 5000  # windows; fewer are too few to learn from what else memory should be turned down
_MUCH_BETTER = 0.75  # times the error of another level


def start_network(
    options: Options,
    panel: Panel,
    sequences: Sequences,
    training: Tensor,  # windows
    periods: Sequence[float],
    profiles: Sequence[Profile],
    covariates: CovariateScale,
    steps: Sequence[int],
) -> Network:
    """A network before its training: waves at the strongest lines of the spectrum, or else they would not find them."""
    lookback = sequences.lookback
    waves = _waves(options, panel.series, profiles, steps, lookback)
    made_of = Architecture(
        lookback,
        options.horizon,
        cell=options.cell,
        decoder=options.decoder,
        block_size=options.block_size,
        hidden_size=options.hidden_size,
        num_layers=options.num_layers,
        num_waves=len(waves),
        num_decays=options.num_decays,
        normalize=_better_level(sequences, training) if options.normalize == "auto" else options.normalize,
        segment=options.segment or default_segment(options.cell, lookback, periods),
        gate=len(training) >= _MANY if options.gate is None else options.gate,
        dropout=options.dropout,
        channels=panel.series[0].values.shape[1],
        past=len(panel.columns.past),
        future=len(panel.columns.future),
        static=len(panel.columns.static),
        quantiles=1 if options.quantiles is None else len(options.quantiles),
    )
    network = Network(made_of)
    if network.effect is not None:
        _start_effect(network.effect, panel.series, profiles, covariates, steps)
    if isinstance(network.decoder, WaveDecoder):
        start_decoder(network.decoder, waves, lookback, options.horizon)
    return network


def start_decoder(decoder: WaveDecoder, periods: Sequence[float], lookback: int, horizon: int) -> None:
    """Waves at these periods, the rest as they are, all as lasting as the look-back; decays all over the horizon."""
    rest = (2 * np.pi / decoder.angle.detach().double()).tolist()[len(periods) :]
    lasting = [float(lookback)] * decoder.num_waves
    decoder.start_at([*periods, *rest], lasting, np.geomspace(2, 2 * horizon + 1, decoder.num_decays).tolist())


def _better_level(sequences: Sequences, training: Tensor) -> str:
    """What to take off a window: its mean, or its last value where that is much the better forecast.

    As it is for series that grow or wander; elsewhere the mean is less shaken by noise.
    """
    batch = sequences.batch(training[:: max(1, len(training) // _MANY)])
    levels = batch.past[:, -1:], observed_mean(batch.past, batch.valid)
    off = [float(((batch.target - level).abs() * batch.weight).sum()) for level in levels]
    return "last" if off[0] < _MUCH_BETTER * off[1] else "mean"


def _waves(
    options: Options, series: Sequence[Series], profiles: Sequence[Profile], steps: Sequence[int], lookback: int
) -> list[float]:
    """Periods at which the waves of the decoder start."""
    # The cycles of the calendar are left in: they vary, and waves that start at them can follow that.
    scaled = [
        ((one.values - profile.mean) / profile.scale)[:n]
        for one, profile, n in zip(series, profiles, steps, strict=True)
    ]
    found = wave_periods(scaled, options.num_waves, lookback, options.horizon)
    return found or [_longest(lookback, options.horizon)] * (options.num_decays == 0)  # there has to be something


def wave_periods(series: Sequence[Array], most: int, lookback: int, horizon: int) -> list[float]:
    """The strongest periods of some series (T, C), each of variance one about, that forecasts can tell apart."""
    return strongest_periods(series, most, 1 / min(lookback, 2 * horizon), _longest(lookback, horizon))


def _longest(lookback: int, horizon: int) -> float:
    return float(max(lookback, horizon, 4))


@torch.no_grad()
def _start_effect(
    effect: nn.Linear,
    series: Sequence[Series],
    profiles: Sequence[Profile],
    covariates: CovariateScale,
    steps: Sequence[int],
) -> None:
    """Effects of covariates by least squares over steps from one value to the next, in which levels do not matter."""
    known, moved = [], []
    for one, profile, n in zip(series, profiles, steps, strict=True):
        known.append(np.diff(covariates.known(one.future[:n]), axis=0))
        moved.append(np.diff(profile.to_scale(one)[:n], axis=0))
    found = np.linalg.lstsq(np.concatenate(known), np.concatenate(moved), rcond=1e-6)[0]  # (F, C)
    effect.weight.copy_(torch.from_numpy(found.T))


def default_segment(cell: str, lookback: int, periods: Sequence[float]) -> int:
    """One step for memory that is read; about a day for gates, in parts or multiples of the shortest cycle."""
    if cell in ("linear", "rnn") or lookback < 8:
        return 1
    wanted = min(_SEGMENT, lookback // 4)
    whole = [round(period) for period in periods if abs(period - round(period)) < 1e-9]
    if not whole:
        return wanted
    fitting = [n for n in range(1, lookback // 2 + 1) if n % whole[0] == 0 or whole[0] % n == 0]
    return min(fitting, key=lambda n: abs(np.log(n / wanted)))


def strongest_periods(series: Sequence[Array], most: int, apart: float, longest: float) -> list[float]:
    """The periods of the highest peaks of the mean spectrum of some series (T, C), each of variance one about.

    At most so many, between 2 steps and `longest`, whose frequencies are `apart`: what a forecast could not tell from
    each other is one wave.
    """
    size = 1 << (max(len(one) for one in series) - 1).bit_length()
    power = np.zeros(size // 2 + 1)
    for one in series:
        for channel in one.T:
            time = np.arange(len(channel))
            flat = channel - np.polyval(np.polyfit(time, channel, min(1, len(channel) - 1)), time)
            power += abs(np.fft.rfft(flat * np.hanning(len(flat)), size)) ** 2 / len(flat)
    inner = np.flatnonzero((power[1:-1] >= power[:-2]) & (power[1:-1] > power[2:])) + 1
    peaks = [int(index) for index in inner if 2 < size / index <= longest]
    found: list[float] = []
    for index in sorted(peaks, key=lambda index: -power[index]):
        if len(found) < most and all(abs(index / size - 1 / period) >= apart for period in found):
            found.append(size / index)
    return found

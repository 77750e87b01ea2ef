"""The network before its training: waves at the strongest periods of the series, effects by least squares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from parallelrnn.forecast.data import Array, Panel
from parallelrnn.forecast.model import Network, NetworkConfig
from parallelrnn.forecast.windows import CovariateScaler, WindowDataset
from parallelrnn.nn import WaveDecoder

if TYPE_CHECKING:
    from parallelrnn.forecast.api import Forecaster

# Arguments that a network takes as they are.
_SHARED_OPTIONS = ("horizon", "cell", "decoder", "block_size", "hidden_size", "num_layers", "num_decays", "dropout")
_GATED_SEGMENT = 24  # steps that gated cells read at once, about
_MIN_GATE_WINDOWS = 5000  # fewer are too few to learn a gate from
_SHORT_SERIES = 500  # steps, fewer than which are a short series


def initial_network(
    options: Forecaster,
    panel: Panel,
    dataset: WindowDataset,
    training: Tensor,  # windows
    periods: Sequence[float],
    covariates: CovariateScaler,
    steps: Sequence[int],
) -> Network:
    """Return an untrained network: its waves start at the lines of the spectrum, which training would not find."""
    lookback = dataset.lookback
    # The calendar cycles are left in: they vary, and waves that start at them can follow that.
    scaled = [
        scaler.with_cycles(series)[:n] for series, scaler, n in zip(dataset.series, dataset.scalers, steps, strict=True)
    ]
    waves = wave_periods(scaled, options.num_waves, lookback, options.horizon)
    if not waves and options.num_decays == 0:  # the decoder needs at least one block
        waves = [_longest_period(lookback, options.horizon)]
    network = Network(
        NetworkConfig(
            **{name: getattr(options, name) for name in _SHARED_OPTIONS},
            lookback=lookback,
            num_waves=len(waves),
            normalize=_normalization(dataset) if options.normalize == "auto" else options.normalize,
            segment=options.segment or default_segment(options.cell, lookback, periods),
            gate=_is_gated(dataset, training) if options.gate is None else options.gate,
            ungated=options.hidden_size // 2 // options.block_size * options.block_size,  # whole waves
            channels=dataset.channels,
            past=len(panel.columns.past),
            future=len(panel.columns.future),
            static=len(panel.columns.static),
            quantiles=1 if options.quantiles is None else len(options.quantiles),
        )
    )
    if network.effect is not None:
        _initialize_effect(network.effect, dataset, covariates, steps)
    if isinstance(network.decoder, WaveDecoder):
        initialize_decoder(network.decoder, waves, lookback, options.horizon)
    return network


def initialize_decoder(decoder: WaveDecoder, periods: Sequence[float], lookback: int, horizon: int) -> None:
    """Start waves at these periods with half-lives of the look-back, and spread decays over the horizon."""
    rest = (2 * np.pi / decoder.angle.detach().double()).tolist()[len(periods) :]
    half_lives = [float(lookback)] * decoder.num_waves
    decoder.start_at([*periods, *rest], half_lives, np.geomspace(2, 2 * horizon + 1, decoder.num_decays).tolist())


def _is_gated(dataset: WindowDataset, training: Tensor) -> bool:
    """Return whether there is a gate: it would damp the newest and largest values of a short series that grows."""
    return not _are_short(dataset) and len(training) >= _MIN_GATE_WINDOWS


def _normalization(dataset: WindowDataset) -> str:
    """Return what to take off windows: the midpoint of mean and last value, or for short series, which differ in scale
    and wander less, the mean.
    """
    return "standard" if _are_short(dataset) else "middle"


def _are_short(dataset: WindowDataset) -> bool:
    return float(dataset.lengths.double().median()) < _SHORT_SERIES


def wave_periods(series: Sequence[Array], most: int, lookback: int, horizon: int) -> list[float]:
    """Return the strongest periods of series (T, C) of unit variance that forecasts can tell apart."""
    return strongest_periods(series, most, 1 / min(lookback, 2 * horizon), _longest_period(lookback, horizon))


def _longest_period(lookback: int, horizon: int) -> float:
    return float(max(lookback, horizon, 4))


@torch.no_grad()
def _initialize_effect(
    effect: nn.Linear, dataset: WindowDataset, covariates: CovariateScaler, steps: Sequence[int]
) -> None:
    """Fit the effects of covariates by least squares to differences, in which levels do not matter."""
    exog, moves = [], []
    for series, scaler, n in zip(dataset.series, dataset.scalers, steps, strict=True):
        exog.append(np.diff(covariates.transform("future", series.future[:n]), axis=0))
        moves.append(np.diff(scaler.transform(series)[:n], axis=0))
    weights = np.linalg.lstsq(np.concatenate(exog), np.concatenate(moves), rcond=1e-6)[0]  # (F, C)
    effect.weight.copy_(torch.from_numpy(weights.T))


def default_segment(cell: str, lookback: int, periods: Sequence[float]) -> int:
    """Return one step for memory that is read; about a day for gates, a divisor or multiple of the shortest cycle."""
    if cell in ("linear", "rnn") or lookback < 8:
        return 1
    wanted = min(_GATED_SEGMENT, lookback // 4)
    integers = [round(period) for period in periods if abs(period - round(period)) < 1e-9]
    if not integers:
        return wanted
    fitting = [n for n in range(1, lookback // 2 + 1) if n % integers[0] == 0 or integers[0] % n == 0]
    return min(fitting, key=lambda n: abs(np.log(n / wanted)))


def strongest_periods(series: Sequence[Array], most: int, apart: float, longest: float) -> list[float]:
    """Return the periods of the highest peaks of the mean spectrum of series (T, C) of unit variance.

    At most `most`, between 2 steps and `longest`, with frequencies at least `apart`: what a forecast could not tell
    apart is one wave.
    """
    size = 1 << (max(len(values) for values in series) - 1).bit_length()
    power = np.zeros(size // 2 + 1)
    for values in series:
        for channel in values.T:
            time = np.arange(len(channel))
            flat = channel - np.polyval(np.polyfit(time, channel, min(1, len(channel) - 1)), time)
            power += abs(np.fft.rfft(flat * np.hanning(len(flat)), size)) ** 2 / len(flat)
    inner = np.flatnonzero((power[1:-1] >= power[:-2]) & (power[1:-1] > power[2:])) + 1
    peaks = [int(index) for index in inner if 2 < size / index <= longest]
    periods: list[float] = []
    for index in sorted(peaks, key=lambda index: -power[index]):
        if len(periods) < most and all(abs(index / size - 1 / period) >= apart for period in periods):
            periods.append(size / index)
    return periods

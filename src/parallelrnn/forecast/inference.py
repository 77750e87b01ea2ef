"""Many windows through a network, and how far off its forecasts are."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from parallelrnn.forecast.conformal import Calibration
from parallelrnn.forecast.model import Network
from parallelrnn.forecast.windows import Sequences
from parallelrnn.training.trainer import EVALUATION_BATCH

ENOUGH = 50  # errors at every step ahead, for a series to be calibrated by itself
_LATEST = 1000  # windows of each series that intervals come from


@torch.no_grad()
def forecast_windows(network: nn.Module, sequences: Sequences, windows: Tensor, middle: int) -> Tensor:
    """Forecasts of some windows (N, 2) at the scale of the network: (N, H, C, Q), quantiles in order."""
    network.eval()
    return _in_order(torch.cat([network(sequences.batch(some)) for some in windows.split(EVALUATION_BATCH)]), middle)


def _in_order(forecast: Tensor, middle: int) -> Tensor:
    """Quantiles that cross are moved away from the middle one, which is the forecast: its parts add up to it."""
    if forecast.shape[-1] == 1:
        return forecast
    above = forecast[..., middle:].cummax(-1).values
    below = forecast[..., : middle + 1].flip(-1).cummin(-1).values.flip(-1)
    return torch.cat([below[..., :-1], above], -1)


@torch.no_grad()
def errors_of_windows(network: nn.Module, sequences: Sequences, windows: Tensor, middle: int) -> Tensor:
    """What was observed less what was forecast, (N, H, C), NaN where nothing was observed."""
    if not len(windows):
        return torch.zeros(0, sequences.horizon, sequences.channels)
    network.eval()
    errors = []
    for some in windows.split(EVALUATION_BATCH):
        batch = sequences.batch(some)
        error = batch.target - network(batch)[..., middle]
        errors.append(torch.where(batch.weight > 0, error, torch.nan))
    return torch.cat(errors)


def latest_windows(horizon: int) -> int:
    """How many windows intervals come from; at the last step ahead twice as many errors as there are steps."""
    return max(_LATEST, 3 * horizon)


def latest_errors(network: Network, sequences: Sequences, middle: int, first: Sequence[int]) -> list[Tensor]:
    """Of the latest forecasts of each series with origins from `first` on, NaN where they have not come true."""
    errors = []
    for index, (low, end) in enumerate(zip(first, sequences.lengths.tolist(), strict=True)):
        begin = max(low, end - latest_windows(sequences.horizon))
        windows = sequences.windows(index, begin, end)
        errors.append(errors_of_windows(network, sequences, windows, middle))
    return errors


def are_enough(errors: Tensor) -> bool:
    """Whether errors (N, H, C) are enough for a series to be calibrated by itself."""
    return int((~errors.isnan()).sum(0).min()) >= ENOUGH


def calibrate(network: Network, sequences: Sequences, middle: int, first: Sequence[int]) -> Calibration:
    """From the latest errors of each series, since what is recent tells best how far off the next forecast will be.

    Series with few of them get the errors of all, at the scale of each; the last row of the table holds these, for
    series to come.
    """
    errors = latest_errors(network, sequences, middle, first)
    everything = torch.cat(errors)
    pooled = everything[:: max(1, len(everything) // latest_windows(sequences.horizon))]
    return Calibration.of([*(one if are_enough(one) else pooled for one in errors), pooled])

"""Many windows through a network, and how far off its forecasts are."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from parallelrnn.estimators.intervals import Calibration
from parallelrnn.estimators.network import Network
from parallelrnn.estimators.sequences import TOGETHER, Sequences

CALIBRATED_ON = 1000  # windows of each series, the latest
ENOUGH = 50  # windows, for a series to be calibrated by itself


@torch.no_grad()
def forecast_windows(network: nn.Module, sequences: Sequences, windows: Tensor) -> Tensor:
    """Forecasts of some windows (N, 2) at the scale of the network: (N, H, C, Q), quantiles in order."""
    network.eval()
    return _in_order(torch.cat([network(sequences.batch(some)) for some in windows.split(TOGETHER)]))


def _in_order(forecast: Tensor) -> Tensor:
    """Quantiles of a forecast may cross; sorted, they do not."""
    return forecast if forecast.shape[-1] == 1 else forecast.sort(-1).values


@torch.no_grad()
def errors_of_windows(network: nn.Module, sequences: Sequences, windows: Tensor, middle: int) -> Tensor:
    """What was observed less what was forecast, (N, H, C), NaN where nothing was observed."""
    if not len(windows):
        return torch.zeros(0, sequences.horizon, sequences.channels)
    network.eval()
    errors = []
    for some in windows.split(TOGETHER):
        batch = sequences.batch(some)
        error = batch.future - _in_order(network(batch))[..., middle]
        errors.append(torch.where(batch.weight > 0, error, torch.nan))
    return torch.cat(errors)


def calibrate(network: Network, sequences: Sequences, middle: int, first: Sequence[int]) -> Calibration:
    """From the latest forecasts of each series with origins from `first` on, as far as they have come true.

    What is recent tells best how far off the next forecast will be. Series with few such forecasts get the errors of
    all, at the scale of each; the last row of the table holds these, for series to come.
    """
    errors = []
    for index, (low, end) in enumerate(zip(first, sequences.lengths.tolist(), strict=True)):
        begin = max(low, end - CALIBRATED_ON)
        origins = torch.arange(begin, max(begin, end))
        windows = torch.stack([torch.full_like(origins, index), origins], -1)
        errors.append(errors_of_windows(network, sequences, windows, middle))
    everything = torch.cat(errors)
    pooled = everything[:: max(1, len(everything) // CALIBRATED_ON)]
    enough = [len(one) - sequences.horizon + 1 >= ENOUGH for one in errors]
    return Calibration.of([*(one if own else pooled for one, own in zip(errors, enough, strict=True)), pooled])

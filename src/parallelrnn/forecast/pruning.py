"""Fewer waves: those that carry nothing, or that others can carry as well, are taken out of a decoder."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from parallelrnn.forecast.model import Network
from parallelrnn.forecast.windows import Sequences
from parallelrnn.nn import WaveDecoder
from parallelrnn.training.trainer import Loss

# How much worse a forecast may get when blocks are taken out, before the others are trained to make up for it. The
# first from which they do is taken.
_TRIED = (0.03, 0.005)
_NO_WORSE = 1.001  # times the validation error before
_LOOKED_AT = 512  # windows, on which blocks are compared


def prune(
    network: Network,
    sequences: Sequences,
    validation: Tensor,
    loss: Loss,
    before: float,
    train: Callable[[Network], tuple[Network, float]],
) -> tuple[Network, float]:
    """The network with as few waves and decays as do, trained a little more, and its validation error.

    `before` is the validation error of the whole network; `train` trains a network that lacks some of its blocks.
    """
    if not isinstance(network.decoder, WaveDecoder):
        return network, before
    order, losses = _order_of_removal(network, sequences, validation, loss)
    for allowed in _TRIED:
        gone = max((n for n in range(len(order)) if losses[n] <= losses[0] * (1 + allowed)), default=0)
        if not gone:
            break
        smaller = copy.deepcopy(network)
        decoder = network.decoder.keep(order[gone:])
        smaller.decoder = decoder
        smaller.made_of = replace(network.made_of, num_waves=decoder.num_waves, num_decays=decoder.num_decays)
        trained, after = train(smaller)
        if after <= before * _NO_WORSE:
            return trained, after
    return network, before


@torch.no_grad()
def _order_of_removal(
    network: Network, sequences: Sequences, validation: Tensor, loss: Loss
) -> tuple[list[int], list[float]]:
    """Blocks in the order in which they are missed least, each after those before it; the loss without the first n."""
    network.eval()
    some = validation[:: max(1, len(validation) // _LOOKED_AT)]
    batch = sequences.batch(some)
    held = network.read(batch)
    assert isinstance(network.decoder, WaveDecoder)
    parts = network.decoder.parts(held.state, network.made_of.horizon)  # (B, H, blocks, C * Q)

    def loss_of(kept: list[int]) -> float:
        forecast = held.forecast(parts[:, :, kept].sum(2), network.made_of)
        return float(loss(forecast, batch.target, batch.weight))

    left = list(range(parts.shape[2]))
    order, losses = [], [loss_of(left)]
    while len(left) > 1:
        trials = [(loss_of([other for other in left if other != block]), block) for block in left]
        least, block = min(trials)
        left.remove(block)
        order.append(block)
        losses.append(least)
    return [*order, *left], losses

"""Impulse responses: how the output reacts, lag by lag, to a small change of an input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parallelrnn.errors import ArgumentError, InputError, check_integer, check_number
from parallelrnn.interpret.contributions import BlockName, contributions
from parallelrnn.interpret.layers import as_blocks, as_input, as_taken, exact, time_first
from parallelrnn.nn import ParaRNN

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class ImpulseResponse:
    """Changes of the output per unit change of one input, by lag.

    There are C inputs, K blocks of the last layer, and `out` outputs of the layer, or inputs of its aggregate if that
    is not linear. Means and bands are taken over the places in the data at which the input was changed.
    """

    mean: Array  # (lags, C, out)
    low: Array  # (lags, C, out)
    high: Array  # (lags, C, out)
    by_block: Array  # (lags, C, K, out): means, which sum to `mean`
    # (lags, C, K, out): of the same layer without activation; None for gates and for sigmoid, whose slope is not 1.
    linear: Array | None
    band: float  # the fraction of places between low and high
    places: int
    blocks: tuple[BlockName, ...]


@torch.no_grad()
def impulse_response(
    layer: Any,
    x: Tensor,
    lags: int = 50,
    *,
    nudge: float = 1e-3,
    places: int = 50,
    band: float = 0.9,
    last: int | None = None,
) -> ImpulseResponse:
    """Change each input of a layer slightly at places spread evenly over the data x, and measure the output's reaction.

    `nudge` is the change in units of the input's standard deviation; with `last`, the places are confined to the last
    steps. A linear layer responds equally at all places, as its recurrence features say; the difference between `mean`
    and `linear` shows the effect of the activation.
    """
    layer = exact(as_blocks(layer))
    series = time_first(layer, as_input(layer, x))  # (T, B, C)
    length, batch, inputs = series.shape
    within = length if last is None else min(last, length)
    _check(layer, within, lags, places, band, nudge)
    sizes = nudge * torch.where(series.std((0, 1)) > 0, series.std((0, 1)), 1.0)
    starts = [(length - within + t, b) for t, b in _spread(within - lags, batch, places)]
    states = _states_before(layer, series, starts)
    copies = torch.stack([series[t : t + lags, b] for t, b in starts], 1)  # (lags, places, C)
    undisturbed, blocks = _parts(layer, copies, states)  # (lags, places, K, out)
    by_input = []
    for index in range(inputs):
        nudged = copies.clone()
        nudged[0, :, index] += sizes[index]
        by_input.append((_parts(layer, nudged, states)[0] - undisturbed) / sizes[index])
    responses = torch.stack(by_input, 2).transpose(0, 1).numpy()  # (places, lags, C, K, out)
    total = responses.sum(axis=3)
    low, high = np.quantile(total, [(1 - band) / 2, (1 + band) / 2], axis=0)
    return ImpulseResponse(
        mean=total.mean(axis=0),
        low=low,
        high=high,
        by_block=responses.mean(axis=0),
        linear=_linear(layer, lags),
        band=band,
        places=len(starts),
        blocks=blocks,
    )


def _states_before(layer: Any, series: Tensor, starts: list[tuple[int, int]]) -> tuple[Tensor, ...]:
    """Return the layer's states (layers, places, d) before these steps of these sequences."""
    states: dict[int, tuple[Tensor, ...]] = {}
    state: tuple[Tensor, ...] | None = None
    reached = 0
    for t in sorted({step for step, _ in starts}):
        if t > reached:
            hx = None if state is None else state if len(state) > 1 else state[0]
            _, final = layer(as_taken(layer, series[reached:t]), hx)
            state, reached = (final,) if isinstance(final, Tensor) else final, t
        if state is None:  # before the first step
            widths = [layer.proj_size or layer.hidden_size, layer.hidden_size][: layer.num_states]
            state = tuple(series.new_zeros(layer.num_layers, series.shape[1], width) for width in widths)
        states[t] = state
    return tuple(torch.stack([states[t][part][:, b] for t, b in starts], 1) for part in range(layer.num_states))


def _linear(layer: Any, lags: int) -> Array | None:
    """Return the response of the same layer without biases and activation."""
    if not isinstance(layer, ParaRNN) or layer.nonlinearity == "sigmoid":
        return None
    with torch.random.fork_rng(devices=[]):
        plain = ParaRNN(
            layer.input_size,
            layer.hidden_size,
            layer.num_layers,
            nonlinearity="linear",
            bias=False,
            block_size=layer.block_size,
            form=layer.form,
            aggregate=layer.aggregate,
            dtype=torch.float64,
        )
    plain.load_state_dict({name: value for name, value in layer.state_dict().items() if name in plain.state_dict()})
    impulses = torch.zeros(lags, layer.input_size, layer.input_size, dtype=torch.float64)
    impulses[0] = torch.eye(layer.input_size, dtype=torch.float64)
    zeros = torch.zeros(layer.num_layers, layer.input_size, layer.hidden_size, dtype=torch.float64)
    return _parts(plain, impulses, (zeros,))[0].numpy()


def _parts(layer: Any, series: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, tuple[BlockName, ...]]:
    """Return the contributions (T, B, K, out) of the blocks for a batch (T, B, C) that starts at these states."""
    blocks = contributions(layer, as_taken(layer, series), states if len(states) > 1 else states[0])
    return time_first(layer, blocks.parts), blocks.blocks


def _spread(length: int, batch: int, places: int) -> list[tuple[int, int]]:
    """Return distinct steps and batch entries, spread evenly over the data."""
    spread = np.unique(np.linspace(0, length * batch - 1, min(places, length * batch)).round().astype(int))
    return [(int(index % length), int(index // length)) for index in spread]


def _check(layer: Any, steps: int, lags: int, places: int, band: float, nudge: float) -> None:
    if layer.bidirectional:
        raise InputError("a bidirectional layer responds to an input before it arrives", hint="use one direction")
    if not 0 < lags < steps:
        raise ArgumentError(argument="lags", expected=f"at least 1 and less than the {steps} steps of x", got=lags)
    check_number("nudge", nudge, "a number above 0", lambda value: value > 0)
    check_integer("places", places, 1)
    check_number("band", band, "a number between 0 and 1", lambda value: 0 < value < 1)

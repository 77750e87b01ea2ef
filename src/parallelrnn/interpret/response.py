"""Impulse responses: how the output answers, lag by lag, to a nudge of an input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parallelrnn.interpret.contributions import BlockName, contributions
from parallelrnn.interpret.layers import as_blocks, as_input, as_taken, exact, time_first
from parallelrnn.nn import ParaRNN

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ImpulseResponse:
    """Changes of the output per unit of a change of one input, by lag.

    C inputs, K blocks of the last layer, `out` outputs: of the layer, or of what enters its aggregate where that is not
    linear. Means and bands are over the places in the data at which the input was nudged.
    """

    mean: Array  # (lags, C, out)
    low: Array  # (lags, C, out)
    high: Array  # (lags, C, out)
    by_block: Array  # (lags, C, K, out): means, which sum to `mean`
    # (lags, C, K, out): of the same layer with no activation; None for gates, and for sigmoid, whose slope is not 1.
    linear: Array | None
    band: float  # the part of the places that lies between low and high
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
    """Nudge each input of a layer at some places in the data x, spread evenly, and see what becomes of its output.

    `nudge` is in units of the input's standard deviation; with `last`, the places lie in the last so many steps. In a
    linear layer the answer is the same at all places, and is what the recurrence features say; how far `mean` is from
    `linear` shows how much the activation bends it.
    """
    layer = exact(as_blocks(layer))
    series = time_first(layer, as_input(layer, x))  # (T, B, C)
    length, batch, inputs = series.shape
    within = length if last is None else min(last, length)
    _check(layer, within, lags, places, band, nudge)
    sizes = nudge * torch.where(series.std((0, 1)) > 0, series.std((0, 1)), 1.0)
    chosen = [(length - within + t, b) for t, b in _spread(within - lags, batch, places)]
    states = _states_before(layer, series, chosen)
    copies = torch.stack([series[t : t + lags, b] for t, b in chosen], 1)  # (lags, places, C)
    undisturbed, blocks = _parts(layer, copies, states)  # (lags, places, K, out)
    answers = []
    for index in range(inputs):
        nudged = copies.clone()
        nudged[0, :, index] += sizes[index]
        answers.append((_parts(layer, nudged, states)[0] - undisturbed) / sizes[index])
    answer = torch.stack(answers, 2).transpose(0, 1).numpy()  # (places, lags, C, K, out)
    total = answer.sum(axis=3)
    low, high = np.quantile(total, [(1 - band) / 2, (1 + band) / 2], axis=0)
    return ImpulseResponse(
        total.mean(axis=0), low, high, answer.mean(axis=0), _linear(layer, lags), band, len(chosen), blocks
    )


def _states_before(layer: Any, series: Tensor, chosen: list[tuple[int, int]]) -> tuple[Tensor, ...]:
    """The layer's states (layers, places, d) before chosen steps of chosen sequences."""
    found: dict[int, tuple[Tensor, ...]] = {}
    state: tuple[Tensor, ...] | None = None
    reached = 0
    for t in sorted({step for step, _ in chosen}):
        if t > reached:
            hx = None if state is None else state if len(state) > 1 else state[0]
            _, final = layer(as_taken(layer, series[reached:t]), hx)
            state, reached = (final,) if isinstance(final, Tensor) else final, t
        if state is None:  # before the first step
            widths = [layer.proj_size or layer.hidden_size, layer.hidden_size][: layer.num_states]
            state = tuple(series.new_zeros(layer.num_layers, series.shape[1], width) for width in widths)
        found[t] = state
    return tuple(torch.stack([found[t][part][:, b] for t, b in chosen], 1) for part in range(layer.num_states))


def _linear(layer: Any, lags: int) -> Array | None:
    """The response of the same layer without biases and activation."""
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
    response: Array = _parts(plain, impulses, (zeros,))[0].numpy()
    return response


def _parts(layer: Any, series: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, tuple[BlockName, ...]]:
    """The contributions of the blocks to a batch (T, B, C) that starts at some states: (T, B, K, out)."""
    found = contributions(layer, as_taken(layer, series), states if len(states) > 1 else states[0])
    return time_first(layer, found.parts), found.blocks


def _spread(length: int, batch: int, places: int) -> list[tuple[int, int]]:
    """Steps and batch entries, evenly over the data and each once."""
    chosen = np.unique(np.linspace(0, length * batch - 1, min(places, length * batch)).round().astype(int))
    return [(int(index % length), int(index // length)) for index in chosen]


def _check(layer: Any, steps: int, lags: int, places: int, band: float, nudge: float) -> None:
    if layer.bidirectional:
        raise ValueError("a layer that also runs backwards answers before it is asked; use one in one direction")
    if not 0 < lags < steps:
        raise ValueError(f"lags has to be at least 1 and less than the {steps} steps of x, got {lags}")
    if not nudge > 0:
        raise ValueError(f"nudge has to be above 0, got {nudge}")
    if places < 1 or not 0 < band < 1:
        raise ValueError(f"places has to be at least 1 and band between 0 and 1, got {places} and {band}")

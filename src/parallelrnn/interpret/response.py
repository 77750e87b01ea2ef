"""Impulse responses: how the output answers, lag by lag, to a nudge of an input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parallelrnn.interpret.contributions import BlockName, contributions
from parallelrnn.interpret.layers import as_blocks, as_taken, exact, time_first
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
    linear: Array | None  # (lags, C, K, out): of the same layer with no activation; None for gated cells
    band: float  # the part of the places that lies between low and high
    places: int
    blocks: tuple[BlockName, ...]


@torch.no_grad()
def impulse_response(
    layer: Any, x: Tensor, lags: int = 50, *, nudge: float = 1e-3, places: int = 50, band: float = 0.9
) -> ImpulseResponse:
    """Nudge each input of a layer at some places in the data x, spread evenly, and see what becomes of its output.

    `nudge` is in units of the input's standard deviation. In a linear layer the answer is the same at all places, and
    is what the recurrence features say; how far `mean` is from `linear` shows how much the activation bends it.
    """
    layer = exact(as_blocks(layer))
    _check(layer, x, lags, places, band)
    series = time_first(layer, x.double())  # (T, B, C)
    length, batch, inputs = series.shape
    sizes = nudge * torch.where(series.std((0, 1)) > 0, series.std((0, 1)), 1.0)
    chosen = _spread(length - lags, batch, places)
    undisturbed = _parts(layer, series)  # (T, B, K, out)
    answers = []  # for each input: (places, lags, K, out)
    for index in range(inputs):
        copies = series[:, [b for _, b in chosen]].clone()  # (T, places, C)
        for place, (t, _) in enumerate(chosen):
            copies[t, place, index] += sizes[index]
        nudged = _parts(layer, copies)
        differences = [
            nudged[t : t + lags, place] - undisturbed[t : t + lags, b] for place, (t, b) in enumerate(chosen)
        ]
        answers.append(torch.stack(differences) / sizes[index])
    answer = torch.stack(answers, 2).numpy()  # (places, lags, C, K, out)
    total = answer.sum(axis=3)
    low, high = np.quantile(total, [(1 - band) / 2, (1 + band) / 2], axis=0)
    blocks = contributions(layer, as_taken(layer, series[:1])).blocks
    return ImpulseResponse(
        total.mean(axis=0), low, high, answer.mean(axis=0), _linear(layer, lags), band, len(chosen), blocks
    )


def _linear(layer: Any, lags: int) -> Array | None:
    """The response of the same layer without biases and activation."""
    if not isinstance(layer, ParaRNN):
        return None
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
    response: Array = _parts(plain, impulses).numpy()
    return response


def _parts(layer: Any, series: Tensor) -> Tensor:
    """The contributions of the blocks to a batch (T, B, C), (T, B, K, out)."""
    return time_first(layer, contributions(layer, as_taken(layer, series)).parts)


def _spread(length: int, batch: int, places: int) -> list[tuple[int, int]]:
    """Steps and batch entries, evenly over the data and each once."""
    chosen = np.unique(np.linspace(0, length * batch - 1, min(places, length * batch)).round().astype(int))
    return [(int(index % length), int(index // length)) for index in chosen]


def _check(layer: Any, x: Tensor, lags: int, places: int, band: float) -> None:
    if layer.bidirectional:
        raise ValueError("a layer that also runs backwards answers before it is asked; use one in one direction")
    steps = x.shape[1] if layer.batch_first and x.dim() == 3 else x.shape[0]
    if not 0 < lags < steps:
        raise ValueError(f"lags has to be at least 1 and less than the {steps} steps of x, got {lags}")
    if places < 1 or not 0 < band < 1:
        raise ValueError(f"places has to be at least 1 and band between 0 and 1, got {places} and {band}")

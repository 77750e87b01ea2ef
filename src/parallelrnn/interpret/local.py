"""Local dynamics: how blocks remember along the data.

The recurrent matrix of a block with tanh or gates describes it near the state zero. Elsewhere the slope of the
activation and the gates change it: at every step, the derivative of the new state with respect to the old one is
another matrix with other eigenvalues.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parallelrnn.errors import InputError, check_integer
from parallelrnn.interpret.display import Display, Step, Summary, count
from parallelrnn.interpret.layers import as_blocks, as_input, as_taken, exact, time_first

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True)
class LocalBlock:
    """One block along the data: the eigenvalues of the derivative of its state at each of N steps, largest first."""

    layer: int
    block: int
    eigenvalues: Complex  # (N, D); for an LSTM (N, 2 D), of h and c together

    @property
    def half_lives(self) -> Array:
        """The half-life of the slowest part at each step, in steps; infinite where it does not fade."""
        with np.errstate(divide="ignore"):
            rate = np.maximum(0.0, -np.log(abs(self.eigenvalues[:, 0])))
            half_lives: Array = math.log(2) / rate
        return half_lives

    @property
    def periods(self) -> Array:
        """The period of the slowest part at each step, in steps; infinite where it does not turn."""
        angle = abs(np.angle(self.eigenvalues[:, 0]))
        with np.errstate(divide="ignore"):
            periods: Array = 2 * math.pi / angle
        return periods

    @property
    def waves(self) -> float:
        """The fraction of steps at which the slowest part is a wave."""
        return float((self.eigenvalues[:, 0].imag != 0).mean())


@dataclass(frozen=True)
class LocalDynamics:
    """The local dynamics of all blocks, layer by layer."""

    blocks: tuple[LocalBlock, ...]
    time: Step

    def summary(self, most: int = 20) -> Summary:
        """Return the quantiles of half-lives as text for the terminal."""
        return self.display(most).text()

    def display(self, most: int = 20) -> Display:
        """Return quantiles of each block's half-life over the data, blocks with the longest median first."""
        order = sorted(self.blocks, key=lambda block: -float(np.median(block.half_lives)))[:most]
        rows = [
            (
                str(block.layer),
                str(block.block),
                *(
                    self.time.format(float(value))
                    for value in np.quantile(block.half_lives, _QUANTILES, method="lower")
                ),
                f"{block.waves:.0%}",
                self.time.format(_median(block.periods[block.eigenvalues[:, 0].imag != 0]), infinite="-"),
            )
            for block in order
        ]
        names = ["layer", "block", *(f"{quantile:.0%}" for quantile in _QUANTILES), "waves", "period"]
        steps = len(self.blocks[0].eigenvalues)
        notes = [
            f"Half-life of the slowest part of each block's state: quantiles over {steps} steps of data. Waves: the "
            "fraction of steps at which it oscillates. Period: the median over those steps. All of this is local to "
            "the data; the weights alone describe the state zero.",
            f"{count(len(self.blocks), 'block')}, {len(order)} shown.",
        ]
        return Display("Local dynamics: how blocks remember along the data", names, rows, notes)


def local_dynamics(layer: Any, x: Tensor, *, last: int | None = None, freq: str | None = None) -> LocalDynamics:
    """Compute the eigenvalues of the derivative of each block's state with respect to its previous state, along x.

    With `last`, only the last steps are used; the states still result from all of the data.
    """
    if last is not None:
        check_integer("last", last, 1)
    layer = exact(as_blocks(layer))
    if layer.bidirectional or layer.proj_size:
        raise InputError("local dynamics need a layer with one direction and without proj_size")
    series = time_first(layer, as_input(layer, x))
    blocks = []
    for index, (inputs, states) in enumerate(_run(layer, series, len(series) if last is None else last)):
        derivative = _derivatives(layer, index, inputs, states)
        blocks += [LocalBlock(index, block, _sorted(matrices)) for block, matrices in enumerate(derivative)]
    return LocalDynamics(tuple(blocks), Step.of(freq))


@torch.no_grad()
def _run(layer: Any, series: Tensor, last: int) -> list[tuple[Tensor, tuple[Tensor, ...]]]:
    """Return for each layer its inputs and the states before the last steps; rows are steps of batch entries."""

    def after(inputs: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        _, final = layer(as_taken(layer, inputs), state if layer.num_states == 2 else state[0])
        return final if layer.num_states == 2 else (final,)

    first, series = series.split([max(0, len(series) - last), min(len(series), last)])
    shape = (layer.num_layers, series.shape[1], layer.hidden_size)
    state = tuple(series.new_zeros(shape) for _ in range(layer.num_states))
    before = [after(first, state) if len(first) else state]
    for t in range(len(series)):
        before.append(after(series[t : t + 1], before[-1]))
    stacked = [torch.stack([s[part] for s in before]) for part in range(layer.num_states)]  # (T + 1, L, B, d)
    runs = []
    for index in range(layer.num_layers):
        inputs = series if index == 0 else stacked[0][1:, index - 1]
        runs.append((inputs.flatten(0, 1), tuple(part[:-1, index].flatten(0, 1) for part in stacked)))
    return runs


@torch.enable_grad()
def _derivatives(layer: Any, index: int, inputs: Tensor, states: tuple[Tensor, ...]) -> list[Array]:
    """Return the derivative of each block, (N, D, D), or (N, 2 D, 2 D) for an LSTM; one pass serves all blocks."""
    leaves = tuple(state.clone().requires_grad_() for state in states)
    _, after = layer.run_layer(index, inputs[None], leaves)
    sizes = layer.block_sizes
    largest = max(sizes)
    columns: list[list[Tensor]] = []  # for each state and unit of a block: the gradients by all states, (N, d)
    for part in after:
        for unit in range(largest):
            mask = torch.cat([torch.arange(size) == unit for size in sizes])
            columns.append(list(torch.autograd.grad(part[:, mask].sum(), leaves, retain_graph=True)))
    matrices = []
    start = 0
    for size in sizes:
        units = slice(start, start + size)
        rows = [
            torch.cat([gradient[:, units] for gradient in columns[part * largest + unit]], -1)
            for part in range(len(after))
            for unit in range(size)
        ]
        matrices.append(torch.stack(rows, 1).numpy())
        start += size
    return matrices


def _median(values: Array) -> float:
    return float(np.median(values)) if len(values) else math.inf


def _sorted(matrices: Array) -> Complex:
    """Return eigenvalues (N, D), largest modulus first, of a pair the one in the upper half plane first."""
    values = np.linalg.eigvals(matrices).astype(complex)
    order = np.lexsort((-values.imag, -abs(values).round(12)), axis=-1)
    return np.take_along_axis(values, order, axis=-1)

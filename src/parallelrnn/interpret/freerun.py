"""A one-step model that is fed its own forecasts: the map from one state to the next, and its derivative."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from parallelrnn.interpret.layers import as_blocks, as_input, as_taken, exact, is_linear, precision, time_first

Array = NDArray[np.float64]


class NoFreeRunError(ValueError):
    """A model whose output is no forecast of its next input."""


class FreeRun:
    """The closed loop of a recurrent layer and what reads its last state out as the next input, in double precision.

    A state is all that the layer carries from step to step, of all layers, as one row of n numbers: h, and for an LSTM
    c. Many states go together as (N, n).
    """

    def __init__(self, layer: Any, readout: nn.Module | None) -> None:
        if isinstance(readout, Tensor):
            raise TypeError("readout is a module, or None; data go by name: x=...")
        layer = as_blocks(layer)
        self.unit = precision(layer, *([] if readout is None else [readout]))
        layer = self.layer = exact(layer)
        if layer.bidirectional:
            raise NoFreeRunError(
                "a layer that also runs backwards knows the future, and cannot run on its own forecasts"
            )
        self.readout = nn.Identity() if readout is None else exact(readout)
        units = layer.proj_size or layer.hidden_size
        has_cell = layer.num_states == 2
        self._sizes: list[int] = [units] * layer.num_layers + [layer.hidden_size] * layer.num_layers * has_cell
        try:
            outputs = self.output(torch.zeros(1, self.size, dtype=torch.float64)).shape[-1]
        except RuntimeError as error:
            raise ValueError(f"readout does not take what the layer puts out: {error}") from error
        if outputs != layer.input_size:
            raise NoFreeRunError(
                f"a model that runs on its own forecasts puts out what it takes in: the layer has {layer.input_size} "
                f"inputs, and {outputs} outputs; give readout=nn.Linear(..., {layer.input_size}), or a layer whose "
                f"aggregate has {layer.input_size} outputs"
            )

    @property
    def size(self) -> int:
        """Numbers in a state."""
        return sum(self._sizes)

    def output(self, state: Tensor) -> Tensor:
        """The forecast of the next input, (N, n) -> (N, C)."""
        last = state.split(self._sizes, -1)[self.layer.num_layers - 1]
        aggregate = self.layer.aggregate or nn.Identity()
        output: Tensor = self.readout(aggregate(last))
        return output

    def step(self, state: Tensor) -> Tensor:
        """The state after that forecast has come true, (N, n) -> (N, n)."""
        return self.after_one(self.output(state), state)

    def after_one(self, values: Tensor, state: Tensor) -> Tensor:
        """The state after one more input (N, C)."""
        return self._after(values[None], state)

    def after(self, x: Tensor) -> Tensor:
        """The state after an input, in the layout that the layer takes; (N, n)."""
        series = time_first(self.layer, as_input(self.layer, x))
        return self._after(series, torch.zeros(series.shape[1], self.size, dtype=torch.float64))

    def _after(self, series: Tensor, state: Tensor) -> Tensor:
        parts = state.split(self._sizes, -1)
        layers = self.layer.num_layers
        carried = [torch.stack(parts[start : start + layers]) for start in range(0, len(parts), layers)]
        _, final = self.layer(as_taken(self.layer, series), carried[0] if len(carried) == 1 else tuple(carried))
        final = (final,) if isinstance(final, Tensor) else final
        return torch.cat([part for tensor in final for part in tensor], -1)

    def jacobian(self, state: Tensor) -> tuple[Array, Array]:
        """The derivatives (n, n) of `step` and (C, n) of `output` at one state (n,)."""
        return self._derivative(self.step, state), self._derivative(self.output, state)

    @cached_property
    def is_linear(self) -> bool:
        """Whether `step` and `output` are linear but for constants."""
        return is_linear(self.layer, self.readout)

    @staticmethod
    @torch.enable_grad()
    def _derivative(function: Any, state: Tensor) -> Array:
        """One backward pass: as many copies of the state as there are outputs, each asked for one of them."""
        outputs = function(state[None]).shape[-1]
        copies = state.expand(outputs, -1).clone().requires_grad_()
        (derivative,) = torch.autograd.grad(function(copies).diagonal().sum(), copies)
        found: Array = derivative.numpy()
        return found

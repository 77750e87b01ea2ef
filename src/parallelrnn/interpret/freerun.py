"""A one-step model that is fed its own forecasts: its closed loop, the derivative of the loop, and where it leads."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from parallelrnn.errors import ArgumentError, ArgumentTypeError, InputError
from parallelrnn.interpret.layers import as_blocks, as_input, as_taken, exact, is_linear, precision, time_first

Array = NDArray[np.float64]

_LONG_RUN = 2048  # steps of a free run, to see where it leads
_PERTURBATION = 1e-3  # of a state, so that a free run does not start exactly at an unstable fixed point
FIXED_POINT_TOLERANCE = 1e-9  # relative
# A cycle is what the second half of a long run of at least this many steps repeats: most of its variance persists, it
# lasts several turns, and it is regular if one wave has most of the variance.
_SHORTEST_RUN, _LEAST_PERSISTENCE, _LEAST_TURNS, _REGULAR_SHARE = 16, 0.9, 3, 0.5


class NoFreeRunError(InputError):
    """A model whose output is not a forecast of its next input."""


class NoFixedPointError(InputError):
    """A model whose own forecasts have no fixed point."""


class GrowingForecastsError(NoFixedPointError):
    """A model whose own forecasts grow without bound."""


class FreeRun:
    """The closed loop of a recurrent layer and the readout of its next input, in double precision.

    A state is everything that the layer carries from step to step, in all its layers, as one row of n numbers: h and,
    for an LSTM, c. Many states are processed together as (N, n).
    """

    def __init__(self, layer: Any, readout: nn.Module | None) -> None:
        if isinstance(readout, Tensor):
            raise ArgumentTypeError(
                argument="readout", expected="a module or None", got="a tensor", hint="pass data as {x}"
            )
        layer = as_blocks(layer)
        self.unit = precision(layer, *([] if readout is None else [readout]))
        layer = self.layer = exact(layer)
        if layer.bidirectional:
            raise NoFreeRunError("a bidirectional layer reads the future, so it cannot run on its own forecasts")
        self.readout = nn.Identity() if readout is None else exact(readout)
        units = layer.proj_size or layer.hidden_size
        has_cell = layer.num_states == 2
        self._sizes: list[int] = [units] * layer.num_layers + [layer.hidden_size] * layer.num_layers * has_cell
        try:
            outputs = self.output(torch.zeros(1, self.size, dtype=torch.float64)).shape[-1]
        except RuntimeError as error:
            raise ArgumentError(
                f"the module does not accept the layer's output: {error}", argument="readout"
            ) from error
        if outputs != layer.input_size:
            raise NoFreeRunError(
                f"the layer has {layer.input_size} inputs and {outputs} outputs; to run on its own forecasts, a model "
                "must output its next input",
                hint=f"give {{readout}}nn.Linear(..., {layer.input_size}), or an aggregate with as many outputs",
            )

    @property
    def size(self) -> int:
        """The length n of a state."""
        return sum(self._sizes)

    def output(self, state: Tensor) -> Tensor:
        """Return the forecast of the next input, (N, n) -> (N, C)."""
        last = state.split(self._sizes, -1)[self.layer.num_layers - 1]
        aggregate = self.layer.aggregate or nn.Identity()
        output: Tensor = self.readout(aggregate(last))
        return output

    def step(self, state: Tensor) -> Tensor:
        """Return the state after that forecast has come true, (N, n) -> (N, n)."""
        return self.after_one(self.output(state), state)

    def after_one(self, values: Tensor, state: Tensor) -> Tensor:
        """Return the state after one more input (N, C)."""
        return self._after(values[None], state)

    def after(self, x: Tensor) -> Tensor:
        """Return the state (N, n) after an input in the layer's layout."""
        series = time_first(self.layer, as_input(self.layer, x))
        return self._after(series, torch.zeros(series.shape[1], self.size, dtype=torch.float64))

    def along(self, x: Tensor, count: int) -> Tensor:
        """Return the states (count, n), at most, at places all over the first sequence of an input."""
        series = time_first(self.layer, as_input(self.layer, x))[:, :1]
        state = torch.zeros(1, self.size, dtype=torch.float64)
        states = []
        for part in series.tensor_split(min(count, len(series))):
            state = self._after(part, state)
            states.append(state)
        return torch.cat(states)

    def _after(self, series: Tensor, state: Tensor) -> Tensor:
        parts = state.split(self._sizes, -1)
        layers = self.layer.num_layers
        carried = [torch.stack(parts[start : start + layers]) for start in range(0, len(parts), layers)]
        _, final = self.layer(as_taken(self.layer, series), carried[0] if len(carried) == 1 else tuple(carried))
        final = (final,) if isinstance(final, Tensor) else final
        return torch.cat([part for tensor in final for part in tensor], -1)

    def jacobian(self, state: Tensor) -> tuple[Array, Array]:
        """Return the derivatives (n, n) of `step` and (C, n) of `output` at one state (n,)."""
        return self._derivative(self.step, state), self._derivative(self.output, state)

    @cached_property
    def is_linear(self) -> bool:
        """Whether `step` and `output` are affine functions."""
        return is_linear(self.layer, self.readout)

    @staticmethod
    @torch.enable_grad()
    def _derivative(function: Any, state: Tensor) -> Array:
        """Compute a Jacobian in one backward pass: a copy of the state for each output, differentiated for that one."""
        outputs = function(state[None]).shape[-1]
        copies = state.expand(outputs, -1).clone().requires_grad_()
        (gradient,) = torch.autograd.grad(function(copies).diagonal().sum(), copies)
        return gradient.numpy()


@dataclass(frozen=True, kw_only=True)
class Ending:
    """Where long free runs lead."""

    halfway: Tensor  # (N, n)
    last: Tensor  # (N, n)
    mean: Tensor  # (n,), over the second half of all runs
    low: Tensor  # (n,)
    high: Tensor  # (n,)
    forecasts: Array  # (T, C), of the first run

    @classmethod
    def of(cls, run: FreeRun, start: Tensor) -> Ending:
        """Run freely for a long time from states (N, n)."""
        state, forecasts, late = start + _PERTURBATION, [], 0
        halfway = total = low = high = state
        for step in range(_LONG_RUN):
            forecasts.append(run.output(state[:1])[0].numpy())
            following = run.step(state)
            if step == _LONG_RUN // 2:
                halfway = total = low = high = following
                late = 0
            elif step > _LONG_RUN // 2:
                total, low, high = total + following, torch.minimum(low, following), torch.maximum(high, following)
                late += 1
            if torch.equal(following, state):  # at rest
                halfway = total = low = high = state
                late = 0
                break
            state = following
        return cls(
            halfway=halfway,
            last=state,
            mean=(total / (late + 1)).mean(0),
            low=low.amin(0),
            high=high.amax(0),
            forecasts=np.stack(forecasts),
        )

    def fixed_point(self, run: FreeRun) -> Tensor:
        """Return a state (n,) that the model's own forecasts leave unchanged: the end of the runs, or their centre.

        The search is confined to the region of the runs, because every state is a fixed point where gates are closed.
        """
        from scipy.optimize import least_squares

        if not (self.last.isfinite().all() and self.halfway.isfinite().all()):
            raise GrowingForecastsError("the model's own forecasts grow without bound, so they have no fixed point")

        def change(state: Array) -> Array:
            return (run.step(torch.from_numpy(state)[None])[0] - torch.from_numpy(state)).numpy()

        def slope(state: Array) -> Array:
            return run.jacobian(torch.from_numpy(state))[0] - np.eye(run.size)

        around = float((self.high - self.low).max()) + _PERTURBATION
        bounds = ((self.low - around).numpy(), (self.high + around).numpy())
        for guess in (self.last[0], self.mean):
            inside = np.clip(guess.numpy(), bounds[0] + around / 10, bounds[1] - around / 10)
            state = least_squares(change, inside, slope, bounds, xtol=1e-15, ftol=1e-15, gtol=1e-15, max_nfev=200).x
            if np.linalg.norm(change(state)) <= FIXED_POINT_TOLERANCE * (1 + np.linalg.norm(state)):
                return torch.from_numpy(state)
        raise NoFixedPointError(
            "no fixed point of the model's own forecasts was found: they cycle or wander",
            hint="read the modes along a free run after data",
            code="forecast_modes(model, readout, x, along=100)",
        )

    def is_at(self, fixed: Tensor) -> bool:
        """Return whether all runs end at a fixed point: they have arrived, or are still approaching it."""
        before, after = (self.halfway - fixed).norm(dim=-1), (self.last - fixed).norm(dim=-1)
        return bool(((after <= 1e-6 * (1 + fixed.norm())) | (after < 0.95 * before)).all())


@dataclass(frozen=True)
class Cycle:
    """The strongest wave of forecasts that do not come to rest."""

    period: float  # steps
    share: float  # of their variance

    @property
    def is_regular(self) -> bool:
        """Whether that wave has most of the variance; otherwise the forecasts wander."""
        return self.share >= _REGULAR_SHARE


def settled_cycle(forecasts: Array) -> Cycle | None:
    """Return the cycle into which forecasts (T, C) of a long run settle; None if they come to rest or grow."""
    if len(forecasts) < _SHORTEST_RUN or not np.isfinite(forecasts).all():
        return None
    half = forecasts[len(forecasts) // 2 :]
    before, after = (part.var(axis=0).sum() for part in np.array_split(half, 2))
    if after <= _LEAST_PERSISTENCE * before or not after > 0:
        return None
    cycle = _strongest_wave(half[:, half.var(axis=0).argmax()])
    return cycle if cycle.period * _LEAST_TURNS <= len(half) else None


def _strongest_wave(series: Array) -> Cycle:
    """Locate the largest peak of the periodogram, by a parabola through the logarithms at three frequencies."""
    window = np.hanning(len(series))
    power = abs(np.fft.rfft((series - series.mean()) * window)) ** 2
    peak = 1 + int(power[1:-1].argmax())
    before, at, after = np.log(np.maximum(power[peak - 1 : peak + 2], 1e-300))
    bend = before - 2 * at + after
    frequency = (peak + (0.5 * (before - after) / bend if bend < 0 else 0.0)) / len(series)
    near = slice(max(1, peak - 3), peak + 4)  # the window spreads a single wave this far
    return Cycle(1 / frequency, float(power[near].sum() / power[1:].sum()))

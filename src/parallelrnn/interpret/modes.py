"""Forecast modes: the cycles and trends that a model believes in.

A one-step model that is fed its own forecasts is a dynamical system of its own: its closed loop. The eigenvalues of
that loop are the waves and decays of which its forecasts are made; for an ARMA model, the AR roots. They are not the
recurrence features, the eigenvalues of the recurrent matrix alone, which say how the model remembers (the MA side).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from parallelrnn.interpret.cycle import Cycle, settled_cycle
from parallelrnn.interpret.dynamics import Row, Table, format_share
from parallelrnn.interpret.freerun import FreeRun
from parallelrnn.interpret.jordan import JordanBlock, basis_of, default_tolerance, spectrum_of
from parallelrnn.interpret.layers import exact
from parallelrnn.interpret.text import Display
from parallelrnn.interpret.units import Step
from parallelrnn.nn import WaveDecoder

Array = NDArray[np.float64]

CALENDAR = "the calendar"  # sources of amplitudes
RECENT = "recent data"
_STEPS = 2048  # of a free run, to see where it leads
_RESIDUAL = 1e-9  # of a fixed point, relative
_NUDGE = 1e-3  # of a state, so that a free run does not start at the very fixed point that it would leave


class NoFixedPointError(ValueError):
    """A model whose own forecasts come to rest nowhere."""


class GrowingForecastsError(NoFixedPointError):
    """A model whose own forecasts leave all bounds."""


@dataclass(frozen=True)
class Mode(Row):
    """One eigenvalue (pair) of the closed loop, or one block of a wave decoder: a cycle or trend of the forecast."""

    order: int
    eigenvalue: complex  # imag >= 0
    share: float = math.nan  # of the forecast's variance over the horizon
    step: int | None = None  # of a free run, if the mode is local to it
    part: Array | None = field(
        default=None, compare=False, repr=False
    )  # in the forecast, (H, B, C), where it has a share
    source: str = ""  # what sets its amplitude, where that differs from mode to mode


@dataclass(frozen=True)
class ForecastModes(Table[Mode]):
    """The forecast modes of a model."""

    name: ClassVar[str] = "Forecast modes"
    rows: tuple[Mode, ...]
    where: str  # the state for which they hold
    time: Step
    cycle: Cycle | None = None  # into which forecasts settle that leave the fixed point
    level: Array | None = field(default=None, compare=False, repr=False)  # (C,), which the parts of the modes add to

    @property
    def columns(self) -> tuple[str, ...]:
        """What a mode is, and how much it carries."""
        return ("label", "kind", "order", "modulus", "angle", "period", "half_life", "share", "step", "source")

    def display(self, most: int = 20) -> Display:
        """The modes with the largest shares, or without data with the largest moduli, as a table of so many."""
        shown = self.most_important(most)
        sources = any(mode.source for mode in self)
        rows = [
            (
                *([] if mode.step is None else [str(mode.step)]),
                *([mode.source] if sources else []),
                mode.label,
                f"{mode.modulus:.4f}",
                f"{mode.angle:.4f}",
                "-" if math.isinf(mode.period) else self.time.format(mode.period),
                self.time.format(mode.half_life, infinite=mode.meaning),
                *([format_share(mode.share)] if self.has_shares else []),
            )
            for mode in shown
        ]
        along = ["step"] if any(mode.step is not None for mode in self) else []
        along += ["set by"] if sources else []
        names = [*along, "type", "modulus", "angle", "period", "half-life", *(["share"] if self.has_shares else [])]
        notes = [f"{len(self)} modes, {len(shown)} shown; {self.where}."]
        if any(mode.modulus > 1 for mode in self):
            notes.append("A modulus above 1: forecasts that are fed back move away from here.")
        if self.cycle is not None:
            how = "settles into a cycle" if self.cycle.is_regular else "wanders, without a single cycle"
            notes.append(
                f"Left to itself the model {how}; the strongest wave, {self.cycle.share:.0%} of it, has a period of "
                f"{self.time.format(self.cycle.period)} (measured)."
            )
        notes.append("These are the cycles and trends of the forecast (AR side), not the memory.")
        return Display(f"{self.name}: the cycles that the model believes in", names, rows, notes)


def forecast_modes(
    model: nn.Module,
    readout: nn.Module | None = None,
    x: Tensor | None = None,
    *,
    horizon: int = 100,
    along: int = 0,
    freq: str | None = None,
) -> ForecastModes:
    """The eigenvalues of a one-step model's closed loop, or the waves of a decoder.

    `model` is a recurrent layer of ours or of `torch.nn` whose output, read out by `readout` if given, is the forecast
    of its next input. For a linear model the closed loop is W_h + W_x C, over all layers, and the modes are exact. For
    others they are those of the derivative at the fixed point to which the model's own forecasts lead; with `along`,
    at so many steps of a free run after the data x, of the first sequence if there are several.

    With x, which may be a batch of sequences, each mode gets its part in the forecast of `horizon` steps after x (the
    level and all parts sum to the forecast) and its share: the covariance of that part with the forecast, relative to
    the forecast's variance. For a model that is not linear the forecast is that of its linearisation. Where that grows
    there are no shares, since the model's own forecast goes elsewhere: `cycle` says where (and see `along`).

    The modes of a `WaveDecoder` are its own blocks, and x are the states (B, input_size) that it starts from.
    """
    _check(along, horizon, x)
    if isinstance(model, WaveDecoder):
        return _decoder_modes(model, readout, x, horizon, along, Step.of(freq))
    run, time = FreeRun(model, readout), Step.of(freq)
    start = torch.zeros(1, run.size, dtype=torch.float64) if x is None else run.after(x)
    if along:
        states = _free_run(run, start[:1], along)
        rows = tuple(mode for index, at in enumerate(states) for mode in _modes(run, run.jacobian(at)[0], step=index))
        where = f"at each of {along} steps of the model's own forecast after the data"
        return ForecastModes(rows, where, time, settled_cycle(_Ending.of(run, start).forecasts))
    origin = torch.zeros(run.size, dtype=torch.float64)
    loop, reading = run.jacobian(origin)
    if run.is_linear:
        return _linear_modes(run, loop, reading, None if x is None else start, horizon, time)
    ending = _Ending.of(run, start)
    fixed = ending.fixed_point(run)
    loop, reading = run.jacobian(fixed)
    stays = ending.is_at(fixed) and abs(np.linalg.eigvals(loop)).max() < 1
    deviations = (start - fixed).numpy() if x is not None and stays else None
    return ForecastModes(
        _modes(run, loop, reading, deviations, horizon),
        "to first order around the model's fixed point",
        time,
        None if stays else settled_cycle(ending.forecasts),
        run.output(fixed[None])[0].numpy(),
    )


def _decoder_modes(
    decoder: WaveDecoder, readout: nn.Module | None, x: Tensor | None, horizon: int, along: int, time: Step
) -> ForecastModes:
    if readout is not None or along:
        raise ValueError("a wave decoder is linear and puts out the forecast itself: it takes no readout and no along")
    decoder = exact(decoder)
    values = eigenvalues_of(decoder)
    rows = [Mode(1, value) for value in values]
    if x is not None:
        with torch.no_grad():
            parts = decoder.parts(x.double(), horizon).permute(2, 1, 0, 3).numpy()  # (blocks, H, B, C)
        rows = [
            Mode(1, value, share, None, part)
            for value, share, part in zip(values, shares_of_parts(parts), parts, strict=True)
        ]
    ordered = tuple(sorted(rows, key=lambda mode: -mode.modulus))
    return ForecastModes(ordered, "exact, since the decoder is made of them", time, None, np.zeros(decoder.output_size))


def eigenvalues_of(decoder: WaveDecoder) -> list[complex]:
    """One of each block, waves first, as the decoder numbers them."""
    matrices = [block.matrix.detach().double().numpy() for block in decoder.wave_blocks()]
    return [complex(matrix[0, 0], abs(matrix[0, 1]) if len(matrix) == 2 else 0.0) for matrix in matrices]


def _check(along: int, horizon: int, x: Tensor | None) -> None:
    if along < 0 or horizon < 2:
        raise ValueError(f"along has to be 0 or more and horizon at least 2 steps, got {along} and {horizon}")
    if along and x is None:
        raise ValueError("modes along a free run need data x, after which it starts")


def _linear_modes(
    run: FreeRun, loop: Array, reading: Array, start: Tensor | None, horizon: int, time: Step
) -> ForecastModes:
    """The modes around the state that comes nearest to a fixed point; what moves it is a trend, a mode of its own."""
    step = run.step(torch.zeros(1, run.size, dtype=torch.float64))[0].numpy()
    fixed = _solve_regular(np.eye(run.size) - loop, step, _nearly(run, loop))
    drift = loop @ fixed + step - fixed
    deviations = None if start is None else start.numpy() - fixed
    if np.linalg.norm(drift) > _RESIDUAL * (1 + np.linalg.norm(fixed)):
        # A random walk with a drift: one more number in the state, which is always 1, moves it.
        loop = np.block([[loop, drift[:, None]], [np.zeros(run.size), np.ones(1)]])
        reading = np.pad(reading, ((0, 0), (0, 1)))
        deviations = None if deviations is None else np.pad(deviations, ((0, 0), (0, 1)), constant_values=1.0)
    level = run.output(torch.from_numpy(fixed)[None])[0].numpy()
    rows = _modes(run, loop, reading, deviations, horizon)
    return ForecastModes(rows, "exact, since the model is linear", time, None, level)


def _nearly(run: FreeRun, loop: Array) -> float:
    """What the weights do not tell from 0, in eigenvalues less 1."""
    return default_tolerance(len(loop), run.unit) * float(np.linalg.norm(loop))


def _solve_regular(matrix: Array, right: Array, least: float) -> Array:
    """The smallest solution in the directions in which the matrix is not singular, for all that is known of it."""
    left, singular, rows = np.linalg.svd(matrix)
    regular = singular > least
    solution: Array = rows[regular].T @ ((left[:, regular].T @ right) / singular[regular])
    return solution


def _modes(
    run: FreeRun,
    loop: Array,
    reading: Array | None = None,
    deviations: Array | None = None,  # (N, n), of the states from which forecasts start, from the fixed point
    horizon: int = 0,
    step: int | None = None,
) -> tuple[Mode, ...]:
    """The eigenvalues of a closed loop, largest modulus first, with the shares that they have in forecasts."""
    groups = spectrum_of(loop).groups(default_tolerance(len(loop), run.unit))
    nearly = _nearly(run, loop)
    blocks = [
        JordanBlock(order, 1.0 if abs(group.eigenvalue - 1) <= nearly else complex(group.eigenvalue))
        for group in groups
        for order in group.orders
    ]
    if reading is None or deviations is None:
        rows = [Mode(block.order, block.eigenvalue, step=step) for block in blocks]
    else:
        parts = _parts(blocks, basis_of(groups), reading, deviations, horizon)
        rows = [
            Mode(block.order, block.eigenvalue, share, step, part)
            for block, share, part in zip(blocks, shares_of_parts(parts), parts, strict=True)
        ]
    return tuple(sorted(rows, key=lambda mode: -mode.modulus))


def _parts(blocks: list[JordanBlock], basis: Array, reading: Array, deviations: Array, horizon: int) -> Array:
    """What each mode adds to the forecasts that start at some deviations, (modes, H, B, C)."""
    coordinates = np.linalg.solve(basis, deviations.T)  # (n, B)
    outputs = reading @ basis  # (C, n)
    parts = []
    start = 0
    for block in blocks:
        matrix = block.matrix
        rows = slice(start, start + len(matrix))
        now, steps = coordinates[rows], []
        with np.errstate(over="ignore", invalid="ignore"):  # what grows may leave all numbers
            for _ in range(horizon):
                steps.append((outputs[:, rows] @ now).T)
                now = matrix @ now
        parts.append(np.stack(steps))
        start = rows.stop
    return np.stack(parts)


def shares_of_parts(parts: Array) -> list[float]:
    """The covariances of the parts (modes, H, B, C) with the whole forecast, relative to its variance if it has one."""
    if not np.isfinite(parts).all():
        return [math.nan] * len(parts)
    size = abs(parts).max() or 1.0  # so that squares are numbers even where forecasts grow
    centred = parts / size - (parts / size).mean(axis=(1, 2), keepdims=True)
    total = centred.sum(axis=0)
    largest = abs(total).max()
    if not largest > 0:
        return [math.nan] * len(parts)
    total = total / largest
    shares: list[float] = ((centred / largest * total).sum(axis=(1, 2, 3)) / (total**2).sum()).tolist()
    return shares


def _free_run(run: FreeRun, state: Tensor, steps: int) -> list[Tensor]:
    """The states (n,) after 0, 1, ... forecasts have come true."""
    states = []
    for _ in range(steps):
        states.append(state[0])
        state = run.step(state)
    return states


@dataclass(frozen=True)
class _Ending:
    """Where long free runs from some states lead."""

    halfway: Tensor  # (N, n)
    last: Tensor  # (N, n)
    mean: Tensor  # (n,), over the second half of all runs
    low: Tensor  # (n,)
    high: Tensor  # (n,)
    forecasts: Array  # (T, C), of the first run

    @classmethod
    def of(cls, run: FreeRun, start: Tensor) -> _Ending:
        # A little beside, so that no run starts at the very fixed point that it would leave.
        state, forecasts, late = start + _NUDGE, [], 0
        halfway = total = low = high = state
        for step in range(_STEPS):
            forecasts.append(run.output(state[:1])[0].numpy())
            following = run.step(state)
            if step == _STEPS // 2:
                halfway = total = low = high = following
                late = 0
            elif step > _STEPS // 2:
                total, low, high = total + following, torch.minimum(low, following), torch.maximum(high, following)
                late += 1
            if torch.equal(following, state):  # at rest
                return cls(state, state, state.mean(0), state.amin(0), state.amax(0), np.stack(forecasts))
            state = following
        mean = (total / (late + 1)).mean(0)
        return cls(halfway, state, mean, low.amin(0), high.amax(0), np.stack(forecasts))

    @property
    def grows(self) -> bool:
        """Whether the runs leave all bounds."""
        return not bool(self.last.isfinite().all()) or not bool(self.halfway.isfinite().all())

    def fixed_point(self, run: FreeRun) -> Tensor:
        """A state (n,) that the model's own forecasts leave as it is: the end of the runs, or what they go around.

        Looked for where the runs go, and as far around: where gates are closed for good, any state would do.
        """
        from scipy.optimize import least_squares

        if self.grows:
            raise GrowingForecastsError(
                "the model's own forecasts grow without bound, so it has no fixed point to linearise at"
            )

        def change(state: Array) -> Array:
            moved: Array = (run.step(torch.from_numpy(state)[None])[0] - torch.from_numpy(state)).numpy()
            return moved

        def slope(state: Array) -> Array:
            return run.jacobian(torch.from_numpy(state))[0] - np.eye(run.size)

        around = float((self.high - self.low).max()) + _NUDGE
        bounds = ((self.low - around).numpy(), (self.high + around).numpy())
        for guess in (self.last[0], self.mean):
            inside = np.clip(guess.numpy(), bounds[0] + around / 10, bounds[1] - around / 10)
            found = least_squares(change, inside, slope, bounds, xtol=1e-15, ftol=1e-15, gtol=1e-15, max_nfev=200).x
            if np.linalg.norm(change(found)) <= _RESIDUAL * (1 + np.linalg.norm(found)):
                return torch.from_numpy(found)
        raise NoFixedPointError(
            "no fixed point was found of the model's own forecasts: they cycle or wander; read the modes along a free "
            "run after data instead: forecast_modes(model, readout, x, along=100)"
        )

    def is_at(self, fixed: Tensor) -> bool:
        """Whether all runs end there: they have arrived, or still come nearer."""
        before, after = (self.halfway - fixed).norm(dim=-1), (self.last - fixed).norm(dim=-1)
        return bool(((after <= 1e-6 * (1 + fixed.norm())) | (after < 0.95 * before)).all())

"""Forecast modes: the cycles and trends of a model's forecasts.

A one-step model that is fed its own forecasts is a dynamical system, the closed loop. The eigenvalues of the loop are
the waves and decays that make up the forecasts; for an ARMA model, the AR roots. They are not the recurrence features,
the eigenvalues of the recurrent matrix alone, which say how the model remembers (the MA side).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from parallelrnn.errors import ArgumentError, check_integer
from parallelrnn.interpret.display import Step, count
from parallelrnn.interpret.dynamics import Row, Table
from parallelrnn.interpret.freerun import FIXED_POINT_TOLERANCE, Cycle, Ending, FreeRun, settled_cycle
from parallelrnn.interpret.jordan import JordanBlock, basis_of, default_tolerance, spectrum_of
from parallelrnn.interpret.layers import exact
from parallelrnn.interpret.uncertainty import MatchedTables, match_fits
from parallelrnn.nn import WaveDecoder

Array = NDArray[np.float64]

CALENDAR = "the calendar"  # sources of amplitudes
RECENT = "recent data"
LOCAL = "smoothing"
_PLACES = 50  # along the data, at which the modes of a model that is not linear are read
_PLACES_BUDGET = 3e9  # operations for that, counted as cubes of the sizes of states
_ALONG = ("period along the data", "half-life along the data")


@dataclass(frozen=True, kw_only=True)
class Mode(Row):
    """One eigenvalue (pair) of the closed loop, or one block of a wave decoder: a cycle or trend of the forecast."""

    order: int
    eigenvalue: complex  # imag >= 0
    share: float = math.nan  # of the forecast's variance over the horizon
    step: int | None = None  # of a free run, if the mode is local to that step
    part: Array | None = field(default=None, compare=False, repr=False)  # (H, B, C), its part of the forecast, if known
    source: str = ""  # what sets its amplitude, if that differs from mode to mode


@dataclass(frozen=True, kw_only=True)
class ForecastModes(Table[Mode]):
    """The forecast modes of a model."""

    name: ClassVar[str] = "Forecast modes"
    subtitle: ClassVar[str] = "the cycles and trends in the forecast"
    rows: tuple[Mode, ...]
    where: str  # the state for which they hold
    time: Step
    cycle: Cycle | None = None  # into which forecasts settle if they leave the fixed point
    level: Array | None = field(default=None, compare=False, repr=False)  # (C,); the forecast is level plus parts
    along: MatchedTables | None = field(default=None, compare=False, repr=False)  # how modes vary along the data
    half_lives: bool = True  # whether they were fitted; those of a forecaster are where its training started

    @property
    def columns(self) -> tuple[str, ...]:
        """The properties of a mode that a frame shows."""
        names = ("label", "kind", "order", "modulus", "angle", "period", "half_life", "share", "step", "source")
        return names if self.half_lives else tuple(name for name in names if name not in ("modulus", "half_life"))

    def _cells(self, row: Mode) -> dict[str, str]:
        place = {} if row.step is None else {"step": str(row.step)}
        if any(mode.source for mode in self):
            place["set by"] = row.source
        cells = place | super()._cells(row)
        if not self.half_lives:
            cells = {name: cell for name, cell in cells.items() if name not in ("modulus", "angle", "half-life")}
        return cells | self._spread(row)

    def _spread(self, row: Mode) -> dict[str, str]:
        """Return between what limits the period and half-life of a mode lie along the data."""
        match = next((match for match in self.along or () if match.row is row), None)
        if match is None:
            return {} if self.along is None else dict.fromkeys(_ALONG, "-")
        intervals = match.period if row.kind == "C" else None, match.half_life
        return {
            name: "-" if interval is None or math.isnan(interval.low) else interval.span(self.time)
            for name, interval in zip(_ALONG, intervals, strict=True)
        }

    def _notes(self, shown: int) -> list[str]:
        shown_of = f", {shown} shown" if shown < len(self) else ""
        notes = [f"{count(len(self), 'mode')}{shown_of}; {self.where}."]
        if not self.half_lives and any(mode.source == RECENT for mode in self):
            notes.append("How fast modes fade is mostly where training started, so it is not shown: see the findings.")
        if self.along is not None:
            notes.append(
                f"Along the data: the model is not linear, so that its modes change from state to state; between these "
                f"limits at {self.along.level:.0%} of {self.along.fits} places."
            )
        if any(mode.modulus > 1 for mode in self):
            notes.append("A modulus above 1 means that forecasts fed back to the model move away from this state.")
        if self.cycle is not None:
            how = "settles into a cycle" if self.cycle.is_regular else "wanders without a single cycle"
            notes.append(
                f"Left to itself, the model {how}; the strongest wave, {self.cycle.share:.0%} of the variance, has a "
                f"measured period of {self.time.format(self.cycle.period)}."
            )
        notes.append("Modes are the cycles and trends of the forecast (AR side), not the memory.")
        return notes


def forecast_modes(
    model: nn.Module,
    readout: nn.Module | None = None,
    x: Tensor | None = None,
    *,
    horizon: int = 100,
    along: int = 0,
    freq: str | None = None,
) -> ForecastModes:
    """Return the eigenvalues of a one-step model's closed loop, or the waves of a decoder.

    `model` is a recurrent layer of ours or of `torch.nn` whose output, passed through `readout` if given, forecasts its
    next input. For a linear model the closed loop is W_h + W_x C, over all layers, and the modes are exact. For other
    models they are the eigenvalues of the derivative at the fixed point to which the model's own forecasts lead; with
    `along`, at each of that many steps of a free run after the data x (after the first sequence of a batch).

    With x, which may be a batch of sequences, each mode gets its part of the forecast of `horizon` steps after x (the
    level and all parts sum to the forecast) and its share: the covariance of that part with the forecast, relative to
    the forecast's variance. For a model that is not linear, this is the forecast of its linearisation. If that grows,
    there are no shares, since the model's own forecast goes elsewhere: `cycle` says where (see also `along`).

    The modes of a `WaveDecoder` are its own blocks, and x holds the states (B, input_size) that it starts from.
    """
    check_integer("along", along, 0)
    check_integer("horizon", horizon, 2)
    if along and x is None:
        raise ArgumentError(argument="x", expected="the data after which a free run starts", got=None)
    if isinstance(model, WaveDecoder):
        return _decoder_modes(model, readout, x, horizon, along, Step.of(freq))
    run, time = FreeRun(model, readout), Step.of(freq)
    start = torch.zeros(1, run.size, dtype=torch.float64) if x is None else run.after(x)
    if along:
        rows: list[Mode] = []
        state = start[:1]
        for step in range(along):
            rows += _modes(run, run.jacobian(state[0])[0], step=step)
            state = run.step(state)
        where = f"at each of {along} steps of the model's own forecast after the data"
        cycle = settled_cycle(Ending.of(run, start).forecasts)
        return ForecastModes(rows=tuple(rows), where=where, time=time, cycle=cycle)
    origin = torch.zeros(run.size, dtype=torch.float64)
    loop, reading = run.jacobian(origin)
    if run.is_linear:
        return _linear_modes(run, loop, reading, None if x is None else start, horizon, time)
    ending = Ending.of(run, start)
    fixed = ending.fixed_point(run)
    loop, reading = run.jacobian(fixed)
    stays = ending.is_at(fixed) and abs(np.linalg.eigvals(loop)).max() < 1
    deviations = (start - fixed).numpy() if x is not None and stays else None
    modes = ForecastModes(
        rows=_modes(run, loop, reading, deviations, horizon),
        where="to first order around the model's fixed point",
        time=time,
        cycle=None if stays else settled_cycle(ending.forecasts),
        level=run.output(fixed[None])[0].numpy(),
    )
    return modes if x is None else replace(modes, along=_along(run, x, modes))


def _along(run: FreeRun, x: Tensor, modes: ForecastModes) -> MatchedTables | None:
    """Match the modes at states along the data with those at the fixed point; None if there are too few states."""
    places = min(_PLACES, int(_PLACES_BUDGET / run.size**3))
    states = run.along(x, places) if places > 1 else torch.zeros(0)
    if len(states) < 2:
        return None
    tables = [replace(modes, rows=_modes(run, run.jacobian(state)[0])) for state in states]
    return match_fits(tables, modes)


def _decoder_modes(
    decoder: WaveDecoder, readout: nn.Module | None, x: Tensor | None, horizon: int, along: int, time: Step
) -> ForecastModes:
    if readout is not None or along:
        problem = "a wave decoder is linear and outputs the forecast itself"
        raise ArgumentError(
            problem, argument="along" if readout is None else "readout", hint="leave out {readout} and {along}"
        )
    decoder = exact(decoder)
    values = eigenvalues_of(decoder)
    rows = [Mode(order=1, eigenvalue=value) for value in values]
    if x is not None:
        with torch.no_grad():
            parts = decoder.parts(x.double(), horizon).permute(2, 1, 0, 3).numpy()  # (blocks, H, B, C)
        rows = [
            Mode(order=1, eigenvalue=value, share=share, part=part)
            for value, share, part in zip(values, shares_of_parts(parts), parts, strict=True)
        ]
    ordered = tuple(sorted(rows, key=lambda mode: -mode.modulus))
    where, level = "exact, since the decoder is made of them", np.zeros(decoder.output_size)
    return ForecastModes(rows=ordered, where=where, time=time, level=level)


def eigenvalues_of(decoder: WaveDecoder) -> list[complex]:
    """Return one eigenvalue of each block, waves first, in the decoder's order."""
    matrices = [block.matrix.detach().double().numpy() for block in decoder.wave_blocks()]
    return [complex(matrix[0, 0], abs(matrix[0, 1]) if len(matrix) == 2 else 0.0) for matrix in matrices]


def _linear_modes(
    run: FreeRun, loop: Array, reading: Array, start: Tensor | None, horizon: int, time: Step
) -> ForecastModes:
    """Compute the modes around the state nearest to a fixed point; a remaining drift becomes a trend of its own."""
    step = run.step(torch.zeros(1, run.size, dtype=torch.float64))[0].numpy()
    left, singular, rows = np.linalg.svd(np.eye(run.size) - loop)
    regular = singular > _unit_root_tolerance(run, loop)
    fixed = rows[regular].T @ ((left[:, regular].T @ step) / singular[regular])  # the smallest solution
    drift = loop @ fixed + step - fixed
    deviations = None if start is None else start.numpy() - fixed
    if np.linalg.norm(drift) > FIXED_POINT_TOLERANCE * (1 + np.linalg.norm(fixed)):
        # A random walk with drift: one more entry of the state, which is always 1, moves it.
        loop = np.block([[loop, drift[:, None]], [np.zeros(run.size), np.ones(1)]])
        reading = np.pad(reading, ((0, 0), (0, 1)))
        deviations = None if deviations is None else np.pad(deviations, ((0, 0), (0, 1)), constant_values=1.0)
    level = run.output(torch.from_numpy(fixed)[None])[0].numpy()
    modes = _modes(run, loop, reading, deviations, horizon)
    return ForecastModes(rows=modes, where="exact, since the model is linear", time=time, level=level)


def _unit_root_tolerance(run: FreeRun, loop: Array) -> float:
    """Return the distance within which the precision of the weights cannot tell an eigenvalue from 1."""
    return default_tolerance(len(loop), run.unit) * float(np.linalg.norm(loop))


def _modes(
    run: FreeRun,
    loop: Array,
    reading: Array | None = None,
    deviations: Array | None = None,  # (N, n), of the initial states from the fixed point
    horizon: int = 0,
    step: int | None = None,
) -> tuple[Mode, ...]:
    """Compute the eigenvalues of a closed loop, largest modulus first, with their shares of the forecasts."""
    groups = spectrum_of(loop).groups(default_tolerance(len(loop), run.unit))
    tolerance = _unit_root_tolerance(run, loop)
    blocks = [
        JordanBlock(order, 1.0 if abs(group.eigenvalue - 1) <= tolerance else complex(group.eigenvalue))
        for group in groups
        for order in group.orders
    ]
    if reading is None or deviations is None:
        rows = [Mode(order=block.order, eigenvalue=block.eigenvalue, step=step) for block in blocks]
    else:
        parts = _parts(blocks, basis_of(groups), reading, deviations, horizon)
        rows = [
            Mode(order=block.order, eigenvalue=block.eigenvalue, share=share, step=step, part=part)
            for block, share, part in zip(blocks, shares_of_parts(parts), parts, strict=True)
        ]
    return tuple(sorted(rows, key=lambda mode: -mode.modulus))


def _parts(blocks: list[JordanBlock], basis: Array, reading: Array, deviations: Array, horizon: int) -> Array:
    """Return the part of each mode in the forecasts that start at these deviations, (modes, H, B, C)."""
    coordinates = np.linalg.solve(basis, deviations.T)  # (n, B)
    outputs = reading @ basis  # (C, n)
    parts = []
    start = 0
    for block in blocks:
        matrix = block.matrix
        rows = slice(start, start + len(matrix))
        now, steps = coordinates[rows], []
        with np.errstate(over="ignore", invalid="ignore"):  # growing modes may overflow
            for _ in range(horizon):
                steps.append((outputs[:, rows] @ now).T)
                now = matrix @ now
        parts.append(np.stack(steps))
        start = rows.stop
    return np.stack(parts)


def shares_of_parts(parts: Array) -> list[float]:
    """Return the covariances of parts (modes, H, B, C) with the forecast, relative to its variance; NaN without one."""
    if not np.isfinite(parts).all():
        return [math.nan] * len(parts)
    size = abs(parts).max() or 1.0  # keeps squares finite even if forecasts grow
    centred = parts / size - (parts / size).mean(axis=(1, 2), keepdims=True)
    total = centred.sum(axis=0)
    largest = abs(total).max()
    if not largest > 0:
        return [math.nan] * len(parts)
    total = total / largest
    shares: list[float] = ((centred / largest * total).sum(axis=(1, 2, 3)) / (total**2).sum()).tolist()
    return shares

"""Forecasts as sums of components: a level, trends, seasons, calendar cycles, waves, decays, and effects of covariates.

Where a series is read as logarithms, its components are factors, and forecasts are their product.
"""

from __future__ import annotations

import cmath
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import narwhals as nw
import numpy as np
import torch
from numpy.typing import NDArray

from parallelrnn.errors import InputError
from parallelrnn.forecast.data import Array
from parallelrnn.forecast.local import DAMPINGS, LocalModels
from parallelrnn.forecast.model import EncodedWindows, Network
from parallelrnn.forecast.windows import SeriesScaler
from parallelrnn.interpret.display import Step, Summary, format_share
from parallelrnn.interpret.features import Features, recurrence_features
from parallelrnn.interpret.findings import Findings
from parallelrnn.interpret.modes import CALENDAR, LOCAL, RECENT, ForecastModes, Mode, eigenvalues_of, shares_of_parts
from parallelrnn.nn import WaveDecoder
from parallelrnn.nn.encoder import TransformerEncoder

_LIMIT = "limit at zero"
_PER_YEAR = {"d": 365.25, "business days": 260.89, "weeks": 52.1775, "months": 12.0, "years": 1.0}  # steps


@dataclass(frozen=True)
class Explanation:
    """Explanation of a fitted forecaster.

    `modes` are the cycles and trends of its forecasts; `features` describe how it remembers, which is not the same;
    `components` is a table of the current forecast and its components, or None where that needs covariates that were
    not given; `reading` holds what the data show beyond noise, None in models that were saved without it.
    """

    modes: ForecastModes
    features: Features
    components: Any
    reading: Findings | None = None
    notices: tuple[str, ...] = ()  # of errors that have changed
    backend: Any = "pandas"
    smoothing: str = ""  # what local models say of the series, or of the median series of a panel

    @property
    def findings(self) -> Any:
        """A table with a row for each finding, in steps, with 90 % intervals; empty where the data show none."""
        if self.reading is None:
            problem = "this model was saved without findings"
            raise InputError(problem, hint="fit it again, or read `modes`, which describe the model alone")
        return nw.to_native(nw.from_dict(self.reading.columns(), backend=self.backend))

    def summary(self, most: int = 5) -> Summary:
        """Return the findings and the `most` important modes, for the terminal."""
        modes = self.modes.summary(most)
        findings = [] if self.reading is None else [self.reading.display().text()]
        texts = [textwrap.fill(text, 80) for text in (*self.notices, self.smoothing) if text]
        return Summary("\n\n".join([*findings, *texts, modes]))


@dataclass(frozen=True)
class Components:
    """The terms of forecasts, which sum to them: in the units of each series, or at the scale of the network."""

    level: Array  # (B, H, C)
    modes: tuple[Mode, ...]  # without shares, one for each of the first components
    others: tuple[str, ...]  # the names of the rest
    values: Array  # (modes and others, B, H, C)
    logs: NDArray[np.bool_]  # (B, 1, C), where components are logarithms

    def columns(self, time: Step) -> dict[str, Array]:
        """Return all components by unique names, (B, H, C) each: terms, or factors where they are logarithms."""
        columns, seen = {"level": self._as_factors(self.level)}, Counter[str]()
        for name, values in zip([*(_name(mode, time) for mode in self.modes), *self.others], self.values, strict=True):
            seen[name] += 1
            columns[name if seen[name] == 1 else f"{name} ({seen[name]})"] = self._as_factors(values)
        return columns

    def _as_factors(self, values: Array) -> Array:
        return np.where(self.logs, np.exp(values), values)

    def limited(self, floor: Array) -> Components:
        """Return the components of forecasts that do not fall below a floor (B, 1, C), with what that adds to them."""
        total = self.level + self.values.sum(axis=0)
        added = np.where(self.logs, 0.0, np.maximum(total, floor) - total)
        if not added.any():
            return self
        return replace(self, others=(*self.others, _LIMIT), values=np.concatenate([self.values, added[None]]))

    def terms(self) -> tuple[Array, Array]:
        """Return the level and what each component adds to those before it, which sum to the forecast in its units."""
        sums = np.cumsum([self.level, *self.values], axis=0)
        reached = np.where(self.logs, np.exp(sums), sums)
        return reached[0], np.diff(reached, axis=0)

    def table(self, time: Step, where: str, current: Components | None = None) -> ForecastModes:
        """Return the modes with their shares in these forecasts, and their values in the current ones, if known."""
        # The movement within a forecast, not from one to another, unless it has only one step.
        moves = self.values - self.values.mean(axis=2 if self.values.shape[2] > 1 else 1, keepdims=True)
        count = len(self.modes)
        shares = shares_of_parts(moves.transpose(0, 2, 1, 3))
        if "covariates" in self.others:
            share = format_share(float(shares[count + self.others.index("covariates")]))
            where += f"; future covariates have a share of {share}"
        parts: Sequence[Array | None] = [None] * count
        level = None
        if current is not None and set(current.others) <= {_LIMIT}:  # else modes do not sum to the forecast
            first, terms = current.terms()
            parts, level = [_as_channels(part) for part in terms[:count]], _as_channels(first)[0, 0]
        modes = [
            Mode(order=mode.order, eigenvalue=mode.eigenvalue, share=share, part=part, source=mode.source)
            for mode, share, part in zip(self.modes, shares[:count], parts, strict=True)
        ]
        rows = tuple(sorted(modes, key=lambda mode: -abs(mode.share)))
        return ForecastModes(rows=rows, where=where, time=time, level=level, half_lives=False)


@torch.no_grad()
def decompose(
    network: Network,
    encoded: EncodedWindows,
    scalers: Sequence[SeriesScaler],
    origins: NDArray[np.int64],
    median_index: int,
    scaled: bool = False,
) -> Components:
    """Split forecasts into components.

    `scalers` are those of all series, `origins` (B, 2) those of `WindowDataset.origins`; `median_index` is the quantile
    that counts. `scaled` gives components at the scale of the network.
    """
    config = network.config
    own = [scalers[index] for index in origins[:, 0]]
    scale = np.stack([scaler.scale for scaler in own])[:, None]  # (B, 1, C)
    units = np.ones_like(scale) if scaled else scale
    mean = np.zeros_like(scale) if scaled else np.stack([scaler.mean for scaler in own])[:, None]
    times = origins[:, 1:] + np.arange(config.horizon)  # (B, H)

    modes: list[Mode] = []
    values: list[Array] = []
    periods = {cycle.period for scaler in scalers for cycle in scaler.cycles} if config.share else set()
    for period in sorted(periods):
        modes.append(Mode(order=1, eigenvalue=cmath.exp(2j * cmath.pi / period), source=CALENDAR))
        cycle = config.share * np.stack([_cycle(scaler, period, time) for scaler, time in zip(own, times, strict=True)])
        values.append(cycle / scale if scaled else cycle)
    level = encoded.level.double().numpy() * units + mean
    level = np.broadcast_to(level, (len(own), config.horizon, config.channels))
    if config.share < 1:
        local = encoded.local.double().numpy() * units[..., None]  # (B, H, C, parts)
        level = level + local[..., 0]
        eigenvalues = [*DAMPINGS, cmath.exp(2j * cmath.pi / config.season)][: 2 + (config.season > 1)]
        for index, eigenvalue in enumerate(eigenvalues):
            modes.append(Mode(order=2 if eigenvalue == 1 else 1, eigenvalue=complex(eigenvalue), source=LOCAL))
            values.append(local[..., 1 + index])
    factor = encoded.scale.double().numpy() * units  # (B, 1, C)
    others: list[str] = []
    shape = (config.channels, config.quantiles)
    if config.share == 0:
        pass  # the network has no part in forecasts
    elif isinstance(network.decoder, WaveDecoder):
        blocks = network.decoder.parts(encoded.state, config.horizon)  # (B, H, blocks, C * Q)
        blocks = blocks.unflatten(-1, shape)[..., median_index]
        for index, eigenvalue in enumerate(eigenvalues_of(network.decoder)):
            modes.append(Mode(order=1, eigenvalue=eigenvalue, source=RECENT))
            values.append(blocks[:, :, index].double().numpy() * factor)
    else:
        decoded = network.decoder(encoded.state, config.horizon).unflatten(-1, shape)[..., median_index]
        others.append("decoder")
        values.append(decoded.double().numpy() * factor)
    if network.effect is not None:
        others.append("covariates")
        values.append(encoded.exog_effect.double().numpy() * units)
    none = np.zeros((0, len(own), config.horizon, config.channels))
    logs = np.stack([np.broadcast_to(scaler.floor > 0, (config.channels,)) for scaler in own])[:, None]
    return Components(level, tuple(modes), tuple(others), np.stack(values) if values else none, logs & (not scaled))


def describe_smoothing(local: LocalModels, scalers: Sequence[SeriesScaler], share: float, time: Step) -> str:
    """Say what local models hold at the end of series: "level 120, trend +4 % a year, a season of 61 %".

    Of a panel it is the median over its series. `share` is that of local models in forecasts.
    """
    per_year = _PER_YEAR[time.unit] / time.amount if time.unit in _PER_YEAR else 0.0
    states, scale = (
        local.states.double().numpy(),
        np.stack([scaler.scale for scaler in scalers]),
    )  # (N, C, size), (N, C)
    slopes = sum(states[..., 1 + k] * float(_damped_sum(phi, per_year)) for k, phi in enumerate(DAMPINGS)) * scale
    season = states[..., 1 + len(DAMPINGS) :] * scale[..., None]
    logs = np.stack([np.broadcast_to(scaler.floor > 0, scaler.mean.shape) for scaler in scalers])
    level = states[..., 0] * scale + np.stack([scaler.mean for scaler in scalers])
    level = np.where(logs, np.exp(np.minimum(level, 700.0)), level)
    is_log = bool(logs.mean() > 0.5)
    slopes, season = (part[logs == is_log] for part in (slopes, season))
    whose = "" if states.shape[0] * states.shape[1] == 1 else "of the median series, "
    middle = float(np.median(level[logs == is_log]))
    parts = [f"{whose}level {middle:,.0f}" if abs(middle) >= 1000 else f"{whose}level {middle:.4g}"]
    if per_year:
        rise = float(np.median(np.expm1(slopes) if is_log else slopes))
        parts.append(f"trend {100 * rise:+.2g} % a year" if is_log else f"trend {rise:+.3g} a year")
    if season.shape[1]:
        size = float(np.median(np.ptp(np.exp(season) if is_log else season, axis=1)))
        swing = f"{100 * size:.2g} %" if is_log else f"{size:.3g}"
        parts.append(f"a season of {swing} from its lowest to its highest point in {time.format(season.shape[1])}")
    return f"Smoothing ({100 * share:.0f} % of the forecast): {', '.join(parts)}."


def _damped_sum(phi: float, steps: float) -> float:
    """Return phi + phi^2 + ... over a number of steps."""
    return steps if phi == 1 else phi * (1 - phi**steps) / (1 - phi)


def memory_features(network: Network, time: Step, local: LocalModels | None = None) -> Features:
    """Return how a network remembers; `time` is a step of the series, of which the network may read several at once.

    If the network has no part in forecasts, it is the local model with the largest weight that remembers.
    """
    if network.config.share == 0 and local is not None:
        return replace(recurrence_features(local.bank.layer(int(local.weights.sum((0, 1)).argmax()))), time=time)
    steps = network.config.segment
    if isinstance(network.encoder, TransformerEncoder):
        steps *= network.encoder.steps_per_update
    return replace(recurrence_features(network.encoder), time=Step(time.amount * steps, time.unit))


def _cycle(scaler: SeriesScaler, period: float, positions: NDArray[np.int64]) -> Array:
    cycles = [cycle.at(positions) for cycle in scaler.cycles if cycle.period == period]
    return cycles[0] if cycles else np.zeros((len(positions), len(scaler.mean)))


def _as_channels(component: Array) -> Array:
    """(B, H, C) as one sequence of B * C channels, (H, 1, B * C)."""
    flat: Array = component.transpose(1, 0, 2).reshape(component.shape[1], 1, -1)
    return flat


def _name(mode: Mode, time: Step) -> str:
    if mode.source == CALENDAR:
        return f"calendar {time.format(mode.period)}"
    if mode.source == LOCAL and mode.kind == "R":
        return "trend" if mode.order == 2 else "damped trend"
    if mode.source == LOCAL:
        return f"season {time.format(mode.period)}"
    if mode.kind == "C":
        return f"wave {time.format(mode.period)}"
    return f"decay {time.format(mode.half_life)}"

"""Forecasts as sums: a level, cycles of the calendar, waves and decays, and what covariates add."""

from __future__ import annotations

import cmath
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from parallelrnn.forecast.model import Encoded, Network
from parallelrnn.forecast.panel import Array
from parallelrnn.forecast.windows import Batch, Profile
from parallelrnn.interpret.display import Step, format_share
from parallelrnn.interpret.modes import CALENDAR, RECENT, ForecastModes, Mode, eigenvalues_of, shares_of_parts
from parallelrnn.nn import WaveDecoder


@dataclass(frozen=True)
class Origins:
    """Forecasts, and all that it takes to make them again: what the network held when it made them."""

    held: Encoded
    series: tuple[int, ...]  # which series each is of
    positions: tuple[int, ...]  # of their first steps

    @classmethod
    @torch.no_grad()
    def of(cls, network: Network, batch: Batch, series: Sequence[int], positions: Sequence[int]) -> Origins:
        """What a network holds at the end of some windows."""
        network.eval()
        return cls(network.read(batch), tuple(series), tuple(positions))


@dataclass(frozen=True)
class Parts:
    """The level and all parts sum to the forecasts; in the units of each series, or each at a scale of one."""

    level: Array  # (B, H, C)
    modes: tuple[Mode, ...]  # without shares: what the first parts are
    others: tuple[str, ...]  # what the other parts are
    parts: Array  # (modes and others, B, H, C)

    def names(self, time: Step) -> list[str]:
        """Of all parts, no two alike."""
        found = [_name(mode, time) for mode in self.modes] + list(self.others)
        seen: Counter[str] = Counter()
        unique = []
        for name in found:
            seen[name] += 1
            unique.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
        return unique

    def table(self, time: Step, where: str, latest: Parts | None = None) -> ForecastModes:
        """The modes with their shares in these forecasts, and with their parts in the latest, if they are known."""
        # The movement of a forecast, not from one to another, unless it has only one step.
        moves = self.parts - self.parts.mean(axis=2 if self.parts.shape[2] > 1 else 1, keepdims=True)
        count = len(self.modes)
        all_shares = shares_of_parts(moves.transpose(0, 2, 1, 3))
        shares = all_shares[:count]
        if "covariates" in self.others:
            carried = format_share(float(all_shares[count + self.others.index("covariates")]))
            where += f", and of what covariates known ahead add, with a share of {carried}"
        whole = latest is not None and not latest.others  # else modes do not add up to a forecast
        shown = [_as_channels(part) for part in latest.parts] if latest is not None and whole else [None] * count
        rows = [
            Mode(1, mode.eigenvalue, share=share, part=part, source=mode.source)
            for mode, share, part in zip(self.modes, shares, shown, strict=True)
        ]
        level = _as_channels(latest.level)[0, 0] if latest is not None and whole else None
        return ForecastModes(tuple(sorted(rows, key=lambda mode: -abs(mode.share))), where, time, level=level)


@torch.no_grad()
def parts_of(network: Network, origins: Origins, profiles: Sequence[Profile], middle: int, scaled: bool) -> Parts:
    """Forecasts in parts; `profiles` are those of all series, `middle` the quantile that counts."""
    made_of, held = network.made_of, origins.held
    own = [profiles[index] for index in origins.series]
    units = np.ones((len(own), 1, made_of.channels)) if scaled else np.stack([one.scale for one in own])[:, None]
    mean = np.zeros_like(units) if scaled else np.stack([one.mean for one in own])[:, None]
    times = np.array(origins.positions)[:, None] + np.arange(made_of.horizon)  # (B, H)

    modes: list[Mode] = []
    parts: list[Array] = []
    for period in sorted({cycle.period for one in profiles for cycle in one.cycles}):
        modes.append(Mode(1, cmath.exp(2j * cmath.pi / period), source=CALENDAR))
        cycle = np.stack([_cycle(one, period, time) for one, time in zip(own, times, strict=True)])
        parts.append(cycle / np.stack([one.scale for one in own])[:, None] if scaled else cycle)
    outer = held.scale.double().numpy() * units  # (B, 1, C)
    others: list[str] = []
    if isinstance(network.decoder, WaveDecoder):
        blocks = network.decoder.parts(held.state, made_of.horizon)
        blocks = blocks.unflatten(-1, (made_of.channels, made_of.quantiles))[..., middle]  # (B, H, blocks, C)
        for index, value in enumerate(eigenvalues_of(network.decoder)):
            modes.append(Mode(1, value, source=RECENT))
            parts.append(blocks[:, :, index].double().numpy() * outer)
    else:
        free = network.decoder(held.state, made_of.horizon)
        others.append("decoder")
        parts.append(free.unflatten(-1, (made_of.channels, made_of.quantiles))[..., middle].double().numpy() * outer)
    if network.effect is not None:
        others.append("covariates")
        parts.append(held.added.double().numpy() * units)
    level = held.level.double().numpy() * units + mean
    shape = (len(own), made_of.horizon, made_of.channels)
    return Parts(np.broadcast_to(level, shape), tuple(modes), tuple(others), np.stack(parts))


def _cycle(profile: Profile, period: float, time: NDArray[np.int64]) -> Array:
    found = [cycle.at(time) for cycle in profile.cycles if cycle.period == period]
    return found[0] if found else np.zeros((len(time), len(profile.mean)))


def _as_channels(part: Array) -> Array:
    """(B, H, C) as one sequence of B * C channels, (H, 1, B * C)."""
    flat: Array = part.transpose(1, 0, 2).reshape(part.shape[1], 1, -1)
    return flat


def _name(mode: Mode, time: Step) -> str:
    if mode.source == CALENDAR:
        return f"calendar {time.format(mode.period)}"
    if mode.kind == "C":
        return f"wave {time.format(mode.period)}"
    return f"decay {time.format(mode.half_life)}"

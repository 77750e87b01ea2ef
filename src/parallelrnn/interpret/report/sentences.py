"""What a reading says, in plain language."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from parallelrnn.interpret.dynamics import Row, Table
from parallelrnn.interpret.local import LocalDynamics
from parallelrnn.interpret.modes import CALENDAR, ForecastModes
from parallelrnn.interpret.report.reading import Reading
from parallelrnn.interpret.uncertainty import nearest
from parallelrnn.interpret.units import Step

_MENTIONED = 0.05  # the least share of what is named after the first
_TURNS = 0.01  # what has to be left after a full turn for a wave to be seen as one
_ALL = 1.005  # the share that rounds to 100 %


def lead(reading: Reading) -> list[str]:
    """The first paragraphs of a page: the cycles, the memory, and how far both hold."""
    return [text for text in (_cycles(reading), _memory(reading), _validity(reading)) if text]


def phrase(row: Row, time: Step, wave: str = "cycle") -> str:
    """A mode or feature as a person would call it."""
    if getattr(row, "source", "") == CALENDAR:
        return f"a {wave} of {time.format(row.period)}, fixed by the calendar,"
    if row.kind == "C" and (row.modulus >= 1 or 0.5 ** (row.period / row.half_life) >= _TURNS):
        what = f"a {wave} of {time.format(row.period)}"
        return f"{what} that {_fate(row, time)}"
    if row.eigenvalue.real < 0 and row.kind == "R":
        return f"a change of sign from step to step that {_fate(row, time)}"
    if row.modulus > 1:
        return f"a growth that doubles every {time.format(math.log(2) / math.log(row.modulus))}"
    if row.modulus == 1:
        names = {1: "a level that stays", 2: "a straight trend that goes on"}
        return names.get(row.order, "a trend that bends and goes on")
    return f"a decay that {_fate(row, time)}"


def _fate(row: Row, time: Step) -> str:
    if row.modulus > 1:
        return "grows"
    return "never fades" if row.modulus == 1 else f"fades with a half-life of {time.format(row.half_life)}"


def _cycles(reading: Reading) -> str:
    modes = reading.modes
    if modes is None:
        return reading.missing["modes"] + " What can be read is how it remembers its input."
    if any(mode.step is not None for mode in modes):
        return _left_alone(modes) + (
            "No state was found at which its own forecasts would rest, so its forecast modes are read step by step "
            "along a run on these forecasts, and no single list of cycles tells the whole story."
        )
    if not modes.has_shares and modes[0].part is not None:
        if any(not np.isfinite(mode.part).all() for mode in modes if mode.part is not None):
            return "After these data the model's forecasts grow beyond all bounds."
        return "After these data the model expects things to stay as they are: its forecasts do not vary."
    if not modes.has_shares:
        return _left_alone(modes) + (
            f"Close to the point where its own forecasts would rest, it carries {phrase(modes[0], modes.time)}. The "
            "forecasts after these data do not go there, so how much each mode carries cannot be said."
        )
    first, *others = sorted(modes, key=lambda mode: -mode.share)[:4]
    text = (
        f"The model carries {phrase(first, modes.time).rstrip(',')}. That explains {min(first.share, 1):.0%} of the "
        f"variation of its forecasts over the next {modes.time.format(reading.horizon)}{_how_sure(first, reading)}"
    )
    text += ", while other modes work against it." if first.share > _ALL else "."
    others = [mode for mode in others if mode.share >= _MENTIONED]
    if others:
        named = [f"{phrase(mode, modes.time).rstrip(',')} ({min(mode.share, 1):.0%})" for mode in others]
        text += f" Then {'comes' if len(others) == 1 else 'come'} {_list(named)}."
    return text + ("" if first.share > _ALL else _opposed(modes))


def _left_alone(modes: ForecastModes) -> str:
    """Where forecasts go that do not come to rest."""
    cycle = modes.cycle
    if cycle is None:
        return ""
    wave = f"a wave of {modes.time.format(cycle.period)}"
    if cycle.is_regular:
        return f"Left to itself the model settles into a cycle that never fades: {cycle.share:.0%} of it is {wave}. "
    return f"Left to itself the model wanders, without a single cycle: {wave} is no more than {cycle.share:.0%} of it. "


def _memory(reading: Reading) -> str:
    features, time = reading.features, reading.time
    if not len(features):
        return "It remembers nothing: what it puts out at a step depends on that step's input alone."
    if reading.local is not None:
        return _memory_along(reading.local)
    if len({feature.gate for feature in features}) > 1:
        return ""  # the matrix of one gate alone is no memory
    longest = max(features, key=lambda feature: feature.modulus)
    first = max(features, key=lambda feature: -math.inf if math.isnan(feature.share) else feature.share)
    text = "To get there it keeps its inputs in memory: " if reading.modes is not None else "It keeps its inputs: "
    if not first.share > 0:
        text += f"what lasts longest is {phrase(longest, time, 'wave')}."
    else:
        against = ", while others work against it" if first.share > _ALL else ""
        text += f"{min(first.share, 1):.0%} of the output is carried by {phrase(first, time, 'wave')}{against}"
        text += "." if longest is first else f"; what lasts longest is {phrase(longest, time, 'wave')}."
    at_once = sum(share for _, share in features.at_once)
    if at_once >= _MENTIONED:
        text += f" {min(at_once, 1):.0%} of the output is the input of the same step, which is not kept."
    return text + " Memory is not a forecast: these are not the cycles of the series."


def _memory_along(local: LocalDynamics) -> str:
    slowest = max(local.blocks, key=lambda block: float(np.median(block.half_lives)))
    name = f"the block that remembers longest (block {slowest.block} of layer {slowest.layer})"
    low, middle, high = np.quantile(slowest.half_lives, (0.05, 0.5, 0.95), method="lower")
    if math.isinf(middle):
        endless = float(np.isinf(slowest.half_lives).mean())
        text = f"Along the data, {name} loses nothing of what it holds at {endless:.0%} of the steps."
    else:
        limits = [local.time.format(float(value), "endless") for value in (low, high)]
        text = (
            f"Along the data, {name} holds on to what it knows with a half-life of {local.time.format(float(middle))}, "
            f"between {limits[0]} and {limits[1]} depending on where the data are."
        )
    return text + " Memory is not a forecast: this says nothing about the cycles of the series."


def _validity(reading: Reading) -> str:
    if reading.outlook is not None:
        return "Each forecast is the sum of these parts, exactly; how true that is of the series is another matter."
    if reading.is_linear:
        return "The model is linear, so all of this is exact for the model; how true of the series is another matter."
    locally = "The model is not linear, so what its weights say holds close to one state only."
    return locally if reading.local is None else f"{locally} How it behaves along the data is measured below."


def _list(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


def _opposed(table: Table[Any]) -> str:
    if any(row.share < -_MENTIONED for row in table):
        return " Some of its modes work against each other, so single shares say little; read them together."
    return ""


def _how_sure(row: Row, reading: Reading) -> str:
    """The interval of the period, or of the half-life of what does not turn, if several fits were compared."""
    matched = next((one for one in reading.uncertainty if reading.modes and one.name == reading.modes.name), None)
    found = None if matched is None else nearest(row, matched)
    if matched is None or found is None:
        return ""
    interval, name = (found.period, "period") if row.kind == "C" else (found.half_life, "half-life")
    if math.isnan(interval.low):
        return ""
    low, high = (reading.time.format(value, "no end") for value in (interval.low, interval.high))
    return f" ({name} between {low} and {high} at a level of {matched.level:.0%})"

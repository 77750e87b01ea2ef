"""The sentences at the top of a page."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from parallelrnn.interpret.display import Step
from parallelrnn.interpret.dynamics import Row
from parallelrnn.interpret.local import LocalDynamics
from parallelrnn.interpret.modes import CALENDAR, ForecastModes
from parallelrnn.interpret.report.reading import Reading
from parallelrnn.interpret.uncertainty import nearest

_LEAST_SHARE = 0.05  # of anything mentioned after the first
_VISIBLE_AFTER_A_TURN = 0.01  # a wave that has lost more than this in a full turn looks like a decay
_MORE_THAN_ALL = 1.005  # a share that no longer rounds to 100 %


def lead(reading: Reading) -> list[str]:
    """Return the first paragraphs of a page: the cycles, the memory, and how far both hold."""
    if reading.findings is None:
        first = [_cycles(reading), _memory(reading)]
    else:  # how a forecaster remembers is mostly how its training started
        first = [*reading.findings.sentences(), "" if reading.modes is not None else reading.missing["modes"]]
    return [text for text in (*first, *reading.notices, _validity(reading)) if text]


def phrase(row: Row, time: Step, wave: str = "cycle") -> str:
    """Describe a mode or feature in everyday words."""
    if getattr(row, "source", "") == CALENDAR:
        return f"a {wave} of {time.format(row.period)}, fixed by the calendar"
    fate = f"fades with a half-life of {time.format(row.half_life)}"
    if row.modulus >= 1:
        fate = "grows" if row.modulus > 1 else "never fades"
    if row.kind == "C" and (row.modulus >= 1 or 0.5 ** (row.period / row.half_life) >= _VISIBLE_AFTER_A_TURN):
        return f"a {wave} of {time.format(row.period)} that {fate}"
    if row.eigenvalue.real < 0 and row.kind == "R":
        return f"an alternation from step to step that {fate}"
    if row.modulus > 1:
        return f"exponential growth that doubles every {time.format(math.log(2) / math.log(row.modulus))}"
    if row.modulus == 1:
        return {1: "a constant level", 2: "a linear trend"}.get(row.order, "a polynomial trend")
    return f"a decay with a half-life of {time.format(row.half_life)}"


def _cycles(reading: Reading) -> str:
    modes = reading.modes
    if modes is None:
        return reading.missing["modes"] + " Only its memory can be read."
    if any(mode.step is not None for mode in modes):
        return _left_alone(modes) + (
            "No state was found at which its own forecasts come to rest, so its forecast modes are read step by step "
            "along a run on these forecasts, and no single list of cycles tells the whole story."
        )
    if not modes.has_shares and modes[0].part is not None:
        if any(not np.isfinite(mode.part).all() for mode in modes if mode.part is not None):
            return "After these data the model's forecasts grow without bound."
        return "After these data the model expects no change: its forecasts are constant."
    if not modes.has_shares:
        return _left_alone(modes) + (
            f"Near the state where its own forecasts would come to rest, it has {phrase(modes[0], modes.time)}. The "
            "forecasts after these data do not lead there, so the modes have no shares."
        )
    first, *others = sorted(modes, key=lambda mode: -mode.share)[:4]
    text = (
        f"The model has learned {phrase(first, modes.time)}. This explains {min(first.share, 1):.0%} of the variation "
        f"of its forecasts over the next {modes.time.format(reading.horizon)}{_interval_of(first, reading)}"
    )
    text += "; other modes partly cancel it." if first.share > _MORE_THAN_ALL else "."
    named = [f"{phrase(mode, modes.time)} ({mode.share:.0%})" for mode in others if mode.share >= _LEAST_SHARE]
    if named:
        text += f" Next {'is' if len(named) == 1 else 'are'} {_list(named)}."
    if first.share <= _MORE_THAN_ALL and any(mode.share < -_LEAST_SHARE for mode in modes):
        text += " Some modes partly cancel each other, so read their shares together rather than one by one."
    return text


def _left_alone(modes: ForecastModes) -> str:
    """Say where forecasts go that do not come to rest."""
    cycle = modes.cycle
    if cycle is None:
        return ""
    wave = f"a wave of {modes.time.format(cycle.period)}"
    if cycle.is_regular:
        return f"Left to itself, the model settles into a cycle that never fades; {wave} is {cycle.share:.0%} of it. "
    return f"Left to itself, the model wanders without a single cycle; {wave} is only {cycle.share:.0%} of it. "


def _memory(reading: Reading) -> str:
    features, time = reading.features, reading.time
    if not len(features):
        return "The model has no memory: its output at a step depends on that step's input alone."
    if reading.local is not None:
        return _memory_along(reading.local)
    if len({feature.gate for feature in features}) > 1:
        return ""  # the matrix of a single gate does not describe the memory
    longest = max(features, key=lambda feature: feature.modulus)
    first = max(features, key=lambda feature: -math.inf if math.isnan(feature.share) else feature.share)
    text = "In its memory, "
    if first.share > 0:
        text += f"{min(first.share, 1):.0%} of the output is carried by {phrase(first, time, 'wave')}"
        text += ", which other features partly cancel" if first.share > _MORE_THAN_ALL else ""
    if longest is not first or not first.share > 0:
        text += "; " if first.share > 0 else ""
        text += f"the longest-lasting feature is {phrase(longest, time, 'wave')}"
    at_once = sum(share for _, share in features.at_once)
    if at_once >= _LEAST_SHARE:
        text += f". Another {min(at_once, 1):.0%} of the output is just the input of the same step"
    return text + ". Memory is not a forecast: these are not the cycles of the series."


def _memory_along(local: LocalDynamics) -> str:
    slowest = max(local.blocks, key=lambda block: float(np.median(block.half_lives)))
    name = f"the block that remembers longest (block {slowest.block} of layer {slowest.layer})"
    low, middle, high = np.quantile(slowest.half_lives, (0.05, 0.5, 0.95), method="lower")
    if math.isinf(middle):
        infinite = float(np.isinf(slowest.half_lives).mean())
        text = f"Along the data, {name} forgets nothing at {infinite:.0%} of the steps."
    else:
        limits = [local.time.format(float(value), "infinity") for value in (low, high)]
        text = (
            f"Along the data, {name} forgets with a half-life of {local.time.format(float(middle))} (median; between "
            f"{limits[0]} and {limits[1]} at 90% of the steps)."
        )
    return text + " Memory is not a forecast: this says nothing about the cycles of the series."


def _validity(reading: Reading) -> str:
    if reading.outlook is not None:
        return (
            "Each forecast is exactly the sum of the parts listed below, or their product where a series is read as "
            "logarithms. These describe the model, not necessarily the series."
        )
    if reading.is_linear:
        return "The model is linear, so all of this is exact for the model, but not necessarily true of the series."
    locally = "The model is not linear, so its weights describe it only near one state."
    return locally if reading.local is None else f"{locally} Its behaviour along the data is measured below."


def _list(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


def _interval_of(row: Row, reading: Reading) -> str:
    """Return the interval of the period, or of the half-life of a decay, if several fits were compared."""
    matched = next((table for table in reading.uncertainty if reading.modes and table.name == reading.modes.name), None)
    match = None if matched is None else nearest(row, matched)
    if matched is None or match is None:
        return ""
    interval, name = (match.period, "period") if row.kind == "C" else (match.half_life, "half-life")
    if math.isnan(interval.low):
        return ""
    low, high = (reading.time.format(value, "infinity") for value in (interval.low, interval.high))
    return f" ({matched.level:.0%} interval of the {name}: {low} to {high})"

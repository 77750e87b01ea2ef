"""What a reading says, in plain language."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from parallelrnn.interpret.dynamics import Row, Table
from parallelrnn.interpret.local import LocalDynamics
from parallelrnn.interpret.report.reading import Reading
from parallelrnn.interpret.uncertainty import nearest
from parallelrnn.interpret.units import Step

_MENTIONED = 0.05  # the least share of what is named after the first


def lead(reading: Reading) -> list[str]:
    """The first paragraphs of a page: the cycles, the memory, and how far both hold."""
    return [text for text in (_cycles(reading), _memory(reading), _validity(reading)) if text]


def _cycles(reading: Reading) -> str:
    modes = reading.modes
    if modes is None:
        return reading.missing["modes"] + " What can be read is how it remembers its input."
    if any(mode.step is not None for mode in modes):
        return (
            "Run on its own forecasts the model comes to rest nowhere: it cycles or wanders. Its forecast modes are "
            "therefore read step by step along such a run, and no single list of cycles tells the whole story."
        )
    if not modes.has_shares:
        slowest = _kind(modes[0], modes.time, "cycle")
        text = (
            f"Close to the point where its own forecasts would rest, it carries {slowest} that {_fate(modes[0])}: its "
            "forecasts move away from there, so how much each mode carries cannot be said."
        )
        if modes.cycle is None:
            return text
        return (
            "Left to itself the model settles into a cycle that never fades: "
            f"{modes.cycle.share:.0%} of it is a wave of {modes.time.format(modes.cycle.period)}. {text}"
        )
    first, *others = modes.most_important(4)
    sure = _how_sure(first, reading)
    text = (
        f"The model carries {_kind(first, modes.time, 'cycle')} that {_fades(first, modes.time)} and explains "
        f"{first.share:.0%} of the variation of its forecasts over the next {modes.time.format(reading.horizon)}{sure}."
    )
    others = [mode for mode in others if mode.share >= _MENTIONED]
    if others:
        text += f" Then {_verb(others)} {_list([_brief(mode, modes.time, 'cycle') for mode in others])}."
    return text + _opposed(modes)


def _memory(reading: Reading) -> str:
    features, time = reading.features, reading.time
    if not len(features):
        return "It remembers nothing: what it puts out at a step depends on that step's input alone."
    if reading.local is not None:
        return _memory_along(reading.local)
    longest = max(features, key=lambda feature: feature.modulus)
    first = features.most_important(1)[0]
    text = "To get there it keeps its inputs in memory: " if reading.modes is not None else "It keeps its inputs: "
    if math.isnan(first.share):
        text += f"its longest-lived feature is {_kind(longest, time, 'wave')} that {_fades(longest, time)}."
    else:
        text += (
            f"the feature that carries most of the output ({first.share:.0%}{_against(first)}) is "
            f"{_kind(first, time, 'wave')} that {_fades(first, time)}"
        )
        if longest is not first:
            text += f", and the longest-lived is {_kind(longest, time, 'wave')} that {_fades(longest, time)}"
        text += "."
    return text + " Memory is not a forecast: these are not the cycles of the series."


def _memory_along(local: LocalDynamics) -> str:
    slowest = max(local.blocks, key=lambda block: float(np.median(block.half_lives)))
    low, middle, high = (
        local.time.format(float(value), "never")
        for value in np.quantile(slowest.half_lives, (0.05, 0.5, 0.95), method="lower")
    )
    return (
        f"Along the data, the block that remembers longest (block {slowest.block} of layer {slowest.layer}) loses half "
        f"of what it holds in {middle}, between {low} and {high} depending on where the data are. Memory is not a "
        "forecast: this says nothing about the cycles of the series."
    )


def _validity(reading: Reading) -> str:
    if reading.is_linear:
        return "The model is linear, so all of this is exact."
    return (
        "The model is not linear, so what its weights say holds close to one state only. How it behaves along the data "
        "is measured below, under responses and local dynamics."
    )


def _kind(row: Row, time: Step, wave: str) -> str:
    if row.kind == "C":
        return f"a {wave} of {time.format(row.period)}"
    return "a change of sign from step to step" if row.eigenvalue.real < 0 else "a level" if _stays(row) else "a decay"


def _stays(row: Row) -> bool:
    return row.modulus >= 1


def _fades(row: Row, time: Step) -> str:
    if row.modulus < 1:
        return f"fades with a half-life of {time.format(row.half_life)}"
    return _fate(row)


def _fate(row: Row) -> str:
    return "grows" if row.modulus > 1 else "never fades" if row.modulus == 1 else "fades"


def _brief(row: Row, time: Step, wave: str) -> str:
    if row.kind == "C":
        return f"{_kind(row, time, wave)} ({row.share:.0%})"
    return f"{_kind(row, time, wave)} that {_fades(row, time)} ({row.share:.0%})"


def _against(row: Row) -> str:
    return ", others work against it" if row.share > 1 else ""


def _verb(rows: Sequence[Row]) -> str:
    return "comes" if len(rows) == 1 else "come"


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
    low, high = (reading.time.format(value) for value in (interval.low, interval.high))
    return f" ({name} between {low} and {high} at a level of {matched.level:.0%})"

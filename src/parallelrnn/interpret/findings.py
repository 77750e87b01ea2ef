"""Findings: the trends, calendar cycles and cycles that data show beyond noise, each number with its interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from parallelrnn.interpret.display import Display, Step
from parallelrnn.interpret.uncertainty import Interval

KINDS = ("level", "trend", "calendar", "cycle", "decay")
NUMBERS = ("period", "half_life", "share_forecast", "share_series")
LEVEL = 90  # per cent, of all intervals
# What is left of series without their findings: nothing was looked at, a steady level and noise, a level that wanders
# (R-1 at modulus one), or a level and deviations from it that fade (R-1 below one).
RESTS = ("unknown", "noise", "level", "decay")
_LIMITS = (("", "estimate"), (f"-lo-{LEVEL}", "low"), (f"-hi-{LEVEL}", "high"))
EVIDENCE = ("strong", "small", "weak")
_STRONG_SHARE = 0.05  # of the series, that a strong finding explains at least
_SURE = 1 / 3  # the lower limit of a share over the share itself, from which on it is known
_LITTLE = 0.1  # of the variation of a series: forecasts that explain less move little
_SMALL_GAP = 0.05  # of the variation, that forecasts may explain less than findings without a word
# What is said of a series, by the evidence.
_SENTENCES = {
    "strong": "The data show {what}. It accounts for an estimated {series} of the series' variation {ahead}{shape}.",
    "small": "The data show {what}, small beside the rest of the series: it accounts for an estimated {series} of the "
    "variation {ahead}{shape}.",
    "weak": "The data show signs of {what}. How much of the series' variation {ahead} it accounts for is very "
    "uncertain: {series}{shape}.",
    "none": "No trend, calendar cycle or other cycle stands out from noise in these data. The parts of the forecast, "
    "listed below, are not evidence of any.",
    "unknown": "There are too few values, or they vary too little, to tell what these data show.",
    "noise": "The series looks like noise around a steady level, and that level is the best forecast.",
    "level": "The series is a level that wanders: it stays near its last value, which is close to the best forecast.",
    "decay": "The series keeps returning to a steady level, but slowly: high values tend to be followed by high ones.",
    "noise left": "What is left looks like noise, of which nothing can be forecast.",
    "level left": "What is left is a level that wanders: of this part, the last value is close to the best forecast.",
    "decay left": "What is left keeps returning to a steady level, but slowly.",
    "much": "On data that training did not see, forecasts explained {explained} of the variation of {these} {ahead}.",
    "little": "Forecasts of {these} move little: on data that training did not see, they explained {explained} of the "
    "variation {ahead}.",
    "missed": "The findings suggest that more is possible, so another model may do better.",
}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A trend, calendar cycle, cycle, level or decay that the data show."""

    kind: str  # one of KINDS
    period: Interval  # in steps; NaN where there is none
    half_life: Interval  # in steps; NaN where the data determine no more than its lower limit
    share_forecast: Interval  # of the movement of forecasts
    share_series: Interval  # of the variation of the series, in forecasts up to the horizon

    @property
    def evidence(self) -> str:
        """One of EVIDENCE: how large the part of the series is that it explains, and how surely."""
        if self.share_series.low >= _STRONG_SHARE:
            return "strong"
        return "small" if self.share_series.low >= _SURE * self.share_series.estimate else "weak"

    def phrase(self, time: Step) -> str:
        """Describe the finding, with intervals."""
        if self.kind == "trend":
            return "a steady trend"
        if self.kind == "calendar":
            return f"a cycle of {time.format(self.period.estimate)}, fixed by the calendar"
        return f"a cycle of {self.period.format(time)} {_fate(self.half_life, time)}"


@dataclass(frozen=True, kw_only=True)
class Findings(Sequence[Finding]):
    """The findings of a series, or of a panel whose series share them; those that explain most come first."""

    rows: tuple[Finding, ...]
    explained: float  # of the variation of the series by all forecasts, out of sample
    rest: str  # one of RESTS
    time: Step
    horizon: int
    series: int  # how many

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]

    def columns(self) -> dict[str, Any]:
        """Return the columns of a table with a row for each finding, in steps."""
        table: dict[str, Any] = {"kind": [row.kind for row in self.rows]}
        for name in NUMBERS:
            for suffix, part in _LIMITS:
                values = [getattr(getattr(row, name), part) for row in self.rows]
                table[name + suffix] = np.array(values, dtype=np.float64)
        return table

    def to_json(self) -> dict[str, Any]:
        """Return the findings in steps: None where a number is not determined, "inf" where it has no end."""
        columns = {name: list(values) for name, values in self.columns().items()}
        rows = [dict(zip(columns, map(_plain, row), strict=True)) for row in zip(*columns.values(), strict=True)]
        return {"findings": rows, "explained": _plain(self.explained), "rest": self.rest}

    def display(self) -> Display:
        """Return the findings as a table."""
        rows = [
            (
                row.kind,
                "-" if math.isnan(row.period.estimate) else _of_period(row, self.time),
                _half_life(row, self.time),
                row.share_series.format(),
                row.share_forecast.format(),
            )
            for row in self.rows
        ]
        notes = [f"Intervals at {LEVEL} %." if rows else _SENTENCES["none" if self.rest != "unknown" else "unknown"]]
        if not math.isnan(self.explained):
            notes.append(
                f"This model's forecasts explain {100 * max(0.0, self.explained):.0f} % of the series' variation over "
                f"the next {self.time.format(self.horizon)}, out of sample."
            )
        if self.rest != "unknown":
            notes.append(self._about_rest())
        names = ("kind", "period", "half-life", "share of series", "share of forecast")
        return Display("Findings (what the data show)", names, rows, notes)

    def sentences(self) -> list[str]:
        """Return what there is to say of the series, in words that follow the evidence."""
        ahead = f"over the next {self.time.format(self.horizon)}"
        these = "this series" if self.series == 1 else f"these {self.series} series"
        texts = []
        if not math.isnan(self.explained):
            key = "little" if self.explained < _LITTLE else "much"
            explained = "nothing" if self.explained < 0.005 else f"{100 * self.explained:.0f} %"
            texts.append(_SENTENCES[key].format(these=these, explained=explained, ahead=ahead))
            if self.rows and self.explained + _SMALL_GAP < sum(row.share_series.low for row in self.rows):
                texts[0] += " " + _SENTENCES["missed"]
        if not self.rows and self.rest != "unknown":
            texts.append(_SENTENCES["none"])
        for row in sorted(self.rows, key=lambda row: EVIDENCE.index(row.evidence)):
            shape = f"; {row.share_forecast.format()} of the movement in this model's forecasts has its shape"
            shape = "" if math.isnan(row.share_forecast.estimate) else shape  # forecasts of one step do not move
            about = {"what": row.phrase(self.time), "series": row.share_series.format(), "shape": shape}
            texts.append(_SENTENCES[row.evidence].format(ahead=ahead, **about))
        return [*texts, self._about_rest()]

    def _about_rest(self) -> str:
        return _SENTENCES[f"{self.rest} left" if self.rows and self.rest != "unknown" else self.rest]


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value
    return None if math.isnan(value) else "inf" if math.isinf(value) else float(value)


def _of_period(row: Finding, time: Step) -> str:
    return time.format(row.period.estimate) if row.kind == "calendar" else row.period.format(time)


def _half_life(row: Finding, time: Step) -> str:
    if row.kind != "cycle":
        return "-"
    if math.isnan(row.half_life.estimate):
        return f"not determined, > {_about(row.half_life.low, time)}"
    return row.half_life.format(time)


def _fate(half_life: Interval, time: Step) -> str:
    if math.isnan(half_life.estimate):
        return f"whose half-life is longer than {_about(half_life.low, time)}: not determined by these data"
    return f"that fades with a half-life of {half_life.format(time)}"


def _about(half_life: float, time: Step) -> str:
    """Return a limit to two digits, which is all that it is good for."""
    return time.format(float(f"{half_life:.2g}"))

"""The tables of the reading benchmark: what was found of planted waves and in empty series, and by whom."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from parallelrnn.lab.benchmarks.planted import EMPTY
from parallelrnn.lab.benchmarks.reading import (
    COMPONENTS,
    EXACT,
    FINDINGS,
    HORIZON,
    LENGTHS,
    LOOKBACKS,
    NAME,
    PANEL,
    PERIODOGRAM,
    TEST,
    empty_configs,
    planted_configs,
    planted_of,
)
from parallelrnn.lab.runs import RunStore
from parallelrnn.lab.tables import Table

FAR = 0.1  # relative error of a period from which on a cycle is not the planted one


class Read:
    """The findings of one wave of a configuration, draw by draw, beside those of the exact likelihood."""

    def __init__(self, config: dict[str, Any], wave: int, runs: dict[str, list[dict[str, Any]]]) -> None:
        planted = planted_of(config)
        self.period, self.half_life = planted.periods[wave], planted.half_life
        self.found = [self._nearest(draw.get("findings", [])) for draw in runs[FINDINGS]]
        # Where the half-life is not determined, the share is that of the stretch that was observed.
        share = planted.true_shares(HORIZON)[wave]
        self.shares = [
            draw["observed_shares"][wave]
            if row is not None and math.isnan(row["half_life"][0]) and "observed_shares" in draw
            else share
            for row, draw in zip(self.found, runs[FINDINGS], strict=True)
        ]
        self.exact = [
            (draw["periods"][wave], draw["half_lives"][wave]) if "periods" in draw else (math.nan, math.nan)
            for draw in runs.get(EXACT, [{}] * len(self.found))
        ]

    def _nearest(self, findings: list[dict[str, Any]]) -> dict[str, Any] | None:
        near = [row for row in findings if row["kind"] == "cycle" and abs(row["period"][0] / self.period - 1) < FAR]
        return min(near, key=lambda row: abs(row["period"][0] / self.period - 1), default=None)

    def cells(self) -> list[str]:
        """Return a row: found, median errors beside the exact likelihood's on the same draws, and coverage."""
        pairs = [(row, exact) for row, exact in zip(self.found, self.exact, strict=True) if row is not None]
        cells = [f"{len(pairs) / len(self.found):.0%}"]
        near = [abs(exact[0] / self.period - 1) < FAR for exact in self.exact if not math.isnan(exact[0])]
        cells[0] += f" / {np.mean(near):.0%}" if near else ""
        if not pairs:
            return cells
        cells.append(self._errors([(row["period"][0], exact[0]) for row, exact in pairs], self.period))
        told = [(row["half_life"][0], exact[1]) for row, exact in pairs if not math.isnan(row["half_life"][0])]
        never = 1 - len(told) / len(pairs)
        cells.append(f"{np.median([own for own, _ in told]):.3g}" if told else "-")
        cells.append(self._errors(told, self.half_life) if told and not math.isinf(self.half_life) else "-")
        cells.append(f"{never:.0%}")
        count = len(self.found)
        truths = {"period": [self.period] * count, "half_life": [self.half_life] * count, "share_series": self.shares}
        for name, values in truths.items():
            rows = [(row[name], truth) for row, truth in zip(self.found, values, strict=True) if row is not None]
            cells.append(f"{np.mean([low <= truth <= high for (_, low, high), truth in rows]):.0%}")
        return cells

    def _errors(self, pairs: Sequence[tuple[float, float]], truth: float) -> str:
        errors = [
            [abs(value / truth - 1) for value in values if not math.isnan(value)] for values in zip(*pairs, strict=True)
        ]
        return " / ".join(_percent(float(np.median(own)) if own else math.nan) for own in errors)


def _percent(value: float) -> str:
    return "-" if math.isnan(value) else f"{100 * value:.2g} %" if value < 0.1 else f"{100 * value:.0f} %"


def _load(results: Path, seed: int = TEST) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Return the draws by configuration and method."""
    runs: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for one in RunStore(results / "benchmarks").load(NAME):
        if one.seed == seed:
            config = {name: value for name, value in one.config.items() if name != "method"}
            runs.setdefault(repr(config), {})[one.config["method"]] = one.result["draws"]
    return runs


def planted_table(results: Path) -> Table:
    """Return what was found of planted waves."""
    runs, rows = _load(results), []
    for config in planted_configs():
        own = runs.get(repr(config), {})
        for wave, period in enumerate(config["periods"] if FINDINGS in own else ()):
            half_life = "never" if config["half_life"] is None else f"{config['half_life']:g}"
            about = [str(config["length"]), f"{config['ratio']:g}", str(len(config["periods"]))]
            about += ["yes" if config["trend"] else "no", f"{period:g}", half_life]
            rows.append([*about, *Read(config, wave, own).cells()])
    columns = ["T", "signal to noise", "waves", "trend", "period", "half-life", "found", "error of the period"]
    columns += ["median half-life", "error of the half-life", "not determined"]
    return Table([*columns, "period covered", "half-life covered", "share covered"], rows)


def methods_table(results: Path) -> Table:
    """Return how often single waves are found by others, and their median errors of period and half-life."""
    runs, rows = _load(results), []
    for config in planted_configs():
        own = runs.get(repr(config), {})
        if len(config["periods"]) > 1 or COMPONENTS not in own or FINDINGS not in own:
            continue
        period, half_life = config["periods"][0], config["half_life"]
        cells = [str(config["length"]), f"{config['ratio']:g}", "yes" if config["trend"] else "no", f"{period:g}"]
        cells.append("never" if half_life is None else f"{half_life:g}")
        found = [row for row in Read(config, 0, own).found[: len(own[COMPONENTS])] if row is not None]
        pairs = [(row["period"][0], row["half_life"][0]) for row in found]
        cells.append(_found(pairs, len(own[COMPONENTS]), period, half_life))
        pairs = [(draw["periods"][0], draw["half_lives"][0]) for draw in own[COMPONENTS] if "periods" in draw]
        cells.append(_found(pairs, len(own[COMPONENTS]), period, half_life))
        clear = [draw["periods"][0] for draw in own.get(PERIODOGRAM, []) if draw["chance"] < 0.05]
        cells.append(_found([(own, math.nan) for own in clear], len(own.get(PERIODOGRAM, [])), period, None))
        rows.append(cells)
    columns = ["T", "signal to noise", "trend", "period", "half-life", FINDINGS, COMPONENTS, PERIODOGRAM]
    return Table(columns, rows)


def _found(pairs: Sequence[tuple[float, float]], count: int, period: float, half_life: float | None) -> str:
    """Return how many of `count` waves were found, with the median errors of their periods and half-lives."""
    near = [pair for pair in pairs if abs(pair[0] / period - 1) < FAR]
    if not near:
        return "0%" if count else "-"
    text = f"{len(near) / count:.0%}, {_percent(float(np.median([abs(own / period - 1) for own, _ in near])))}"
    errors = [] if half_life is None else [abs(own / half_life - 1) for _, own in near if not math.isnan(own)]
    return f"{text}, {_percent(float(np.median(errors)))}" if errors else text


def lookback_table(results: Path) -> Table:
    """Return the median half-life that forecasters read, and the share of their forecasts, by look-back."""
    found: dict[Any, dict[int, list[dict[str, Any]]]] = {}
    for one in RunStore(results / "benchmarks").load(NAME):
        if one.seed == TEST and one.config["series"] == "lookbacks":
            rows = [row for draw in one.result["draws"] for row in draw["findings"] if row["kind"] == "cycle"]
            found.setdefault(one.config["half_life"], {})[one.config["lookback"]] = rows
    table = []
    for half_life in sorted(found, key=lambda value: -(value or math.inf)):
        cells = []
        for lookback in LOOKBACKS:
            rows = found[half_life].get(lookback, [])
            told = [row["half_life"][0] for row in rows if not math.isnan(row["half_life"][0])]
            shares = [row["share_forecast"][0] for row in rows]
            text = f"{np.median(told):.3g}" if told else "not determined"
            cells.append(f"{text}; {np.median(shares):.0%}" if shares else "-")
        table.append(["never" if half_life is None else f"{half_life:g}", *cells])
    return Table(["half-life", *(f"look-back {lookback}" for lookback in LOOKBACKS)], table)


def empty_table(results: Path) -> Table:
    """Return how often something was found where nothing is, with standard errors."""
    runs, rows = _load(results), []
    for kind in EMPTY:
        cells = []
        for config in empty_configs():
            if config["kind"] == kind:
                own = runs.get(repr(config), {})
                cells.append(_rate([bool(draw.get("findings")) for draw in own.get(FINDINGS, [])]))
                if config["count"] == 1:
                    cells.append(_rate([draw["chance"] < 0.05 for draw in own.get(PERIODOGRAM, [])]))
        rows.append([kind, *cells])
    columns = [f"{name}, T = {length}" for length in LENGTHS for name in ("findings", "periodogram")]
    return Table(["series", *columns, f"findings, {PANEL} series"], rows)


def _rate(hits: Sequence[bool]) -> str:
    if not hits:
        return "-"
    rate = float(np.mean(hits))
    return f"{rate:.1%} ± {math.sqrt(max(rate, 1 / len(hits)) * (1 - rate) / len(hits)):.1%}"

"""The interactive figures of a page, by Plotly; the page gives them its colours."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from parallelrnn.interpret.contributions import Contributions
from parallelrnn.interpret.dynamics import Row, Table, format_share
from parallelrnn.interpret.modes import CALENDAR, ForecastModes
from parallelrnn.interpret.optional import optional
from parallelrnn.interpret.plots import COLOURS
from parallelrnn.interpret.report.reading import Outlook
from parallelrnn.interpret.report.sentences import phrase
from parallelrnn.interpret.response import ImpulseResponse
from parallelrnn.interpret.uncertainty import MatchedTables
from parallelrnn.interpret.units import Step

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Array = NDArray[np.float64]
PALETTE = ("#2f81c7", "#d2622f", "#3a9a5f", "#a05fc0", "#c79a1f", "#4fb3bf", "#b0628f")
PAIRS = 12  # of an input and an output, whose responses are shown
NEUTRAL = "#8a8f98"
_SHOWN = 300  # steps of components
_MOST = 5  # parts that are shown one by one
_NAMED = 4  # of the points in a disk
_MARKERS = (7.0, 34.0)  # diameters of the smallest and the largest share


def disk(table: Table[Any]) -> Figure:
    """Eigenvalues in the unit disk, area by share."""
    circle = np.exp(1j * np.linspace(0, 2 * math.pi, 181))
    reach = 1.1 * max([1.0, *(row.modulus for row in table)])
    figure = _figure(
        xaxis={"title": "real part", "range": [-reach, reach], "constrain": "domain"},
        yaxis={"title": "imaginary part", "range": [-reach, reach], "scaleanchor": "x", "constrain": "domain"},
        height=460,
        margin={"l": 60, "r": 16, "t": 16, "b": 48},
    )
    figure.add_scatter(
        x=circle.real,
        y=circle.imag,
        mode="lines",
        line={"color": NEUTRAL, "width": 1},
        hoverinfo="skip",
        showlegend=False,
    )
    largest = max((row.share for row in table if row.share > 0), default=1.0)
    named = _apart([row for row in table.most_important(_NAMED) if row.kind == "C"])
    for kind, name in (("C", "waves"), ("R", "decays")):
        rows = [row for row in table if row.kind == kind]
        points = [(row, z) for row in rows for z in dict.fromkeys((row.eigenvalue, row.eigenvalue.conjugate()))]
        figure.add_scatter(
            x=[z.real for _, z in points],
            y=[z.imag for _, z in points],
            mode="markers+text",
            name=f"{name} ({len(rows)})",
            marker={
                "color": COLOURS[kind],
                "opacity": 0.65,
                "size": [_size(row, largest) if table.has_shares else 11 for row, _ in points],
                "line": {"width": 0},
            },
            text=[table.time.format(row.period) if row in named and z.imag >= 0 else "" for row, z in points],
            textposition=["middle left" if z.real > 0 else "middle right" for _, z in points],
            customdata=[_hover(row, table.time) for row, _ in points],
            hovertemplate="%{customdata}<extra></extra>",
        )
    return figure


def outlook(found: Outlook, names: Sequence[str]) -> Figure:
    """The end of each series and its forecast, with bands, one series at a time."""
    figure = _figure(xaxis={"title": ""}, yaxis={"title": "value"}, height=420, hovermode="x unified")
    choices = []
    for index, (name, past, future) in enumerate(zip(names, found.past, found.future, strict=True)):
        before = len(figure.data)
        shown = before == 0
        for band, (label, low, high) in enumerate(found.bands):
            figure.add_scatter(
                x=[*future.times, *future.times[::-1]],
                y=[*high[index], *low[index][::-1]],
                fill="toself",
                fillcolor=f"rgba(47, 129, 199, {0.15 + 0.15 * band:.2f})",  # told apart in the legend, too
                mode="lines",
                line={"width": 0, "color": COLOURS["C"]},
                name=html.escape(label),
                hoverinfo="skip",
                visible=shown,
            )
        _line(figure, past.times, past.values, "observed", {"color": NEUTRAL, "width": 1.5}, shown)
        _line(figure, future.times, future.values, "forecast", {"color": COLOURS["C"], "width": 2.5}, shown)
        choices.append((name, before, len(figure.data)))
    return _with_choice(figure, choices)


def forecast(modes: ForecastModes, names: Sequence[str]) -> Figure | None:
    """The forecast after the data (the first sequence) less its level, and what the most important modes add to it.

    Beside a level of 370 waves of 3 could not be seen.
    """
    shown = [mode for mode in modes.most_important(_MOST) if mode.part is not None]
    if not shown or modes.level is None:
        return None
    others = [mode for mode in modes if mode not in shown and mode.part is not None]
    curves = [(_name(mode, modes.time), mode.part[:, 0]) for mode in shown if mode.part is not None]
    if others:
        rest: Array = np.sum([mode.part[:, 0] for mode in others if mode.part is not None], axis=0)
        curves.append((f"{len(others)} others", rest))
    total: Array = np.sum([curve for _, curve in curves], axis=0)
    steps: Array = np.arange(1.0, len(total) + 1) * modes.time.amount
    return _sums(total, curves, names, "forecast less its level", f"time ahead{_in(modes.time)}", steps)


def components(found: Contributions, names: Sequence[str]) -> Figure:
    """The output at the end of the first sequence of a batch, and what the most important blocks add to it."""
    total, parts = (tensor.cpu().numpy() for tensor in found.sequence(0))
    shares, labels = found.shares(), found.names()
    order = shares.abs().argsort(descending=True).tolist()
    curves = [(f"{labels[index]} ({shares[index]:.0%})", parts[-_SHOWN:, index]) for index in order[:_MOST]]
    if order[_MOST:]:
        curves.append((f"{len(order) - _MOST} others", parts[-_SHOWN:, order[_MOST:]].sum(axis=1)))
    steps: Array = np.arange(float(len(total)))[-_SHOWN:]
    return _sums(total[-_SHOWN:], curves, names, "output", "step of the data", steps)


def response(
    found: ImpulseResponse, inputs: Sequence[str], outputs: Sequence[str], time: Step, is_linear: bool
) -> Figure:
    """The answer of an output to a nudge of an input: mean, band, the curve without activation, and single blocks.

    Of many pairs of an input and an output, those with the largest answers.
    """
    figure = _figure(
        xaxis={"title": f"lag{_in(time)}"},
        yaxis={"title": "change of the output per unit"},
        height=400,
        hovermode="x unified",
    )
    lags: Array = np.arange(float(len(found.mean))) * time.amount
    sizes = abs(found.mean).max(axis=0)  # (C, out)
    largest = np.argsort(-sizes, axis=None)[:PAIRS]
    choices = []
    for i, o in sorted(zip(*np.unravel_index(largest, sizes.shape), strict=True)):
        before = len(figure.data)
        shown = before == 0
        _band(figure, lags, found, int(i), int(o), shown)
        curve = None if found.linear is None or is_linear else found.linear[:, i, :, o].sum(axis=-1)
        if curve is not None:
            limit = 3 * max(abs(found.high[:, i, o]).max(), abs(found.low[:, i, o]).max())
            inside = np.where(abs(curve) <= limit, curve, np.nan)  # without its activation a layer may diverge
            _line(figure, lags, inside, "without activation", {"color": COLOURS["R"], "dash": "dash"}, shown)
        order = np.argsort(-abs(found.by_block[:, i, :, o]).max(axis=0))[: _MOST if len(found.blocks) > 1 else 0]
        for colour, block in zip(PALETTE[1:], order, strict=False):
            style = {"color": colour, "width": 1, "dash": "dot"}
            name = f"block {found.blocks[block].block}"
            _line(figure, lags, found.by_block[:, i, block, o], name, style, "legendonly" if shown else False)
        choices.append((f"{inputs[i]} → {outputs[o]}", before, len(figure.data)))
    return _with_choice(figure, choices)


def _band(figure: Figure, lags: Array, found: ImpulseResponse, i: int, o: int, visible: bool) -> None:
    figure.add_scatter(
        x=[*lags, *lags[::-1]],
        y=[*found.high[:, i, o], *found.low[::-1, i, o]],
        fill="toself",
        fillcolor="rgba(47, 129, 199, 0.3)",
        mode="lines",
        line={"width": 0, "color": COLOURS["C"]},
        name=f"{found.band:.0%} of {found.places} places",
        hoverinfo="skip",
        visible=visible,
    )
    _line(figure, lags, found.mean[:, i, o], "mean", {"color": COLOURS["C"]}, visible)


def _line(figure: Figure, x: Any, y: Array, name: str, style: dict[str, Any], visible: bool | str) -> None:
    figure.add_scatter(
        x=x, y=y, mode="lines", line=style, name=html.escape(name), visible=visible, hovertemplate="%{y:.3g}"
    )


def intervals(matched: MatchedTables, most: int = 12) -> Figure | None:
    """Periods and half-lives with their intervals, in the order of the table."""
    rows = [(f"{index + 1}. {one.label}", one) for index, one in enumerate(matched.rows[:most])]
    finite = [value for _, one in rows for i in (one.period, one.half_life) for value in (i.estimate, i.low, i.high)]
    finite = [value for value in finite if math.isfinite(value) and value > 0]
    if not finite:
        return None
    edge = 2 * max(finite)  # where an open end is drawn to
    figure = _figure(
        xaxis={"title": f"time{_in(matched.time)}", "type": "log"},
        yaxis={
            "type": "category",
            "categoryorder": "array",
            "categoryarray": [label for label, _ in rows],
            "range": [len(rows) - 0.5, -0.5],
        },
        height=170 + 36 * len(rows),
    )
    for name, colour, symbol in (("period", COLOURS["C"], "circle"), ("half_life", COLOURS["R"], "diamond")):
        points = [(label, getattr(one, name)) for label, one in rows]
        points = [(label, i) for label, i in points if math.isfinite(i.estimate) and i.estimate > 0]
        known = [
            (0.0, 0.0) if math.isnan(i.low) else (i.estimate - i.low, min(i.high, edge) - i.estimate) for _, i in points
        ]
        figure.add_scatter(
            x=[i.estimate * matched.time.amount for _, i in points],
            y=[label for label, _ in points],
            error_x={
                "type": "data",
                "symmetric": False,
                "array": [up * matched.time.amount for _, up in known],
                "arrayminus": [down * matched.time.amount for down, _ in known],
            },
            mode="markers",
            marker={"color": colour, "size": 9, "symbol": symbol},
            name=name.replace("_", "-"),
            text=[i.format(matched.time) for _, i in points],
            hovertemplate="%{y}: %{text}<extra></extra>",
        )
    return figure


def _sums(
    total: Array, curves: list[tuple[str, Array]], names: Sequence[str], whole: str, axis: str, steps: Array
) -> Figure:
    """A whole over its parts, each (T, C), one of the C at a time."""
    figure = _figure(xaxis={"title": axis}, yaxis={"title": whole}, height=420, hovermode="x unified")
    choices = []
    for channel, name in enumerate(names):
        before = len(figure.data)
        shown = before == 0
        _line(figure, steps, total[:, channel], whole, {"width": 3, "color": NEUTRAL}, shown)
        for colour, (label, curve) in zip(PALETTE, curves, strict=False):
            _line(figure, steps, curve[:, channel], label, {"width": 1.5, "color": colour}, shown)
        choices.append((name, before, len(figure.data)))
    return _with_choice(figure, choices)


def _with_choice(figure: Figure, choices: list[tuple[str, int, int]]) -> Figure:
    """What the page's menu shows of a figure, one choice at a time: names, and which traces are visible."""
    states = [trace.visible for trace in figure.data]
    start, stop = choices[0][1:]
    buttons = []
    for name, first, last in choices:
        visible: list[Any] = [False] * len(states)
        visible[first:last] = states[start:stop][: last - first]
        buttons.append({"name": name, "visible": visible})
    figure.update_layout(meta={"choices": buttons} if len(buttons) > 1 else None)
    return figure


def _figure(**layout: Any) -> Figure:
    figure: Figure = optional("plotly.graph_objects").Figure()
    figure.update_layout(
        template="none",
        margin={"l": 60, "r": 16, "t": 16, "b": 48},
        legend={"orientation": "h", "y": -0.25, "yanchor": "top"},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        dragmode=False,  # a finger on a phone scrolls the page
    )
    figure.update_layout(**layout)
    figure.update_xaxes(title_standoff=4)
    return figure


def _size(row: Row, largest: float) -> float:
    share = 0.0 if math.isnan(row.share) else max(0.0, row.share)
    least, most = _MARKERS
    return math.sqrt(least**2 + (most**2 - least**2) * min(1.0, share / largest))


def _hover(row: Any, time: Step) -> str:
    lines = [f"<b>{row.label}</b>"]
    if hasattr(row, "block"):
        lines[0] += f" in block {row.block}, {row.gate} (layer {row.layer}, {row.direction})"
    if getattr(row, "step", None) is not None:
        lines[0] += f" at step {row.step}"
    lines += [f"modulus {row.modulus:.4f}", f"angle {row.angle:.4f}"]
    lines.append(f"period {'-' if math.isinf(row.period) else time.format(row.period)}")
    lines.append(f"half-life {time.format(row.half_life, infinite=row.meaning)}")
    if not math.isnan(row.share):
        lines.append(f"share {format_share(row.share)}")
    return "<br>".join(lines)


def _apart(rows: Sequence[Row]) -> list[Row]:
    """Those whose names would not lie over each other."""
    chosen: list[Row] = []
    for row in rows:
        if all(abs(row.eigenvalue - other.eigenvalue) > 0.2 for other in chosen):
            chosen.append(row)
    return chosen


def _name(row: Row, time: Step) -> str:
    if getattr(row, "source", "") == CALENDAR:
        what = f"calendar, {time.format(row.period)}"
    else:
        what = f"cycle of {time.format(row.period)}" if row.kind == "C" else phrase(row, time).removeprefix("a ")
    return what if math.isnan(row.share) else f"{what} ({row.share:.0%})"


def _in(time: Step) -> str:
    return "" if time.unit == "steps" else f" ({time.unit})"

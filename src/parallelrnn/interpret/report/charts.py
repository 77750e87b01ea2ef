"""The interactive charts of a page, drawn by Plotly; colours are in `parallelrnn.interpret.colours`."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from parallelrnn.interpret.colours import COLOURS, NEUTRAL, PALETTE, band
from parallelrnn.interpret.contributions import Contributions
from parallelrnn.interpret.display import Step, format_share, optional
from parallelrnn.interpret.dynamics import Row, Table
from parallelrnn.interpret.modes import CALENDAR, ForecastModes
from parallelrnn.interpret.report.reading import Outlook
from parallelrnn.interpret.report.sentences import phrase
from parallelrnn.interpret.response import ImpulseResponse
from parallelrnn.interpret.uncertainty import MatchedTables

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Array = NDArray[np.float64]
MOST_PAIRS = 12  # of an input and an output, whose responses are shown
_COMPONENT_STEPS = 300
_MOST_COMPONENTS = 5  # shown one by one
_MOST_LABELS = 4  # in a disk
_MARKER_DIAMETERS = (7.0, 34.0)  # of the smallest and the largest share


def disk(table: Table[Any]) -> Figure:
    """Draw eigenvalues in the unit disk, area by share."""
    circle = np.exp(1j * np.linspace(0, 2 * math.pi, 181))
    reach = 1.1 * max([1.0, *(row.modulus for row in table)])
    figure = _figure(
        xaxis={"title": "real part", "range": [-reach, reach], "constrain": "domain"},
        yaxis={"title": "imaginary part", "range": [-reach, reach], "scaleanchor": "x", "constrain": "domain"},
        height=460,
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
    named = _apart([row for row in table.most_important(_MOST_LABELS) if row.kind == "C"])
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


def outlook(series: Outlook, names: Sequence[str]) -> Figure:
    """Draw the end of each series and its forecast with intervals, one series at a time."""
    figure = _figure(xaxis={"title": ""}, yaxis={"title": "value"}, height=420, hovermode="x unified")
    choices = []
    for index, (name, past, future) in enumerate(zip(names, series.past, series.future, strict=True)):
        before = len(figure.data)
        shown = before == 0
        for number, (label, low, high) in enumerate(series.bands):
            opacity = 0.15 + 0.15 * number  # distinguishable in the legend, too
            _band(figure, future.times, low[index], high[index], opacity, html.escape(label), shown)
        _line(figure, past.times, past.values, "observed", {"color": NEUTRAL, "width": 1.5}, shown)
        _line(figure, future.times, future.values, "forecast", {"color": COLOURS["C"], "width": 2.5}, shown)
        choices.append((name, before, len(figure.data)))
    return _with_choice(figure, choices)


def forecast(modes: ForecastModes, names: Sequence[str]) -> Figure | None:
    """Draw the forecast after the data (the first sequence) and its most important modes.

    The level is subtracted: next to a level of 370, waves of size 3 would be invisible.
    """
    shown = [mode for mode in modes.most_important(_MOST_COMPONENTS) if mode.part is not None]
    if not shown or modes.level is None:
        return None
    others = [mode for mode in modes if mode not in shown and mode.part is not None]
    curves = [(_name(mode, modes.time), mode.part[:, 0]) for mode in shown if mode.part is not None]
    if others:
        rest: Array = np.sum([mode.part[:, 0] for mode in others if mode.part is not None], axis=0)
        curves.append((f"{len(others)} others", rest))
    total: Array = np.sum([curve for _, curve in curves], axis=0)
    steps: Array = np.arange(1.0, len(total) + 1) * modes.time.amount
    return _sums(total, curves, names, "forecast minus its level", f"time ahead{_in(modes.time)}", steps)


def components(contributions: Contributions, names: Sequence[str]) -> Figure:
    """Draw the output at the end of the first sequence of a batch, and the parts of its most important blocks."""
    total, parts = (tensor.cpu().numpy()[-_COMPONENT_STEPS:] for tensor in contributions.sequence(0))
    length = len(contributions.sequence(0)[0])
    shares, labels = contributions.shares(), contributions.names()
    order = shares.abs().argsort(descending=True).tolist()
    first, others = order[:_MOST_COMPONENTS], order[_MOST_COMPONENTS:]
    curves = [(f"{labels[index]} ({shares[index]:.0%})", parts[:, index]) for index in first]
    if others:
        curves.append((f"{len(others)} others", parts[:, others].sum(axis=1)))
    steps: Array = np.arange(float(length))[-_COMPONENT_STEPS:]
    return _sums(total, curves, names, "output", "step of the data", steps)


def response(
    responses: ImpulseResponse, inputs: Sequence[str], outputs: Sequence[str], time: Step, is_linear: bool
) -> Figure:
    """Draw the response of an output to an input: mean, band, the curve without activation, and single blocks.

    Of many pairs of an input and an output, those with the largest responses are shown.
    """
    figure = _figure(
        xaxis={"title": f"lag{_in(time)}"},
        yaxis={"title": "change of the output per unit"},
        height=400,
        hovermode="x unified",
    )
    lags: Array = np.arange(float(len(responses.mean))) * time.amount
    sizes = abs(responses.mean).max(axis=0)  # (C, out)
    largest = np.argsort(-sizes, axis=None)[:MOST_PAIRS]
    choices = []
    for i, o in sorted(zip(*np.unravel_index(largest, sizes.shape), strict=True)):
        before = len(figure.data)
        shown = before == 0
        low, high, blocks = responses.low[:, i, o], responses.high[:, i, o], responses.by_block[:, i, :, o]
        _band(figure, lags, low, high, 0.3, f"{responses.band:.0%} of {responses.places} places", shown)
        _line(figure, lags, responses.mean[:, i, o], "mean", {"color": COLOURS["C"]}, shown)
        if responses.linear is not None and not is_linear:
            curve = responses.linear[:, i, :, o].sum(axis=-1)
            limit = 3 * max(abs(high).max(), abs(low).max())
            inside = np.where(abs(curve) <= limit, curve, np.nan)  # without its activation a layer may diverge
            _line(figure, lags, inside, "without activation", {"color": COLOURS["R"], "dash": "dash"}, shown)
        order = np.argsort(-abs(blocks).max(axis=0))[: _MOST_COMPONENTS if len(responses.blocks) > 1 else 0]
        for colour, block in zip(PALETTE[1:], order, strict=False):
            style = {"color": colour, "width": 1, "dash": "dot"}
            name = f"block {responses.blocks[block].block}"
            _line(figure, lags, blocks[:, block], name, style, "legendonly" if shown else False)
        choices.append((f"{inputs[i]} → {outputs[o]}", before, len(figure.data)))
    return _with_choice(figure, choices)


def _band(figure: Figure, x: Any, low: Array, high: Array, opacity: float, name: str, visible: bool) -> None:
    figure.add_scatter(
        x=[*x, *x[::-1]],
        y=[*high, *low[::-1]],
        fill="toself",
        fillcolor=band(opacity),
        mode="lines",
        line={"width": 0, "color": COLOURS["C"]},
        name=name,
        hoverinfo="skip",
        visible=visible,
    )


def _line(figure: Figure, x: Any, y: Array, name: str, style: dict[str, Any], visible: bool | str) -> None:
    figure.add_scatter(
        x=x, y=y, mode="lines", line=style, name=html.escape(name), visible=visible, hovertemplate="%{y:.3g}"
    )


def intervals(matched: MatchedTables, most: int = 12) -> Figure | None:
    """Draw periods and half-lives with their intervals, in the order of the table."""
    rows = [(f"{index + 1}. {match.label}", match) for index, match in enumerate(matched.rows[:most])]
    values = [
        value for _, match in rows for i in (match.period, match.half_life) for value in (i.estimate, i.low, i.high)
    ]
    finite = [value for value in values if math.isfinite(value) and value > 0]
    if not finite:
        return None
    edge = 2 * max(finite)  # the end of an unbounded interval
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
        points = [(label, getattr(match, name)) for label, match in rows]
        points = [(label, i) for label, i in points if math.isfinite(i.estimate) and i.estimate > 0]
        widths = [
            (0.0, 0.0) if math.isnan(i.low) else (i.estimate - i.low, min(i.high, edge) - i.estimate) for _, i in points
        ]
        figure.add_scatter(
            x=[i.estimate * matched.time.amount for _, i in points],
            y=[label for label, _ in points],
            error_x={
                "type": "data",
                "symmetric": False,
                "array": [up * matched.time.amount for _, up in widths],
                "arrayminus": [down * matched.time.amount for down, _ in widths],
            },
            mode="markers",
            marker={"color": colour, "size": 9, "symbol": symbol},
            name=name.replace("_", "-"),
            text=[i.format(matched.time) for _, i in points],
            hovertemplate="%{y}: %{text}<extra></extra>",
        )
    return figure


def _sums(
    total: Array, curves: list[tuple[str, Array]], names: Sequence[str], label: str, axis: str, steps: Array
) -> Figure:
    """Draw a total and its parts, each (T, C), one of the C channels at a time."""
    figure = _figure(xaxis={"title": axis}, yaxis={"title": label}, height=420, hovermode="x unified")
    choices = []
    for channel, name in enumerate(names):
        before = len(figure.data)
        shown = before == 0
        _line(figure, steps, total[:, channel], label, {"width": 3, "color": NEUTRAL}, shown)
        for colour, (part, curve) in zip(PALETTE, curves, strict=False):
            _line(figure, steps, curve[:, channel], part, {"width": 1.5, "color": colour}, shown)
        choices.append((name, before, len(figure.data)))
    return _with_choice(figure, choices)


def _with_choice(figure: Figure, choices: list[tuple[str, int, int]]) -> Figure:
    """Give a figure the choices of the page's menu: names, and the traces that each makes visible."""
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
    least, most = _MARKER_DIAMETERS
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
    """Return the rows whose labels would not overlap."""
    apart: list[Row] = []
    for row in rows:
        if all(abs(row.eigenvalue - other.eigenvalue) > 0.2 for other in apart):
            apart.append(row)
    return apart


def _name(row: Row, time: Step) -> str:
    if getattr(row, "source", "") == CALENDAR:
        name = f"calendar, {time.format(row.period)}"
    elif row.kind == "C":
        name = f"cycle of {time.format(row.period)}"
    else:
        name = phrase(row, time).removeprefix("a ").removeprefix("an ")
    return name if math.isnan(row.share) else f"{name} ({round(row.share, 2) + 0.0:.0%})"  # 0 %, not -0 %


def _in(time: Step) -> str:
    return "" if time.unit == "steps" else f" ({time.unit})"

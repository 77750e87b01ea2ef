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
from parallelrnn.interpret.modes import ForecastModes
from parallelrnn.interpret.optional import optional
from parallelrnn.interpret.plots import COLOURS
from parallelrnn.interpret.response import ImpulseResponse
from parallelrnn.interpret.uncertainty import MatchedTables
from parallelrnn.interpret.units import Step

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Array = NDArray[np.float64]
PALETTE = ("#2f81c7", "#d2622f", "#3a9a5f", "#a05fc0", "#c79a1f", "#8a8f98")
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


def forecast(modes: ForecastModes, names: Sequence[str]) -> Figure | None:
    """The forecast after the data (the first sequence), and what the most important modes add to its level."""
    shown = [mode for mode in modes.most_important(_MOST) if mode.part is not None]
    if not shown or modes.level is None:
        return None
    others = [mode for mode in modes if mode not in shown and mode.part is not None]
    curves = [(_name(mode, modes.time), mode.part[:, 0]) for mode in shown if mode.part is not None]
    if others:
        rest: Array = np.sum([mode.part[:, 0] for mode in others if mode.part is not None], axis=0)
        curves.append((f"{len(others)} others", rest))
    total = modes.level + np.sum([curve for _, curve in curves], axis=0)
    return _sums(total, curves, names, "forecast", "steps ahead", first=1)


def components(found: Contributions, names: Sequence[str]) -> Figure:
    """The output at the end of the first sequence of a batch, and what the most important blocks add to it."""
    total, parts = found.total[-_SHOWN:, 0].cpu().numpy(), found.parts[-_SHOWN:, 0].cpu().numpy()
    shares = found.shares()
    order = shares.argsort(descending=True).tolist()
    curves = [(f"{_block(found, index)} ({shares[index]:.0%})", parts[:, index]) for index in order[:_MOST]]
    if order[_MOST:]:
        curves.append((f"{len(order) - _MOST} others", parts[:, order[_MOST:]].sum(axis=1)))
    return _sums(total, curves, names, "output", "step of the data", first=len(found.total) - len(total))


def response(found: ImpulseResponse, inputs: Sequence[str], outputs: Sequence[str], time: Step) -> Figure:
    """The answer of an output to a nudge of an input: mean, band, the curve without activation, and single blocks."""
    figure = _figure(xaxis={"title": f"lag{_in(time)}"}, yaxis={"title": "change of the output per unit"}, height=400)
    lags = np.arange(len(found.mean)) * time.amount
    choices = []
    for i, source in enumerate(inputs):
        for o, target in enumerate(outputs):
            before = len(figure.data)
            visible = before == 0
            high, low = found.high[:, i, o], found.low[:, i, o]
            figure.add_scatter(
                x=[*lags, *lags[::-1]],
                y=[*high, *low[::-1]],
                fill="toself",
                mode="lines",
                line={"width": 0, "color": COLOURS["C"]},
                opacity=0.3,
                name=f"{found.band:.0%} of {found.places} places",
                hoverinfo="skip",
                visible=visible,
            )
            figure.add_scatter(
                x=lags, y=found.mean[:, i, o], mode="lines", line={"color": COLOURS["C"]}, name="mean", visible=visible
            )
            if found.linear is not None:
                curve = found.linear[:, i, :, o].sum(axis=-1)
                limit = 3 * max(abs(found.mean[:, i, o]).max(), abs(high).max(), abs(low).max())
                figure.add_scatter(
                    x=lags,
                    y=np.where(abs(curve) <= limit, curve, np.nan),  # without its activation a layer may diverge
                    mode="lines",
                    line={"color": COLOURS["R"], "dash": "dash"},
                    name="without activation",
                    visible=visible,
                )
            order = np.argsort(-abs(found.by_block[:, i, :, o]).max(axis=0))[: _MOST if len(found.blocks) > 1 else 0]
            for colour, block in zip(PALETTE, order, strict=False):
                figure.add_scatter(
                    x=lags,
                    y=found.by_block[:, i, block, o],
                    mode="lines",
                    line={"color": colour, "width": 1, "dash": "dot"},
                    name=_block_name(found.blocks[block], len({b.direction for b in found.blocks})),
                    visible="legendonly" if visible else False,
                )
            choices.append((f"{source} → {target}", before, len(figure.data)))
    return _with_choice(figure, choices)


def intervals(matched: MatchedTables, most: int = 12) -> Figure | None:
    """Periods and half-lives with their intervals."""
    rows = [one for one in matched.rows[:most] if math.isfinite(one.half_life.estimate)]
    if not rows:
        return None
    figure = _figure(
        xaxis={"title": f"time{_in(matched.time)}", "type": "log"},
        yaxis={"autorange": "reversed", "type": "category"},
        height=170 + 36 * len(rows),
    )
    labels = [f"{index + 1}. {one.label}" for index, one in enumerate(rows)]
    for name, colour, symbol in (("period", COLOURS["C"], "circle"), ("half_life", COLOURS["R"], "diamond")):
        points = [(label, getattr(one, name)) for label, one in zip(labels, rows, strict=True)]
        points = [(label, i) for label, i in points if all(map(math.isfinite, (i.estimate, i.low, i.high)))]
        figure.add_scatter(
            x=[i.estimate * matched.time.amount for _, i in points],
            y=[label for label, _ in points],
            error_x={
                "type": "data",
                "symmetric": False,
                "array": [(i.high - i.estimate) * matched.time.amount for _, i in points],
                "arrayminus": [(i.estimate - i.low) * matched.time.amount for _, i in points],
            },
            mode="markers",
            marker={"color": colour, "size": 9, "symbol": symbol},
            name=name.replace("_", "-"),
            text=[i.format(matched.time) for _, i in points],
            hovertemplate="%{y}: %{text}<extra></extra>",
        )
    return figure


def _sums(
    total: Array, curves: list[tuple[str, Array]], names: Sequence[str], whole: str, axis: str, first: int
) -> Figure:
    """A whole over its parts, each (T, C), one of the C at a time."""
    figure = _figure(xaxis={"title": axis}, yaxis={"title": whole}, height=420, hovermode="x unified")
    steps = np.arange(first, first + len(total))
    choices = []
    for channel, name in enumerate(names):
        before = len(figure.data)
        visible = before == 0
        figure.add_scatter(
            x=steps,
            y=total[:, channel],
            mode="lines",
            name=whole,
            line={"width": 3, "color": NEUTRAL},
            visible=visible,
            hovertemplate="%{y:.3g}",
        )
        for colour, (label, curve) in zip(PALETTE, curves, strict=False):
            figure.add_scatter(
                x=steps,
                y=curve[:, channel],
                mode="lines",
                name=html.escape(label),
                line={"width": 1.5, "color": colour},
                visible=visible,
                hovertemplate="%{y:.3g}",
            )
        choices.append((name, before, len(figure.data)))
    return _with_choice(figure, choices)


def _with_choice(figure: Figure, choices: list[tuple[str, int, int]]) -> Figure:
    """A menu that shows the traces of one choice at a time."""
    if len(choices) == 1:
        return figure
    states = [trace.visible for trace in figure.data]
    start, stop = choices[0][1:]
    pattern = [states[start + index] for index in range(stop - start)]
    buttons = []
    for name, first, last in choices:
        visible = [False] * len(states)
        visible[first:last] = pattern
        buttons.append({"label": html.escape(name), "method": "restyle", "args": [{"visible": visible}]})
    figure.update_layout(
        updatemenus=[
            {"buttons": buttons, "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom", "showactive": False}
        ]
    )
    return figure


def _figure(**layout: Any) -> Figure:
    figure: Figure = optional("plotly.graph_objects").Figure()
    figure.update_layout(
        template="none",
        margin={"l": 60, "r": 16, "t": 48, "b": 48},
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
    what = (
        f"cycle of {time.format(row.period)}"
        if row.kind == "C"
        else f"decay, {time.format(row.half_life, row.meaning)}"
    )
    return f"{what} ({row.share:.0%})"


def _block(found: Contributions, index: int) -> str:
    return _block_name(found.blocks[index], len({block.direction for block in found.blocks}))


def _block_name(name: Any, directions: int) -> str:
    return f"block {name.block}" + (f", {name.direction}" if directions > 1 else "")


def _in(time: Step) -> str:
    return "" if time.unit == "steps" else f" ({time.unit})"

"""A reading as one self-contained HTML file: no network, no server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from torch import nn

from parallelrnn.interpret.colours import DARK_PAGE, LIGHT_PAGE
from parallelrnn.interpret.display import optional
from parallelrnn.interpret.report import charts
from parallelrnn.interpret.report.reading import Reading, read
from parallelrnn.interpret.report.sentences import lead
from parallelrnn.interpret.uncertainty import MatchedTables
from parallelrnn.io import write_text


def report(
    model: nn.Module,
    data: Any,
    path: str | Path,
    *,
    readout: nn.Module | None = None,
    uncertainty: MatchedTables | Sequence[MatchedTables] = (),
    freq: str | None = None,
    names: Sequence[str] | None = None,
    title: str = "What this model has learned",
    horizon: int = 100,
    lags: int = 50,
) -> Path:
    """Write an HTML page about a recurrent layer and its data, and return its path.

    `model` is a layer of ours or of `torch.nn`; `readout` turns its output into the forecast of its next input, unless
    its aggregate already does. `data` is the layer's input: a tensor in the layer's layout, an array (T, C) or (T,), or
    a pandas frame, whose names and frequency are used. `uncertainty` is the result of `match_fits`, or several of them.
    `horizon` and `lags` are the lengths of forecasts and responses.
    """
    reading = read(
        model,
        data,
        readout=readout,
        uncertainty=uncertainty,
        freq=freq,
        names=names,
        title=title,
        horizon=horizon,
        lags=lags,
    )
    return write_text(path, page(reading))


def page(reading: Reading) -> str:
    """Render a reading as HTML."""
    plotly = optional("plotly.offline")
    jinja = optional("jinja2")
    environment = jinja.Environment(autoescape=True, undefined=jinja.StrictUndefined, trim_blocks=True)
    template = environment.from_string(resources.files(__package__).joinpath("page.html").read_text(encoding="utf-8"))
    figures = {name: figure for name, figure in _figures(reading).items() if figure is not None}
    # Escaped, so that no name of a series can end the script element that holds it.
    text = json.dumps({name: json.loads(figure.to_json()) for name, figure in figures.items()})
    html: str = template.render(
        reading=reading,
        lead=lead(reading),
        figures=figures,
        figures_json=text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"),
        pairs=charts.MOST_PAIRS,
        light_page=LIGHT_PAGE,
        dark_page=DARK_PAGE,
        plotly=plotly.get_plotlyjs(),
    )
    return html


def _figures(reading: Reading) -> dict[str, Any]:
    figures: dict[str, Any] = {"features": charts.disk(reading.features)}
    if reading.outlook is not None:
        figures["outlook"] = charts.outlook(reading.outlook, reading.inputs)
    if reading.modes is not None:
        if reading.modes.half_lives:  # else there is nothing to read from how far out a mode is
            figures["modes"] = charts.disk(reading.modes)
        figures["forecast"] = charts.forecast(reading.modes, reading.inputs)
    if reading.components is not None:
        figures["components"] = charts.components(reading.components, reading.outputs)
    if reading.response is not None:
        figures["response"] = charts.response(
            reading.response, reading.inputs, reading.outputs, reading.time, reading.is_linear
        )
    for index, matched in enumerate(reading.uncertainty):
        figures[f"uncertainty-{index}"] = charts.intervals(matched)
    return figures

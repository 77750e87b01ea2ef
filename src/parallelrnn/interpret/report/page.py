"""A reading as one HTML file that needs nothing else: no network, no server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from torch import nn

from parallelrnn.interpret.optional import optional
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
    """Write a page about a recurrent layer and its data, for a browser; give back its path.

    `model` is a layer of ours or of `torch.nn`; `readout` what turns its output into the forecast of its next input, if
    that is not done by its aggregate. `data` are its inputs: a tensor in the layout that it takes, an array (T, C) or
    (T,), or a frame of pandas, which brings names and frequency along. `uncertainty` is what `match_fits` found about
    several fits. `horizon` and `lags` say how far forecasts and responses go.
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
    """The HTML of a reading."""
    plotly = optional("plotly.offline")
    jinja = optional("jinja2")
    environment = jinja.Environment(autoescape=True, undefined=jinja.StrictUndefined, trim_blocks=True)
    template = environment.from_string(resources.files(__package__).joinpath("page.html").read_text(encoding="utf-8"))
    figures = {name: figure for name, figure in _figures(reading).items() if figure is not None}
    html: str = template.render(
        reading=reading,
        lead=lead(reading),
        figures=figures,
        figures_json=_script_safe(json.dumps({name: json.loads(one.to_json()) for name, one in figures.items()})),
        pairs=charts.PAIRS,
        plotly=plotly.get_plotlyjs(),
    )
    return html


def _figures(reading: Reading) -> dict[str, Any]:
    found: dict[str, Any] = {"features": charts.disk(reading.features)}
    if reading.outlook is not None:
        found["outlook"] = charts.outlook(reading.outlook, reading.inputs)
    if reading.modes is not None:
        found["modes"] = charts.disk(reading.modes)
        found["forecast"] = charts.forecast(reading.modes, reading.inputs)
    if reading.components is not None:
        found["components"] = charts.components(reading.components, reading.outputs)
    if reading.response is not None:
        found["response"] = charts.response(
            reading.response, reading.inputs, reading.outputs, reading.time, reading.is_linear
        )
    for index, matched in enumerate(reading.uncertainty):
        found[f"uncertainty-{index}"] = charts.intervals(matched)
    return found


def _script_safe(text: str) -> str:
    """JSON that cannot end the script element that holds it, whatever a series is called."""
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")

"""A page about a forecaster: what comes next, and of which cycles it is made."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from parallelrnn.forecast.answers import Question, answer, usual_levels
from parallelrnn.forecast.explanation import Explanation
from parallelrnn.forecast.fitted import Fitted, View
from parallelrnn.interpret.report.page import page
from parallelrnn.interpret.report.reading import Curve, Outlook, Reading
from parallelrnn.io import write_text

_SERIES = 12  # of many, that a page shows
_NO_MODES = "A linear decoder has no forecast modes, and these series show no cycle of the calendar."


def write_page(path: str | Path, view: View, explanation: Explanation, title: str) -> Path:
    """Write the page; give back its path."""
    fitted = view.fitted
    made_of, levels = fitted.network.made_of, usual_levels(fitted)
    forecasts = answer(view, view.ends[:_SERIES], Question(levels), fitted.calibration)
    past, future = [], []
    channels = made_of.channels
    for index, forecast in enumerate(forecasts):
        series = view.series[index // channels]
        values = np.where(series.observed, series.values, np.nan)[:, index % channels]
        past.append(Curve(_times(fitted, series.position, len(series)), values))
        future.append(Curve(_times(fitted, forecast.position, fitted.horizon), forecast.values["yhat"]))
    bands = tuple(
        (
            f"{level:g} %",
            tuple(one.values[f"yhat-lo-{level:g}"] for one in forecasts),
            tuple(one.values[f"yhat-hi-{level:g}"] for one in forecasts),
        )
        for level in levels
    )
    names = tuple(str(forecast.name) for forecast in forecasts)
    reading = Reading(
        title=title,
        about=(_about_model(fitted), _about_data(fitted)),
        is_linear=made_of.cell == "linear",
        inputs=names,
        outputs=names,
        time=fitted.grid.step,
        features=explanation.features,
        modes=explanation.modes if len(explanation.modes) else None,
        horizon=fitted.horizon,
        missing={} if len(explanation.modes) else {"modes": _NO_MODES},
        outlook=Outlook(tuple(past), tuple(future), bands),
    )
    return write_text(path, page(reading))


def _times(fitted: Fitted, position: int, count: int) -> list[object]:
    stamps = fitted.grid.stamps(position, count)
    return list(stamps) if isinstance(fitted.grid.freq, int) else list(stamps.strftime("%Y-%m-%d %H:%M:%S"))


def _about_model(fitted: Fitted) -> str:
    made_of = fitted.network.made_of
    parameters = sum(parameter.numel() for parameter in fitted.network.parameters())
    blocks = made_of.hidden_size // made_of.block_size
    decoder = (
        f"a decoder of {_count(made_of.num_waves, 'wave')} and {_count(made_of.num_decays, 'decay')}"
        if made_of.decoder == "waves"
        else "a linear decoder"
    )
    memory = f"{_count(blocks, f'{made_of.cell} block')} of size {made_of.block_size}"
    return f"Forecaster: {memory}, {decoder}, {parameters:,} parameters"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _about_data(fitted: Fitted) -> str:
    made_of = fitted.network.made_of
    count = len(fitted.recent)
    series = f"{count} series" if count > 1 else f"series {fitted.recent[0].name}"
    step = fitted.grid.step
    return (
        f"{series}, {step.format(1)} apart; forecasts look back {step.format(made_of.lookback)} and ahead "
        f"{step.format(made_of.horizon)}" + (f"; the first {_SERIES} series are shown" if count > _SERIES else "")
    )

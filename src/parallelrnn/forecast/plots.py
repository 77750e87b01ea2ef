"""A forecast beside the end of its series, by matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from parallelrnn.forecast.answers import Question, answer, check_levels, usual_levels
from parallelrnn.forecast.fitted import View
from parallelrnn.interpret.colours import COLOURS
from parallelrnn.interpret.display import optional, printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NEUTRAL = "#59636e"


def plot_forecast(view: View, name: Any, level: Sequence[float] | None, ax: Axes | None) -> Axes:
    """The forecast of one series, with bands."""
    fitted = view.fitted
    channels = fitted.network.made_of.channels
    places = {view.label(i, channel): (i, channel) for i in range(len(view.series)) for channel in range(channels)}
    name = next(iter(places)) if name is None else name
    if name not in places:
        known = ", ".join(map(repr, list(places)[:5])) + (", ..." if len(places) > 5 else "")
        raise ValueError(f"there is no series {name!r}; there are {known}")
    index, channel = places[name]
    levels = usual_levels(fitted) if level is None else tuple(sorted(check_levels(level), reverse=True))
    windows = view.ends[index : index + 1]
    forecast = answer(view, windows, Question(levels), fitted.calibration)[channel]
    series = view.series[index]
    axes: Axes = optional("matplotlib.pyplot").subplots(figsize=(8, 3.2), layout="constrained")[1] if ax is None else ax
    past = fitted.grid.stamps(series.position, len(series))
    future = fitted.grid.stamps(forecast.position, fitted.horizon)
    observed = np.where(series.observed, series.values, np.nan)[:, channel]
    axes.plot(past, observed, color=_NEUTRAL, lw=1.2, label="observed")
    for one in levels:
        low, high = forecast.values[f"yhat-lo-{one:g}"], forecast.values[f"yhat-hi-{one:g}"]
        axes.fill_between(future, low, high, color=COLOURS["C"], alpha=0.2, lw=0, label=f"{one:g} %")
    axes.plot(future, forecast.values["yhat"], color=COLOURS["C"], lw=2, label="forecast")
    axes.legend(frameon=False, ncols=2 + len(levels), loc="upper left")
    axes.set_ylabel(printable(str(name)), parse_math=False)  # a name with two dollars is no formula
    return axes

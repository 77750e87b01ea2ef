"""A forecast beside the end of its series, by matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from parallelrnn.estimators.answers import Question, answer, check_levels
from parallelrnn.estimators.fitted import Fitted
from parallelrnn.interpret.optional import optional
from parallelrnn.interpret.plots import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NEUTRAL = "#59636e"


def plot_forecast(fitted: Fitted, name: Any, level: Sequence[float], ax: Axes | None) -> Axes:
    """The forecast of one series, with bands."""
    view = fitted.latest
    names = [one.name for one in view.series]
    if name is None:
        name = names[0]
    if name not in names:
        known = ", ".join(map(repr, names[:5])) + (", ..." if len(names) > 5 else "")
        raise ValueError(f"there is no series {name!r}; there are {known}")
    index = names.index(name)
    levels = sorted(check_levels(level), reverse=True)
    forecast = answer(view, view.ends[index : index + 1], Question(tuple(levels)), fitted.calibration)[0]
    series = view.series[index]
    axes: Axes = optional("matplotlib.pyplot").subplots(figsize=(8, 3.2), layout="constrained")[1] if ax is None else ax
    past = fitted.grid.stamps(series.position, len(series))
    future = fitted.grid.stamps(forecast.position, fitted.horizon)
    axes.plot(past, np.where(series.observed, series.values, np.nan)[:, 0], color=_NEUTRAL, lw=1.2, label="observed")
    for one in levels:
        low, high = forecast.values[f"yhat-lo-{one:g}"], forecast.values[f"yhat-hi-{one:g}"]
        axes.fill_between(future, low, high, color=COLOURS["C"], alpha=0.2, lw=0, label=f"{one:g} %")
    axes.plot(future, forecast.values["yhat"], color=COLOURS["C"], lw=2, label="forecast")
    axes.legend(frameon=False, ncols=2 + len(levels), loc="upper left")
    axes.set_ylabel(str(name))
    return axes

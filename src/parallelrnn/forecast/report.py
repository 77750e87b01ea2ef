"""The current forecast in a matplotlib figure, and as an HTML page with the cycles that it consists of."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from parallelrnn.errors import ArgumentError, printable
from parallelrnn.forecast.data import Array
from parallelrnn.forecast.decomposition import Explanation
from parallelrnn.forecast.state import ForecasterState
from parallelrnn.forecast.windows import WindowDataset
from parallelrnn.interpret.colours import COLOURS, NEUTRAL
from parallelrnn.interpret.display import count, optional
from parallelrnn.interpret.report.page import page
from parallelrnn.interpret.report.reading import Curve, Outlook, Reading
from parallelrnn.io import write_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MAX_SERIES = 12  # that a page shows
_NO_MODES = "A linear decoder has no forecast modes, and these series have no calendar cycle."


def plot_forecast(
    state: ForecasterState, dataset: WindowDataset, name: Any, levels: Sequence[float], ax: Axes | None
) -> Axes:
    """Plot the forecast of one series, the first if `name` is None, with intervals after its recent values."""
    labels = state.labels(dataset)
    name = labels[0] if name is None else name
    if name not in labels:
        known = ", ".join(map(repr, labels[:5])) + (", ..." if len(labels) > 5 else "")
        raise ArgumentError(argument="name", expected=f"one of {known}", got=name)
    index, channel = divmod(labels.index(name), dataset.channels)
    windows = dataset.last[index : index + 1]
    columns = {key: values[0, :, channel] for key, values in state.forecast(dataset, windows, levels)[0].items()}
    axes: Axes = optional("matplotlib.pyplot").subplots(figsize=(8, 3.2), layout="constrained")[1] if ax is None else ax
    series = dataset.series[index]
    future = state.grid.stamps(series.end, state.horizon)
    axes.plot(
        state.grid.stamps(series.position, len(series)),
        _observed(dataset, index)[:, channel],
        color=NEUTRAL,
        lw=1.2,
        label="observed",
    )
    for level in levels:
        low, high = columns[f"yhat-lo-{level:g}"], columns[f"yhat-hi-{level:g}"]
        axes.fill_between(future, low, high, color=COLOURS["C"], alpha=0.2, lw=0, label=f"{level:g} %")
    axes.plot(future, columns["yhat"], color=COLOURS["C"], lw=2, label="forecast")
    axes.legend(frameon=False, ncols=2 + len(levels), loc="upper left")
    axes.set_ylabel(printable(str(name)), parse_math=False)  # a name with two dollars is no formula
    return axes


def write_page(
    path: str | Path,
    state: ForecasterState,
    dataset: WindowDataset,
    columns: dict[str, Array],  # of `state.forecast` at the end of each series
    levels: Sequence[float],
    explanation: Explanation,
    title: str,
) -> Path:
    """Write the page and return its path."""
    shown = {key: values[:_MAX_SERIES].transpose(0, 2, 1).reshape(-1, state.horizon) for key, values in columns.items()}
    names = tuple(map(str, state.labels(dataset)[: len(shown["yhat"])]))
    past, future = [], []
    for index, series in enumerate(dataset.series[:_MAX_SERIES]):
        times = _times(state, series.position, len(series)), _times(state, series.end, state.horizon)
        past += [Curve(times[0], values) for values in _observed(dataset, index).T]
        future += [Curve(times[1], values) for values in columns["yhat"][index].T]
    bands = tuple(
        (f"{level:g} %", tuple(shown[f"yhat-lo-{level:g}"]), tuple(shown[f"yhat-hi-{level:g}"])) for level in levels
    )
    reading = Reading(
        title=title,
        about=(_about_model(state), _about_data(state)),
        is_linear=state.network.config.cell == "linear",
        inputs=names,
        outputs=names,
        time=state.grid.step,
        features=explanation.features,
        modes=explanation.modes if len(explanation.modes) else None,
        horizon=state.horizon,
        missing={} if len(explanation.modes) else {"modes": _NO_MODES},
        outlook=Outlook(tuple(past), tuple(future), bands),
        findings=explanation.reading,
        notices=tuple(text for text in (*explanation.notices, explanation.smoothing) if text),
    )
    return write_text(path, page(reading))


def _observed(dataset: WindowDataset, index: int) -> Array:
    series = dataset.series[index]
    return np.where(series.observed, series.values, np.nan)


def _times(state: ForecasterState, position: int, count: int) -> list[object]:
    stamps = state.grid.stamps(position, count)
    return list(stamps) if isinstance(state.grid.freq, int) else list(stamps.strftime("%Y-%m-%d %H:%M:%S"))


def _about_model(state: ForecasterState) -> str:
    config = state.network.config
    if config.share == 0 and state.local is not None:
        models = count(len(state.local.bank.models), "exponential smoothing")
        return f"Forecaster: local models, {models} weighed by how well each forecasts the series"
    parameters = sum(parameter.numel() for parameter in state.network.parameters())
    blocks = count(config.hidden_size // config.block_size, f"{config.cell} block")
    decoder = "a linear decoder"
    if config.decoder == "waves":
        decoder = f"a decoder of {count(config.num_waves, 'wave')} and {count(config.num_decays, 'decay')}"
    share = "" if config.share == 1 else f"; {config.share:.0%} of forecasts, the rest of local models"
    return f"Forecaster: {blocks} of size {config.block_size}, {decoder}, {parameters:,} parameters{share}"


def _about_data(state: ForecasterState) -> str:
    config, step, total = state.network.config, state.grid.step, len(state.recent)
    back = f"back {step.format(config.lookback)} and " if config.share else ""
    series = f"{total} series" if total > 1 else f"series {state.recent[0].name}"
    return f"{series} with a step of {step.format(1)}; forecasts look {back}ahead {step.format(config.horizon)}" + (
        f"; the first {_MAX_SERIES} series are shown" if total > _MAX_SERIES else ""
    )

"""Forecasts as tables of the library that the series came in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np

from parallelrnn.forecast.grid import Grid
from parallelrnn.forecast.panel import Array, Columns


@dataclass(frozen=True)
class Forecast:
    """Of one series and channel, from one position of the grid on."""

    name: Any  # of the series; of the channel, where a series has several
    position: int  # of its first step
    values: dict[str, Array]  # by the name of their column, (H,) each
    cutoff: int | None = None  # the position of the last step before, if it is to be told


def forecast_frame(forecasts: Sequence[Forecast], columns: Columns, grid: Grid, backend: Any) -> Any:
    """One row for each step: id (where there are several series), time, and the columns of the forecasts."""
    steps = len(next(iter(forecasts[0].values.values())))
    data: dict[str, Any] = {}
    if columns.id is not None or len(columns.targets) > 1:
        data[columns.id or "unique_id"] = [one.name for one in forecasts for _ in range(steps)]
    stamps = {position: grid.stamps(position, steps) for position in {one.position for one in forecasts}}
    data[columns.time] = np.concatenate([stamps[one.position].to_numpy() for one in forecasts])
    if forecasts[0].cutoff is not None:
        cutoffs = [one.cutoff for one in forecasts if one.cutoff is not None]
        cuts = {position: grid.stamps(position, 1).to_numpy() for position in set(cutoffs)}
        data["cutoff"] = np.concatenate([np.repeat(cuts[position], steps) for position in cutoffs])
    for name in forecasts[0].values:
        data[name] = np.concatenate([one.values[name] for one in forecasts])
    frame = nw.from_dict(data, backend=backend)
    if columns.dates and frame.implementation.is_polars():
        frame = frame.with_columns(nw.col(*({columns.time, "cutoff"} & set(data))).cast(nw.Date))
    return nw.to_native(frame)

"""Covariates that are known ahead, for the steps that are to be forecast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from parallelrnn.estimators.grid import Grid
from parallelrnn.estimators.panel import Array, Columns, Series, TableError
from parallelrnn.estimators.tables import as_frame, numbers_of, owners_of, stamps_of


def read_ahead(table: Any, series: Sequence[Series], columns: Columns, grid: Grid, horizon: int) -> list[Array]:
    """The future covariates (H, F) of each series over the horizon after its last step."""
    named = ", ".join(map(repr, columns.future))
    if table is None:
        raise TableError(f"the covariates {named} are known ahead: give them for the next {horizon} steps by futr_df=")
    frame = as_frame(table)
    ids = () if columns.id is None else (columns.id,)
    missing = [name for name in (*ids, columns.time, *columns.future) if name not in frame.columns]
    if missing:
        raise TableError(
            f"futr_df has no column {', '.join(map(repr, missing))}; its columns are "
            f"{', '.join(map(repr, frame.columns))}"
        )
    names, owner = owners_of(frame, columns)
    stamps = stamps_of(frame, columns.time)
    steps = positions_on(grid, stamps, lambda row: f"futr_df, row {row}", "leave it out, or correct it")
    values = np.stack([numbers_of(frame, name) for name in columns.future], -1)
    order = np.lexsort((steps, owner))
    same = (owner[order[1:]] == owner[order[:-1]]) & (steps[order[1:]] == steps[order[:-1]])
    if same.any():
        first, second = sorted(order[int(same.argmax()) :][:2].tolist())
        raise TableError(f"futr_df: rows {first} and {second} have the same time stamp {stamps[first]}; keep one of them")
    rows = dict(zip(names, np.split(order, np.flatnonzero(np.diff(owner[order])) + 1), strict=True))
    return [
        _ahead(one, rows.get(None if columns.id is None else one.name), steps, values, columns, grid, horizon)
        for one in series
    ]

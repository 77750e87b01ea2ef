"""Covariates that are known ahead, for the steps that are to be forecast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from parallelrnn.errors import TableError
from parallelrnn.forecast.data import as_frame, numbers_of, owners_of, positions_on, stamps_of
from parallelrnn.forecast.grid import Grid
from parallelrnn.forecast.panel import Array, Columns, Series


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
    if not len(frame):
        raise TableError(f"futr_df has no rows; it should have the next {horizon} steps of each series")
    names, owner = owners_of(frame, columns)
    stamps = stamps_of(frame, columns.time)
    positions = positions_on(grid, stamps, lambda row: f"futr_df, row {row}", "correct it, or leave it out")
    values = np.stack([numbers_of(frame, name) for name in columns.future], -1)
    order = np.lexsort((positions, owner))
    same = (np.diff(owner[order]) == 0) & (np.diff(positions[order]) == 0)
    if same.any():
        first, second = sorted(order[int(same.argmax()) :][:2].tolist())
        raise TableError(
            f"futr_df: rows {first} and {second} have the same time stamp {stamps[first]}; keep one of them"
        )
    rows = dict(zip(names, np.split(order, np.flatnonzero(np.diff(owner[order])) + 1), strict=True))
    found = []
    for one in series:
        if columns.id is not None and one.name not in rows:
            raise TableError(f"futr_df has no rows of series {one.name!r}; it should have its next {horizon} steps")
        mine = rows[None if columns.id is None else one.name]
        steps = positions[mine] - one.end
        inside = (steps >= 0) & (steps < horizon)
        ahead = np.full((horizon, len(columns.future)), np.nan)
        ahead[steps[inside]] = values[mine[inside]]
        bad = np.argwhere(~np.isfinite(ahead))
        if len(bad):
            step, column = bad[0].tolist()
            raise TableError(
                f"series {one.name!r}: futr_df lacks a finite value of {columns.future[column]!r} at "
                f"{grid.stamps(one.end + step, 1)[0]}, step {step + 1} of {horizon}"
            )
        found.append(ahead)
    return found

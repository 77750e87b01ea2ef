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
    positions, _ = grid.locate(stamps)
    values = np.stack([numbers_of(frame, name) for name in columns.future], -1)
    found = []
    for one in series:
        rows = owner == names.index(one.name) if columns.id is not None and one.name in names else owner == 0
        if columns.id is not None and one.name not in names:
            raise TableError(f"futr_df has no rows of series {one.name!r}")
        ahead = np.full((horizon, len(columns.future)), np.nan)
        steps = positions - one.end
        inside = rows & (steps >= 0) & (steps < horizon)
        ahead[steps[inside]] = values[inside]
        bad = ~np.isfinite(ahead).all(axis=1)
        if bad.any():
            step = int(bad.argmax())
            stamp = grid.stamps(one.end + step, 1)[0]
            raise TableError(
                f"series {one.name!r}: futr_df lacks a finite value of {named} at {stamp}, step {step + 1} of {horizon}"
            )
        found.append(ahead)
    return found

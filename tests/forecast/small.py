"""Tables of a few rows, what their columns are, and when two of them hold the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from parallelrnn.forecast.panel import Columns, Panel, Series

ONE = Columns(None, "ds", ("y",))
LONG = Columns("unique_id", "ds", ("y",))
FULL = replace(LONG, past=("wind",), future=("price",), static=("size",))


def one_series(stamps: Any, **others: Any) -> pd.DataFrame:
    return pd.DataFrame({"ds": stamps, "y": np.arange(len(stamps), dtype=float), **others})


def hours(rows: int = 10, start: str = "2024-02-27") -> pd.DatetimeIndex:
    return pd.date_range(start, periods=rows, freq="h")


def two_series(rows: int = 12) -> pd.DataFrame:
    """Of 12 and 11 rows, the second from an hour later on."""
    rng = np.random.default_rng(0)
    both = []
    for name, first, size in (("b", 0, 3.0), ("a", 1, 5.0)):
        stamps = hours(rows)[first:]
        numbers = rng.normal(size=(len(stamps), 3))
        both.append(pd.DataFrame({"unique_id": name, "ds": stamps, "size": size}).join(_named(numbers)))
    return pd.concat(both, ignore_index=True)


def _named(numbers: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(numbers, columns=["y", "wind", "price"])


def assert_same(one: Panel, other: Panel) -> None:
    assert (one.grid, one.columns, one.notes) == (other.grid, other.columns, other.notes)
    theirs = {series.name: series for series in other.series}
    assert len(one.series) == len(other.series) == len(theirs)
    for series in one.series:
        assert_same_series(series, theirs[series.name])


def assert_same_series(one: Series, other: Series) -> None:
    assert (one.name, one.position) == (other.name, other.position)
    for field in ("values", "observed", "past", "future", "static"):
        mine, theirs = getattr(one, field), getattr(other, field)
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(mine, theirs, strict=True)

"""Tables of a few rows, what their columns are, and when two of them hold the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from parallelrnn.forecast.data import Columns, Panel, Series
from parallelrnn.forecast.windows import CovariateScaler, SeriesScaler, WindowDataset

ONE = Columns()
LONG = Columns(id="unique_id")
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
        numbers = pd.DataFrame(rng.normal(size=(len(stamps), 3)), columns=["y", "wind", "price"])
        both.append(pd.DataFrame({"unique_id": name, "ds": stamps, "size": size}).join(numbers))
    return pd.concat(both, ignore_index=True)


def wide(df: pd.DataFrame) -> pd.DataFrame:
    """A column for each series."""
    return df.pivot(index="ds", columns="unique_id", values="y").reset_index()


def make_series(values: Any, name: Any = "a", position: int = 0, **others: Any) -> Series:
    """A series of values (T,) or (T, C), all observed, without covariates unless `others` has them."""
    values = np.asarray(values, dtype=float)
    values = values[:, None] if values.ndim == 1 else values
    none = np.zeros((len(values), 0))
    rest = {"observed": np.ones(values.shape, dtype=bool), "past": none, "future": none, "static": np.zeros(0)}
    return Series(name=name, position=position, values=values, **{**rest, **others})


def make_dataset(lookback: int, horizon: int, *series: Series) -> WindowDataset:
    """Windows of series without covariates, at the scale that they have."""
    scalers = [SeriesScaler(np.zeros(1), np.ones(1), (), np.zeros(1), np.zeros(1))] * len(series)
    covariates = CovariateScaler.fit(series, [len(item) for item in series])
    return WindowDataset(series, scalers, covariates, lookback, horizon)


def assert_same(first: Panel, second: Panel) -> None:
    assert (first.grid, first.columns, first.notes) == (second.grid, second.columns, second.notes)
    by_name = {series.name: series for series in second.series}
    assert len(first.series) == len(second.series) == len(by_name)
    for series in first.series:
        assert_same_series(series, by_name[series.name])


def assert_same_series(first: Series, second: Series) -> None:
    assert (first.name, first.position) == (second.name, second.position)
    for field in ("values", "observed", "past", "future", "static"):
        np.testing.assert_array_equal(getattr(first, field), getattr(second, field), strict=True)

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parallelrnn import Forecaster
from parallelrnn.errors import InputWarning, TableError
from parallelrnn.forecast.data import Columns, Panel, read_panel
from tests.forecast.small import LONG, ONE
from tests.support import raises, warns

WIDE = Columns(targets=("y", "z"))
nan = np.nan


def daily(values: Any, **others: Any) -> pd.DataFrame:
    return pd.DataFrame({"ds": pd.date_range("2024-01-01", periods=len(values)), "y": values, **others})


def long(**series: Any) -> pd.DataFrame:
    return pd.concat([daily(values, unique_id=name) for name, values in series.items()], ignore_index=True)


def assert_notes(panel: Panel, *expected: str) -> None:
    """Of each note, what comes before the colon: how many, where, and of which covariates."""
    assert [note.partition(":")[0] for note in panel.notes] == list(expected)


@settings(max_examples=40, deadline=None)
@given(
    empty=st.sets(st.integers(1, 28), max_size=12),
    dropped=st.sets(st.integers(1, 28), max_size=12),
    freq=st.sampled_from(["h", "B", "MS"]),
)
def test_gaps_are_filled_as_pandas_would(empty: set[int], dropped: set[int], freq: str) -> None:
    stamps = pd.date_range("2001-01-01", periods=30, freq=freq)
    full = pd.DataFrame({"ds": stamps, "y": np.random.default_rng(0).normal(size=30), "wind": np.arange(30.0) ** 2})
    full.loc[sorted(empty), "y"] = nan
    table = full.drop(sorted(dropped))
    panel = read_panel(table, replace(ONE, past=("wind",)), freq=freq)
    oracle = table.set_index("ds").reindex(stamps)
    (series,) = panel.series
    np.testing.assert_array_equal(series.observed, oracle[["y"]].notna())
    np.testing.assert_allclose(series.values, oracle[["y"]].interpolate(), rtol=1e-12)
    np.testing.assert_allclose(series.past, oracle[["wind"]].ffill(), rtol=1e-12)
    holes = int(oracle.isna().sum().sum())
    values = "1 value" if holes == 1 else f"{holes} values"
    which = " (targets, wind)" if dropped else ""
    assert_notes(panel, *[f"{values} missing in series 'y'{which}"] * (holes > 0))


def test_missing_rows_and_missing_values_are_the_same() -> None:
    table = daily([1.0, nan, 3.0, nan, nan, 9.0])
    by_value, by_row = read_panel(table, ONE), read_panel(table.dropna(), ONE, freq="D")
    for panel in (by_value, by_row, read_panel(pl.from_pandas(table), ONE)):
        assert_notes(panel, "3 values missing in series 'y'")
        assert panel.series[0].values[:, 0].tolist() == [1, 2, 3, 5, 7, 9]
        assert panel.series[0].observed[:, 0].tolist() == [True, False, True, False, False, True]


def test_the_ends_of_covariates_are_held() -> None:
    table = daily([1.0, 2.0, 3.0, 4.0], wind=[nan, 2.0, 5.0, nan])
    (series,) = read_panel(table, replace(ONE, past=("wind",))).series
    assert series.past[:, 0].tolist() == [2, 2, 5, 5]
    assert series.observed.all()


def test_covariates_with_gaps_are_named() -> None:
    columns = replace(ONE, past=("wind",), future=("rain",))
    table = daily([1.0, 2.0, 3.0, 4.0], wind=[1.0, 2.0, nan, 4.0], rain=[1.0, 2.0, 3.0, 4.0])
    assert_notes(read_panel(table, columns), "1 value missing in series 'y' (wind)")
    table.loc[1, ["y", "rain"]] = nan
    assert_notes(read_panel(table, columns), "3 values missing in series 'y' (targets, wind, rain)")


def test_mixed_channels_are_filled_each_on_its_own() -> None:
    table = daily([nan, nan, 2.0, nan, 4.0, nan], z=[nan, 1.0, nan, 3.0, 4.0, nan])
    panel = read_panel(table, WIDE, mixed=True)
    (series,) = panel.series
    assert series.position == 1
    assert series.values.tolist() == [[2, 1], [2, 2], [3, 3], [4, 4]]
    assert series.observed.tolist() == [[False, True], [True, False], [False, True], [True, True]]
    assert_notes(panel, "3 values missing in series 'y, z'", "2 steps without values at the ends in series 'y, z'")


def test_targets_of_a_wide_table_are_cut_each_on_its_own() -> None:
    table = daily([nan, nan, 2.0, 3.0, 4.0, nan], z=[0.0, 1.0, nan, 3.0, 4.0, nan])
    panel = read_panel(table, WIDE)
    assert [(series.name, series.position, len(series)) for series in panel.series] == [("y", 2, 3), ("z", 0, 5)]
    trimmed = "4 steps without values at the ends in 2 series, the most (3) in 'y'"
    assert_notes(panel, "1 value missing in series 'z'", trimmed)


@pytest.mark.parametrize("missing", ["interpolate", "error"])
def test_the_ends_without_values_are_cut_with_a_note(missing: str) -> None:
    table = daily([nan, nan, 2.0, 3.0, 4.0, nan], wind=np.arange(6.0))
    panel = read_panel(table, replace(ONE, past=("wind",)), missing=missing)
    (series,) = panel.series
    assert (series.position, series.end) == (2, 5)
    assert series.values[:, 0].tolist() == series.past[:, 0].tolist() == [2, 3, 4]
    assert_notes(panel, "3 steps without values at the ends in series 'y'")


def test_filling_a_gap_at_a_cutoff_does_not_leak_later_values() -> None:
    table = daily([0.0, 1.0, nan, nan, nan, 90.0, 7.0], z=[nan, nan, nan, 3.0, nan, 5.0, 6.0])
    (series,) = read_panel(table, WIDE, mixed=True).without_last(2).series
    assert series.values.tolist() == [[0, 3], [1, 3], [1, 3], [1, 3], [1, 3]]
    assert series.observed.sum(axis=0).tolist() == [2, 1]
    (full,) = read_panel(table, WIDE, mixed=True).without_last(1).series
    assert full.values[:, 0].tolist() == pytest.approx([0, 1, 23.25, 45.5, 67.75, 90])


def test_one_step_that_is_cut_is_one_step() -> None:
    assert_notes(read_panel(daily([1.0, 2.0, nan]), ONE), "1 step without values at the ends in series 'y'")


def test_notes_count_all_and_name_the_worst() -> None:
    panel = read_panel(long(a=[1, nan, 3, 4], b=[1, nan, nan, 4], c=[1, 2, 3, 4]), LONG)
    assert_notes(panel, "3 values missing in 2 series, the most (2) in 'b'")
    assert_notes(read_panel(long(a=[1, nan, 3, 4]).assign(unique_id=7), LONG), "1 value missing in series 7")
    assert_notes(read_panel(long(a=[1.0, 2.0, 3.0]), LONG, missing="error"))


def test_notes_become_warnings_at_the_line_of_the_user() -> None:
    table = daily([1.0, nan, 3.0, nan])
    with warns(InputWarning, "'y'") as caught:
        panel = Forecaster(1).read(table)
    assert [str(warning.message) for warning in caught] == list(panel.notes)
    assert [warning.filename for warning in caught] == [__file__] * 2


@pytest.mark.parametrize(
    ("column", "rows", "stamp"),
    [
        ("y", [2, 3], "2024-01-03 00:00:00"),
        ("wind", [0], "2024-01-01 00:00:00"),
        ("price", [5], "2024-01-06 00:00:00"),
    ],
)
def test_the_policy_error_names_the_first_missing_value(column: str, rows: list[int], stamp: str) -> None:
    table = long(a=np.arange(6.0), b=np.arange(6.0)).assign(wind=1.0, price=2.0)
    table.loc[np.add(rows, 6), column] = nan
    columns = replace(LONG, past=("wind",), future=("price",))
    assert read_panel(table, columns).notes
    with raises(TableError, "'b'", f"{column!r} is missing at {stamp}", len(rows), "missing='interpolate'"):
        read_panel(table, columns, missing="error")


def test_the_policy_error_names_a_missing_row() -> None:
    table = daily([nan, *range(9)]).drop([4, 6])
    with raises(TableError, "'y' is missing at 2024-01-05 00:00:00", 2):
        read_panel(table, ONE, missing="error")


def test_a_series_without_values_is_rejected() -> None:
    table = long(a=[1.0, 2.0, 3.0], b=[nan, nan, nan])
    with raises(TableError, "'b'"):
        read_panel(table, LONG)
    with raises(TableError, "'z'"):
        read_panel(daily([1.0, 2.0, 3.0], z=nan), WIDE)
    with raises(TableError, "'y, z'", "'z'"):
        read_panel(daily([1.0, 2.0, 3.0], z=nan), WIDE, mixed=True)


@pytest.mark.parametrize("wind", [[nan] * 4, [3.0, nan, nan, nan]])
def test_a_covariate_without_values_is_rejected(wind: list[float]) -> None:
    table = daily([nan, 1.0, 2.0, 3.0], wind=wind)
    with raises(TableError, "'y'", "'wind'"):
        read_panel(table, replace(ONE, past=("wind",)))


@pytest.mark.parametrize("far", [1001, 10**15])
def test_a_stamp_that_is_far_off_is_rejected_and_not_filled_up_to(far: int) -> None:
    table = pd.DataFrame({"ds": [*range(9), far], "y": np.arange(10.0)})
    with raises(TableError, "'y'", "10 rows", f"{far + 1} steps", f"0 to {far}"):
        read_panel(table, ONE)


def test_a_year_mistyped_is_rejected() -> None:
    stamps = [*pd.date_range("2024-01-01", periods=9, freq="s"), pd.Timestamp("2204-01-01")]
    with raises(TableError, "'y'", "10 rows", "'s'", "2024-01-01 00:00:00 to 2204-01-01 00:00:00"):
        read_panel(pd.DataFrame({"ds": stamps, "y": 1.0}), ONE)


def test_long_gaps_are_filled_all_the_same() -> None:
    table = pd.DataFrame({"ds": [*range(9), 999], "y": [*range(9), 999]})
    panel = read_panel(table, ONE)
    assert panel.series[0].values[:, 0].tolist() == list(range(1000))
    assert_notes(panel, "990 values missing in series 'y'")

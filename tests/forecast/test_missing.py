from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parallelrnn.errors import TableError
from parallelrnn.forecast.data import read_panel
from parallelrnn.forecast.panel import Columns, Panel

ONE = Columns(None, "ds", ("y",))
LONG = Columns("unique_id", "ds", ("y",))
HELD = "; straight lines fill the gaps, but for past covariates, which stay as they were; those of targets are neither "
HELD += "trained nor judged on"
FILLED = "; straight lines fill the gaps; those of targets are neither trained nor judged on"
CUT = "; the series are cut there"
nan = np.nan


def daily(values: Any, **others: Any) -> pd.DataFrame:
    return pd.DataFrame({"ds": pd.date_range("2024-01-01", periods=len(values)), "y": values, **others})


def of_series(**values: Any) -> pd.DataFrame:
    return pd.concat([daily(those, unique_id=name) for name, those in values.items()], ignore_index=True)


@settings(max_examples=40, deadline=None)
@given(
    empty=st.sets(st.integers(1, 28), max_size=12),
    gone=st.sets(st.integers(1, 28), max_size=12),
    freq=st.sampled_from(["h", "B", "MS"]),
)
def test_gaps_are_filled_as_pandas_would(empty: set[int], gone: set[int], freq: str) -> None:
    stamps = pd.date_range("2001-01-01", periods=30, freq=freq)
    full = pd.DataFrame({"ds": stamps, "y": np.random.default_rng(0).normal(size=30), "wind": np.arange(30.0) ** 2})
    full.loc[sorted(empty), "y"] = nan
    table = full.drop(sorted(gone))
    panel = read_panel(table, replace(ONE, past=("wind",)), freq=freq)
    oracle = table.set_index("ds").reindex(stamps)
    (series,) = panel.series
    np.testing.assert_array_equal(series.observed, oracle[["y"]].notna())
    np.testing.assert_allclose(series.values, oracle[["y"]].interpolate(), rtol=1e-12)
    np.testing.assert_allclose(series.past, oracle[["wind"]].ffill(), rtol=1e-12)
    holes = int(oracle.isna().sum().sum())
    values = "1 value" if holes == 1 else f"{holes} values"
    which = " (targets and wind)" if gone else ""
    assert panel.notes == ((f"{values} missing in series 'y'{which}{HELD}",) if holes else ())


def test_missing_rows_and_missing_values_are_the_same() -> None:
    table = daily([1.0, nan, 3.0, nan, nan, 9.0])
    by_value, by_row = read_panel(table, ONE), read_panel(table.dropna(), ONE, freq="D")
    assert by_value.notes == by_row.notes == (f"3 values missing in series 'y'{FILLED}",)
    for panel in (by_value, by_row, read_panel(pl.from_pandas(table), ONE)):
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
    assert read_panel(table, columns).notes == (f"1 value missing in series 'y' (of wind){HELD}",)
    table.loc[1, ["y", "rain"]] = nan
    assert read_panel(table, columns).notes == (f"3 values missing in series 'y' (targets and wind, rain){HELD}",)


def test_mixed_channels_are_filled_each_on_its_own() -> None:
    table = daily([nan, nan, 2.0, nan, 4.0, nan], z=[nan, 1.0, nan, 3.0, 4.0, nan])
    panel = read_panel(table, Columns(None, "ds", ("y", "z")), mixed=True)
    (series,) = panel.series
    assert series.position == 1
    assert series.values.tolist() == [[2, 1], [2, 2], [3, 3], [4, 4]]
    assert series.observed.tolist() == [[False, True], [True, False], [False, True], [True, True]]
    assert panel.notes == (
        f"3 values missing in series 'y, z'{FILLED}",
        f"2 steps without values at the ends in series 'y, z'{CUT}",
    )


def test_targets_of_a_wide_table_are_cut_each_on_its_own() -> None:
    table = daily([nan, nan, 2.0, 3.0, 4.0, nan], z=[0.0, 1.0, nan, 3.0, 4.0, nan])
    panel = read_panel(table, Columns(None, "ds", ("y", "z")))
    assert [(one.name, one.position, len(one)) for one in panel.series] == [("y", 2, 3), ("z", 0, 5)]
    assert panel.notes == (
        f"1 value missing in series 'z'{FILLED}",
        f"4 steps without values at the ends in 2 series, the most (3) in 'y'{CUT}",
    )


@pytest.mark.parametrize("missing", ["interpolate", "error"])
def test_the_ends_without_values_are_cut_and_told(missing: str) -> None:
    table = daily([nan, nan, 2.0, 3.0, 4.0, nan], wind=np.arange(6.0))
    panel = read_panel(table, replace(ONE, past=("wind",)), missing=missing)
    (series,) = panel.series
    assert (series.position, series.end) == (2, 5)
    assert series.values[:, 0].tolist() == series.past[:, 0].tolist() == [2, 3, 4]
    assert panel.notes == (f"3 steps without values at the ends in series 'y'{CUT}",)


def test_a_gap_at_a_new_end_knows_nothing_of_what_came_after() -> None:
    columns = Columns(None, "ds", ("y", "z"))
    table = daily([0.0, 1.0, nan, nan, nan, 90.0, 7.0], z=[nan, nan, nan, 3.0, nan, 5.0, 6.0])
    (series,) = read_panel(table, columns, mixed=True).without_last(2).series
    assert series.values.tolist() == [[0, 3], [1, 3], [1, 3], [1, 3], [1, 3]]
    assert series.observed.sum(axis=0).tolist() == [2, 1]
    (whole,) = read_panel(table, columns, mixed=True).without_last(1).series
    assert whole.values[:, 0].tolist() == pytest.approx([0, 1, 23.25, 45.5, 67.75, 90])


def test_one_step_that_is_cut_is_one_step() -> None:
    assert read_panel(daily([1.0, 2.0, nan]), ONE).notes == (f"1 step without values at the ends in series 'y'{CUT}",)


def test_notes_count_all_and_name_the_worst() -> None:
    panel = read_panel(of_series(a=[1, nan, 3, 4], b=[1, nan, nan, 4], c=[1, 2, 3, 4]), LONG)
    assert panel.notes == (f"3 values missing in 2 series, the most (2) in 'b'{FILLED}",)


def test_notes_name_whole_numbers_as_such() -> None:
    table = of_series(a=[1, nan, 3, 4]).assign(unique_id=7)
    assert read_panel(table, LONG).notes == (f"1 value missing in series 7{FILLED}",)


def test_notes_become_warnings() -> None:
    panel = read_panel(daily([1.0, nan, 3.0, nan]), ONE)
    assert len(panel.notes) == 2
    with pytest.warns(UserWarning, match="in series 'y'") as told:
        panel.warn()
    assert tuple(str(one.message) for one in told) == panel.notes


def test_nothing_missing_is_nothing_told() -> None:
    panel = read_panel(of_series(a=[1.0, 2.0, 3.0]), LONG, missing="error")
    assert panel.notes == ()
    panel.warn()


@pytest.mark.parametrize(
    ("column", "rows", "words"),
    [
        ("y", [2, 3], "'y' is missing at 2024-01-03 00:00:00, and 2 values in all"),
        ("wind", [0], "'wind' is missing at 2024-01-01 00:00:00, and 1 values in all"),
        ("price", [5], "'price' is missing at 2024-01-06 00:00:00, and 1 values in all"),
    ],
)
def test_a_missing_value_is_refused_with_its_place_if_one_says_so(column: str, rows: list[int], words: str) -> None:
    table = of_series(a=np.arange(6.0), b=np.arange(6.0)).assign(wind=1.0, price=2.0)
    table.loc[np.add(rows, 6), column] = nan
    columns = replace(LONG, past=("wind",), future=("price",))
    assert read_panel(table, columns).notes
    with pytest.raises(TableError, match=f"^series 'b': {words}; fill them, or use missing='interpolate'$"):
        read_panel(table, columns, missing="error")


def test_a_missing_row_is_refused_with_its_place_if_one_says_so() -> None:
    table = daily([nan, *range(9)]).drop([4, 6])
    with pytest.raises(
        TableError, match="series 'y': 'y' is missing at 2024-01-05 00:00:00, and 2 values in all; fill"
    ):
        read_panel(table, ONE, missing="error")


@pytest.mark.parametrize("missing", ["drop", "", None])
def test_another_policy_is_refused(missing: Any) -> None:
    with pytest.raises(ValueError, match=f"missing should be one of 'interpolate', 'error', got {missing!r}"):
        read_panel(daily([1.0, 2.0, 3.0]), ONE, missing=missing)


def read_wide(table: pd.DataFrame, mixed: bool) -> Panel:
    return read_panel(table, Columns(None, "ds", ("y", "z")), mixed=mixed)


def test_a_series_without_values_is_refused() -> None:
    table = of_series(a=[1.0, 2.0, 3.0], b=[nan, nan, nan])
    with pytest.raises(TableError, match="series 'b' has no values: every one is missing; leave it out of the table"):
        read_panel(table, LONG)
    with pytest.raises(TableError, match="series 'z' has no values"):
        read_wide(daily([1.0, 2.0, 3.0], z=nan), mixed=False)
    with pytest.raises(
        TableError, match="series 'y, z': every value of 'z' is missing; leave the column or the series"
    ):
        read_wide(daily([1.0, 2.0, 3.0], z=nan), mixed=True)


@pytest.mark.parametrize("wind", [[nan] * 4, [3.0, nan, nan, nan]])
def test_a_covariate_without_values_is_refused(wind: list[float]) -> None:
    table = daily([nan, 1.0, 2.0, 3.0], wind=wind)
    with pytest.raises(
        TableError, match="series 'y': every value of 'wind' is missing; leave the column or the series"
    ):
        read_panel(table, replace(ONE, past=("wind",)))


@pytest.mark.parametrize("far", [1001, 10**15])
def test_a_stamp_that_is_far_off_is_refused_and_not_filled_up_to(far: int) -> None:
    table = pd.DataFrame({"ds": [*range(9), far], "y": np.arange(10.0)})
    words = (
        f"series 'y' has 10 rows for the {far + 1} steps of frequency 1 from 0 to {far}; correct time stamps that are"
    )
    with pytest.raises(TableError, match=words):
        read_panel(table, ONE)


def test_a_year_mistyped_is_refused() -> None:
    stamps = [*pd.date_range("2024-01-01", periods=9, freq="s"), pd.Timestamp("2204-01-01")]
    words = r"series 'y' has 10 rows for the \d+ steps of frequency 's' from 2024-01-01 00:00:00 to 2204-01-01 00:00:00"
    with pytest.raises(TableError, match=words):
        read_panel(pd.DataFrame({"ds": stamps, "y": 1.0}), ONE)


def test_long_gaps_are_filled_all_the_same() -> None:
    table = pd.DataFrame({"ds": [*range(9), 999], "y": [*range(9), 999]})
    panel = read_panel(table, ONE)
    assert panel.series[0].values[:, 0].tolist() == list(range(1000))
    assert re.match("990 values missing in series 'y'", panel.notes[0])

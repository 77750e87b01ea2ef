from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parallelrnn.errors import TableError, TimestampError
from parallelrnn.forecast.data import Columns, as_frame, read_panel
from parallelrnn.forecast.frequency import Grid
from tests.forecast.small import FULL, LONG, ONE, assert_same, assert_same_series, hours, one_series, two_series
from tests.support import raises


def test_a_long_table_becomes_arrays() -> None:
    table = two_series()
    panel = read_panel(table, FULL)
    assert panel.grid == Grid("h", pd.Timestamp("2024-02-27"))
    assert panel.columns is FULL
    assert panel.notes == ()
    assert [(s.name, s.position, len(s), s.end) for s in panel.series] == [("b", 0, 12, 12), ("a", 1, 11, 12)]
    for series, (_, rows) in zip(panel.series, table.groupby("unique_id", sort=False), strict=True):
        np.testing.assert_array_equal(series.values, rows[["y"]])
        np.testing.assert_array_equal(series.past, rows[["wind"]])
        np.testing.assert_array_equal(series.future, rows[["price"]])
        assert series.static.tolist() == [rows["size"].iloc[0]]
        assert series.observed.all()
        assert series.observed.shape == series.values.shape


def test_a_table_of_one_series_is_named_by_its_target() -> None:
    (series,) = read_panel(one_series(hours()), ONE).series
    assert series.name == "y"
    assert series.values.tolist() == [[float(n)] for n in range(10)]
    assert series.past.shape == series.future.shape == (10, 0)
    assert series.static.shape == (0,)


WIDE = Columns(targets=("y", "z"), past=("wind",))


def wide() -> pd.DataFrame:
    return one_series(hours(), z=np.arange(10) ** 2.0, wind=np.cos(np.arange(10)))


def test_each_target_of_a_wide_table_is_a_series() -> None:
    table = wide()
    panel = read_panel(table, WIDE)
    assert [series.name for series in panel.series] == ["y", "z"]
    for series in panel.series:
        np.testing.assert_array_equal(series.values, table[[series.name]])
        np.testing.assert_array_equal(series.past, table[["wind"]])
        assert (series.position, len(series)) == (0, 10)


def test_mixed_targets_are_the_channels_of_one_series() -> None:
    table = wide()
    (series,) = read_panel(table, WIDE, mixed=True).series
    assert series.name == "y, z"
    np.testing.assert_array_equal(series.values, table[["y", "z"]])
    np.testing.assert_array_equal(series.past, table[["wind"]])


def test_mixed_targets_keep_the_ids_of_their_series() -> None:
    panel = read_panel(two_series(), replace(FULL, targets=("y", "wind"), past=("price",), future=()), mixed=True)
    assert [(series.name, series.values.shape) for series in panel.series] == [("b", (12, 2)), ("a", (11, 2))]


@settings(max_examples=20, deadline=None)
@given(st.permutations(range(23)))
def test_rows_may_come_in_any_order(order: list[int]) -> None:
    table = two_series()
    assert_same(read_panel(table.iloc[order], FULL), read_panel(table, FULL))
    assert_same(read_panel(pl.from_pandas(table)[order], FULL), read_panel(table, FULL))


def test_the_index_of_pandas_says_nothing() -> None:
    table = two_series()
    assert_same(read_panel(table.set_index(np.zeros(23)), FULL), read_panel(table, FULL))


def test_series_stay_in_the_order_in_which_they_come() -> None:
    table = pd.concat([one_series(hours(), unique_id=name) for name in ("m", "z", "a")])
    assert [series.name for series in read_panel(table, LONG).series] == ["m", "z", "a"]


def test_the_table_is_left_as_it_was() -> None:
    table = two_series().sample(frac=1, random_state=0)
    table.iloc[3, 3] = np.nan
    before = table.copy(deep=True)
    read_panel(table, FULL)
    pd.testing.assert_frame_equal(table, before)


def test_polars_equals_pandas() -> None:
    table = two_series()
    table.loc[[2, 3, 15], "y"] = np.nan
    table.loc[5, "wind"] = np.nan
    table = table.drop([8, 17])
    panel = read_panel(table, FULL)
    assert panel.notes
    assert_same(read_panel(pl.from_pandas(table), FULL), panel)
    with_nan = pl.from_pandas(table, nan_to_null=False)
    assert with_nan["y"].is_nan().any()
    assert_same(read_panel(with_nan, FULL), panel)
    assert_same(read_panel(with_nan.to_arrow(), FULL), panel)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_stamps_keep_their_unit(unit: Any) -> None:
    stamps = hours().as_unit(unit)
    assert read_panel(one_series(stamps), ONE).grid.origin.unit == unit
    if unit != "s":
        table = pl.DataFrame({"ds": stamps.to_numpy(), "y": np.arange(10.0)})
        assert read_panel(table, ONE).grid.stamps(0, 1).unit == unit


NUMBERS = {
    "int": pd.Series([1, 2, 3, 4]),
    "int8": pd.Series([1, 2, 3, 4], dtype="int8"),
    "uint64": pd.Series([1, 2, 3, 4], dtype="uint64"),
    "float32": pd.Series([1, 2, np.nan, 4], dtype="float32"),
    "bool": pd.Series([True, False, False, True]),
    "Int64": pd.Series([1, 2, None, 4], dtype="Int64"),
    "Float64": pd.Series([1, 2, None, 4], dtype="Float64"),
    "boolean": pd.Series([True, None, False, True], dtype="boolean"),
    "arrow int": pd.Series([1, 2, None, 4], dtype="int64[pyarrow]"),
    "arrow float": pd.Series([1, 2, None, 4], dtype="float64[pyarrow]"),
    "arrow bool": pd.Series([True, None, False, True], dtype="bool[pyarrow]"),
}


@pytest.mark.parametrize("numbers", NUMBERS.values(), ids=list(NUMBERS))
def test_columns_of_numbers(numbers: pd.Series) -> None:
    values = [np.nan if pd.isna(number) else float(number) for number in numbers]
    filled = pd.Series(values).interpolate().to_numpy()[:, None]
    columns = replace(ONE, future=("x",))
    for table in (one_series(hours(4), x=numbers), pl.from_pandas(one_series(hours(4), x=numbers))):
        np.testing.assert_array_equal(read_panel(table, columns).series[0].future, filled, strict=True)
    target = read_panel(pd.DataFrame({"ds": hours(4), "y": numbers}), ONE).series[0]
    np.testing.assert_array_equal(target.values, filled, strict=True)
    np.testing.assert_array_equal(target.observed[:, 0], ~np.isnan(values))


@pytest.mark.parametrize(
    "ids",
    [
        ["a"] * 5 + ["b"] * 5,
        [7] * 5 + [3] * 5,
        pd.Categorical(["x"] * 5 + ["y"] * 5, categories=["y", "unused", "x"]),
        pd.array(["a"] * 5 + ["b"] * 5, dtype="string[pyarrow]"),
        pd.array([1] * 5 + [2] * 5, dtype="int64[pyarrow]"),
        pd.array([1] * 5 + [2] * 5, dtype="Int64"),
        [True] * 5 + [False] * 5,
    ],
    ids=["text", "int", "categorical", "arrow text", "arrow int", "Int64", "bool"],
)
def test_ids_of_any_kind_stay_what_they_are(ids: Any) -> None:
    table = one_series([*hours(5), *hours(5)], unique_id=ids)
    names = [table["unique_id"].iloc[0], table["unique_id"].iloc[5]]
    for frame in (table, pl.from_pandas(table)):
        result = [series.name for series in read_panel(frame, LONG).series]
        assert result == names
        assert type(result[0]) in (str, int, bool)


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize("ids", [["a", "a", None, "b"], [1.0, 1.0, float("nan"), 2.0], [1, 1, None, 2]])
def test_an_empty_id_is_rejected(library: Any, ids: list[Any]) -> None:
    table = library({"unique_id": ids, "ds": hours(4).to_numpy(), "y": [1.0, 2.0, 3.0, 4.0]})
    with raises(TableError, "row 2", "'unique_id'"):
        read_panel(table, LONG)


@pytest.mark.parametrize(
    "table", [None, [1, 2], {"ds": [1], "y": [1]}, np.zeros((3, 2)), pd.Series([1.0]), pl.Series([1.0]), "table.csv"]
)
def test_objects_that_are_no_tables_are_rejected(table: Any) -> None:
    with raises(TypeError, type(table).__name__):
        as_frame(table)


def test_a_lazy_table_has_to_be_collected() -> None:
    lazy = pl.from_pandas(one_series(hours())).lazy()
    with raises(TypeError, "LazyFrame", "collect()"):
        read_panel(lazy, ONE)
    assert_same(read_panel(lazy.collect(), ONE), read_panel(one_series(hours()), ONE))


def test_two_columns_of_one_name_are_rejected() -> None:
    table = pd.DataFrame(np.zeros((3, 3)), columns=["ds", "y", "y"])
    with raises(TableError, problem="several columns are named 'y'"):
        read_panel(table, ONE)


@pytest.mark.parametrize(
    ("columns", "facts"),
    [
        (Columns(id="id"), ["'id'", "'unique_id', 'ds', 'y'", "id_col=", "time_col=", "target_col="]),
        (Columns(id="unique_id", time="t", targets=("x",)), ["'t', 'x'"]),
        (Columns(id="unique_id", targets=("y", "z")), ["'z'"]),
        (replace(LONG, past=("p",), future=("f",), static=("s",)), ["'p', 'f', 's'"]),
        (ONE, ["'unique_id'"]),
        (Columns(past=("wind",)), ["'wind'"]),
        (replace(LONG, past=("y",)), ["'y'"]),
        (Columns(id="ds", past=("unique_id",)), ["'ds'"]),
        (Columns(id="unique_id", targets=("y", "y")), ["'y'"]),
    ],
)
def test_columns_have_to_be_there_with_one_role(columns: Columns, facts: list[str]) -> None:
    table = one_series(hours(), unique_id="a")[["unique_id", "ds", "y"]]
    for frame in (table, pl.from_pandas(table)):
        with raises(TableError, *facts):
            read_panel(frame, columns)


def test_unused_columns_are_named() -> None:
    with raises(TableError, "'wind', 'price'", "past_covariates=", "future_covariates=", "static_covariates="):
        read_panel(one_series(hours(), wind=0.0, price=1.0), ONE)


def test_columns_may_be_named_by_numbers() -> None:
    table = pd.DataFrame({0: hours(), 1: np.arange(10.0)})
    columns: Any = Columns(time=0, targets=(1,))  # type: ignore[arg-type]
    assert len(read_panel(table, columns).series[0]) == 10


def test_an_empty_table_is_rejected() -> None:
    with raises(TableError, "no rows"):
        read_panel(one_series(hours(0)), ONE)


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        (["1", "2", "x"], ["text", "'x'", "row 2"]),
        (hours(3), ["Datetime"]),
        (pd.Categorical([1, 2, 1]), ["Categorical", "1"]),
        (pd.Series([None, "1", 2], dtype=object), ["Object", "'1'"]),
        ([1j, 2, 3], ["Unknown", "1j"]),
        (pd.to_timedelta([1, 2, 3]), ["Duration"]),
    ],
)
@pytest.mark.parametrize("role", ["targets", "past", "future", "static"])
def test_values_that_are_no_numbers_are_rejected(values: Any, facts: list[str], role: str) -> None:
    columns, table = ONE, pd.DataFrame({"ds": hours(3), "y": values})
    if role != "targets":
        columns, table = replace(ONE, targets=("z",), **{role: ("y",)}), table.assign(z=0.0)
    with raises(TableError, "'y'", *facts):
        read_panel(table, columns)


@pytest.mark.parametrize("role", ["targets", "past", "future", "static"])
@pytest.mark.parametrize("value", [np.inf, -np.inf, 1e300])
@pytest.mark.parametrize("reverse", [False, True])
def test_values_too_large_are_rejected_with_their_row(role: str, value: float, reverse: bool) -> None:
    column = {"targets": "y", "past": "wind", "future": "price", "static": "size"}[role]
    table = two_series()
    table.loc[15, column] = value
    table = table[::-1] if reverse else table
    for frame in (table, pl.from_pandas(table)):
        with raises(TableError, f"series 'a', row {7 if reverse else 15}: '{column}' is {value}", "1e+100"):
            read_panel(frame, FULL)


def test_series_whose_squares_vanish_are_rejected() -> None:
    table = two_series()
    table["y"] = np.where(table["unique_id"] == "b", table["y"] * 1e-200, table["y"])
    with raises(TableError, "'b'", "'y'", "e-200", "1e-100"):
        read_panel(table, FULL)


def test_the_only_series_has_no_name_in_an_error() -> None:
    table = one_series(hours())
    table.loc[4, "y"] = np.inf
    with raises(TableError) as caught:
        read_panel(table, ONE)
    assert str(caught.value).startswith("row 4: 'y' is inf")


@pytest.mark.parametrize("order", [slice(None), slice(None, None, -1)])
def test_two_rows_of_one_time_are_rejected(order: slice) -> None:
    table = two_series()
    table = pd.concat([table, table.iloc[[15, 3]]], ignore_index=True)[order]
    first, second = (3, 24) if order == slice(None) else (0, 21)
    code = "df.drop_duplicates(['unique_id', 'ds'])"
    with raises(TimestampError, "'b'", f"rows {first} and {second}", "2024-02-27 03:00:00", "2 such", code=code):
        read_panel(table, FULL)


def test_two_rows_of_one_time_may_be_of_two_series() -> None:
    with raises(TimestampError, "rows 0 and 3", "2024-02-27 00:00:00", "id_col=", code="df.drop_duplicates(['ds'])"):
        read_panel(one_series([*hours(3), *hours(1)]), ONE)


@pytest.mark.parametrize("stamps", [[1, 2, 2, 3], ["2024-01-01", "2024-01-02", "2024-01-02T00:00", "2024-01-03"]])
def test_times_that_are_the_same_in_another_form(stamps: list[Any]) -> None:
    with raises(TimestampError, "rows 1 and 2"):
        read_panel(one_series(stamps), ONE)


def test_static_covariates_that_vary_are_rejected() -> None:
    table = two_series()
    table.loc[13, "size"] = 6.0
    with raises(TableError, "'a'", "'size'", "5.0, 6.0", "past_covariates="):
        read_panel(table, FULL)
    table["size"] = np.nan
    with raises(TableError, "'b'", "'size'"):
        read_panel(table, FULL)


@pytest.mark.parametrize("name", ["yhat", "level", "cutoff", "yhat-lo-80"])
def test_names_of_forecast_columns_are_rejected(name: str) -> None:
    table = two_series().rename(columns={"unique_id": name})[[name, "ds", "y"]]
    with raises(TableError, f"'{name}'"):
        read_panel(table, Columns(id=name))


def test_the_ends_of_a_series() -> None:
    series = read_panel(two_series(), FULL).series[1]  # 11 steps from position 1 on
    tail = series.tail(4)
    assert (tail.position, len(tail), tail.end) == (8, 4, 12)
    np.testing.assert_array_equal(tail.values, series.values[7:])
    np.testing.assert_array_equal(tail.future, series.future[7:])
    assert_same_series(series.tail(11), series)
    assert_same_series(series.tail(99), series)
    head = series.without_last(4)
    assert (head.position, len(head), head.end) == (1, 7, 8)
    np.testing.assert_array_equal(head.values, series.values[:7])
    np.testing.assert_array_equal(head.past, series.past[:7])
    np.testing.assert_array_equal(head.observed, series.observed[:7])
    assert_same_series(series.without_last(0), series)
    assert len(series.without_last(15)) == len(series.without_last(11)) == 0
    panel = read_panel(two_series(), FULL).without_last(5)
    assert [(item.position, len(item)) for item in panel.series] == [(0, 7), (1, 6)]

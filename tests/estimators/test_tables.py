from __future__ import annotations

import datetime
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parallelrnn.estimators.grid import Grid, TimeError
from parallelrnn.estimators.panel import Columns, Panel, Series, TableError
from parallelrnn.estimators.tables import as_frame, read_panel

ONE = Columns(None, "ds", ("y",))
LONG = Columns("unique_id", "ds", ("y",))
FULL = replace(LONG, past=("wind",), future=("price",), static=("size",))


def one_series(stamps: Any, **others: Any) -> pd.DataFrame:
    return pd.DataFrame({"ds": stamps, "y": np.arange(len(stamps), dtype=float), **others})


def hourly(rows: int = 10, start: str = "2024-02-27") -> pd.DatetimeIndex:
    return pd.date_range(start, periods=rows, freq="h")


def two_series(rows: int = 12) -> pd.DataFrame:
    """Of 12 and 11 rows, the second from an hour later on."""
    rng = np.random.default_rng(0)
    both = []
    for name, first, size in (("b", 0, 3.0), ("a", 1, 5.0)):
        stamps = hourly(rows)[first:]
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


def test_a_long_table_becomes_arrays() -> None:
    table = two_series()
    panel = read_panel(table, FULL)
    assert panel.grid == Grid("h", pd.Timestamp("2024-02-27"))
    assert panel.columns is FULL
    assert panel.notes == ()
    assert [(one.name, one.position, len(one), one.end) for one in panel.series] == [("b", 0, 12, 12), ("a", 1, 11, 12)]
    for one, (_, rows) in zip(panel.series, table.groupby("unique_id", sort=False), strict=True):
        np.testing.assert_array_equal(one.values, rows[["y"]])
        np.testing.assert_array_equal(one.past, rows[["wind"]])
        np.testing.assert_array_equal(one.future, rows[["price"]])
        assert one.static.tolist() == [rows["size"].iloc[0]]
        assert one.observed.all()
        assert one.observed.shape == one.values.shape


def test_a_table_of_one_series_is_named_by_its_target() -> None:
    (series,) = read_panel(one_series(hourly()), ONE).series
    assert series.name == "y"
    assert series.values.tolist() == [[float(n)] for n in range(10)]
    assert series.past.shape == series.future.shape == (10, 0)
    assert series.static.shape == (0,)


WIDE = Columns(None, "ds", ("y", "z"), past=("wind",))


def wide() -> pd.DataFrame:
    return one_series(hourly(), z=np.arange(10) ** 2.0, wind=np.cos(np.arange(10)))


def test_each_target_of_a_wide_table_is_a_series() -> None:
    table = wide()
    panel = read_panel(table, WIDE)
    assert [one.name for one in panel.series] == ["y", "z"]
    for one in panel.series:
        np.testing.assert_array_equal(one.values, table[[one.name]])
        np.testing.assert_array_equal(one.past, table[["wind"]])
        assert (one.position, len(one)) == (0, 10)


def test_mixed_targets_are_the_channels_of_one_series() -> None:
    table = wide()
    (series,) = read_panel(table, WIDE, mixed=True).series
    assert series.name == "y, z"
    np.testing.assert_array_equal(series.values, table[["y", "z"]])
    np.testing.assert_array_equal(series.past, table[["wind"]])


def test_mixed_targets_keep_the_ids_of_their_series() -> None:
    panel = read_panel(two_series(), Columns("unique_id", "ds", ("y", "wind"), ("price",), (), ("size",)), mixed=True)
    assert [(one.name, one.values.shape) for one in panel.series] == [("b", (12, 2)), ("a", (11, 2))]


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
    table = pd.concat([one_series(hourly(), unique_id=name) for name in ("m", "z", "a")])
    assert [one.name for one in read_panel(table, LONG).series] == ["m", "z", "a"]


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
    stamps = hourly().as_unit(unit)
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
    values = [np.nan if pd.isna(one) else float(one) for one in numbers]
    filled = pd.Series(values).interpolate().to_numpy()[:, None]
    columns = replace(ONE, future=("x",))
    for table in (one_series(hourly(4), x=numbers), pl.from_pandas(one_series(hourly(4), x=numbers))):
        np.testing.assert_array_equal(read_panel(table, columns).series[0].future, filled, strict=True)
    target = read_panel(pd.DataFrame({"ds": hourly(4), "y": numbers}), ONE).series[0]
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
    table = one_series([*hourly(5), *hourly(5)], unique_id=ids)
    names = [table["unique_id"].iloc[0], table["unique_id"].iloc[5]]
    for one in (table, pl.from_pandas(table)):
        found = [series.name for series in read_panel(one, LONG).series]
        assert found == names
        assert type(found[0]) in (str, int, bool)


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize("ids", [["a", "a", None, "b"], [1.0, 1.0, float("nan"), 2.0], [1, 1, None, 2]])
def test_an_empty_id_is_refused(library: Any, ids: list[Any]) -> None:
    table = library({"unique_id": ids, "ds": hourly(4).to_numpy(), "y": [1.0, 2.0, 3.0, 4.0]})
    with pytest.raises(
        TableError, match="row 2: the id column 'unique_id' is empty there; fill it, or leave the row out"
    ):
        read_panel(table, LONG)


@pytest.mark.parametrize(
    "table", [None, [1, 2], {"ds": [1], "y": [1]}, np.zeros((3, 2)), pd.Series([1.0]), pl.Series([1.0]), "table.csv"]
)
def test_what_is_no_table_is_refused(table: Any) -> None:
    with pytest.raises(TypeError, match=f"expected a table of pandas or polars, got {type(table).__name__}"):
        as_frame(table)


def test_a_lazy_table_has_to_be_collected() -> None:
    lazy = pl.from_pandas(one_series(hourly())).lazy()
    with pytest.raises(TypeError, match=r"got LazyFrame; call its collect\(\) first"):
        read_panel(lazy, ONE)
    assert_same(read_panel(lazy.collect(), ONE), read_panel(one_series(hourly()), ONE))


def test_two_columns_of_one_name_are_refused() -> None:
    table = pd.DataFrame(np.zeros((3, 3)), columns=["ds", "y", "y"])
    with pytest.raises(TableError, match=r"(?s)two columns of the table have one name; rename one of them.*'y'"):
        read_panel(table, ONE)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (
            Columns("id", "ds", ("y",)),
            "the table has no column 'id'; its columns are 'unique_id', 'ds', 'y'; say which",
        ),
        (Columns("unique_id", "t", ("x",)), "no column 't', 'x'; .* by id_col=, time_col= and target_col="),
        (Columns("unique_id", "ds", ("y", "z")), "no column 'z'"),
        (replace(LONG, past=("p",), future=("f",), static=("s",)), "no column 'p', 'f', 's'"),
        (
            ONE,
            "columns that nobody asked for: 'unique_id'; name them as targets, as past_covariates, future_covariates",
        ),
        (replace(LONG, past=("y",)), "the column 'y' is used in two ways; each has one"),
        (Columns("ds", "ds", ("y",), past=("unique_id",)), "the column 'ds' is used in two ways"),
        (Columns("unique_id", "ds", ("y", "y")), "the column 'y' is used in two ways"),
    ],
)
def test_columns_have_to_be_there_once_and_for_something(columns: Columns, words: str) -> None:
    table = one_series(hourly(), unique_id="a")[["unique_id", "ds", "y"]]
    for one in (table, pl.from_pandas(table)):
        with pytest.raises(TableError, match=words):
            read_panel(one, columns)


def test_unused_columns_are_told_with_the_remedy() -> None:
    with pytest.raises(TableError) as error:
        read_panel(one_series(hourly(), wind=0.0, price=1.0), ONE)
    assert str(error.value) == (
        "the table has columns that nobody asked for: 'wind', 'price'; name them as targets, as past_covariates, "
        "future_covariates or static_covariates, or leave them out of the table"
    )


def test_columns_may_be_named_by_numbers() -> None:
    table = pd.DataFrame({0: hourly(), 1: np.arange(10.0)})
    columns: Any = Columns(None, 0, (1,))  # type: ignore[arg-type]
    assert len(read_panel(table, columns).series[0]) == 10


def test_an_empty_table_is_refused() -> None:
    with pytest.raises(TableError, match="the table has no rows"):
        read_panel(one_series(hourly(0)), ONE)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (["1", "2", "x"], "'y' holds String such as '1'"),
        (hourly(3), "'y' holds Datetime"),
        (pd.Categorical([1, 2, 1]), "'y' holds Categorical such as 1"),
        (pd.Series([None, "1", 2], dtype=object), "'y' holds Object such as '1'"),
        ([1j, 2, 3], "'y' holds Unknown such as 1j"),
        (pd.to_timedelta([1, 2, 3]), "'y' holds Duration"),
    ],
)
@pytest.mark.parametrize("role", ["targets", "past", "future", "static"])
def test_what_is_no_number_is_refused(values: Any, words: str, role: str) -> None:
    columns, table = ONE, pd.DataFrame({"ds": hourly(3), "y": values})
    if role != "targets":
        columns, table = replace(ONE, targets=("z",), **{role: ("y",)}), table.assign(z=0.0)
    with pytest.raises(TableError, match=f"the column {words}.*; expected numbers: turn it into numbers, or leave the"):
        read_panel(table, columns)


@pytest.mark.parametrize("role", ["targets", "past", "future", "static"])
@pytest.mark.parametrize("value", [np.inf, -np.inf])
@pytest.mark.parametrize("reverse", [False, True])
def test_infinite_values_are_refused_with_their_row(role: str, value: float, reverse: bool) -> None:
    column = {"targets": "y", "past": "wind", "future": "price", "static": "size"}[role]
    table = two_series()
    table.loc[15, column] = value
    table = table[::-1] if reverse else table
    words = f"series 'a', row {7 if reverse else 15}: '{column}' is {value}; correct it, or make it a missing value"
    for one in (table, pl.from_pandas(table)):
        with pytest.raises(TableError, match=f"^{words}$"):
            read_panel(one, FULL)


def test_the_only_series_has_no_name_in_an_error() -> None:
    table = one_series(hourly())
    table.loc[4, "y"] = np.inf
    with pytest.raises(TableError, match=r"^row 4: 'y' is inf"):
        read_panel(table, ONE)


@pytest.mark.parametrize("order", [slice(None), slice(None, None, -1)])
def test_two_rows_of_one_time_are_refused(order: slice) -> None:
    table = two_series()
    table = pd.concat([table, table.iloc[[15, 3]]], ignore_index=True)[order]
    first, second = (3, 24) if order == slice(None) else (0, 21)
    with pytest.raises(TimeError) as error:
        read_panel(table, FULL)
    assert str(error.value) == (
        f"series 'b': rows {first} and {second} have the same time stamp 2024-02-27 03:00:00, and 1 more such pairs; "
        "keep one of them, df.drop_duplicates(['unique_id', 'ds']) say"
    )


def test_two_rows_of_one_time_may_be_of_two_series() -> None:
    with pytest.raises(TimeError) as error:
        read_panel(one_series([*hourly(3), *hourly(1)]), ONE)
    assert str(error.value) == (
        "rows 0 and 3 have the same time stamp 2024-02-27 00:00:00; keep one of them, df.drop_duplicates('ds') say, or "
        "if they are of different series, name the column that tells them apart by id_col="
    )


@pytest.mark.parametrize("stamps", [[1, 2, 2, 3], ["2024-01-01", "2024-01-02", "2024-01-02T00:00", "2024-01-03"]])
def test_times_that_are_the_same_in_another_form(stamps: list[Any]) -> None:
    with pytest.raises(TimeError, match="rows 1 and 2 have the same time stamp"):
        read_panel(one_series(stamps), ONE)


def test_static_covariates_that_vary_are_refused() -> None:
    table = two_series()
    table.loc[13, "size"] = 6.0
    words = "series 'a': the static covariate 'size' should have one value, and has 5.0, 6.0; .* past_covariates"
    with pytest.raises(TableError, match=words):
        read_panel(table, FULL)
    table["size"] = np.nan
    with pytest.raises(TableError, match="series 'b': the static covariate 'size' should have one value, and has nan"):
        read_panel(table, FULL)


@pytest.mark.parametrize("freq", ["ms", "15min", "h", "D", "B", "W-WED", "MS", "QE-DEC", "YS-JAN"])
@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame])
def test_the_frequency_is_guessed_or_given(freq: str, library: Any) -> None:
    stamps = pd.date_range("2001-01-01", periods=30, freq=freq).delete([4, 11, 12])
    table = library({"ds": stamps.to_numpy(), "y": np.arange(27.0)})
    panel = read_panel(table, ONE)
    assert panel.grid == Grid(freq, stamps[0])
    assert len(panel.series[0]) == 30
    assert panel.grid.stamps(0, 30)[panel.series[0].observed[:, 0]].equals(stamps)
    assert_same(read_panel(table, ONE, freq=freq), panel)


@pytest.mark.parametrize("given", [pd.offsets.Hour(6), "6h", "360min"])
def test_a_frequency_given_in_other_words(given: Any) -> None:
    stamps = pd.date_range("2001-01-01", periods=5, freq="6h")
    grid = read_panel(one_series(stamps), ONE, freq=given).grid
    assert isinstance(grid.freq, str)
    assert grid.stamps(0, 5).equals(stamps)


@pytest.mark.parametrize(
    ("freq", "stamps", "words"),
    [
        (
            "D",
            hourly(),
            "row 1: the time stamp 2024-02-27 01:00:00 is not one of frequency 'D' from 2024-02-27 00:00:00",
        ),
        ("MS", hourly(), "the time stamp 2024-02-27 00:00:00 is not one of frequency 'MS'; give another by freq="),
        (
            "B",
            pd.date_range("2024-03-01", periods=4),
            "row 1: the time stamp 2024-03-02 00:00:00 .* frequency 'B' from",
        ),
        ("W", pd.date_range("2024-03-04", periods=4, freq="7D"), "time stamp 2024-03-04 00:00:00 .* 'W-SUN'; give"),
        ("2h", hourly(), "row 1: .* resample the series to one frequency, or give another by freq="),
        (1, hourly(), "expected a frequency of pandas such as 'h', 'D' or 'MS' for such time stamps, got 1"),
        ("h", [1, 2, 3], "expected a whole number of steps for such time stamps, got 'h'"),
        (1.0, [1, 2, 3], "expected a whole number of steps for such time stamps, got 1.0"),
        (True, [1, 2, 3], "expected a whole number of steps for such time stamps, got True"),
        (2, [1, 2, 3], "row 1: the time stamp 2 is not one of frequency 2 from 1 on"),
        (0, [1, 2, 3], "expected at least 1"),
        (-1, [3, 2, 1], "expected at least 1"),
        ("QS-FOO", hourly(), f"freq 'QS-FOO' is not one of pandas {re.escape(pd.__version__)}"),
    ],
)
def test_a_given_frequency_that_does_not_fit(freq: Any, stamps: Any, words: str) -> None:
    with pytest.raises(TimeError, match=words):
        read_panel(one_series(stamps), ONE, freq=freq)


@pytest.mark.parametrize("freq", ["hourly", "", "us", "0h", "-1h"])
def test_a_given_frequency_that_is_none(freq: str) -> None:
    with pytest.raises(ValueError, match=f"freq '{freq}' is not known; use a frequency of pandas such as"):
        read_panel(one_series(hourly()), ONE, freq=freq)


def test_a_frequency_of_the_old_names_is_explained() -> None:
    if pd.__version__ < "3":
        pytest.skip("pandas still knows the old names")
    with pytest.raises(TimeError, match=r"freq 'H' is not one of pandas .*Did you mean h\?"):
        read_panel(one_series(hourly()), ONE, freq="H")


def test_stamps_too_close_for_a_calendar() -> None:
    stamps = pd.date_range("2024-01-01", periods=9, freq="500us")
    with pytest.raises(TimeError, match=r"500us apart, too close for a calendar; number them 0, 1, 2, \.\.\. instead"):
        read_panel(one_series(stamps), ONE)


def test_series_of_two_frequencies_are_refused() -> None:
    daily = pd.date_range("2024-02-27", periods=5)
    table = one_series([*hourly(5), *daily], unique_id=["a"] * 5 + ["b"] * 5)
    with pytest.raises(TimeError, match="series 'a' has a frequency of 'h' and series 'b' of 'D'; fit them apart, or"):
        read_panel(table, LONG)


def test_series_of_one_frequency_that_are_not_on_one_grid() -> None:
    later = hourly(5, "2024-02-27 00:30")
    table = one_series([*hourly(5), *later], unique_id=["a"] * 5 + ["b"] * 5)
    with pytest.raises(
        TimeError, match="series 'b', row 5: the time stamp 2024-02-27 00:30:00 is not one of frequency 'h' from"
    ):
        read_panel(table, LONG)


@pytest.mark.parametrize("dtype", ["int64", "int16", "uint64", "Int64", "int32[pyarrow]"])
@pytest.mark.parametrize("step", [1, 5])
def test_whole_numbers_as_time(dtype: str, step: int) -> None:
    table = one_series(pd.array(np.arange(10, 10 + 9 * step, step), dtype=dtype)).drop([3, 6])
    for one in (table, pl.from_pandas(table)):
        panel = read_panel(one, ONE)
        assert panel.grid == Grid(step, 10)
        assert type(panel.grid.origin) is int
        assert panel.series[0].values[:, 0].tolist() == list(range(9))
        assert panel.series[0].observed[:, 0].tolist() == [n not in (3, 6) for n in range(9)]
        assert panel.grid.stamps(9, 2).tolist() == [10 + 9 * step, 10 + 10 * step]


def test_whole_numbers_that_read_like_months_count_only_if_one_says_so() -> None:
    table = one_series([202011, 202012, 202101, 202102])
    with pytest.raises(TimeError, match=r"202011, 202012, \.\.\. in the time column read like dates written as 202001"):
        read_panel(table, ONE)
    assert len(read_panel(table, ONE, freq=1).series[0]) == 92


@pytest.mark.parametrize(
    "texts",
    [
        ["2020-01-31", "2020-02-01", "2020-02-02"],
        ["2020-01-31 00:00", "2020-02-01 00:00", "2020-02-02 00:00"],
        ["2020-01-31T00:00:00", "2020-02-01T00:00:00.000", "2020-02-02"],
        ["20200131", "20200201", "20200202"],
        ["2020/01/31", "2020/02/01", "2020/02/02"],
    ],
)
@pytest.mark.parametrize("dtype", [object, "str", "string[pyarrow]", "polars"])
def test_texts_of_iso_8601_are_time_stamps(texts: list[str], dtype: Any) -> None:
    table = one_series(texts)
    table = pl.from_pandas(table) if dtype == "polars" else table.astype({"ds": dtype})
    panel = read_panel(table, ONE)
    assert panel.grid == Grid("D", pd.Timestamp("2020-01-31"))


@pytest.mark.parametrize(
    "texts",
    [
        ["01.02.2020", "02.02.2020", "03.02.2020"],
        ["01/02/2020", "02/02/2020", "03/02/2020"],
        ["1-2-2020", "2-2-2020", "3-2-2020"],
        ["Feb 1, 2020", "Feb 2, 2020", "Feb 3, 2020"],
        ["2020-01-01", "02.01.2020", "2020-01-03"],
        ["2020-01-01", "2020-02-30", "2020-01-03"],
        ["2020-01-01", "", "2020-01-03"],
        ["1", "2", "3"],
        ["202001", "202002", "202003"],
        ["2020Q1", "2020Q2", "2020Q3"],
    ],
)
@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame])
def test_other_texts_are_refused_and_not_guessed(texts: list[str], library: Any) -> None:
    row = 1 if texts[0] == "2020-01-01" else 0
    words = (
        f"row {row}: {texts[row]!r} in the time column 'ds' is no time stamp such as 2020-01-31 or 2020-01-31 12:00; "
    )
    with pytest.raises(TimeError, match=re.escape(words) + ".*pd.to_datetime"):
        read_panel(library({"ds": texts, "y": [1.0, 2.0, 3.0]}), ONE)


@pytest.mark.parametrize("kind", [datetime.date, datetime.datetime])
def test_dates_of_python(kind: Any) -> None:
    stamps = [kind(2020, 1, day) for day in (1, 2, 4)]
    panel = read_panel(one_series(pd.Series(stamps, dtype=object)), ONE)
    assert panel.grid == Grid("D", pd.Timestamp("2020-01-01"))
    assert len(panel.series[0]) == 4
    assert_same(read_panel(pl.DataFrame({"ds": stamps, "y": [0.0, 1.0, 2.0]}), ONE), panel)


@pytest.mark.parametrize("dtype", ["timestamp[us][pyarrow]", "date32[pyarrow]"])
def test_stamps_of_arrow(dtype: str) -> None:
    daily = pd.date_range("2020-01-01", periods=4)
    assert_same(read_panel(one_series(pd.array(daily, dtype=dtype)), ONE), read_panel(one_series(daily), ONE))


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize(
    ("freq", "start"), [("D", "1650-12-30"), ("MS", "1066-01-01"), ("h", "2262-04-11 20:00"), ("YE", "2400-12-31")]
)
def test_dates_that_nanoseconds_do_not_reach(freq: str, start: str, library: Any) -> None:
    stamps = pd.date_range(start, periods=12, freq=freq)
    panel = read_panel(library({"ds": stamps.to_numpy(), "y": np.arange(12.0)}), ONE)
    assert panel.grid.stamps(0, 12).equals(stamps)
    texts = read_panel(library({"ds": [one.isoformat() for one in stamps], "y": np.arange(12.0)}), ONE)
    assert texts.grid.stamps(0, 12).equals(stamps)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_time_zones_are_refused_with_the_remedy(zone: str) -> None:
    table = one_series(hourly().tz_localize("UTC").tz_convert(zone))
    other = pl.from_pandas(table)
    with pytest.raises(TimeError, match=f"time column 'ds' has the time zone {zone}, .*pandas: .dt.tz_convert"):
        read_panel(table, ONE)
    with pytest.raises(TimeError, match=f"time column 'ds' has the time zone {zone}, .*polars: .dt.convert_time_zone"):
        read_panel(other, ONE)
    remedied = table.assign(ds=table["ds"].dt.tz_convert("UTC").dt.tz_localize(None))
    plain = pl.col("ds").dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    assert_same(read_panel(remedied, ONE), read_panel(one_series(hourly()), ONE))
    assert_same(read_panel(other.with_columns(plain), ONE), read_panel(one_series(hourly()), ONE))


@pytest.mark.parametrize("offsets", [["Z"] * 3, ["+01:00"] * 3, ["+01:00", "+02:00", "+02:00"], ["", "Z", "Z"]])
@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame])
def test_time_zones_in_texts_are_refused_with_the_remedy(offsets: list[str], library: Any) -> None:
    texts = [f"2020-01-01T0{hour}:00{offset}" for hour, offset in enumerate(offsets)]
    with pytest.raises(
        TimeError, match=r"'ds' has the time zone .*pd.to_datetime\(..., utc=True\).dt.tz_localize\(None\)"
    ):
        read_panel(library({"ds": texts, "y": [1.0, 2.0, 3.0]}), ONE)


@pytest.mark.parametrize(
    ("times", "words"),
    [
        ([1.0, 2.0, 3.0], "holds Float64 such as 1.0"),
        ([True, False, True], "holds Boolean such as True"),
        (pd.Series([1, 2, 3], dtype=object), "holds Object such as 1"),
        (pd.Series([1.5, "2020-01-01", datetime.date(2020, 1, 1)], dtype=object), "holds Object such as 1.5"),
        (pd.Categorical(["2020-01-01", "2020-01-02", "2020-01-03"]), "holds Categorical such as '2020-01-01'"),
        (pd.period_range("2020-01", periods=3, freq="M"), r"holds Unknown such as Period\('2020-01', 'M'\)"),
        (pd.to_timedelta([1, 2, 3], "h"), "holds Duration"),
    ],
)
def test_other_kinds_of_time_are_refused(times: Any, words: str) -> None:
    with pytest.raises(
        TimeError, match=f"the time column 'ds' {words}.*; expected time stamps, dates or whole numbers"
    ):
        read_panel(one_series(times), ONE)


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize(
    "times", [["2020-01-01", None, "2020-01-03"], [datetime.datetime(2020, 1, 1), None, datetime.datetime(2020, 1, 3)]]
)
def test_an_empty_time_is_refused(library: Any, times: list[Any]) -> None:
    with pytest.raises(TimeError, match="row 1: the time column 'ds' is empty there; fill it, or leave the row out"):
        read_panel(library({"ds": times, "y": [1.0, 2.0, 3.0]}), ONE)


def fitted_on(freq: str) -> Panel:
    return read_panel(one_series(pd.date_range("2024-01-01", periods=20, freq=freq)), ONE)


@pytest.mark.parametrize("freq", ["h", "D", "B", "W-MON", "MS", "2MS"])
@pytest.mark.parametrize("shift", [-30, -20, -3, 0, 7, 50])
def test_a_second_panel_is_numbered_from_the_first(freq: str, shift: int) -> None:
    grid = fitted_on(freq).grid
    stamps = grid.stamps(shift, 9)
    panel = read_panel(one_series(stamps).drop([4]), ONE, grid=grid)
    assert panel.grid is grid
    assert (panel.series[0].position, panel.series[0].end) == (shift, shift + 9)
    assert panel.series[0].values[:, 0].tolist() == list(range(9))


def test_a_second_panel_needs_no_three_stamps() -> None:
    panel = read_panel(one_series(hourly(1, "2023-12-31 23:00")), ONE, grid=fitted_on("h").grid)
    assert (panel.series[0].position, len(panel.series[0])) == (-1, 1)


@pytest.mark.parametrize(
    ("freq", "stray"), [("h", "2024-01-05 00:30"), ("D", "2023-12-05 12:00"), ("B", "2024-03-02"), ("MS", "2023-05-02")]
)
def test_a_stamp_off_the_grid_of_the_first_is_refused(freq: str, stray: str) -> None:
    grid = fitted_on(freq).grid
    stamps = [*grid.stamps(0, 3), pd.Timestamp(stray)]
    words = (
        f"row 3: the time stamp {pd.Timestamp(stray)} is not one of frequency '{freq}' from 2024-01-01 00:00:00 on; "
    )
    with pytest.raises(TimeError, match=words + "resample the series to the frequency that the model was fitted on"):
        read_panel(one_series(stamps), ONE, grid=grid)


def test_stamps_of_another_kind_than_the_first_are_refused() -> None:
    grid = fitted_on("h").grid
    with pytest.raises(TimeError, match="fitted on time stamps such as 2024-01-01 00:00:00, and these are such as 5"):
        read_panel(one_series([5, 6, 7]), ONE, grid=grid)
    with pytest.raises(TimeError, match="fitted on time stamps such as 3, and these are such as 2024-02-27 00:00:00"):
        read_panel(one_series(hourly()), ONE, grid=Grid(1, 3))


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


def test_a_panel_without_its_ends() -> None:
    panel = read_panel(two_series(), FULL).without_last(5)
    assert [(one.position, len(one)) for one in panel.series] == [(0, 7), (1, 6)]
    assert panel.grid.freq == "h"

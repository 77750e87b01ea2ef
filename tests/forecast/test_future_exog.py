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
from parallelrnn.forecast.data import Array, Columns, Panel, read_future_exog, read_panel
from tests.support import raises

HORIZON = 4
LONG = Columns(id="unique_id", future=("price", "promo"))
ONE = Columns(future=("price",))
ENDS = {"b": 10, "a": 12}  # where each series ends, in steps after the origin
kinds = pytest.mark.parametrize("freq", ["h", "D", "B", "MS", 5])


def stamps(freq: str | int, first: int, count: int) -> Any:
    if isinstance(freq, int):
        return np.arange(first, first + count) * freq
    return pd.date_range("2024-01-01", periods=first + count, freq=freq)[first:].to_numpy()


def past(freq: str | int = "h") -> Panel:
    parts = [
        pd.DataFrame({"unique_id": name, "ds": stamps(freq, 0, end), "y": 1.0, "price": 2.0, "promo": False})
        for name, end in ENDS.items()
    ]
    return read_panel(pd.concat(parts), LONG)


def ahead(freq: str | int = "h", before: int = 0, after: int = 0) -> pd.DataFrame:
    """Rows over the horizon, and so many before and after; the price counts steps, the second series' from 100 on."""
    parts = []
    for number, (name, end) in enumerate(ENDS.items()):
        rows = np.arange(-before, HORIZON + after)
        parts.append(
            pd.DataFrame(
                {
                    "unique_id": name,
                    "ds": stamps(freq, end - before, len(rows)),
                    "price": rows + 100.0 * number,
                    "promo": rows == 1,
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def read(table: Any, panel: Panel | None = None) -> list[Array]:
    panel = panel or past()
    return read_future_exog(table, panel.series, panel.columns, panel.grid, HORIZON)


EXPECTED = [np.array([[100.0 * number + step, step == 1] for step in range(HORIZON)]) for number in (0, 1)]


def assert_expected(arrays: list[Array]) -> None:
    assert len(arrays) == 2
    for mine, theirs in zip(arrays, EXPECTED, strict=True):
        np.testing.assert_array_equal(mine, theirs, strict=True)


@kinds
def test_covariates_of_each_series_after_its_last_step(freq: str | int) -> None:
    assert_expected(read(ahead(freq), past(freq)))
    assert_expected(read(pl.from_pandas(ahead(freq)), past(freq)))


@kinds
def test_rows_before_and_after_the_horizon_are_ignored(freq: str | int) -> None:
    table = ahead(freq, before=7, after=3)
    table.loc[table["price"] < 0, "promo"] = True
    assert_expected(read(table, past(freq)))


@settings(max_examples=30, deadline=None)
@given(st.permutations(range(18)))
def test_rows_may_come_in_any_order(order: list[int]) -> None:
    assert_expected(read(ahead(before=3, after=2).iloc[order]))


def test_only_the_series_asked_for_have_to_be_there() -> None:
    panel = past()
    table = ahead()
    arrays = read(table[table["unique_id"] == "a"], replace(panel, series=panel.series[1:]))
    np.testing.assert_array_equal(arrays[0], EXPECTED[1])
    assert_expected(read(pd.concat([table[:4].assign(unique_id="c"), table])))


def test_series_are_found_by_name_and_not_by_place() -> None:
    panel = past()
    arrays = read(ahead(), replace(panel, series=panel.series[::-1]))
    np.testing.assert_array_equal(arrays[0], EXPECTED[1])
    np.testing.assert_array_equal(arrays[1], EXPECTED[0])


@pytest.mark.parametrize("targets", [("y",), ("y", "z")])
@pytest.mark.parametrize("mixed", [False, True])
def test_without_ids_one_table_is_for_all(targets: tuple[str, ...], mixed: bool) -> None:
    columns = replace(ONE, targets=targets)
    table = pd.DataFrame({"ds": stamps("h", 0, 10), "price": 2.0, **dict.fromkeys(targets, 1.0)})
    panel = read_panel(table, columns, mixed=mixed)
    arrays = read(pd.DataFrame({"ds": stamps("h", 10, 4), "price": [5, 6, 7, 8]}), panel)
    assert [array.tolist() for array in arrays] == [[[5], [6], [7], [8]]] * (1 if mixed else len(targets))


def test_columns_that_are_not_needed_are_ignored() -> None:
    assert_expected(read(ahead().assign(y=np.nan, other="text")))


def test_no_table_is_asked_for() -> None:
    with raises(TableError, "'price', 'promo'", "4 steps", "futr_df="):
        read(None)


@pytest.mark.parametrize("column", ["unique_id", "ds", "price", "promo"])
def test_a_missing_column_is_rejected(column: str) -> None:
    with raises(TableError, f"no column '{column}'", argument="futr_df"):
        read(ahead().drop(columns=column))


def test_a_table_without_rows_is_rejected() -> None:
    with raises(TableError, "no rows", argument="futr_df"):
        read(ahead().head(0))


def test_a_missing_series_is_rejected() -> None:
    table = ahead()
    with raises(TableError, "'a'", "4 steps", argument="futr_df"):
        read(table[table["unique_id"] == "b"])


@pytest.mark.parametrize("step", range(HORIZON))
def test_a_missing_step_is_rejected_with_its_time(step: int) -> None:
    stamp = pd.Timestamp(stamps("h", 12 + step, 1)[0])
    with raises(TableError, "'a'", "'price'", stamp, f"step {step + 1} of 4", argument="futr_df"):
        read(ahead().drop(HORIZON + step))


def test_the_missing_range_is_named() -> None:
    with raises(TableError, "'a'", "from 2024-01-01 14:00:00 to 2024-01-01 15:00:00", "steps 3 to 4 of 4"):
        read(ahead().drop([6, 7]))


def test_a_horizon_that_ends_too_early_is_rejected() -> None:
    with raises(TableError, "'b'", "'price'", "2024-01-01 13:00:00"):
        read(ahead().drop([3, 7]))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("column", ["price", "promo"])
def test_a_value_that_is_not_finite_is_rejected_with_its_place(value: float, column: str) -> None:
    table = ahead().astype({"promo": float})
    table.loc[6, column] = value
    for frame in (table, pl.from_pandas(table), pl.from_pandas(table, nan_to_null=False)):
        with raises(TableError, "'a'", f"'{column}'", "2024-01-01 14:00:00", "step 3 of 4"):
            read(frame)


def test_values_beyond_the_horizon_need_not_be_finite() -> None:
    table = ahead(before=2, after=2)
    table.loc[[0, 7], "price"] = np.nan
    assert_expected(read(table))


@pytest.mark.parametrize(
    ("freq", "stray"), [("h", "2024-01-01 13:30"), ("D", "2024-01-14 12:00"), ("B", "2024-01-20"), ("MS", "2025-02-02")]
)
def test_a_stamp_off_the_grid_is_not_taken_for_its_neighbour(freq: str, stray: str) -> None:
    table = ahead(freq)
    table.loc[5, "ds"] = pd.Timestamp(stray)
    with raises(TimestampError, "row 5", pd.Timestamp(stray), f"'{freq}'", "from 2024-01-01"):
        read(table, past(freq))


def test_an_integer_off_the_grid_is_not_taken_for_its_neighbour() -> None:
    table = ahead(5)
    table.loc[2, "ds"] += 1
    with raises(TimestampError, "row 2", "61", "frequency 5 from 0"):
        read(table, past(5))


def test_stamps_of_another_kind_are_rejected() -> None:
    with raises(TimestampError, "2024-01-01 00:00:00", "10"):
        read(ahead().assign(ds=range(10, 18)))
    with raises(TimestampError, "0", "2024-01-01 10:00:00"):
        read(ahead(), past(5))


def test_time_zones_are_rejected() -> None:
    table = ahead()
    with raises(TimestampError, "UTC"):
        read(table.assign(ds=table["ds"].dt.tz_localize("UTC")))


def test_two_rows_of_one_time_are_rejected() -> None:
    table = pd.concat([ahead(), ahead().iloc[[5]].assign(price=7.0)], ignore_index=True)
    with raises(TableError, "rows 5 and 8", "2024-01-01 13:00:00", argument="futr_df"):
        read(table)


def test_values_that_are_no_numbers_are_rejected() -> None:
    with raises(TableError, "'price'", "'low'", "row 0"):
        read(ahead().assign(price="low"))


def test_an_empty_id_is_rejected() -> None:
    table = ahead()
    table.loc[3, "unique_id"] = None
    with raises(TableError, "row 3", "'unique_id'"):
        read(table)

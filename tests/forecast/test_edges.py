"""What lies at the edge of what a forecaster takes."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from parallelrnn import Forecaster
from parallelrnn.errors import InputWarning, TableError
from parallelrnn.forecast.conformal import recent_windows
from tests.forecast.small import wide
from tests.support import raises, warns
from tests.training.samples import hourly, quick


@pytest.mark.parametrize(("horizon", "lookback"), [(1, 24), (1, 1), (12, 1), (30, 4)])
def test_short_horizons_and_look_backs(horizon: int, lookback: int, tmp_path: Path) -> None:
    forecaster = quick(horizon, lookback).fit(hourly())
    forecast = forecaster.predict(level=[80], decompose=True)
    assert len(forecast) == 2 * horizon
    assert np.isfinite(forecast.drop(columns=["unique_id", "ds"]).to_numpy()).all()
    parts = forecast.drop(columns=["unique_id", "ds", "yhat", "yhat-lo-80", "yhat-hi-80"])
    np.testing.assert_allclose(parts.sum(axis=1), forecast["yhat"], rtol=1e-4)
    explanation = forecaster.explain()
    assert sum(mode.share for mode in explanation.modes) == pytest.approx(1, abs=1e-5)
    assert "stay as they are" not in forecaster.report(tmp_path / "page.html").read_text()


def test_intervals_of_a_horizon_that_is_longer_than_the_look_back() -> None:
    """Of two series, one a thousand times as large: widths follow each, and know nothing of the other."""
    table = hourly(ids=("a",))
    large = table.assign(unique_id="b", y=1000 * table["y"])
    together = quick(30, 4).fit(pd.concat([table, large])).predict(level=[80])
    width = (together["yhat-hi-80"] - together["yhat-lo-80"]).to_numpy()
    np.testing.assert_allclose(width[30:], 1000 * width[:30], rtol=1e-3)


def test_intervals_where_nothing_is_left_to_calibrate_on() -> None:
    table = hourly()
    forecaster = quick().fit(table)
    for rows in (table.groupby("unique_id").head(200), hourly(30, ids=("c",))):
        forecast = forecaster.predict(rows, level=[80])
        assert (forecast["yhat-hi-80"] > forecast["yhat-lo-80"]).all()


def test_there_are_intervals_beyond_a_thousand_steps() -> None:
    assert recent_windows(12) == 1000
    forecaster = quick(1100, 24, max_epochs=1, epoch_steps=(2, 2), prune=False, cycles=None)
    forecaster.fit(hourly(5000, ids=("a",)), val_size=2200)
    forecast = forecaster.predict(level=[95])
    assert np.isfinite(forecast["yhat-lo-95"]).all()


@pytest.mark.parametrize("size", [1e-10, 1e10])
def test_series_of_any_size_are_forecast_alike(size: float) -> None:
    table = hourly(ids=("a",))
    table["y"] -= table["y"].mean()
    usual, other = (quick().fit(t).predict(level=[80]) for t in (table, table.assign(y=size * table["y"])))
    for name in ("yhat", "yhat-lo-80"):
        np.testing.assert_allclose(other[name] / size, usual[name], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("channels", ["independent", "mixed"])
def test_components_sum_where_quantiles_are_trained(channels: str) -> None:
    table = wide(hourly())
    options: dict[str, Any] = {"quantiles": [0.45, 0.5, 0.55], "channels": channels, "max_epochs": 1}
    forecaster = quick(**options).fit(table, target_col=["a", "b"])
    forecast = forecaster.predict(level=[10], decompose=True)
    assert forecast["unique_id"].tolist() == ["a"] * 12 + ["b"] * 12
    assert (forecast["yhat-lo-10"] <= forecast["yhat"]).all()
    assert (forecast["yhat"] <= forecast["yhat-hi-10"]).all()
    parts = forecast.drop(columns=["unique_id", "ds", "yhat", "yhat-lo-10", "yhat-hi-10"])
    np.testing.assert_allclose(parts.sum(axis=1), forecast["yhat"], rtol=1e-4, atol=1e-3)


def test_validation_without_a_value_is_no_validation() -> None:
    """One of two channels ends before the part that would validate, so that no window there counts."""
    table = wide(hourly())
    table.loc[300:, "b"] = np.nan
    with warns(InputWarning, "100 values"), warns(InputWarning, "calibrated"):
        forecaster = quick(channels="mixed").fit(table, target_col=["a", "b"])
    assert forecaster._state is not None
    assert all(epoch["validation"] > 0 for epoch in forecaster._state.history)


def test_a_target_that_begins_after_the_training_part_is_rejected() -> None:
    table = wide(hourly())
    table.loc[:350, "b"] = np.nan
    with warns(InputWarning, "351 values", "'a, b'"), raises(TableError, "'b'", "320", "val_size="):
        quick(channels="mixed").fit(table, target_col=["a", "b"])


def test_forecasts_come_in_the_library_of_the_table() -> None:
    table = hourly()
    forecaster = quick(max_epochs=1).fit(pl.from_pandas(table))
    assert isinstance(forecaster.predict(), pl.DataFrame)
    assert isinstance(forecaster.predict(table), pd.DataFrame)
    assert isinstance(quick(max_epochs=1).fit(table).predict(pl.from_pandas(table)), pl.DataFrame)


def test_a_page_without_any_cycle(tmp_path: Path) -> None:
    table = hourly(ids=("a",)).drop(columns="unique_id")
    page = quick(decoder="linear", cycles=None).fit(table).report(tmp_path / "page.html").read_text()
    assert "A linear decoder has no forecast modes" in page
    assert 'id="modes"' not in page


def test_a_plot_shows_the_intervals_that_there_are() -> None:
    def bands(forecaster: Forecaster) -> list[str]:
        axes = forecaster.plot()
        labels = [text.get_text() for text in axes.get_legend().get_texts()][1:-1]
        axes.figure.clear()
        return labels

    table = hourly(ids=("a",))
    assert bands(quick(max_epochs=1).fit(table)) == ["95 %", "80 %"]
    assert bands(quick(max_epochs=1, quantiles=[0.1, 0.2, 0.5, 0.9]).fit(table)) == ["80 %"]
    assert bands(quick(12, 16, max_epochs=1).fit(hourly(45, ids=("a",)), val_size=14)) == ["80 %"]


def test_a_plot_of_one_of_several_channels() -> None:
    table = wide(hourly())
    forecaster = quick(channels="mixed", max_epochs=1).fit(table, target_col=["a", "b"])
    expected = forecaster.predict()
    for row, name in enumerate("ab"):
        axes = forecaster.plot(name)
        observed, forecast = axes.get_lines()
        np.testing.assert_allclose(forecast.get_ydata(), expected["yhat"][12 * row :][:12])
        np.testing.assert_allclose(observed.get_ydata()[-1], table[name].iloc[-1])
        assert axes.get_ylabel() == name
        axes.figure.clear()


def test_a_cycle_that_only_some_series_have_is_theirs() -> None:
    """The first has no day, and no window of the second is sampled to explain by; its parts stay in their places."""
    noise = np.random.default_rng(0).standard_normal(2000)
    stamps = pd.date_range("2024-01-01", periods=2000, freq="h")
    flat = pd.DataFrame({"unique_id": "a", "ds": stamps, "y": noise})
    daily = hourly(144, ids=("b",), noise=0.01)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        forecaster = quick(48, 24, max_epochs=1, models="network").fit(pd.concat([flat, daily]), val_size=96)
    modes = forecaster.explain().modes
    calendar = next(mode for mode in modes if mode.source == "the calendar")
    assert calendar.part is not None
    expected = forecaster.predict(decompose=True)["calendar 24 h"].to_numpy().reshape(2, 48)
    np.testing.assert_allclose(calendar.part[:, 0].T, expected, atol=1e-6)
    assert abs(expected[1]).max() > 0.5


def test_numpy_numbers_are_accepted() -> None:
    forecaster = Forecaster(np.int64(12), np.int32(48), hidden_size=np.int16(16))
    assert forecaster.arguments()["horizon"] == 12
    assert type(forecaster.hidden_size) is int


def test_limits_of_counts_are_integers_with_nominal_coverage() -> None:
    """Of counts that are mostly zero; a forecast a hair off zero would have all zeros outside."""
    random = np.random.default_rng(0)
    table = pd.DataFrame(
        {"ds": pd.date_range("2021-01-01", periods=1100), "y": random.poisson(0.15, 1100).astype(float)}
    )
    tests = quick().cross_validation(table, n_windows=10, level=[80])
    inside = tests["y"].between(tests["yhat-lo-80"], tests["yhat-hi-80"])
    assert inside.mean() > 0.8
    assert (tests["yhat-lo-80"] % 1 == 0).all()
    assert (tests["yhat-hi-80"] % 1 == 0).all()


def test_a_series_that_has_only_just_begun_is_forecast_at_its_new_level() -> None:
    time = np.arange(600)
    wave = 100 + 20 * np.sin(2 * np.pi * time / 7)
    histories = [("old", wave), ("new", np.where(time < 500, 0.0, wave))]
    days = pd.date_range("2021-01-01", periods=600)
    table = pd.concat([pd.DataFrame({"unique_id": name, "ds": days, "y": values}) for name, values in histories])
    forecast = quick(max_epochs=8).fit(table).predict().set_index("unique_id").loc["new", "yhat"]
    assert forecast.between(60, 140).all()


def test_series_of_a_few_steps_are_warned_of() -> None:
    table = pd.concat([hourly(200, ids=("long",)), hourly(4, ids=("short",))])
    facts = ["1 series", "10 steps", "'short'", " 4"]
    with warns(InputWarning, *facts):
        fitted = quick(max_epochs=1).fit(table)
    with warns(InputWarning, *facts):
        fitted.predict(table[table["unique_id"] == "short"])


def test_a_lookback_far_beyond_all_series_is_warned_of() -> None:
    with warns(InputWarning, "500 steps", "40 steps", argument="lookback"):
        quick(3, 500).fit(hourly(40, ids=("a",)))

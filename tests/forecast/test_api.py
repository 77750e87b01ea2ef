from __future__ import annotations

import inspect
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

from parallelrnn import Forecaster, forecast_modes
from parallelrnn.errors import ArgumentError, InputWarning, NotFittedError, TableError
from tests.forecast.small import wide
from tests.support import raises, warns
from tests.training.samples import hourly, quick


@pytest.fixture(scope="module")
def df() -> pd.DataFrame:
    return hourly()


@pytest.fixture(scope="module")
def fitted(df: pd.DataFrame) -> Forecaster:
    return quick().fit(df)


def test_forecasts_come_as_a_table_after_the_data(fitted: Forecaster, df: pd.DataFrame) -> None:
    forecast = fitted.predict(level=[80, 95])
    assert list(forecast.columns) == ["unique_id", "ds", "yhat", "yhat-lo-80", "yhat-hi-80", "yhat-lo-95", "yhat-hi-95"]
    assert forecast["unique_id"].tolist() == ["a"] * 12 + ["b"] * 12
    expected = pd.date_range(df["ds"].max(), periods=13, freq="h")[1:]
    assert forecast["ds"].tolist() == [*expected, *expected]
    assert (forecast["yhat-lo-95"] <= forecast["yhat-lo-80"]).all()
    assert (forecast["yhat-lo-80"] < forecast["yhat"]).all()
    assert (forecast["yhat-hi-80"] <= forecast["yhat-hi-95"]).all()


def test_the_components_of_a_forecast_sum_to_it(fitted: Forecaster) -> None:
    forecast = fitted.predict(decompose=True)
    components = forecast.drop(columns=["unique_id", "ds", "yhat"])
    assert components.columns[:2].tolist() == ["level", "calendar 24 h"]
    np.testing.assert_allclose(components.sum(axis=1), forecast["yhat"], rtol=1e-5)


def test_the_same_table_again_gives_the_same_forecast(fitted: Forecaster, df: pd.DataFrame) -> None:
    known, again = fitted.predict(), fitted.predict(df)
    pd.testing.assert_frame_equal(known, again)
    shuffled = df.sample(frac=1, random_state=0).sort_values("unique_id", kind="stable")
    pd.testing.assert_frame_equal(fitted.predict(shuffled), known)
    only = fitted.predict(df[df["unique_id"] == "b"])
    np.testing.assert_allclose(only["yhat"], known["yhat"][12:])


def test_forecasts_continue_from_newer_data(fitted: Forecaster, df: pd.DataFrame) -> None:
    longer = hourly(430)
    forecast = fitted.predict(longer, level=[80])
    assert forecast["ds"].min() == longer["ds"].max() + pd.Timedelta(hours=1)
    scale = df.groupby("unique_id")["y"].std()
    truth = hourly(442, noise=0.0).groupby("unique_id").tail(12)
    error = (forecast["yhat"].to_numpy() - truth["y"].to_numpy()) / scale[forecast["unique_id"]].to_numpy()
    assert abs(error).mean() < 0.5


def test_a_series_that_was_never_seen_is_forecast_from_its_own_past(fitted: Forecaster) -> None:
    new = hourly(300, ids=("c",), seed=5)
    alone = fitted.predict(new, level=[80])
    moved = fitted.predict(new.assign(y=1000 * new["y"] - 7), level=[80])
    for name in ("yhat", "yhat-lo-80"):
        np.testing.assert_allclose(moved[name], 1000 * alone[name] - 7, rtol=1e-3)


def test_intervals_of_other_data_come_from_their_latest_errors(fitted: Forecaster, df: pd.DataFrame) -> None:
    """Where there are enough of them after training; else from those of the same series after training."""
    scale = df.groupby("unique_id")["y"].std()

    def widths(table: pd.DataFrame) -> pd.Series:
        forecast = fitted.predict(table, level=[80])
        width = (forecast["yhat-hi-80"] - forecast["yhat-lo-80"]) / scale[forecast["unique_id"]].to_numpy()
        return width.groupby(forecast["unique_id"]).mean()

    usual = fitted.predict(level=[80]).assign(width=lambda forecast: forecast["yhat-hi-80"] - forecast["yhat-lo-80"])
    recent = widths(df.groupby("unique_id").tail(60))
    expected = usual.groupby("unique_id")["width"].mean() / scale
    np.testing.assert_allclose(recent, expected, rtol=1e-5)
    assert abs(recent["a"] / recent["b"] - 1) > 0.01  # so that one cannot be taken for the other
    noise = np.random.default_rng(0).normal(scale=3, size=len(df)) * df["unique_id"].map(scale)
    rough = df.assign(y=np.where(df.groupby("unique_id").cumcount() >= 320, df["y"] + noise, df["y"]))
    assert (widths(rough) > 3 * recent).all()


def test_a_series_shorter_than_the_look_back_is_forecast(fitted: Forecaster) -> None:
    forecast = fitted.predict(hourly(20, ids=("c",)))
    assert np.isfinite(forecast["yhat"]).all()


def test_polars_in_polars_out(df: pd.DataFrame, fitted: Forecaster) -> None:
    from_polars = quick().fit(pl.from_pandas(df))
    forecast = from_polars.predict(level=[80])
    assert isinstance(forecast, pl.DataFrame)
    expected = fitted.predict(level=[80])
    assert forecast.columns == list(expected.columns)
    np.testing.assert_allclose(forecast["yhat"].to_numpy(), expected["yhat"])
    assert forecast["ds"].to_list() == expected["ds"].dt.to_pydatetime().tolist()


def test_dates_of_polars_come_back_as_dates(tmp_path: Path) -> None:
    table = pl.DataFrame({"ds": pd.date_range("2024-01-01", periods=200), "y": np.sin(np.arange(200.0))})
    table = table.with_columns(pl.col("ds").cast(pl.Date))
    forecaster = quick().fit(table)
    loaded = Forecaster.load(forecaster.save(tmp_path / "model"))
    for forecast in (forecaster.predict(), loaded.predict(table)):
        assert forecast["ds"].dtype == pl.Date
        assert forecast["ds"][0] == date(2024, 7, 19)
    assert forecaster.cross_validation(table)["cutoff"].dtype == pl.Date
    assert pd.api.types.is_datetime64_dtype(loaded.predict(table.to_pandas())["ds"])


def test_a_wide_table_is_its_columns_as_series(df: pd.DataFrame, fitted: Forecaster) -> None:
    forecast = quick().fit(wide(df), target_col=["a", "b"]).predict()
    pd.testing.assert_frame_equal(forecast, fitted.predict())


def test_one_series_needs_no_id(df: pd.DataFrame) -> None:
    series = df[df["unique_id"] == "a"].drop(columns="unique_id").rename(columns={"ds": "when", "y": "load"})
    forecast = quick().fit(series, time_col="when", target_col="load").predict()
    assert list(forecast.columns) == ["when", "yhat"]


def test_mixed_channels_see_each_other() -> None:
    random = np.random.default_rng(0)
    driver = random.standard_normal(600).cumsum() * 0.1 + random.standard_normal(600)
    table = pd.DataFrame({"ds": np.arange(600), "driver": driver, "late": np.r_[np.zeros(4), driver[:-4]]})
    options: dict[str, Any] = {"max_epochs": 6, "epoch_steps": (64, 64), "decoder": "linear", "dropout": 0.0}
    errors = {}
    for channels in ("mixed", "independent"):
        forecaster = quick(4, 24, channels=channels, **options)
        targets = ["driver", "late"]
        tests = forecaster.cross_validation(table, n_windows=30, step_size=1, target_col=targets, val_size=100)
        late = tests[tests["unique_id"] == "late"]
        errors[channels] = float((late["y"] - late["yhat"]).abs().mean())
    assert errors["mixed"] < 0.6 * errors["independent"]


def test_quantiles_in_place_of_conformal_intervals(df: pd.DataFrame) -> None:
    forecaster = quick(quantiles=[0.9, 0.1, 0.5], max_epochs=8).fit(df)
    forecast = forecaster.predict(level=[80])
    assert (forecast["yhat-lo-80"] <= forecast["yhat"]).all()
    assert (forecast["yhat"] <= forecast["yhat-hi-80"]).all()
    with raises(ArgumentError, "0.025", "80", argument="level", got=95):
        forecaster.predict(level=[95])
    tests = forecaster.cross_validation(df, n_windows=8, step_size=5, level=[80])
    inside = (tests["y"] >= tests["yhat-lo-80"]) & (tests["y"] <= tests["yhat-hi-80"])
    assert 0.6 < inside.mean() < 0.95


def test_cross_validation_forecasts_what_a_user_would_have_forecast(df: pd.DataFrame) -> None:
    forecaster = quick()
    tests = forecaster.cross_validation(df, n_windows=3, step_size=7, level=[80])
    assert list(tests.columns) == ["unique_id", "ds", "cutoff", "y", "yhat", "yhat-lo-80", "yhat-hi-80"]
    with pytest.raises(NotFittedError):
        forecaster.predict()
    ends = df["ds"].max() - pd.to_timedelta([26, 19, 12], unit="h")
    assert sorted(tests["cutoff"].unique()) == list(ends)
    by_hand = quick().fit(df[df["ds"] <= ends[0]])
    for cutoff in ends:
        mine = by_hand.predict(df[df["ds"] <= cutoff], level=[80])
        window = tests[tests["cutoff"] == cutoff].reset_index(drop=True)
        for name in ("yhat", "yhat-lo-80"):
            np.testing.assert_allclose(mine[name], window[name], rtol=1e-5)
        observed = window.merge(df, on=["unique_id", "ds"])
        np.testing.assert_array_equal(observed["y_x"], observed["y_y"])


def test_cross_validation_can_fit_anew_for_every_window(df: pd.DataFrame) -> None:
    tests = quick().cross_validation(df, n_windows=2, refit=True)
    last = quick().fit(df[df["ds"] <= tests["cutoff"].max()]).predict()
    window = tests[tests["cutoff"] == tests["cutoff"].max()]
    np.testing.assert_allclose(last["yhat"], window["yhat"], rtol=1e-5)


def test_an_explanation_names_the_cycles_with_their_shares(fitted: Forecaster) -> None:
    explanation = fitted.explain()
    first = explanation.modes[0]
    assert first.period == pytest.approx(24)
    assert first.source == "the calendar"
    assert first.meaning == "never fades"
    assert first.share > 0.5
    assert sum(mode.share for mode in explanation.modes) == pytest.approx(1, abs=1e-6)
    assert "24 h" in explanation.summary()
    assert len(explanation.features) == 8
    parts = explanation.components.drop(columns=["unique_id", "ds", "yhat"])
    assert np.allclose(parts.sum(axis=1), explanation.components["yhat"])
    assert fitted._state is not None
    assert len(forecast_modes(fitted._state.network.decoder)) == len(explanation.modes) - 1


def test_without_waves_there_are_no_modes_but_those_of_the_calendar(df: pd.DataFrame) -> None:
    forecaster = quick(decoder="linear", models="network").fit(df)
    assert [mode.source for mode in forecaster.explain().modes] == ["the calendar"]
    forecast = forecaster.predict(decompose=True)
    np.testing.assert_allclose(forecast[["level", "calendar 24 h", "decoder"]].sum(axis=1), forecast["yhat"], rtol=1e-5)


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru", "brt"])
def test_other_cells_forecast_and_explain(cell: str, df: pd.DataFrame) -> None:
    forecaster = quick(cell=cell, max_epochs=1).fit(df)
    assert np.isfinite(forecaster.predict()["yhat"]).all()
    unit = 1 if cell == "rnn" else 12
    assert forecaster.explain().features.time.amount == unit  # of a transformer, four segments of one read each


def test_a_constant_series_stays_constant() -> None:
    df = pd.DataFrame({"ds": pd.date_range("2024-01-01", periods=200, freq="D"), "y": 7.0})
    forecast = quick().fit(df).predict(level=[80])
    np.testing.assert_allclose(forecast[["yhat", "yhat-lo-80", "yhat-hi-80"]], 7.0, atol=1e-3)


def test_gaps_are_filled_with_a_warning(df: pd.DataFrame) -> None:
    holes = df.copy()
    holes.loc[[50, 51, 500], "y"] = np.nan
    with warns(InputWarning, "4 values", "2 series"):
        quick().fit(holes.drop(index=310))
    with raises(TableError, "'a'", "'y'"):
        quick(missing="error").fit(holes)


def test_a_plot_shows_the_end_of_a_series_and_its_forecast(fitted: Forecaster) -> None:
    axes = fitted.plot("b", level=[80])
    observed, forecast = axes.get_lines()
    expected = fitted.predict(level=[80])[12:]
    np.testing.assert_allclose(forecast.get_ydata(), expected["yhat"])
    assert len(observed.get_ydata()) == 48
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["observed", "80 %", "forecast"]
    axes.figure.clear()
    with raises(ArgumentError, "'a', 'b'", argument="name", got="z"):
        fitted.plot("z")


def test_a_forecaster_that_is_not_fitted() -> None:
    for call in (lambda f: f.predict(), lambda f: f.explain(), lambda f: f.save("x"), lambda f: f.report("x.html")):
        with raises(NotFittedError, "fit(df)", "Forecaster.load"):
            call(quick())


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("horizon", 0),
        ("cell", "transformer"),
        ("decoder", "free"),
        ("hidden_size", 7),
        ("dropout", 1.0),
        ("cycles", [1.0]),
        ("cycles", "lunar"),
        ("quantiles", [0.0, 0.5]),
        ("learning_rate", -1.0),
        ("gradient_clip", -1.0),
        ("max_time", 0),
        ("channels", "both"),
        ("missing", "drop"),
        ("missing", None),
    ],
)
def test_arguments_with_a_value_that_they_cannot_have(argument: str, value: Any) -> None:
    with raises(ArgumentError, argument=argument, got=value):
        Forecaster(**{"horizon": 4, argument: value})


@pytest.mark.parametrize(("argument", "value"), [("horizon", 2.5), ("lookback", "3"), ("past_covariates", "wind")])
def test_arguments_of_the_wrong_type(argument: str, value: Any) -> None:
    with raises(TypeError, argument=argument, got=value):
        Forecaster(**{"horizon": 4, argument: value})


def test_series_that_are_too_short_are_rejected(df: pd.DataFrame) -> None:
    with raises(TableError, "12 steps", "'a'", "horizon="):
        quick(lookback=24).fit(df.groupby("unique_id").head(3))
    with raises(ArgumentError, "12", argument="val_size", got=5):
        quick().fit(df, val_size=5)
    with raises(ArgumentError, "400", argument="val_size", got=400):
        quick().fit(df, val_size=400)
    daily = pd.DataFrame({"ds": pd.date_range("2024-01-01", periods=40), "y": 1.0})
    with raises(TableError, "40 observed", "937 steps", "freq="), pytest.warns(UserWarning, match="missing"):
        quick().fit(daily, freq="h")
    with raises(TableError, "400 steps", "40 windows", "n_windows="):
        quick().cross_validation(df, n_windows=40)
    with raises(ArgumentError, argument="resume", problem="there is no checkpoint to resume from"):
        quick().fit(df, resume=True)


def test_short_series_are_fitted_with_a_warning(df: pd.DataFrame) -> None:
    with warns(InputWarning, "calibrated"):
        forecaster = quick().fit(df.groupby("unique_id").head(24))
    assert np.isfinite(forecaster.predict()["yhat"]).all()


def test_every_argument_is_explained() -> None:
    for name in inspect.signature(Forecaster).parameters:
        assert name in (Forecaster.__doc__ or ""), name


def test_levels_are_per_cents(fitted: Forecaster) -> None:
    with raises(ArgumentError, argument="level", got=120):
        fitted.predict(level=[120])
    assert list(fitted.predict(level=[92.5]).columns)[-1] == "yhat-hi-92.5"
    assert torch.is_grad_enabled()


def test_filling_a_gap_does_not_leak_later_values() -> None:
    table = hourly(ids=("a",))
    table.loc[380:393, "y"] = np.nan  # the last window starts in the gap
    other = table.assign(y=np.where(table.index > 393, 1000.0, table["y"]))
    frames = []
    for data in (table, other):
        with warns(InputWarning, "14 values"):
            tests = quick(horizon=10).cross_validation(data, n_windows=1, level=[80], val_size=60)
        frames.append(tests.drop(columns="y"))
    pd.testing.assert_frame_equal(*frames)

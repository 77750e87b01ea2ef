from __future__ import annotations

import dataclasses
import inspect
import sys
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sktime.datasets import load_airline
from sktime.forecasting.base import ForecastingHorizon
from sktime.forecasting.compose import TransformedTargetForecaster
from sktime.forecasting.model_evaluation import evaluate
from sktime.forecasting.model_selection import ForecastingGridSearchCV
from sktime.split import ExpandingWindowSplitter
from sktime.transformations.series.detrend import Detrender
from sktime.utils.estimator_checks import check_estimator

from parallelrnn import Forecaster
from parallelrnn.errors import InputWarning, TableError
from parallelrnn.integrations.sktime import ParaForecaster
from tests.support import raises, warns

QUICK: dict[str, Any] = {"lookback": 24, "hidden_size": 8, "max_epochs": 1, "epoch_steps": (4, 8), "prune": False}


def hours(count: int, shift: float = 0.0) -> pd.Series:
    index = pd.date_range("2024-01-01", periods=count, freq="h", name="when")
    noise = np.random.default_rng(int(shift)).normal(size=count)
    return pd.Series(np.sin(np.arange(count) / 24 * 2 * np.pi + shift) + 0.1 * noise, index, name="load")


def by_forecaster(y: pd.Series, level: float | None = None, horizon: int = 3) -> pd.DataFrame:
    table = pd.DataFrame({"ds": y.index, "y": y.to_numpy()})
    return Forecaster(horizon, **QUICK).fit(table).predict(level=[] if level is None else [level])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_it_passes_the_checks_of_sktime() -> None:
    results = check_estimator(ParaForecaster, raise_exceptions=False, verbose=False)
    assert {name: result for name, result in results.items() if result != "PASSED"} == {}
    assert len(results) > 700


def test_arguments_are_those_of_the_forecaster() -> None:
    """All but those that sktime expresses otherwise: horizon, covariates, columns and quantiles, and missing values."""
    ours = {name: parameter.default for name, parameter in inspect.signature(ParaForecaster).parameters.items()}
    theirs = {field.name: field.default for field in dataclasses.fields(Forecaster) if field.init}
    elsewhere = {"horizon", "channels", "past_covariates", "future_covariates", "static_covariates", "quantiles"}
    assert ours.keys() - {"val_size"} == theirs.keys() - elsewhere - {"missing"}
    assert {name for name in ours.keys() & theirs.keys() if ours[name] != theirs[name]} == {"progress"}


def test_forecasts_and_intervals_are_those_of_the_forecaster() -> None:
    y = hours(300)
    forecaster = ParaForecaster(**QUICK).fit(y, fh=[1, 3])
    expected = by_forecaster(y, level=80)
    forecast = forecaster.predict()
    assert forecast.name == "load"
    np.testing.assert_array_equal(forecast, expected["yhat"][[0, 2]])
    np.testing.assert_array_equal(forecast.index, expected["ds"][[0, 2]])
    limits = forecaster.predict_interval(coverage=0.8)["load"][0.8]
    np.testing.assert_array_equal(limits, expected.loc[[0, 2], ["yhat-lo-80", "yhat-hi-80"]])
    quantiles = forecaster.predict_quantiles(alpha=[0.9, 0.5, 0.1])["load"]
    np.testing.assert_array_equal(quantiles, expected.loc[[0, 2], ["yhat-hi-80", "yhat", "yhat-lo-80"]])


def test_instances_and_columns_are_series_of_one_model() -> None:
    """Of different lengths, given in an order that is not that of their names."""
    parts = {"b": hours(300, 1), "a": hours(280, 2)}
    long = pd.concat([pd.DataFrame({"unique_id": key, "ds": y.index, "y": y}) for key, y in parts.items()])
    expected = Forecaster(3, **QUICK).fit(long).predict(level=[80])
    forecaster = ParaForecaster(**QUICK).fit(panel(**parts), fh=[1, 2, 3])
    forecast = forecaster.predict()
    assert forecast.index.names == ["place", "when"]
    for key in parts:
        series = expected[expected["unique_id"] == key]
        np.testing.assert_array_equal(forecast.loc[key].index, series["ds"])
        np.testing.assert_array_equal(forecast.loc[key, "load"], series["yhat"])
        low = forecaster.predict_interval(coverage=0.8).loc[key, ("load", 0.8, "lower")]
        np.testing.assert_array_equal(low, series["yhat-lo-80"])
    wide = pd.DataFrame({key: hours(300, shift) for key, shift in (("b", 1), ("a", 2))})
    expected = Forecaster(3, **QUICK).fit(wide.reset_index(names="ds"), target_col=["b", "a"]).predict()
    forecast = ParaForecaster(**QUICK).fit(wide, fh=[1, 2, 3]).predict()
    np.testing.assert_array_equal(forecast.T.to_numpy().ravel(), expected["yhat"])


def test_covariates_are_known_ahead() -> None:
    y, prices = hours(300), pd.DataFrame({"price": np.tile([0.0, 1.0, 0.0], 101)}, index=hours(303).index)
    priced = y + 5 * prices["price"].iloc[:300]
    forecaster = ParaForecaster(**{**QUICK, "max_epochs": 8}).fit(priced, X=prices.iloc[:300], fh=[1, 2, 3])
    forecast = forecaster.predict(X=prices.iloc[300:])
    other = forecaster.predict(X=1 - prices.iloc[300:])
    np.testing.assert_array_equal(np.sign(forecast - other), [-1, 1, -1])
    assert len(forecaster.explain(prices.iloc[300:]).components) == 3
    with raises(TableError, "X (price)", "3 steps"):
        forecaster.predict()


@pytest.mark.parametrize("update_params", [False, True])
def test_updates_continue_from_newer_data(update_params: bool) -> None:
    y = hours(320)
    forecaster = ParaForecaster(**QUICK).fit(y[:300], fh=[1, 2, 3])
    forecaster.update(y[300:], update_params=update_params)
    forecast = forecaster.predict()
    assert forecast.index[0] == y.index[-1] + pd.Timedelta(hours=1)
    fitted = Forecaster(3, **QUICK).fit(pd.DataFrame({"ds": y.index[:300], "y": y[:300].to_numpy()}))
    expected = by_forecaster(y) if update_params else fitted.predict(pd.DataFrame({"ds": y.index, "y": y.to_numpy()}))
    np.testing.assert_array_equal(forecast, expected["yhat"])


def panel(**parts: pd.Series) -> pd.DataFrame:
    return pd.concat({key: y.to_frame() for key, y in parts.items()}, names=["place", "when"])


def test_instances_stay_themselves_in_an_update() -> None:
    """Of very different sizes, given in an order that is not that of their names; and one that is new."""
    parts = {"b": 1000 * hours(320, 1), "a": hours(320, 2)}
    forecaster = ParaForecaster(**QUICK).fit(panel(**{key: y[:300] for key, y in parts.items()}), fh=[1, 2, 3])
    newer = {key: y[300:] for key, y in parts.items()}
    forecast = forecaster.update(panel(**newer, A=hours(320, 3)), update_params=False).predict()
    assert forecast.index.get_level_values(0).unique().tolist() == ["b", "a", "A"]
    long = pd.concat([pd.DataFrame({"unique_id": key, "ds": y.index, "y": y}) for key, y in parts.items()])
    fitted = Forecaster(3, **QUICK).fit(long.groupby("unique_id", sort=False).head(300))
    expected = fitted.predict(long)["yhat"]
    np.testing.assert_array_equal(forecast.loc[["b", "a"], "load"], expected)


@pytest.mark.filterwarnings("ignore:.*without values at the ends:UserWarning")
@pytest.mark.parametrize("later", [False, True])
def test_where_the_last_values_are_missing_forecasts_are_forecast_from(later: bool) -> None:
    """And the other series are not touched by it, whether the values were missing in fit or in an update."""
    y = pd.DataFrame({"u": hours(300, 1), "v": hours(300, 2)})
    cut = y.copy()
    cut.iloc[-5:, 1] = np.nan
    forecaster = ParaForecaster(**QUICK).fit(cut[:290] if later else cut, fh=[1, 3])
    if later:
        forecaster.update(cut[290:], update_params=False)
    forecast, limits = forecaster.predict(), forecaster.predict_interval(coverage=0.8)
    assert forecast.index.tolist() == [y.index[-1] + pd.Timedelta(hours=step) for step in (1, 3)]
    long = cut.reset_index(names="ds").melt("ds", var_name="unique_id", value_name="y").dropna()
    fitted = Forecaster(3, **QUICK).fit(long[long["ds"] < y.index[290]] if later else long)
    first = fitted.predict(long if later else None, level=[80])
    np.testing.assert_array_equal(forecast["u"], first["yhat"][[0, 2]])
    steps = [first]
    for _ in range(2):  # 5 are missing, and the third after these is wanted
        long = pd.concat([long, steps[-1].rename(columns={"yhat": "y"})[["unique_id", "ds", "y"]]])
        steps.append(fitted.predict(long))
    expected = pd.concat(steps).query("unique_id == 'v'")["yhat"].to_numpy()[[5, 7]]
    np.testing.assert_allclose(forecast["v"], expected, rtol=1e-6)
    width = first["yhat-hi-80"].iloc[5] - first["yhat"].iloc[5]  # at the last step
    np.testing.assert_allclose(limits["v", 0.8, "upper"] - forecast["v"], width, rtol=1e-5)


def test_absolute_times_are_the_same_for_instances_that_end_early() -> None:
    y = panel(a=hours(300, 1), b=hours(290, 2))
    times = hours(303).index[300:]
    absolute = ParaForecaster(**QUICK).fit(y, fh=ForecastingHorizon(times, is_relative=False)).predict()
    relative = ParaForecaster(**QUICK).fit(y, fh=[1, 2, 3]).predict()
    for key, length in (("a", 300), ("b", 290)):
        assert absolute.loc[key].index.equals(times)
        assert relative.loc[key].index.equals(hours(303).index[length : length + 3])


def test_covariates_of_steps_that_were_seen_are_known_where_values_are_not() -> None:
    y, prices = hours(300), pd.DataFrame({"y": np.tile([0.0, 1.0, 0.0], 101)}, index=hours(303).index)
    y.iloc[-4:] = np.nan
    with warns(InputWarning, "4 steps"):
        forecaster = ParaForecaster(**QUICK).fit(y, X=prices.iloc[:300], fh=[3])
    assert forecaster.predict(X=prices.iloc[300:]).index.tolist() == [prices.index[-1]]


def test_x_may_hold_other_instances_and_columns_in_another_order() -> None:
    y = panel(a=hours(300, 1), b=hours(300, 2))
    prices = panel(a=hours(303, 3), b=hours(303, 4), c=hours(303, 5)).rename(columns={"load": "p"})
    prices["q"] = 1 - prices["p"]
    forecaster = ParaForecaster(**QUICK).fit(y, X=prices.loc[y.index], fh=[1, 2, 3])
    after = prices[prices.index.get_level_values(1) > y.index[-1][1]]
    pd.testing.assert_frame_equal(forecaster.predict(X=after), forecaster.predict(X=after.loc[["a", "b"], ["q", "p"]]))
    with raises(TableError, "['p']", "['p', 'q']"):
        forecaster.predict(X=after[["p"]])
    with raises(TableError, "'a'", "'q'", "complete X"):
        forecaster.predict(X=after.assign(q=np.nan))


@pytest.mark.parametrize(("freq", "zone"), [("h", "Europe/Berlin"), ("D", "Europe/Berlin"), ("15min", "UTC")])
def test_time_zones_come_back(freq: str, zone: str) -> None:
    index = pd.date_range("2024-03-01", periods=200, freq=freq, tz=zone)
    forecast = ParaForecaster(**QUICK).fit(pd.Series(np.sin(np.arange(200.0)), index), fh=[1, 2]).predict()
    assert forecast.index.equals(pd.date_range(index[-1], periods=3, freq=freq)[1:])


@pytest.mark.filterwarnings("ignore:.*validation part:UserWarning", "ignore:.*fewer than 10 steps:UserWarning")
def test_short_periods_and_neighbouring_steps_keep_their_frequency() -> None:
    assert ParaForecaster(**QUICK).fit(load_airline()[:4], fh=[1, 2]).predict().index.freqstr == "M"
    assert ParaForecaster(**QUICK).fit(hours(300), fh=[1, 2, 3]).predict().index.freqstr == "h"


def test_another_seed_each_time() -> None:
    forecasts = [ParaForecaster(**{**QUICK, "random_state": None}).fit(hours(300), fh=[1]).predict() for _ in range(2)]
    assert forecasts[0].iloc[0] != forecasts[1].iloc[0]


def test_an_explanation_is_of_the_newest_data() -> None:
    y = hours(320)
    forecaster = ParaForecaster(**QUICK).fit(y[:300], fh=[1, 2, 3])
    assert forecaster.explain().components["ds"].iloc[0] == y.index[300]
    forecaster.update(y[300:], update_params=False)
    components = forecaster.explain().components
    assert components["ds"].iloc[0] == y.index[-1] + pd.Timedelta(hours=1)
    assert components["unique_id"].iloc[0] == "load"
    np.testing.assert_array_equal(components["yhat"], forecaster.predict())


def test_past_steps_are_neither_forecast_nor_fitted() -> None:
    y = hours(300)
    forecaster = ParaForecaster(**QUICK).fit(y[:290], fh=ForecastingHorizon(y.index[290:293], is_relative=False))
    forecaster.update(y[290:], update_params=False)
    with pytest.raises(NotImplementedError, match="can not perform in-sample prediction"):
        forecaster.predict()
    with pytest.raises(NotImplementedError, match="in-sample"):
        forecaster.update(y[290:])


def test_periods_come_back_as_periods_and_it_explains_itself() -> None:
    forecaster = ParaForecaster(lookback=48, max_epochs=5).fit(load_airline(), fh=range(1, 13))
    assert forecaster.predict().index[0] == pd.Period("1961-01", freq="M")
    assert round(forecaster.explain().modes[0].period) == 12


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.slow
def test_it_runs_in_a_pipeline_a_grid_search_and_a_cross_validation() -> None:
    y = load_airline()
    windows = ExpandingWindowSplitter(initial_window=120, step_length=24, fh=range(1, 13))
    pipeline = TransformedTargetForecaster([("trend", Detrender()), ("forecast", ParaForecaster(**QUICK))])
    scores = evaluate(pipeline, windows, y)
    assert np.isfinite(scores["test_MeanAbsolutePercentageError"]).all()
    search = ForecastingGridSearchCV(pipeline, windows, {"forecast__lookback": [12, 24]}).fit(y, fh=range(1, 13))
    assert search.best_params_["forecast__lookback"] in (12, 24)
    assert len(search.predict()) == 12


@pytest.mark.parametrize("missing", ["sktime.forecasting.base", "pandas"])
def test_without_sktime_it_says_what_to_install(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, "parallelrnn.integrations.sktime")
    with raises(ModuleNotFoundError, "pip install 'parallelrnn[sktime]'"):
        import_module("parallelrnn.integrations.sktime")

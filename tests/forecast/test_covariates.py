"""Covariates that are known ahead, up to now, or that never change."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from parallelrnn import Forecaster
from parallelrnn.errors import TableError
from tests.support import raises
from tests.training.samples import hourly, quick


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """Holidays add 5 to the first series, and 50 to the second."""
    table = hourly()
    table["holiday"] = (np.random.default_rng(0).random(len(table)) < 0.1).astype(float)
    table["y"] += 5 * table["holiday"] * np.where(table["unique_id"] == "a", 1, 10)
    return table


@pytest.fixture(scope="module")
def forecaster(table: pd.DataFrame) -> Forecaster:
    return quick(future_covariates=["holiday"], dropout=0.0).fit(table)


def next_steps(table: pd.DataFrame, horizon: int) -> pd.DataFrame:
    stamps = pd.date_range(table["ds"].max(), periods=horizon + 1, freq="h")[1:]
    return pd.concat([pd.DataFrame({"unique_id": name, "ds": stamps}) for name in table["unique_id"].unique()])


def test_covariates_known_ahead_have_their_effect(forecaster: Forecaster, table: pd.DataFrame) -> None:
    ahead = next_steps(table, 12)
    with_none = forecaster.predict(futr_df=ahead.assign(holiday=0.0))
    with_one = forecaster.predict(futr_df=ahead.assign(holiday=(np.arange(24) % 12 == 3).astype(float)))
    change = (with_one["yhat"] - with_none["yhat"]).to_numpy().reshape(2, 12)
    np.testing.assert_allclose(np.delete(change, 3, axis=1), 0, atol=1e-4)
    assert change[0, 3] == pytest.approx(5, rel=0.15)
    with raises(TableError, "'holiday'", "12 steps", "futr_df="):
        forecaster.predict()
    with raises(TableError, "futr_df="):
        quick(max_epochs=1).fit(table.drop(columns="holiday")).predict(futr_df=ahead)


def test_cross_validation_knows_them_ahead(table: pd.DataFrame) -> None:
    """As `predict` does when it is given the values ahead."""
    forecaster = quick(future_covariates=["holiday"], dropout=0.0)
    tests = forecaster.cross_validation(table, n_windows=2, step_size=5)
    for cutoff, window in tests.groupby("cutoff"):
        if cutoff == tests["cutoff"].min():
            fitted = quick(future_covariates=["holiday"], dropout=0.0).fit(table[table["ds"] <= cutoff])
        ahead = table[table["ds"] > cutoff].groupby("unique_id").head(12).drop(columns="y")
        expected = fitted.predict(table[table["ds"] <= cutoff], futr_df=ahead)
        np.testing.assert_allclose(window["yhat"], expected["yhat"], rtol=1e-4)


def test_the_forecast_at_hand_needs_them(forecaster: Forecaster, table: pd.DataFrame, tmp_path: Path) -> None:
    ahead = next_steps(table, 12).assign(holiday=(np.arange(24) % 12 == 3).astype(float))
    expected = forecaster.predict(futr_df=ahead)
    for call in (forecaster.plot, lambda: forecaster.report(tmp_path / "x.html")):
        with raises(TableError, "'holiday'", "12 steps", "futr_df="):
            call()
    assert forecaster.explain().components is None
    drawn = forecaster.plot("b", futr_df=ahead).get_lines()[-1].get_ydata()
    np.testing.assert_allclose(drawn, expected["yhat"][12:])
    explanation = forecaster.explain(ahead)
    np.testing.assert_allclose(explanation.components["yhat"], expected["yhat"])
    # Modes do not add up to the forecast, of which a part is made by covariates.
    assert all(mode.part is None for mode in explanation.modes)
    page = forecaster.report(tmp_path / "x.html", futr_df=ahead).read_text()
    assert "figure-outlook" in page
    assert 'id="figure-forecast"' not in page
    forecaster.plot(futr_df=ahead).figure.clear()


def test_past_ones_enter_memory() -> None:
    table = hourly().assign(wind=lambda t: np.sin(np.arange(len(t))))
    forecaster = quick(past_covariates=["wind"]).fit(table)
    first, second = (
        forecaster.predict(table.assign(wind=np.roll(table["wind"], shift)))["yhat"].to_numpy() for shift in (0, 1)
    )
    assert abs(first - second).max() > 1e-3
    np.testing.assert_allclose(forecaster.predict()["yhat"], first)


def test_static_ones_tell_series_apart() -> None:
    """Two series that differ in nothing else, and drift in different directions after every reset."""
    time = np.arange(400)
    frames = []
    for name, sign in (("up", 1.0), ("down", -1.0)):
        noise = np.random.default_rng(1).standard_normal(400)
        stamps = pd.date_range("2024-01-01", periods=400, freq="h")
        frames.append(pd.DataFrame({"unique_id": name, "ds": stamps, "y": noise + sign * 0.05 * time, "size": sign}))
    table = pd.concat(frames, ignore_index=True)
    forecaster = quick(static_covariates=["size"], max_epochs=5).fit(table)
    forecasts = {
        sign: forecaster.predict(table.assign(unique_id=table["unique_id"] + "!", size=sign))["yhat"].to_numpy()
        for sign in (-1.0, 1.0)
    }
    assert (forecasts[1.0].mean() - forecasts[-1.0].mean()) > 0.1


def test_constant_ones_have_no_scale() -> None:
    """A covariate of 0.1 throughout has a deviation of 1e-17, by rounding; a later 0.2 is no 7e15."""
    table = hourly().assign(wind=0.1)
    forecaster = quick(past_covariates=["wind"], max_epochs=1).fit(table)
    usual, other = (forecaster.predict(table.assign(wind=wind))["yhat"] for wind in (0.1, 0.2))
    np.testing.assert_allclose(usual, other, rtol=0.05)


def test_an_explanation_tells_the_share_of_covariates_known_ahead() -> None:
    table = hourly(ids=("a",))
    random = np.random.default_rng(0)
    table = table.assign(price=random.standard_normal(len(table)), y=lambda frame: frame["y"] + 3 * frame["price"])
    modes = quick(future_covariates=["price"], max_epochs=4).fit(table).explain().modes
    share = re.search(r"future covariates have a share of ([\d.]+)%", str(modes.summary()).replace("\n", " "))
    assert share is not None
    assert float(share[1]) + 100 * sum(mode.share for mode in modes) == pytest.approx(100, abs=0.2)

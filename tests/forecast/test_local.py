"""Local models: the bank, its weights, and forecasts that stay sums or products of named parts."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from parallelrnn import Forecaster
from parallelrnn.classical import EtsCoefficients
from parallelrnn.errors import ArgumentError, InputWarning, TableError
from parallelrnn.forecast.data import Array, Series
from parallelrnn.forecast.local import PARTS, Bank, model_weights, run_local, season_of, weigh
from tests.classical.test_smoothing import one_step
from tests.support import raises

MONTHS = 12


def single(values: Array, name: Any = "a") -> Series:
    table, none = values[:, None], np.zeros((len(values), 0))
    observed = np.ones_like(table, dtype=bool)
    return Series(name=name, position=0, values=table, observed=observed, past=none, future=none, static=none[0])


def sales(seed: int, steps: int = 72, growth: float = 0.01) -> Array:
    """Monthly sales that grow by a constant rate, with a season that grows with them."""
    months = np.arange(steps)
    noise = np.random.default_rng(seed).normal(0, 0.03, steps)
    return 100 * np.exp(growth * months + 0.3 * np.sin(2 * np.pi * months / MONTHS) + noise)


def frame(series: dict[Any, Array], freq: str = "MS") -> pd.DataFrame:
    tables = [
        pd.DataFrame(
            {"unique_id": name, "ds": pd.date_range("2015-01-01", periods=len(values), freq=freq), "y": values}
        )
        for name, values in series.items()
    ]
    return pd.concat(tables, ignore_index=True)


@pytest.fixture(scope="module")
def panel() -> pd.DataFrame:
    return frame({f"shop {seed}": sales(seed, 60 + seed) for seed in range(6)})


@pytest.fixture(scope="module")
def fitted(panel: pd.DataFrame) -> Forecaster:
    return Forecaster(MONTHS, progress=False).fit(panel)


@pytest.mark.parametrize("period", [1, 4])
def test_models_of_the_bank_smooth_as_they_should(period: int) -> None:
    values, bank = np.random.default_rng(0).standard_normal(30).cumsum(), Bank(period, 6)
    states = bank.states([values], [30])
    forecasts = bank.forecasts(states, [1])[..., 0]  # (T, 1, models)
    for index, model in enumerate(bank.models):
        own = EtsCoefficients(*model[:4], period=period if model.season else 1)
        after_first = states[int(model.season)][0, 0, index if not model.season else index - len(bank.models) // 4]
        expected = one_step(values[1:], own, after_first.double().numpy())
        np.testing.assert_allclose(forecasts[:-1, 0, index].numpy(), expected, atol=1e-5)  # 30 steps of float32


@pytest.mark.parametrize("period", [1, 4])
def test_a_collapsed_state_forecasts_as_the_weighted_models_do(period: int) -> None:
    rng, bank = np.random.default_rng(1), Bank(period, 7)
    states = bank.states([rng.standard_normal(25).cumsum(), rng.standard_normal(20)], [25, 20])
    weights = torch.from_numpy(rng.dirichlet(np.ones(len(bank.models)), 2)).float()
    collapsed = bank.collapse(states, weights)
    together = torch.einsum("tbs,shp->tbhp", collapsed, bank.readout.float()).sum(-1)
    each = bank.forecasts(states, range(1, 8))
    torch.testing.assert_close(together, torch.einsum("tbkh,bk->tbh", each, weights), rtol=1e-4, atol=1e-5)
    assert bank.readout.shape[-1] == len(PARTS)


def test_the_past_does_not_depend_on_what_comes_later() -> None:
    values, bank = sales(0)[:, None], Bank(MONTHS, 6)
    changed = values.copy()
    changed[50:] = 7.0
    weights = torch.full((1, 1, len(bank.models)), 1 / len(bank.models))
    before, after = (run_local(bank, [table], [40], weights, [40])[0] for table in (values, changed))
    torch.testing.assert_close(before[:50], after[:50])
    assert not torch.allclose(before[50:], after[50:])


def test_what_was_long_ago_is_left_out() -> None:
    values, bank = np.random.default_rng(0).standard_normal((900, 1)), Bank(1, 6)
    weights = torch.full((1, 1, len(bank.models)), 1 / len(bank.models))
    states = run_local(bank, [values], [800], weights, [800])[0]
    assert 100 <= len(states) < 500  # those from step 800 on, and some before
    changed = np.concatenate([values[:400] + 1e3, values[400:]])
    torch.testing.assert_close(run_local(bank, [changed], [800], weights, [800])[0], states)


def test_models_that_miss_less_weigh_more() -> None:
    errors = np.array([[1.0, 2.0, np.inf], [1.0, 1.1, 1.2]])
    weights, prior = model_weights(errors, np.array([100.0, 10.0]))
    np.testing.assert_allclose(weights.sum(1), 1)
    assert weights[0, 0] > 0.99
    assert weights[0, 2] == 0
    assert weights[1, 0] > max(weights[1, 1:])
    assert min(weights[1]) > 0
    unknown, _ = model_weights(np.full((1, 3), np.nan), np.zeros(1), prior)
    np.testing.assert_allclose(unknown.sum(), 1)  # nothing is known of the series, so it takes the panel's word


def test_a_season_that_grows_with_the_level_is_read_as_logarithms() -> None:
    growing = [single(sales(seed, growth=0.03)) for seed in range(5)]
    steady = [single(100 + 10 * np.sin(np.arange(72) / 2) + 0.5 * np.arange(72) - 130) for _ in range(5)]
    floors, _, _ = weigh(Bank(MONTHS, 12), [*growing, *steady], [72] * 10, None)
    assert (floors[:5] > 0).all()
    assert (floors[5:] == 0).all()  # these are not positive
    floors, _, _ = weigh(Bank(MONTHS, 12), growing, [72] * 5, False)
    assert (floors == 0).all()


def test_seasons_of_calendars() -> None:
    assert season_of([12.0]) == 12
    assert season_of([7.0, 365.25]) == 7
    assert season_of([24.0, 168.0]) == 1  # left to the network
    assert season_of([]) == 1


def test_short_series_are_forecast_without_a_network(fitted: Forecaster) -> None:
    assert fitted.explain().modes.rows
    sources = {mode.source for mode in fitted.explain().modes}
    assert sources == {"smoothing"}
    forecast = fitted.predict()
    for seed in range(6):
        truth = sales(seed, 60 + seed + MONTHS)[-MONTHS:]
        own = forecast.loc[forecast["unique_id"] == f"shop {seed}", "yhat"].to_numpy()
        assert abs(np.log(own / truth)).mean() < 0.1


def test_what_smoothing_holds_is_said() -> None:
    grown = Forecaster(MONTHS, transform="log", progress=False).fit(frame({"a": sales(0, 84, growth=0.01)}))
    said = grown.explain().summary().replace("\n", " ")
    (percent,) = re.findall(r"trend \+([\d.]+) % a year", said)
    assert 5 < float(percent) < 18  # exp(0.12) is 13 % a year
    (swing,) = re.findall(r"a season of (\d+) %", said)
    assert 52 < int(swing) < 70  # from exp(-0.3) to exp(0.3)


def test_parts_multiply_to_forecasts_of_logarithms(fitted: Forecaster) -> None:
    table = fitted.predict(decompose=True)
    parts = table.columns.drop(["unique_id", "ds", "yhat"])
    assert {"level", "season 12 months"} <= set(parts)
    np.testing.assert_allclose(table[parts].prod(axis=1), table["yhat"], rtol=1e-6)


@pytest.mark.parametrize("transform", ["log", None])
def test_the_transform_can_be_chosen(panel: pd.DataFrame, transform: str | None) -> None:
    table = Forecaster(6, transform=transform, progress=False).fit(panel).predict(level=[95], decompose=True)
    parts = table[table.columns.drop(["unique_id", "ds", "yhat", "yhat-lo-95", "yhat-hi-95"])]
    together = parts.prod(axis=1) if transform else parts.sum(axis=1)
    np.testing.assert_allclose(together, table["yhat"], rtol=1e-6)
    assert (table["yhat-lo-95"] > 0).all() if transform else True


def test_both_models_add_up(panel: pd.DataFrame) -> None:
    forecaster = Forecaster(6, models="both", transform=None, max_epochs=2, progress=False).fit(panel)
    table = forecaster.predict(decompose=True)
    parts = table.columns.drop(["unique_id", "ds", "yhat"])
    np.testing.assert_allclose(table[parts].sum(axis=1), table["yhat"], rtol=1e-5)


def test_saved_and_newer_and_new_series(fitted: Forecaster, panel: pd.DataFrame, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    loaded = Forecaster.load(tmp_path / "model")
    expected = fitted.predict(level=[80], decompose=True)
    pd.testing.assert_frame_equal(loaded.predict(level=[80], decompose=True), expected)
    again = loaded.predict(panel, decompose=True)
    np.testing.assert_allclose(again["yhat"], expected["yhat"], rtol=1e-5)
    other = frame({"elsewhere": sales(77, 80)})
    forecast = loaded.predict(other, level=[80])
    truth = sales(77, 80 + MONTHS)[-MONTHS:]
    assert abs(np.log(forecast["yhat"].to_numpy() / truth)).mean() < 0.1
    assert loaded.explain().summary() == fitted.explain().summary()


def test_a_line_is_continued() -> None:
    time = np.arange(30.0)
    series = {str(n): 5 + n * time + 0.01 * np.random.default_rng(n).standard_normal(30) for n in range(1, 6)}
    forecast = Forecaster(4, progress=False).fit(frame(series, "YS")).predict()
    for n in range(1, 6):
        own = forecast.loc[forecast["unique_id"] == str(n), "yhat"]
        np.testing.assert_allclose(own, 5 + n * np.arange(30, 34), rtol=0.05)


def test_intervals_of_short_series_hold() -> None:
    inside, rng = [], np.random.default_rng(5)
    walks = {str(n): 100 + rng.standard_normal(34).cumsum() for n in range(60)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # series differ in how long they are compared
        table = frame({name: values[:-4] for name, values in walks.items()}, "YS")
        forecast = Forecaster(4, progress=False).fit(table).predict(level=[80])
    for name, values in walks.items():
        own = forecast[forecast["unique_id"] == name]
        inside.append((values[-4:] >= own["yhat-lo-80"]) & (values[-4:] <= own["yhat-hi-80"]))
    assert 0.68 < np.mean(inside) < 0.92  # of 60 walks, whose four steps depend on each other


@pytest.mark.parametrize(("period", "steps"), [(12, 60), (1, 8), (1, 40)])
def test_noise_gets_neither_season_nor_trend(period: int, steps: int) -> None:
    rng, bank = np.random.default_rng(0), Bank(period, 4)
    _, weights, _ = weigh(bank, [single(rng.standard_normal(steps)) for _ in range(50)], [steps] * 50, None)
    mean = weights[:, 0].mean(0)
    assert sum(float(weight) for weight, model in zip(mean, bank.models, strict=True) if model.season) < 0.05
    slopes = [float(w) for w, model in zip(mean, bank.models, strict=True) if model.phi == 1 and not model.is_half]
    assert sum(slopes) < 0.05


def test_what_fills_gaps_does_not_count() -> None:
    rng, bank = np.random.default_rng(1), Bank(1, 4)
    series = []
    for _ in range(30):
        values = rng.standard_normal(120)
        observed = np.arange(120) % 4 == 0
        filled = np.interp(np.arange(120), np.flatnonzero(observed), values[observed])
        series.append(replace(single(filled), observed=observed[:, None]))
    _, weights, _ = weigh(bank, series, [120] * 30, None)
    alphas = torch.tensor([model.alpha for model in bank.models])
    assert float((weights[:, 0] @ alphas).mean()) < 0.7  # lines between values would be continued by the last one


@pytest.mark.parametrize("values", [np.full(30, 5.0), np.zeros(30), sales(0, 27), np.arange(9.0)])
def test_series_that_say_little_are_explained(values: Array, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about what is short
        forecaster = Forecaster(3, progress=False).fit(frame({"a": values}))
    assert np.isfinite(forecaster.predict()["yhat"]).all()
    forecaster.explain().summary()
    forecaster.report(tmp_path / "page.html")


def test_a_few_newer_rows_are_enough() -> None:
    months = np.arange(180)
    values = 30 * np.sin(2 * np.pi * months / MONTHS) + np.random.default_rng(0).standard_normal(180)
    table = frame({"a": values})
    forecaster = Forecaster(MONTHS, models="local", progress=False).fit(table[:120])
    for first in (0, 90, 118, 120):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about short series
            forecast = forecaster.predict(table[first:144])["yhat"]
        assert abs(forecast.to_numpy() - values[144:156]).mean() < 2


def test_logarithms_follow_a_series_down() -> None:
    falling = 1000 * np.exp(-0.1 * np.arange(64))
    table = frame({"a": falling[:60]}, "YS")
    forecast = Forecaster(4, transform="log", progress=False).fit(table).predict()["yhat"]
    np.testing.assert_allclose(forecast, falling[60:], rtol=0.1)


def test_a_network_that_was_asked_for_is_trained(panel: pd.DataFrame) -> None:
    forecaster = Forecaster(3, cell="gru", max_epochs=1, progress=False).fit(panel)
    assert forecaster.explain().features[0].gate in ("reset", "update", "new")
    with_wind = panel.assign(wind=1.0 * np.arange(len(panel)))
    assert Forecaster(3, past_covariates=["wind"], max_epochs=1, progress=False).fit(with_wind).predict() is not None


def test_rejected_arguments() -> None:
    for options in ({"quantiles": [0.1, 0.9]}, {"future_covariates": ["price"]}):
        with pytest.raises(ArgumentError, match="no quantiles"):
            Forecaster(4, models="both", **options)
        with pytest.raises(ArgumentError, match="logarithms"):
            Forecaster(4, transform="log", **options)
    for name in ("models", "transform"):
        with pytest.raises(ArgumentError, match=name):
            Forecaster(4, **{name: "none"})


@pytest.mark.parametrize(("steps", "freq"), [(5, "YS"), (8, "YS"), (15, "MS"), (6, "QS")])
def test_a_short_line_is_continued(steps: int, freq: str) -> None:
    table = pd.DataFrame(
        {"ds": pd.date_range("2015-01-01", periods=steps, freq=freq), "y": 100 + 5.0 * np.arange(steps)}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about short series
        forecast = Forecaster(2, progress=False).fit(table).predict()["yhat"]
    np.testing.assert_allclose(forecast, 100 + 5 * np.array([steps, steps + 1]), rtol=0.02)


def test_two_years_show_a_season() -> None:
    season = np.array([10.0, 50, 20, 90, 30, 30, 70, 200, 10, 20, 60, 40])
    table = pd.DataFrame({"ds": pd.date_range("2015-01-01", periods=24, freq="MS"), "y": np.tile(season, 2)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        forecast = Forecaster(12, progress=False).fit(table).predict()["yhat"]
    assert abs(forecast - season).mean() < 0.15 * abs(season - season.mean()).mean()


def test_logarithms_reach_back_to_the_beginning_of_a_long_series() -> None:
    growing = single(np.exp(np.linspace(0, 14, 1000)))
    floors, _, _ = weigh(Bank(1, 4), [growing], [1000], True)
    assert 0 < floors[0, 0] < 1


def test_logarithms_of_values_that_have_none_are_warned_of() -> None:
    table = pd.DataFrame({"ds": range(40), "y": np.arange(40.0)})
    with pytest.warns(InputWarning, match="not read as logarithms"):
        Forecaster(3, transform="log", progress=False).fit(table)


def short_series(count: int, steps: int) -> pd.DataFrame:
    random = np.random.default_rng(0)
    values = 100 + random.standard_normal((count, steps)).cumsum(1)
    times = pd.date_range("2020-01-01", periods=steps, freq="MS")
    return pd.concat([pd.DataFrame({"unique_id": f"s{i}", "ds": times, "y": own}) for i, own in enumerate(values)])


@pytest.mark.filterwarnings("ignore::parallelrnn.errors.InputWarning")
@pytest.mark.parametrize("count", [1, 4])
def test_series_shorter_than_the_horizon_are_forecast_with_intervals_that_grow(count: int) -> None:
    forecast = Forecaster(horizon=12).fit(short_series(count, 6), freq="MS").predict(level=[80])
    assert len(forecast) == 12 * count
    widths = (forecast["yhat-hi-80"] - forecast["yhat-lo-80"]).to_numpy().reshape(count, 12)
    assert np.isfinite(widths).all()
    assert (widths > 0.1).all()
    assert (widths[:, 11] > 1.4 * widths[:, 5]).all()  # at least as a random walk makes errors grow


@pytest.mark.filterwarnings("ignore::parallelrnn.errors.InputWarning")
def test_intervals_do_not_rest_on_seasons_that_were_read_off_the_values_they_are_calibrated_on() -> None:
    """Where nothing validates, models still begin with the first values alone."""
    random, known, horizon = np.random.default_rng(0), 26, 18
    seasons = np.resize(random.normal(0, 5, (60, MONTHS)).T, (known + horizon, 60)).T
    values = 100 + seasons + random.normal(0, 0.3, seasons.shape).cumsum(1)
    table = frame({index: own[:known] for index, own in enumerate(values)})
    forecast = Forecaster(horizon, progress=False).fit(table).predict(level=[80])
    low, high = (forecast[f"yhat-{side}-80"].to_numpy().reshape(60, horizon) for side in ("lo", "hi"))
    # 0.88, with a standard error of 0.03 over series. With seasons read off all values it was 0.73.
    assert ((low <= values[:, known:]) & (values[:, known:] <= high)).mean() > 0.8


@pytest.mark.parametrize(("models", "steps"), [("auto", 3), ("network", 6)])
def test_series_too_short_to_say_anything_are_rejected(models: str, steps: int) -> None:
    with raises(TableError, "horizon of 12", f"{steps} observed values"):
        Forecaster(horizon=12, models=models).fit(short_series(1, steps), freq="MS")


@pytest.mark.parametrize(
    ("freq", "cycles", "trains"), [("MS", "calendar", False), ("MS", [6.5], True), ("W-MON", "calendar", True)]
)
def test_a_network_is_not_trained_for_a_series_whose_season_local_models_know(
    freq: str, cycles: Any, trains: bool
) -> None:
    forecaster = Forecaster(horizon=6, max_epochs=1, cycles=cycles).fit(frame({"a": sales(0, 150)}, freq), freq=freq)
    assert forecaster._state is not None
    assert bool(forecaster._state.history) == trains

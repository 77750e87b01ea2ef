from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from parallelrnn import Forecaster
from parallelrnn.errors import ArgumentError, InputWarning, TableError
from parallelrnn.forecast.conformal import LEVELS, Calibration, continued, expected_sizes, window_residuals
from parallelrnn.forecast.state import order_quantiles
from parallelrnn.forecast.windows import Batch
from tests.forecast.small import make_dataset, make_series
from tests.support import raises, warns

HALF = 2**-9  # quantiles are stored in half precision, rounded up


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**31), count=st.integers(20, 400), level=st.sampled_from([50, 80, 90, 95]))
def test_conformal_quantiles_are_those_of_the_definition(seed: int, count: int, level: int) -> None:
    residuals = torch.randn(count, 9, 2, generator=torch.Generator().manual_seed(seed))
    width = Calibration.of([residuals], [False]).conformal_quantile(level)[0].numpy()
    ordered = np.sort(abs(residuals.numpy()), axis=0)
    for step in range(9):
        distinct = min(count, 5 * count / (step + 1))  # up to five steps ahead, the definition of split conformal
        rank = min(count, math.ceil(count * level / 100 * (distinct + 1) / distinct - 1e-9))
        if distinct < level / (100 - level):  # the largest is not enough
            continue
        # Quantiles are kept at some levels: the residual at this rank lies between those at the next ones.
        above = min(own for own in LEVELS.tolist() if own >= rank / count - 1e-9)
        below = max((own for own in LEVELS.tolist() if own < above), default=above)
        low, high = (ordered[math.ceil(own * count - 1e-9) - 1, step] for own in (below, above))
        assert (width[step] >= low).all()
        assert (width[step] <= (1 + HALF) * high).all()
        if abs(above - rank / count) < 1e-9:
            np.testing.assert_allclose(width[step], ordered[rank - 1, step], rtol=HALF)


def test_intervals_have_nominal_coverage_if_residuals_stay_as_they_were() -> None:
    generator = torch.Generator().manual_seed(0)
    coverage = []
    for _ in range(300):
        residuals = torch.randn(101, 4, 1, generator=generator)
        width = Calibration.of([residuals[:-1]], [False]).conformal_quantile(80)[0]
        coverage.append(float((residuals[-1].abs() <= width).float().mean()))
    # 1200 values of 80 % or a little more, those of one draw dependent through its quantiles: a standard error of 1 %.
    assert 0.78 < np.mean(coverage) < 0.84


def test_unobserved_residuals_are_left_out() -> None:
    residuals = torch.randn(100, 2, 1, generator=torch.Generator().manual_seed(0))
    holes = torch.cat([residuals, torch.full((50, 2, 1), math.nan)])[torch.randperm(150)]
    torch.testing.assert_close(Calibration.of([holes], [False]).table, Calibration.of([residuals], [False]).table)


def test_series_are_kept_apart() -> None:
    residuals = torch.randn(100, 2, 1, generator=torch.Generator().manual_seed(0))
    calibration = Calibration.of([residuals, 10 * residuals], [False, False])
    torch.testing.assert_close(calibration.conformal_quantile(80)[1], 10 * calibration.conformal_quantile(80)[0])
    torch.testing.assert_close(
        calibration.rows([1, 0, 1]).conformal_quantile(80)[2], calibration.conformal_quantile(80)[1]
    )
    torch.testing.assert_close(calibration.rows([1]).conformal_quantile(80)[0], calibration.conformal_quantile(80)[1])


def test_residuals_too_few_for_a_level_are_taken_to_be_normal() -> None:
    """Of a hundred thousand series with six residuals each, as many hold the seventh as Student's t says."""
    residuals = torch.randn(7, 1, 100_000, generator=torch.Generator().manual_seed(0))
    calibration = Calibration.of([residuals[:6]], [False])
    with warns(InputWarning, "90 %", " 9 ", " 6"):
        width = calibration.conformal_quantile(90)[0]
    normal = stats.t.ppf(0.95, 6) * residuals[:6].square().mean(0).sqrt()
    torch.testing.assert_close(width, torch.maximum(normal, residuals[:6].abs().amax(0)), rtol=HALF, atol=0)
    assert 0.9 < float((residuals[6].abs() <= width).float().mean()) < 0.94  # the largest error adds to it


def test_residuals_that_overlap_are_worth_fewer() -> None:
    """Of 20 forecasts 24 steps ahead, at most some four have nothing in common: the largest error is not enough."""
    steps = torch.randn(20 + 24, generator=torch.Generator().manual_seed(0)).cumsum(0)
    residuals = torch.stack([steps[at : at + 24] - steps[at] for at in range(20)])[..., None]
    width = Calibration.of([residuals], [False]).conformal_quantile(95)[0, :, 0]
    distinct = 5 * 20 / torch.arange(1, 25)
    normal = torch.from_numpy(stats.t.ppf(0.975, distinct)) * residuals[..., 0].double().square().mean(0).sqrt()
    largest = residuals[..., 0].abs().amax(0)
    torch.testing.assert_close(width[6:], torch.maximum(normal.float(), largest)[6:], rtol=HALF, atol=0)
    torch.testing.assert_close(width[:5], largest[:5], rtol=HALF, atol=0)  # here 20 are 20
    assert width[-1] > 1.2 * largest[-1]


def test_few_residuals_of_one_series_change_nothing_for_others() -> None:
    residuals = torch.randn(19, 2, 1, generator=torch.Generator().manual_seed(0))
    with warns(InputWarning, "95 %", " 19 ", " 18"):
        quantiles = Calibration.of([residuals, residuals[:18]], [False, False]).conformal_quantile(95)
    torch.testing.assert_close(quantiles[0], Calibration.of([residuals], [False]).conformal_quantile(95)[0])


def test_without_residuals_there_is_no_interval() -> None:
    with pytest.raises(TableError):
        Calibration.of([torch.zeros(0, 2, 1)], [False]).conformal_quantile(80)


class Crossing(torch.nn.Module):
    """Quantiles that cross: the last value plus two, minus two, and itself."""

    def forward(self, batch: Batch) -> torch.Tensor:
        last = batch.past[:, -1:].expand_as(batch.target)
        return torch.stack([last + 2, last - 2, last], -1)


def test_residuals_are_nan_where_nothing_was_observed() -> None:
    dataset = make_dataset(10, 4, make_series(np.arange(40)))
    residuals = window_residuals(Crossing(), dataset, torch.tensor([[0, 20], [0, 38]]), 1)
    assert residuals[0, :, 0].tolist() == [3.0, 4.0, 5.0, 6.0]
    assert residuals[1, :2, 0].tolist() == [3.0, 4.0]
    assert residuals[1, 2:].isnan().all()
    assert window_residuals(Crossing(), dataset, torch.zeros(0, 2, dtype=torch.long), 1).shape == (0, 4, 1)


@pytest.mark.parametrize(("median", "expected"), [(0, [2, 2, 2]), (1, [-2, -2, 0]), (2, [-2, -2, 0])])
def test_quantiles_that_cross_give_way_to_the_median(median: int, expected: list[int]) -> None:
    assert order_quantiles(torch.tensor([2, -2, 0]), median).tolist() == expected


def test_intervals_of_a_series_that_never_falls_below_zero_do_not_either() -> None:
    stamps = pd.date_range("2020-01-01", periods=200, freq="D")
    values = np.random.default_rng(0).standard_normal(200) ** 2
    for shift in (0.0, 100.0, -1.0):
        table = pd.DataFrame({"ds": stamps, "y": values + shift})
        low = Forecaster(5, max_epochs=1, progress=False).fit(table).predict(level=[95])["yhat-lo-95"]
        assert ((low - shift).max() < 0) == (shift != 0)
        assert shift or (low >= 0).all()


def falling(shift: float = 0.0) -> pd.DataFrame:
    stamps = pd.date_range("2020-01-01", periods=60, freq="D")
    return pd.DataFrame({"ds": stamps, "y": np.linspace(50, 0.5, 60) + shift})


def test_forecasts_of_a_series_that_was_never_negative_are_not_either() -> None:
    free = Forecaster(9, transform=None, positive=False, progress=False).fit(falling())
    assert free.predict(level=[80]).iloc[:, 1:].to_numpy().min() < -5
    kept = Forecaster(9, transform=None, progress=False).fit(falling())
    table = kept.predict(level=[80], decompose=True)
    assert table[["yhat", "yhat-lo-80", "yhat-hi-80"]].to_numpy().min() == 0
    parts = [name for name in table if not name.startswith(("ds", "yhat"))]
    assert "limit at zero" in parts
    np.testing.assert_allclose(table[parts].sum(axis=1), table["yhat"], atol=1e-6)
    assert kept.predict(falling(-20))["yhat"].min() < -20  # of newer values that were negative


def test_positive_forecasts_of_negative_values_are_rejected() -> None:
    with raises(ArgumentError, argument="positive"):
        Forecaster(9, positive=True, progress=False).fit(falling(-20))
    with raises(ArgumentError, argument="positive"):
        Forecaster(9, positive="yes")


@pytest.mark.parametrize("scale", [1, 1000])
def test_limits_of_counts_are_whole(scale: int) -> None:
    counts = np.random.default_rng(0).poisson(5, 200) * scale + np.arange(200) % 2
    table = pd.DataFrame({"ds": pd.date_range("2020-01-01", periods=200, freq="D"), "y": counts})
    limits = Forecaster(5, max_epochs=1, progress=False).fit(table).predict(level=[80]).iloc[:, 2:].to_numpy()
    assert (limits == np.round(limits)).all()


def test_intervals_go_on_growing_where_errors_grow() -> None:
    """Two hundred series of thirty steps whose noise grows as they go on."""
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((200, 36)) * np.linspace(0.2, 3, 36)
    parts = [pd.DataFrame({"unique_id": n, "ds": range(30), "y": 100 + own[:30]}) for n, own in enumerate(noise)]
    forecast = Forecaster(6, progress=False).fit(pd.concat(parts)).predict(level=[80])
    low, high = (forecast[f"yhat-{side}-80"].to_numpy().reshape(200, 6) for side in ("lo", "hi"))
    held = ((noise[:, 30:] + 100 >= low) & (noise[:, 30:] + 100 <= high)).mean()
    assert 0.74 < held < 0.86  # of 1,200 values, with a standard error of 1.5 % or so


def held_by(widths: pd.DataFrame, values: np.ndarray) -> float:
    return float(((values >= widths["yhat-lo-80"]) & (values <= widths["yhat-hi-80"])).mean())


@pytest.mark.parametrize("models", ["local", "network"])
def test_intervals_hold_where_the_horizon_is_longer_than_what_local_models_look_at(models: str) -> None:
    values = np.random.default_rng(0).standard_normal(1250)
    table = pd.DataFrame({"ds": pd.date_range("2015-01-01", periods=1000, freq="D"), "y": values[:1000]})
    forecaster = Forecaster(250, models=models, max_epochs=1, progress=False).fit(table, val_size=250)
    assert 0.6 < held_by(forecaster.predict(level=[80]), values[1000:]) < 0.97


def test_a_series_that_goes_astray_does_not_widen_the_intervals_of_others() -> None:
    rng = np.random.default_rng(0)
    parts = [100 + rng.standard_normal(40) for _ in range(13)]
    quiet, wild = (
        panel([*parts, last]) for last in (100 + rng.standard_normal(40), np.r_[[100.0] * 33, np.arange(7) * 1e6])
    )
    widths = [
        Forecaster(6, transform=None, progress=False).fit(table).predict(level=[95]).eval("`yhat-hi-95` - `yhat-lo-95`")
        for table in (quiet, wild)
    ]
    assert (widths[1][:6] < 4 * widths[0][:6]).all()


def panel(series: list[np.ndarray]) -> pd.DataFrame:
    parts = [pd.DataFrame({"unique_id": n, "ds": range(len(own)), "y": own}) for n, own in enumerate(series)]
    return pd.concat(parts)


def test_five_years_of_months_are_enough_for_a_year_ahead() -> None:
    """One residual at the last step would make an interval of Student's t with one degree of freedom."""
    values = 100 + np.random.default_rng(1).standard_normal(60)
    table = pd.DataFrame({"ds": pd.date_range("2015-01-01", periods=60, freq="MS"), "y": values})
    width = Forecaster(12, progress=False).fit(table).predict(level=[95]).eval("`yhat-hi-95` - `yhat-lo-95`")
    assert width.max() < 2 * width.min()
    assert 3 < width.median() < 8  # 3.9 for the noise itself


def test_pooled_residuals_are_thinned_evenly_over_steps_ahead() -> None:
    rng = np.random.default_rng(0)
    parts = [rng.standard_normal(31 if not n else 30) for n in range(1200)]
    forecaster = Forecaster(6, models="local", progress=False).fit(panel(parts))
    counts = forecaster._state.calibration.counts[-1]  # type: ignore[union-attr]
    assert (counts > 100).all()


def test_a_crash_widens_intervals_of_logarithms_to_both_sides_alike() -> None:
    values = 100 * np.exp(0.02 * np.random.default_rng(0).standard_normal(120))
    values[100] *= 0.1  # a residual of 2.3 in logarithms
    table = pd.DataFrame({"ds": pd.date_range("2015-01-01", periods=120, freq="MS"), "y": values})
    forecast = Forecaster(6, transform="log", models="local", progress=False).fit(table).predict(level=[80, 98])
    for level in (80, 98):
        low, high = (forecast["yhat"] - forecast[f"yhat-lo-{level}"], forecast[f"yhat-hi-{level}"] - forecast["yhat"])
        np.testing.assert_allclose(low, np.minimum(high, forecast["yhat"]), rtol=1e-6)
    assert (forecast["yhat-lo-98"] < 0.5 * forecast["yhat"]).any()


def test_sizes_of_errors_are_regressed_on_errors_and_changes() -> None:
    random = np.random.default_rng(0)
    logs = random.normal(size=(2, 2, 500, 2))  # now and before, errors and changes
    followed = 0.3 * logs[0, 0] + 0.6 * logs[0, 1] + 0.2 + 0.1 * random.normal(size=(500, 2))
    followed[::7] = np.nan
    got = expected_sizes(torch.from_numpy(np.exp(logs)), torch.from_numpy(np.exp(followed))).log().numpy()
    known = np.isfinite(followed[:, 0])
    design = np.column_stack([np.ones(500), *logs[0, :, :, 0]])
    effects = np.linalg.lstsq(design[known], followed[known, 0], rcond=None)[0]
    for part in range(2):
        wanted = np.column_stack([np.ones(500), *logs[part, :, :, 0]]) @ effects
        shift = got[part, :, 0] - wanted  # residuals are relative, so that one factor for all does not matter
        np.testing.assert_allclose(shift, np.full(500, shift.mean()), atol=0.05)  # 5 prior series of 500


def test_errors_of_one_series_are_expected_to_stay_as_they_are() -> None:
    predictors = torch.tensor([[[3.0], [0.2]], [[5.0], [7.0]]])[..., None]
    assert torch.allclose(expected_sizes(predictors, torch.tensor([[40.0]])), torch.tensor([[[3.0]], [[5.0]]]))


def test_sizes_of_errors_without_anything_that_followed_stay_as_they_are() -> None:
    predictors = torch.tensor([[[3.0, 1.0], [0.2, 4.0]]] * 2)[..., None]
    assert torch.allclose(expected_sizes(predictors, torch.tensor([[torch.nan], [0.0]])), predictors[:, 0])


def test_errors_grow_like_those_of_a_random_walk_where_no_series_reaches() -> None:
    nan = math.nan
    residuals = torch.tensor([[[1.0, 1.0], [2.0, nan], [nan, nan], [nan, nan]], [[3.0, nan]] + [[nan, nan]] * 3])
    grown = continued(residuals)
    torch.testing.assert_close(grown[0, :, 0], torch.tensor([1.0, 2.0, 2.0 * 1.5**0.5, 2.0 * 2**0.5]))
    torch.testing.assert_close(grown[0, :, 1], torch.tensor([1.0, 2**0.5, 3**0.5, 2.0]))  # each target from its own
    assert grown[1, :, 0].isnan().tolist() == [False, True, True, True]
    assert continued(torch.full((2, 3, 1), nan)).isnan().all()

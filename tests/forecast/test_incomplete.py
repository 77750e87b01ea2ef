"""Last values of periods that were not over."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from parallelrnn import Forecaster
from parallelrnn.errors import InputWarning
from parallelrnn.forecast.evaluation import evaluate
from parallelrnn.forecast.missing import is_incomplete

MONTHS = 12


def sales(seed: int, last: float = 1.0) -> np.ndarray:
    """Six years of monthly sales with a season, the last month times `last`."""
    rng = np.random.default_rng(seed)
    values = 100 * np.exp(0.3 * np.sin(np.arange(72) * np.pi / 6) + 0.1 * rng.standard_normal(72))
    values[-1] *= last
    return values


def test_a_month_of_which_some_days_are_counted_is_found() -> None:
    assert all(is_incomplete(sales(seed, last=0.1), MONTHS) for seed in range(20))
    assert all(is_incomplete(sales(seed, last=0.0), MONTHS) for seed in range(20))
    assert not any(is_incomplete(sales(seed), MONTHS) for seed in range(200))


JUNE = np.where(np.arange(18) % 12 == 5, 40.0, 100.0)  # the last month is a June


@pytest.mark.parametrize(
    "values", [[5.0, 0.5] * 20, [*range(20, 1, -1), 0.01][:12], [3.0] * 10 + [0.0] * 20, [-1.0] * 30, JUNE]
)
def test_falls_that_are_usual_or_not_of_positive_values_are_kept(values: list[float]) -> None:
    assert not any(is_incomplete(np.array(values), season) for season in (1, MONTHS))


def test_a_random_walk_ends_where_it_ends() -> None:
    steps = np.random.default_rng(0).standard_normal((500, 60))
    assert not any(is_incomplete(np.exp(0.3 * walk.cumsum()), 1) for walk in steps)


def test_what_takes_its_place_is_as_usual_on_that_day() -> None:
    """Quiet Sundays, and a last day, a Tuesday, that was counted too early."""
    days = pd.date_range("2024-01-01", periods=401, freq="D")  # until a Tuesday
    values = np.where(days.dayofweek == 6, 60.0, 100.0)
    values[-1] = 5.0
    with pytest.warns(InputWarning, match="not over"):
        forecast = Forecaster(6, models="local", progress=False).fit(pd.DataFrame({"ds": days, "y": values})).predict()
    np.testing.assert_allclose(forecast["yhat"], [100, 100, 100, 100, 60, 100], rtol=0.1)


def test_evaluation_leaves_it_out() -> None:
    forecaster, part = Forecaster(6, progress=False), table(0.1)
    with pytest.warns(InputWarning, match="not over"):
        scores = evaluate([forecaster], forecaster.read(part), 12, None).scores
    assert scores[0].mse < 1


def table(last: float) -> pd.DataFrame:
    parts = [
        pd.DataFrame(
            {"unique_id": name, "ds": pd.date_range("2020-01-01", periods=72, freq="MS"), "y": sales(seed, own)}
        )
        for seed, (name, own) in enumerate([("a", last), ("b", 1.0)])
    ]
    return pd.concat(parts)


def test_an_incomplete_month_counts_as_missing() -> None:
    forecaster = Forecaster(6, progress=False)
    with pytest.warns(InputWarning, match="'a' ends with a value .* not over"):
        forecast = forecaster.fit(table(0.1)).predict().set_index("unique_id")["yhat"]
    assert forecast["a"].to_numpy() == pytest.approx(sales(0)[:6], rel=0.3)
    with pytest.warns(InputWarning, match="not over"):
        newer = forecaster.predict(table(0.1)).set_index("unique_id")["yhat"]
    pd.testing.assert_series_equal(newer, forecast)
    kept = Forecaster(6, missing="error", progress=False).fit(table(0.1)).predict().set_index("unique_id")["yhat"]
    assert (kept["a"] < 0.95 * forecast["a"]).all()

"""Last values of periods that were not over."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from parallelrnn import Forecaster
from parallelrnn.errors import InputWarning
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
    assert not any(is_incomplete(sales(seed), MONTHS) for seed in range(200))


@pytest.mark.parametrize("values", [[5.0, 0.5] * 20, [*range(20, 1, -1), 0.01][:12], [3.0] * 30 + [0.0], [-1.0] * 30])
def test_falls_that_are_usual_or_not_of_positive_values_are_kept(values: list[float]) -> None:
    assert not is_incomplete(np.array(values), 1)


def test_a_random_walk_ends_where_it_ends() -> None:
    steps = np.random.default_rng(0).standard_normal((500, 60))
    assert not any(is_incomplete(np.exp(0.3 * walk.cumsum()), 1) for walk in steps)


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

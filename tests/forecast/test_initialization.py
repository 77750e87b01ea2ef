from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from parallelrnn import Forecaster
from parallelrnn.forecast.initialization import strongest_periods

TIME = np.arange(2000)


def waves(*periods: float, sizes: tuple[float, ...] = ()) -> np.ndarray:
    sizes = sizes or (1.0,) * len(periods)
    parts = [size * np.sin(2 * np.pi * TIME / period) for period, size in zip(periods, sizes, strict=True)]
    return np.sum(parts, axis=0)[:, None]


def near(*periods: float) -> Any:
    """As frequencies, to half of the 2048th part of a turn that the spectrum has between its lines."""
    return pytest.approx([1 / period for period in periods], abs=0.51 / 2048)


def frequencies(series: list[np.ndarray], most: int, apart: float = 1e-4, longest: float = 1000.0) -> list[float]:
    return [1 / period for period in strongest_periods(series, most, apart, longest)]


def test_the_strongest_come_first_and_no_more_than_wanted() -> None:
    series = waves(24.0, 168.0, 7.5, sizes=(1.0, 2.0, 0.5))
    assert frequencies([series], 2) == near(168, 24)
    assert frequencies([series], 3) == near(168, 24, 7.5)


def test_indistinguishable_lines_start_as_one_wave() -> None:
    series = waves(20.0, 23.0)  # frequencies 0.0065 apart
    assert sorted(frequencies([series], 2, apart=0.004)) == near(23, 20)
    far = frequencies([series], 2, apart=0.009)
    assert len([frequency for frequency in far if 1 / 30 < frequency < 1 / 15]) == 1


def test_waves_that_are_too_long_are_left_out() -> None:
    series = waves(400.0, 30.0, sizes=(5.0, 1.0))
    assert frequencies([series], 1) == near(400)
    assert frequencies([series], 1, longest=100) == near(30)


def test_a_trend_is_no_wave_and_all_series_count() -> None:
    assert frequencies([waves(30.0) + 0.1 * TIME[:, None]], 1) == near(30)
    assert frequencies([waves(30.0), np.hstack([waves(12.0), waves(12.0)])], 2) == near(12, 30)


@pytest.mark.parametrize(("hidden_size", "ungated"), [(2, 0), (6, 2), (8, 4)])
def test_a_gate_cuts_no_wave_in_two(hidden_size: int, ungated: int) -> None:
    options: dict[str, Any] = {"lookback": 24, "gate": True, "models": "network", "max_epochs": 1, "progress": False}
    forecaster = Forecaster(6, hidden_size=hidden_size, **options)
    forecaster.fit(pd.DataFrame({"ds": range(200), "y": waves(24.0)[:200, 0]}))
    assert forecaster._state is not None
    assert forecaster._state.network.config.ungated == ungated

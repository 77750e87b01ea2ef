"""Errors that have grown are noticed, and intervals follow them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from parallelrnn import Forecaster
from parallelrnn.errors import InputWarning
from parallelrnn.forecast.change import adapted_quantiles, find_change

HORIZON = 8


def consecutive(errors: np.ndarray) -> Tensor:
    """The residuals (N, H, 1) of forecasts that miss each step by the same error, whenever they were made."""
    windows = np.lib.stride_tricks.sliding_window_view(errors, HORIZON)
    return torch.from_numpy(windows.copy())[..., None]


def errors_of(seed: int, count: int = 200) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(count)


def test_steady_errors_show_no_change() -> None:
    found = [bool(find_change(consecutive(errors_of(seed)))) for seed in range(40)]
    assert sum(found) <= 2  # at a rate of one in a hundred, three or more come in one of 130 tests


@pytest.mark.parametrize("since", [30, 60])
def test_errors_that_grow_are_dated(since: int) -> None:
    dated = []
    for seed in range(11):
        errors = errors_of(seed)
        errors[-since:] *= 3
        dated.append(find_change(consecutive(errors)))
    assert all(dated)
    assert np.median(dated) == pytest.approx(since, rel=0.2)


def test_a_small_bias_that_lasts_is_noticed() -> None:
    """Errors that are hardly larger than before, but all to one side."""
    dated = []
    for seed in range(11):
        errors = errors_of(seed)
        errors[-40:] += 1.2
        dated.append(find_change(consecutive(errors)))
    assert np.median(dated) == pytest.approx(40, rel=0.1)


def test_a_bias_that_grows_is_dated_at_its_beginning() -> None:
    dated = []
    for seed in range(11):
        errors = errors_of(seed)
        errors[-60:] += 0.1 * np.arange(60)
        dated.append(find_change(consecutive(errors)))
    assert np.median(dated) == pytest.approx(60, rel=0.2)


def test_errors_that_shrink_change_nothing() -> None:
    errors = errors_of(2)
    errors[-60:] /= 3
    assert find_change(consecutive(errors)) == 0


def test_too_few_errors_show_nothing() -> None:
    assert find_change(consecutive(errors_of(3, 20))) == 0
    assert find_change(torch.full((30, HORIZON, 1), torch.nan)) == 0


def test_limits_after_a_change_hold_as_many_errors_as_they_say() -> None:
    inside = []
    for seed in range(30):
        errors = errors_of(seed, 200 + HORIZON)
        errors[140:] *= 3
        width = adapted_quantiles(consecutive(errors[:200]), 60, torch.tensor([0.8]))[0][0, :, 0].numpy()
        inside.append((abs(errors[200:]) <= width).mean())
    assert 0.72 < np.mean(inside) < 0.92  # of 240 errors; the deviation is below 0.03


def test_a_bias_that_grows_is_continued() -> None:
    errors = errors_of(4, 200)
    errors[150:] += 0.2 * np.arange(50)
    width = adapted_quantiles(consecutive(errors), 50, torch.tensor([0.8]))[0][0, :, 0].numpy()
    expected = 0.2 * np.arange(50, 50 + HORIZON)  # the bias to come
    assert (width > expected).all()
    assert (width < expected + 4).all()


@pytest.fixture(scope="module")
def broken() -> pd.DataFrame:
    stamps = pd.date_range("2024-01-01", periods=500, freq="D")
    values = np.sin(np.arange(500) * 2 * np.pi / 12) + 0.3 * errors_of(5, 500)
    values[-45:] += 0.1 * np.arange(45)
    return pd.DataFrame({"ds": stamps, "y": values})


def test_a_break_is_told_on_the_page_and_in_the_summary(broken: pd.DataFrame, tmp_path: Path) -> None:
    forecaster = Forecaster(12, 48, max_epochs=2, progress=False)
    with pytest.warns(InputWarning, match="Something may have changed: .*since 2025-0[345]"):
        forecaster.fit(broken)
    assert "Something may have changed" in " ".join(forecaster.explain().summary().split())
    assert "Something may have changed" in forecaster.report(tmp_path / "page.html").read_text()
    forecaster.save(tmp_path / "model")
    loaded = Forecaster.load(tmp_path / "model")
    assert loaded.explain().notices == forecaster.explain().notices
    pd.testing.assert_frame_equal(loaded.predict(level=[80]), forecaster.predict(level=[80]))
    with pytest.warns(InputWarning, match="Something may have changed"):
        loaded.predict(broken, level=[80])

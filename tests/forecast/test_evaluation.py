from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from utilsforecast.losses import mae, mse

from parallelrnn.errors import ArgumentError, InputWarning, TableError
from parallelrnn.forecast.evaluation import evaluate, known_residuals
from tests.support import raises, warns
from tests.training.samples import hourly, quick

TEST = 40


@pytest.fixture(scope="module")
def df() -> pd.DataFrame:
    """At a scale of one in what is trained on, so that errors need not be scaled."""
    table = hourly(500)
    known = table.groupby("unique_id").head(500 - TEST - 80)
    scale = known.groupby("unique_id")["y"].std(ddof=0)
    return table.assign(y=table["y"] / table["unique_id"].map(scale))


def test_scores_are_those_of_another_library_over_all_windows(df: pd.DataFrame) -> None:
    forecaster = quick()
    evaluation = evaluate([forecaster], forecaster.read(df), TEST, 80)
    windows = TEST - 12 + 1
    frame = forecaster.cross_validation(df, n_windows=windows, step_size=1, val_size=80)
    assert evaluation.windows == 2 * windows
    for name, score in (("mse", mse), ("mae", mae)):
        expected = score(frame, models=["yhat"])["yhat"].mean()
        assert getattr(evaluation.scores[0], name) == pytest.approx(expected, rel=1e-4)


def errors_of_season(df: pd.DataFrame, season: int, first: int, last: int) -> float:
    """The mean error of repeating the last so many steps, over all windows that lie in some rows."""
    errors: list[float] = []
    for _, series in df.groupby("unique_id"):
        values = series["y"].to_numpy()
        for origin in range(first, last - 12 + 1):
            repeated = values[origin - season + np.arange(12) % season]
            errors += abs(values[origin : origin + 12] - repeated).tolist()
    return float(np.mean(errors))


def test_the_naive_rows_are_what_they_say(df: pd.DataFrame) -> None:
    forecaster = quick()
    scores = {score.name: score for score in evaluate([forecaster], forecaster.read(df), TEST, 80).scores}
    seasons = {24: "24 h", 168: "7 d"}
    best = min(seasons, key=lambda season: errors_of_season(df, season, 500 - TEST - 80, 500 - TEST))
    naive, seasonal = scores["naive: the last value"], scores[f"seasonal naive: the last {seasons[best]}"]
    assert naive.mae == pytest.approx(errors_of_season(df, 1, 500 - TEST, 500), rel=1e-4)
    assert seasonal.mae == pytest.approx(errors_of_season(df, best, 500 - TEST, 500), rel=1e-4)
    assert scores["linear (NLinear)"].mae < naive.mae


def test_coverage_is_measured_at_every_level(df: pd.DataFrame) -> None:
    forecaster = quick()
    evaluation = evaluate([forecaster], forecaster.read(df), TEST, 80, levels=(50, 90))
    coverage = evaluation.scores[0].coverage
    assert 0.3 < coverage["50"] < coverage["90"] <= 1
    text = str(evaluation.display().text())
    assert "in 90 %" in text
    assert "none of them seen in training" in text
    assert evaluation.to_json()["scores"][0]["coverage"] == coverage


def test_a_test_part_that_leaves_nothing_is_rejected(df: pd.DataFrame) -> None:
    forecaster = quick()
    with raises(ArgumentError, argument="test_size", got=5):
        evaluate([forecaster], forecaster.read(df), 5, None)
    with raises(TableError, "495 steps", "500", "test_size="):
        evaluate([forecaster], forecaster.read(df), 495, None)


def test_intervals_are_calibrated_on_earlier_values() -> None:
    """The last of five forecasts, made one step before, is known in its first step; the one before it in two."""
    known = ~known_residuals(torch.zeros(5, 4, 1)).isnan()[..., 0]
    assert known.tolist() == [[ahead <= 5 - row for ahead in range(1, 5)] for row in range(5)]


def test_series_too_short_for_the_test_are_left_out_with_a_warning() -> None:
    table = pd.concat([hourly(200), hourly(30, ids=("short",))])
    panel = quick().read(table)
    with warns(InputWarning, "1 series", "52 steps", "'short'", " 30"):
        evaluation = evaluate([quick(max_epochs=1)], panel, 40, None)
    assert evaluation.series == 2


def test_levels_without_a_measured_coverage_are_named() -> None:
    evaluation = evaluate([quick(max_epochs=1)], quick().read(hourly(130)), 24, None, (80,))
    assert evaluation.unjudged == (80,)
    assert "Coverage of 80 % intervals was not measured" in " ".join(str(evaluation.display().text()).split())

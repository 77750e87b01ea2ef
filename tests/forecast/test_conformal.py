from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from parallelrnn import Forecaster
from parallelrnn.forecast.conformal import Calibration, middle_of


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**31), count=st.integers(20, 400), level=st.sampled_from([50, 80, 90, 95]))
def test_half_widths_are_conformal_quantiles(seed: int, count: int, level: int) -> None:
    errors = torch.randn(count, 9, 2, generator=torch.Generator().manual_seed(seed))
    width = Calibration.of([errors]).half_width(level)[0].numpy()
    ordered = np.sort(abs(errors.numpy()), axis=0)
    for step in range(9):
        distinct = min(count, 5 * count / (step + 1))  # up to five steps ahead, the definition of split conformal
        rank = min(count, math.ceil(count * level / 100 * (distinct + 1) / distinct - 1e-9))
        # Quantiles are kept at 200 levels, and the next one up is taken: never below, no further than that above.
        above = min(count, math.ceil(rank + count / 200 + 1e-9))
        assert (width[step] >= ordered[rank - 1, step] - 1e-6).all()
        if distinct >= level / (100 - level):  # else the largest is not enough
            assert (width[step] <= ordered[above - 1, step] + 1e-6).all()


def test_intervals_hold_what_they_promise_where_errors_go_on_as_they_were() -> None:
    generator = torch.Generator().manual_seed(0)
    held = []
    for _ in range(300):
        errors = torch.randn(101, 4, 1, generator=generator)
        width = Calibration.of([errors[:-1]]).half_width(80)[0]
        held.append(float((errors[-1].abs() <= width).float().mean()))
    # 1200 values of 80 % or a little more, those of one draw dependent through its quantiles: a standard error of 1 %.
    assert 0.78 < np.mean(held) < 0.84


def test_what_was_not_observed_is_left_out() -> None:
    errors = torch.randn(100, 2, 1, generator=torch.Generator().manual_seed(0))
    holes = torch.cat([errors, torch.full((50, 2, 1), math.nan)])[torch.randperm(150)]
    torch.testing.assert_close(Calibration.of([holes]).table, Calibration.of([errors]).table)


def test_series_are_kept_apart() -> None:
    errors = torch.randn(100, 2, 1, generator=torch.Generator().manual_seed(0))
    both = Calibration.of([errors, 10 * errors])
    torch.testing.assert_close(both.half_width(80)[1], 10 * both.half_width(80)[0])
    torch.testing.assert_close(both.rows([1]).half_width(80)[0], both.half_width(80)[1])


def test_errors_too_few_for_a_level_are_taken_to_be_normal() -> None:
    """Of a hundred thousand series with six errors each, as many hold the seventh as Student's t says."""
    errors = torch.randn(7, 1, 100_000, generator=torch.Generator().manual_seed(0))
    few = Calibration.of([errors[:6]])
    with pytest.warns(UserWarning, match="intervals of 90 % take 9 forecasts to compare with .* a series has 6"):
        width = few.half_width(90)[0]
    normal = stats.t.ppf(0.95, 6) * errors[:6].square().mean(0).sqrt()
    # Quantiles are kept at 200 levels, of which an error that should have 33.3 has 33 or 34.
    torch.testing.assert_close(width, torch.maximum(normal, errors[:6].abs().amax(0)), rtol=0.011, atol=0)
    assert 0.9 < float((errors[6].abs() <= width).float().mean()) < 0.94  # the largest error adds to it


def test_errors_that_overlap_are_worth_fewer() -> None:
    """Of 20 forecasts 24 steps ahead, at most some four have nothing in common: the largest error is not enough."""
    steps = torch.randn(20 + 24, generator=torch.Generator().manual_seed(0)).cumsum(0)
    errors = torch.stack([steps[at : at + 24] - steps[at] for at in range(20)])[..., None]
    width = Calibration.of([errors]).half_width(95)[0, :, 0]
    distinct = 5 * 20 / torch.arange(1, 25)
    normal = torch.from_numpy(stats.t.ppf(0.975, distinct)) * errors[..., 0].double().square().mean(0).sqrt()
    largest = errors[..., 0].abs().amax(0)
    torch.testing.assert_close(width[6:], torch.maximum(normal.float(), largest)[6:])
    torch.testing.assert_close(width[:5], largest[:5])  # here 20 are 20
    assert width[-1] > 1.2 * largest[-1]


def test_few_errors_of_one_series_change_nothing_for_others() -> None:
    errors = torch.randn(19, 2, 1, generator=torch.Generator().manual_seed(0))
    with pytest.warns(UserWarning, match="a series has 18"):
        both = Calibration.of([errors, errors[:18]]).half_width(95)
    torch.testing.assert_close(both[0], Calibration.of([errors]).half_width(95)[0])


def test_without_errors_there_is_no_interval() -> None:
    with pytest.raises(ValueError, match="no forecast of a series could be compared with what came"):
        Calibration.of([torch.zeros(0, 2, 1)]).half_width(80)


def test_the_forecast_is_the_median() -> None:
    assert middle_of(None) == 0
    assert middle_of((0.1, 0.5, 0.9)) == 1
    assert middle_of(Forecaster(3, quantiles=[0.9, 0.1]).quantiles) == 1

from __future__ import annotations

import numpy as np
import torch

from parallelrnn.forecast.panel import Series
from parallelrnn.forecast.seasonality import Cycle
from parallelrnn.forecast.windows import CovariateScale, Profile, Sequences

LOOKBACK, HORIZON = 5, 3


def series(length: int, position: int = 0, seed: int = 0) -> Series:
    random = np.random.default_rng(seed)
    observed = random.random((length, 2)) < 0.8
    tables = [random.standard_normal((length, columns)) for columns in (2, 1, 2)]
    return Series(f"s{seed}", position, tables[0], observed, tables[1], tables[2], random.standard_normal(1))


def profile(seed: int = 0) -> Profile:
    random = np.random.default_rng(seed)
    cycle = Cycle(7.0, random.standard_normal((2, 2)), random.standard_normal((2, 2)))
    return Profile(random.standard_normal(2), 1 + random.random(2), (cycle,), np.zeros(2))


def test_windows_are_slices_of_the_series_at_one_scale() -> None:
    panel, profiles = [series(20, 3, 0), series(11, -4, 1)], [profile(0), profile(1)]
    scale = CovariateScale.of(panel, [15, 8])
    sequences = Sequences(panel, profiles, scale, LOOKBACK, HORIZON)
    windows = sequences.origins([5, 6], [18, 9])
    assert windows.tolist() == [[0, o] for o in range(5, 18)] + [[1, o] for o in range(6, 9)]
    batch = sequences.batch(windows)
    assert batch.valid is None
    for row, (index, origin) in enumerate(windows.tolist()):
        one, known = panel[index], profiles[index]
        cycle = known.cycles[0].at(np.arange(one.position, one.end))
        scaled = (one.values - cycle - known.mean) / known.scale
        before, after = slice(origin - LOOKBACK, origin), slice(origin, origin + HORIZON)
        np.testing.assert_allclose(batch.past[row], scaled[before], atol=1e-5)
        np.testing.assert_allclose(batch.target[row], scaled[after], atol=1e-5)
        fair = one.observed[origin - 1].all()
        np.testing.assert_array_equal(batch.weight[row], one.observed[after] & fair)
        past = (one.past - scale.past_mean) / scale.past_scale
        future = (one.future - scale.known_mean) / scale.known_scale
        np.testing.assert_allclose(batch.covariates[row], past[before], atol=1e-5)
        np.testing.assert_allclose(batch.known[row], future[origin - LOOKBACK : origin + HORIZON], atol=1e-5)
        np.testing.assert_allclose(batch.static[row], (one.static - scale.static_mean) / scale.static_scale, atol=1e-5)


def test_a_window_may_begin_before_its_series_and_end_after_it() -> None:
    panel = [series(20, seed=0), series(4, seed=1)]
    profiles = [profile(0), profile(1)]
    ahead = [np.full((HORIZON, 2), 9.0), np.full((HORIZON, 2), 8.0)]
    scale = CovariateScale.of(panel, [20, 4])
    batch = Sequences(panel, profiles, scale, LOOKBACK, HORIZON, ahead).batch(torch.tensor([[1, 4], [0, 20]]))
    assert batch.valid is not None
    assert batch.valid.tolist() == [[False, True, True, True, True], [True] * 5]
    np.testing.assert_allclose(batch.past[0, 1:], profiles[1].to_scale(panel[1]), atol=1e-5)
    np.testing.assert_allclose(batch.known[0, LOOKBACK:], scale.known(ahead[1]), atol=1e-5)
    np.testing.assert_allclose(batch.known[1, LOOKBACK:], scale.known(ahead[0]), atol=1e-5)
    assert not batch.weight.any()


def test_profiles_come_from_what_training_sees() -> None:
    one = series(40)
    one.values[30:] = 1e6
    found = Profile.of(one, 30, [])
    seen = np.where(one.observed[:30], one.values[:30], np.nan)
    np.testing.assert_allclose(found.mean, np.nanmean(seen, axis=0))
    np.testing.assert_allclose(found.scale, np.nanstd(seen, axis=0))


def test_a_constant_series_has_a_scale_of_one() -> None:
    one = series(30)
    one.values[:, 0] = 7.0
    assert Profile.of(one, 30, []).scale[0] == 1.0

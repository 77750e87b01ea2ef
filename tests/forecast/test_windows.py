from __future__ import annotations

import numpy as np
import torch

from parallelrnn.errors import InputWarning
from parallelrnn.forecast.data import Series
from parallelrnn.forecast.fitting import split_windows
from parallelrnn.forecast.windows import CovariateScaler, Cycle, SeriesScaler, WindowDataset
from tests.forecast.small import make_dataset, make_series
from tests.support import warns

LOOKBACK, HORIZON = 5, 3


def series(length: int, position: int = 0, seed: int = 0) -> Series:
    random = np.random.default_rng(seed)
    observed = random.random((length, 2)) < 0.8
    values, past, future = (random.standard_normal((length, columns)) for columns in (2, 1, 2))
    static = random.standard_normal(1)
    return make_series(values, f"s{seed}", position, observed=observed, past=past, future=future, static=static)


def scaler(seed: int = 0) -> SeriesScaler:
    random = np.random.default_rng(seed)
    cycle = Cycle(7.0, random.standard_normal((2, 2)), random.standard_normal((2, 2)))
    return SeriesScaler(random.standard_normal(2), 1 + random.random(2), (cycle,), np.zeros(2), np.zeros(2))


def test_windows_are_slices_of_the_series_at_one_scale() -> None:
    panel, scalers = [series(20, 3, 0), series(11, -4, 1)], [scaler(0), scaler(1)]
    covariates = CovariateScaler.fit(panel, [15, 8])
    dataset = WindowDataset(panel, scalers, covariates, LOOKBACK, HORIZON)
    windows = dataset.windows([5, 6], [18, 9])
    assert windows.tolist() == [[0, o] for o in range(5, 18)] + [[1, o] for o in range(6, 9)]
    assert dataset.origins(windows).tolist() == [[0, o + 3] for o in range(5, 18)] + [[1, o - 4] for o in range(6, 9)]
    assert dataset.last.tolist() == [[0, 20], [1, 11]]
    batch = dataset.batch(windows)
    assert batch.valid is None
    for row, (index, origin) in enumerate(windows.tolist()):
        item, known = panel[index], scalers[index]
        cycle = known.cycles[0].at(np.arange(item.position, item.end))
        scaled = (item.values - cycle - known.mean) / known.scale
        before, after = slice(origin - LOOKBACK, origin), slice(origin, origin + HORIZON)
        np.testing.assert_allclose(batch.past[row], scaled[before], atol=1e-5)
        np.testing.assert_allclose(batch.target[row], scaled[after], atol=1e-5)
        fair = item.observed[origin - 1].all()
        np.testing.assert_array_equal(batch.weight[row], item.observed[after] & fair)
        past = (item.past - covariates.past[0]) / covariates.past[1]
        future = (item.future - covariates.future[0]) / covariates.future[1]
        static = (item.static - covariates.static[0]) / covariates.static[1]
        np.testing.assert_allclose(batch.past_exog[row], past[before], atol=1e-5)
        np.testing.assert_allclose(batch.future_exog[row], future[origin - LOOKBACK : origin + HORIZON], atol=1e-5)
        np.testing.assert_allclose(batch.static[row], static, atol=1e-5)


def test_a_window_may_begin_before_its_series_and_end_after_it() -> None:
    panel, scalers = [series(20, seed=0), series(4, seed=1)], [scaler(0), scaler(1)]
    future = [np.full((HORIZON, 2), 9.0), np.full((HORIZON, 2), 8.0)]
    covariates = CovariateScaler.fit(panel, [20, 4])
    dataset = WindowDataset(panel, scalers, covariates, LOOKBACK, HORIZON, future)
    batch = dataset.batch(torch.tensor([[1, 4], [0, 20]]))
    assert batch.valid is not None
    assert batch.valid.tolist() == [[False, True, True, True, True], [True] * 5]
    np.testing.assert_allclose(batch.past[0, 1:], scalers[1].transform(panel[1]), atol=1e-5)
    for row, index in ((0, 1), (1, 0)):
        scaled = covariates.transform("future", future[index])
        np.testing.assert_allclose(batch.future_exog[row, LOOKBACK:], scaled, atol=1e-5)
    assert not batch.weight.any()


def test_a_window_after_the_end_does_not_reach_the_next_series() -> None:
    """Even if the horizon is longer than the look-back."""
    dataset = make_dataset(3, 8, make_series(np.zeros(20), "a"), make_series(np.full(20, 777.0), "b"))
    batch = dataset.batch(torch.tensor([[0, 19], [0, 20], [1, 20]]))
    assert batch.weight[:, :, 0].tolist() == [[1.0] + [0.0] * 7, [0.0] * 8, [0.0] * 8]
    assert (batch.target == 0).all()


def test_scalers_come_from_the_training_part() -> None:
    data = series(40)
    data.values[30:] = 1e6
    fitted = SeriesScaler.fit(data, 30)
    seen = np.where(data.observed[:30], data.values[:30], np.nan)
    np.testing.assert_allclose(fitted.mean, np.nanmean(seen, axis=0))
    np.testing.assert_allclose(fitted.scale, np.nanstd(seen, axis=0))


def test_a_constant_series_has_a_scale_of_one() -> None:
    data = series(30)
    data.values[:, 0] = 7.0
    assert SeriesScaler.fit(data, 30).scale[0] == 1.0


def test_training_and_validation_do_not_overlap() -> None:
    dataset = make_dataset(10, 4, make_series(np.arange(40)), make_series(np.arange(30)))
    split = split_windows(dataset, [28, 22])
    training, validation = dataset.batch(split.training), dataset.batch(split.validation)
    for index, (seen, length) in enumerate([(28, 40), (22, 30)]):
        own = split.training[:, 0] == index
        # All full windows up to the last step that training sees, and none that reaches beyond it.
        assert split.training[own, 1].tolist() == list(range(10, seen - 4 + 1))
        assert training.target[own].max() == seen - 1
        own = split.validation[:, 0] == index
        assert split.validation[own, 1].tolist() == list(range(seen, length - 4 + 1))
        assert validation.target[own].min() == seen
        assert validation.target[own].max() == length - 1
    assert split.first == [28, 22]


def test_a_short_series_begins_within_its_windows() -> None:
    split = split_windows(make_dataset(10, 4, make_series(np.arange(40)), make_series(np.arange(9))), [28, 9])
    short = split.training[split.training[:, 0] == 1]
    assert short[:, 1].tolist() == [2, 3, 4, 5]
    assert not (split.validation[:, 0] == 1).any()


def test_without_a_validation_part_training_windows_validate() -> None:
    with warns(InputWarning, "calibrated"):
        split = split_windows(make_dataset(10, 4, make_series(np.arange(20))), [20])
    assert torch.equal(split.training, split.validation)


def test_mean_changes_are_those_of_each_series_before_an_end() -> None:
    random = np.random.default_rng(0)
    values = [random.standard_normal((n, 1)) for n in (9, 1, 30)]
    dataset = make_dataset(
        LOOKBACK, HORIZON, *(make_series(own, name) for own, name in zip(values, "abc", strict=True))
    )
    ends = [9, 1, 12]
    wanted = [abs(np.diff(own[:end, 0])).mean() if end > 1 else np.nan for own, end in zip(values, ends, strict=True)]
    np.testing.assert_allclose(dataset.mean_changes(ends)[:, 0], wanted, rtol=1e-6)

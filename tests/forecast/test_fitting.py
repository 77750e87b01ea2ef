from __future__ import annotations

import numpy as np
import pytest
import torch

from parallelrnn.forecast.fitting import split_windows
from parallelrnn.forecast.inference import errors_of_windows, forecast_windows
from parallelrnn.forecast.panel import Series
from parallelrnn.forecast.windows import Batch, CovariateScale, Profile, Sequences

LOOKBACK, HORIZON = 10, 4


def sequences_of(*lengths: int) -> tuple[list[Series], Sequences]:
    series = []
    for index, length in enumerate(lengths):
        values, none = np.arange(length, dtype=float)[:, None], np.zeros((length, 0))
        series.append(Series(f"s{index}", 0, values, np.ones((length, 1), bool), none, none, np.zeros(0)))
    profiles = [Profile(np.zeros(1), np.ones(1), (), np.zeros(1))] * len(series)
    return series, Sequences(series, profiles, CovariateScale.of(series, lengths), LOOKBACK, HORIZON)


def test_training_sees_nothing_of_what_validates_it() -> None:
    series, sequences = sequences_of(40, 30)
    split = split_windows(series, sequences, [28, 22])
    training, validation = sequences.batch(split.training), sequences.batch(split.validation)
    for index, (seen, length) in enumerate([(28, 40), (22, 30)]):
        of = split.training[:, 0] == index
        # All whole windows up to the last step that training sees, and none that reaches beyond it.
        assert split.training[of, 1].tolist() == list(range(LOOKBACK, seen - HORIZON + 1))
        assert training.target[of].max() == seen - 1
        of = split.validation[:, 0] == index
        assert split.validation[of, 1].tolist() == list(range(seen, length - HORIZON + 1))
        assert validation.target[of].min() == seen
        assert validation.target[of].max() == length - 1
    assert split.first == [28, 22]


def test_a_short_series_begins_within_its_windows() -> None:
    series, sequences = sequences_of(40, 9)
    split = split_windows(series, sequences, [28, 9])
    short = split.training[split.training[:, 0] == 1]
    assert short[:, 1].tolist() == [2, 3, 4, 5]
    assert not (split.validation[:, 0] == 1).any()


def test_without_validation_what_was_trained_on_has_to_do() -> None:
    series, sequences = sequences_of(20)
    with pytest.warns(UserWarning, match="no series has a part that can be kept for validation"):
        split = split_windows(series, sequences, [20])
    assert torch.equal(split.training, split.validation)


class Crossing(torch.nn.Module):
    """Quantiles in no order: two above the last value, two below it, and that value."""

    def forward(self, batch: Batch) -> torch.Tensor:
        last = batch.past[:, -1:].expand_as(batch.target)
        return torch.stack([last + 2, last - 2, last], -1)


def test_quantiles_that_cross_are_put_in_order() -> None:
    _, sequences = sequences_of(40)
    windows = torch.tensor([[0, 20], [0, 30]])
    last = torch.tensor([19.0, 29.0])[:, None, None].expand(2, HORIZON, 1)
    ahead = torch.arange(1.0, HORIZON + 1)[None, :, None].expand(2, -1, -1)
    # As they are +2, -2 and 0; the middle one stays, and the others give way.
    for middle, expected in ((0, [2, 2, 2]), (1, [-2, -2, 0]), (2, [-2, -2, 0])):
        forecast = forecast_windows(Crossing(), sequences, windows, middle)
        torch.testing.assert_close(forecast, last[..., None] + torch.tensor(expected))
        errors = errors_of_windows(Crossing(), sequences, windows, middle)
        torch.testing.assert_close(errors, ahead - expected[middle])


def test_errors_are_nan_where_nothing_came() -> None:
    _, sequences = sequences_of(40)
    errors = errors_of_windows(Crossing(), sequences, torch.tensor([[0, 38]]), 1)
    assert errors[0, :2, 0].tolist() == [3.0, 4.0]
    assert errors[0, 2:].isnan().all()
    assert errors_of_windows(Crossing(), sequences, torch.zeros(0, 2, dtype=torch.long), 1).shape == (0, HORIZON, 1)


def test_what_comes_after_the_end_of_a_series_is_not_the_next_one() -> None:
    """A horizon longer than the look-back, too, reaches into nothing."""
    none = np.zeros((20, 0))
    both = [
        Series(name, 0, np.full((20, 1), value), np.ones((20, 1), bool), none, none, np.zeros(0))
        for name, value in (("a", 0.0), ("b", 777.0))
    ]
    sequences = Sequences(
        both, [Profile(np.zeros(1), np.ones(1), (), np.zeros(1))] * 2, CovariateScale.of(both, [20, 20]), 3, 8
    )
    batch = sequences.batch(torch.tensor([[0, 19], [0, 20], [1, 20]]))
    assert batch.weight[:, :, 0].tolist() == [[1.0] + [0.0] * 7, [0.0] * 8, [0.0] * 8]
    assert (batch.target == 0).all()

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from parallelrnn import FeatureTracker, ParaRNN, recurrence_features
from parallelrnn.errors import ArgumentError
from parallelrnn.nn import initialize, recurrent_blocks
from tests.support import raises


def test_features_are_followed_through_training() -> None:
    """A layer of R-4 and C-2 features, trained a little, has R-1 and C-1 features alone (Figure A.2)."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1, 3), nn.RNN(3, 16))
    initialize.mixed_order_(model[1])
    tracker = FeatureTracker(model, percentiles=(10, 50, 90))
    tracker.record(loss=torch.tensor(2.0))
    assert set(tracker.history[0].counts) == {"R-4", "C-2"}
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(3):
        loss = model(torch.randn(10, 4, 1))[0].square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tracker.record(loss=loss.item())
    last = tracker.history[-1]
    assert set(last.counts) <= {"R-1", "C-1"}
    features = recurrence_features(model)
    assert last.counts == features.counts()
    np.testing.assert_allclose(last.modulus, np.percentile([f.modulus for f in features], [10, 50, 90]))
    np.testing.assert_allclose(last.angle, np.percentile([f.angle for f in features], [10, 50, 90]))
    frame = tracker.to_frame()
    assert list(frame["step"]) == [0, 1, 2, 3]
    assert frame.loc[0, "loss"] == 2
    assert frame.loc[0, "R-1"] == 0
    assert frame.loc[3, "C-1"] == last.counts["C-1"]
    assert frame.loc[2, "modulus 50%"] == tracker.history[2].modulus[1]
    assert "distance" not in frame


def test_the_distance_to_the_truth() -> None:
    model = ParaRNN(1, 4)
    truth = [block.matrix.detach().clone() for block in recurrent_blocks(model)]
    tracker = FeatureTracker(model, truth)
    assert tracker.record().distance == 0
    with torch.no_grad():
        model.weight_hh_l0[0, 0] += 3
        model.weight_hh_l0[3, 1] += 4
    assert tracker.record(step=10).distance == pytest.approx(5, rel=1e-6)
    assert tracker.to_frame()["distance"].tolist() == [0, pytest.approx(5, rel=1e-6)]


def test_rejected_arguments() -> None:
    with raises(ArgumentError, argument="truth", got=[(2, 2)]):
        FeatureTracker(ParaRNN(1, 4), [np.eye(2)])
    with pytest.raises(TypeError):
        FeatureTracker(nn.Linear(1, 1))
    tracker = FeatureTracker(ParaRNN(1, 4))
    tracker.record(step=3)
    with raises(ArgumentError, argument="step", got=3):
        tracker.record(step=3)
    assert len(tracker.history) == 1

from __future__ import annotations

import sys
from collections.abc import Iterator

import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt
from torch import nn

from parallelrnn import (
    FeatureTracker,
    ParaGRU,
    ParaLSTM,
    ParaRNN,
    contributions,
    forecast_modes,
    impulse_response,
    recurrence_features,
)
from parallelrnn.errors import ArgumentError, InputError, MissingPackageError
from parallelrnn.interpret import plots
from tests.support import raises


@pytest.fixture(autouse=True)
def _no_window() -> Iterator[None]:
    mpl.use("Agg")
    yield
    plt.close("all")


def layer() -> ParaRNN:
    torch.manual_seed(0)
    return ParaRNN(1, 8, aggregate=nn.Linear(8, 1), dtype=torch.float64).double()


def data() -> torch.Tensor:
    return torch.randn(60, 2, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_the_disk_has_every_eigenvalue_its_area_by_share() -> None:
    features = recurrence_features(layer(), data(), freq="h")
    ax = features.plot()
    waves, decays = (drawn for drawn in ax.collections if len(drawn.get_offsets()))  # the others are the legend's
    assert len(waves.get_offsets()) == 2 * sum(f.kind == "C" for f in features)
    assert len(decays.get_offsets()) == sum(f.kind == "R" for f in features)
    drawn = {
        (round(x, 9), round(y, 9)): area
        for c in (waves, decays)
        for (x, y), area in zip(c.get_offsets(), c.get_sizes(), strict=True)
    }
    by_share = sorted(features, key=lambda f: f.share)
    areas = [drawn[round(f.eigenvalue.real, 9), round(f.eigenvalue.imag, 9)] for f in by_share]
    assert areas == sorted(areas)
    assert areas[0] < areas[-1]
    texts = [text.get_text() for text in ax.texts]
    periods = [f"{f.period:.3g} h" for f in features.most_important(6) if f.kind == "C"]
    assert texts == periods
    _, other = plt.subplots()
    assert forecast_modes(layer()).plot(other) is other


def test_curves_are_powers_of_the_eigenvalue_or_corners_of_powers() -> None:
    rows = recurrence_features(layer()).most_important(3)
    ax = plots.plot_curves(rows, lags=10)
    for line, row in zip(ax.lines[1:], rows, strict=True):
        np.testing.assert_allclose(line.get_ydata(), [(row.eigenvalue**lag).real for lag in range(11)], atol=1e-12)
    jordan = 0.8 * np.eye(3) + np.eye(3, k=1)
    (feature,) = recurrence_features(jordan)
    assert feature.label == "R-3"
    (curve,) = (line.get_ydata() for line in plots.plot_curves([feature], lags=20).lines[1:])
    corner = np.array([np.linalg.matrix_power(jordan, lag)[0, 2] for lag in range(21)])
    np.testing.assert_allclose(curve, corner / corner.max(), atol=1e-6)


def test_counts_fill_a_bar_for_each_model() -> None:
    ax = plots.plot_counts({"a": {"R-1": 3, "C-1": 1}, "b": {"R-4": 1}})
    ends = {round(bar.get_x() + bar.get_width(), 9) for bar in ax.patches if bar.get_width()}
    assert 1.0 in ends
    assert sorted(bar.get_width() for bar in ax.patches) == [0, 0, 0, 0.25, 0.75, 1]


def test_tracking_draws_what_was_recorded() -> None:
    model = layer()
    truth = [block.matrix for block in model.recurrent_blocks()]
    tracker = FeatureTracker(model, truth)
    for step in range(3):
        tracker.record(loss=1.0 / (step + 1))
    axes = plots.plot_tracking(tracker)
    assert [ax.get_ylabel() for ax in axes] == ["loss", "distance to the true matrices", "modulus", "angle", "features"]
    np.testing.assert_allclose(axes[0].lines[0].get_ydata(), [1, 1 / 2, 1 / 3])
    with raises(ArgumentError, argument="axes", got=1):
        plots.plot_tracking(tracker, axes[:1])
    with raises(InputError):
        plots.plot_tracking(FeatureTracker(model))


def test_contributions_drawn_add_up_to_the_output() -> None:
    result = contributions(layer(), data())
    axes = plots.plot_contributions(result, sequence=1, most=2)
    assert axes[0].get_ylabel() == "output"
    assert axes[-1].get_ylabel() == "2 others"
    drawn = sum(ax.lines[1].get_ydata() for ax in axes[1:])
    np.testing.assert_allclose(drawn + result.bias.item(), axes[0].lines[0].get_ydata(), atol=1e-12)
    np.testing.assert_allclose(axes[0].lines[0].get_ydata(), result.total[:, 1, 0], atol=1e-12)


def test_a_response_and_its_linear_curve() -> None:
    response = impulse_response(layer(), data(), lags=20)
    ax = plots.plot_response(response)
    np.testing.assert_allclose(ax.lines[1].get_ydata(), response.mean[:, 0, 0])
    np.testing.assert_allclose(ax.lines[2].get_ydata(), response.linear.sum(axis=2)[:, 0, 0])
    gated = impulse_response(ParaLSTM(1, 4), data().float(), lags=20)
    assert len(plots.plot_response(gated).lines) == 2


def test_without_the_extra_an_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    features = recurrence_features(layer())
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with raises(MissingPackageError, "pandas", "parallelrnn[plot]"):
        features.to_frame()
    with raises(MissingPackageError, "matplotlib", "parallelrnn[plot]"):
        features.plot()


def test_contributions_of_a_batch_first_layer_are_drawn_over_time() -> None:
    torch.manual_seed(0)
    gru = ParaGRU(1, 4, batch_first=True, bidirectional=True, aggregate=nn.Linear(8, 1))
    axes = plots.plot_contributions(contributions(gru, torch.randn(3, 50, 1)), sequence=1)
    assert len(axes[0].lines[0].get_ydata()) == 50
    assert len({ax.get_ylabel() for ax in axes}) == 5

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from parallelrnn import ParaGRU, ParaLSTM, ParaRNN, ParaRNNCell
from parallelrnn.errors import InputError
from parallelrnn.interpret import real_jordan, recurrence_features
from parallelrnn.nn import recurrent_blocks
from tests.interpret.models import spectrum
from tests.support import raises


@pytest.mark.parametrize("block_size", [1, 2, 3, 4, 8, 16, [1, 2, 3, 2]])
@pytest.mark.parametrize("cls", [ParaRNN, ParaLSTM, ParaGRU])
def test_every_eigenvalue_of_every_matrix_is_a_feature(cls: type[ParaRNN], block_size: Any) -> None:
    torch.manual_seed(0)
    layer = cls(3, 8 if isinstance(block_size, list) else 48, num_layers=2, bidirectional=True, block_size=block_size)
    features = recurrence_features(layer)
    zeros = 0
    for block in recurrent_blocks(layer):
        own = [f for f in features if (f.layer, f.direction, f.gate, f.block) == block[:4]]
        result = np.sort(abs(spectrum(own, 5)))
        expected = np.sort(abs(np.linalg.eigvals(block.matrix.detach().double().numpy())))
        missing = len(expected) - len(result)  # so small that rounding to float32 can make them zero
        np.testing.assert_allclose(np.pad(result, (missing, 0)), expected, atol=2e-5)
        zeros += missing
        moduli = [f.modulus for f in own]
        assert moduli == sorted(moduli, reverse=True)
    assert features.nullity == zeros <= 2
    assert {f.label for f in features} <= {"R-1", "C-1"}


@pytest.mark.parametrize("cls", [nn.RNN, nn.LSTM, nn.GRU, nn.RNNCell, nn.LSTMCell, nn.GRUCell])
def test_vanilla_layers_are_read_alike(cls: type[nn.Module]) -> None:
    torch.manual_seed(0)
    module = cls(2, 12)
    features = recurrence_features(module)
    for gate, matrix in {b.gate: b.matrix for b in recurrent_blocks(module)}.items():
        own = [feature for feature in features if feature.gate == gate]
        expected = np.sort_complex(np.round(np.linalg.eigvals(matrix.detach().double().numpy()), 5))
        np.testing.assert_allclose(spectrum(own, 5), expected, atol=3e-5)


def test_features_are_the_jordan_blocks_of_each_matrix() -> None:
    """For every size the quick way to read many matrices and `real_jordan` are two programs."""
    generator = np.random.default_rng(0)
    for size in (1, 2, 3, 5):
        for structure in ("random", "defective", "one pair", "singular", "identity"):
            matrix = generator.normal(size=(size, size))
            if structure == "defective":
                matrix = matrix @ (0.5 * np.eye(size) + np.eye(size, k=1)) @ np.linalg.inv(matrix)
            if structure == "one pair" and size > 1:
                planted = np.diag(np.arange(size) / size + 0.1)
                planted[1, 1], planted[0, 1] = planted[0, 0], 1
                matrix = matrix @ planted @ np.linalg.inv(matrix)
            if structure == "singular":
                matrix[0] = matrix[1:].sum(axis=0)
            if structure == "identity":
                matrix = np.eye(size)
            features, jordan = recurrence_features(matrix, tol=1e-11), real_jordan(matrix, tol=1e-11)
            pairs = [(block.label, block.eigenvalue) for block in jordan.blocks]
            assert features.nullity == jordan.nullity, (size, structure)
            for feature, (label, value) in zip(features, pairs, strict=False):
                assert (feature.label, feature.eigenvalue) == (label, pytest.approx(value, abs=1e-6))
            assert len(features) == len(pairs) - jordan.nullity
            if 1 < size < 3:
                assert features[0].distance == pytest.approx(jordan.distance)


@settings(max_examples=30, deadline=None)
@given(st.permutations(range(8)), st.integers(0, 1000))
def test_neither_the_order_of_blocks_nor_a_basis_matters(order: list[int], seed: int) -> None:
    torch.manual_seed(seed)
    layer, other = (ParaRNN(1, 16, dtype=torch.float64) for _ in range(2))
    turn = torch.linalg.qr(torch.randn(8, 2, 2, dtype=torch.float64))[0]
    matrices = layer.weight_hh_l0.detach().view(8, 2, 2)
    with torch.no_grad():
        other.weight_hh_l0.copy_((turn @ matrices @ turn.mT)[order].reshape(16, 2))
    first, second = recurrence_features(layer), recurrence_features(other)
    assert first.counts() == second.counts()
    for block, source in enumerate(order):
        ours = [f for f in second if f.block == block]
        for feature, same in zip(ours, (f for f in first if f.block == source), strict=True):
            assert feature.eigenvalue == pytest.approx(same.eigenvalue, abs=1e-9)
            assert feature.distance == pytest.approx(same.distance, abs=1e-12)


def test_a_wave_has_its_period_and_half_life() -> None:
    layer = ParaRNN(1, 2, form="polar", dtype=torch.float64)
    with torch.no_grad():
        layer.angle_hh_l0.fill_(2 * math.pi / 24)
        layer.log_rate_hh_l0.fill_(math.log(math.log(2) / 72))
    (feature,) = recurrence_features(layer, freq="h")
    assert (feature.label, feature.gate, feature.layer, feature.direction) == ("C-1", "hidden", 0, "forward")
    assert feature.period == pytest.approx(24)
    assert feature.half_life == pytest.approx(72)
    assert feature.modulus == pytest.approx(0.5 ** (1 / 72))
    summary = str(recurrence_features(layer, freq="h").summary())
    assert "24 h" in summary
    assert "3 d" in summary


@pytest.mark.parametrize(
    ("value", "period", "half_life", "meaning"),
    [
        (0.5, math.inf, 1, "fading"),
        (-0.5, 2, 1, "fading"),
        (1.0, math.inf, math.inf, "never fades"),
        (1.5, math.inf, math.inf, "growing"),
    ],
)
def test_what_a_modulus_means(value: float, period: float, half_life: float, meaning: str) -> None:
    features = recurrence_features([[value]])
    (feature,) = features
    assert feature.period == pytest.approx(period)
    assert feature.half_life == pytest.approx(half_life)
    assert feature.meaning == meaning
    summary = str(features.summary())
    assert (meaning in summary) == (meaning != "fading")
    assert ("does not fade by itself" in summary) == (abs(value) >= 1)


def test_zero_eigenvalues_are_no_features() -> None:
    features = recurrence_features([[0.0, 0.0], [0.0, 0.5]])
    assert [f.eigenvalue for f in features] == [0.5]
    assert features.nullity == 1
    assert "1 eigenvalue is 0" in str(features.summary())
    delay = recurrence_features([[0.0, 1.0], [0.0, 0.0]])  # a memory, although its eigenvalues are 0
    (shift,) = delay
    assert delay.nullity == 0
    assert (shift.label, shift.modulus, shift.half_life) == ("R-2", 0, 0)
    assert shift.meaning == "gone after 2 steps"


def test_layers_of_a_model_are_numbered_through() -> None:
    model = nn.Sequential(ParaRNN(1, 4, num_layers=2), nn.ModuleDict({"inner": nn.GRU(4, 3)}), nn.Linear(3, 1))
    assert sorted({f.layer for f in recurrence_features(model)}) == [0, 1, 2]
    assert {f.gate for f in recurrence_features(model) if f.layer == 2} == {"reset", "update", "new"}
    assert {f.layer for f in recurrence_features(ParaRNNCell(1, 4))} == {0}
    with pytest.raises(TypeError):
        recurrence_features(nn.Linear(2, 2))


def test_frame_and_counts() -> None:
    torch.manual_seed(0)
    features = recurrence_features(ParaLSTM(1, 16))
    frame = features.to_frame()
    assert len(frame) == len(features) == sum(features.counts().values())
    assert frame.loc[3, "period"] == features[3].period
    assert frame["label"].value_counts().to_dict() == features.counts()
    assert len(recurrence_features(ParaRNN(1, 16)).summary(most=3).splitlines()[4:7]) == 3
    assert ", 3 shown." in recurrence_features(ParaRNN(1, 16)).summary(most=3)


def test_rejects_weights_that_diverged() -> None:
    layer = ParaRNN(1, 4)
    with torch.no_grad():
        layer.weight_hh_l0[1, 1] = torch.nan
    with raises(InputError):
        recurrence_features(layer)


def test_a_zero_eigenvalue_has_its_share() -> None:
    """A unit that forgets all carries the input of the step: with it, shares sum to one."""
    layer = ParaRNN(1, 2, nonlinearity="linear", aggregate=nn.Linear(2, 1), dtype=torch.float64)
    with torch.no_grad():
        layer.weight_hh_l0.copy_(torch.tensor([[0.5, 0.2], [0.0, 0.0]]).reshape(layer.weight_hh_l0.shape))
    features = recurrence_features(layer, torch.randn(200, 1, dtype=torch.float64))
    assert features.nullity == 1
    ((gate, share),) = features.at_once
    assert gate == "hidden"
    assert share + sum(feature.share for feature in features) == pytest.approx(1)
    assert f"{share:.1%}" in features.summary()

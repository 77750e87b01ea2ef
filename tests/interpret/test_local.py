from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from parallelrnn import ParaGRU, ParaLSTM, ParaRNN
from parallelrnn.errors import ArgumentError, ArgumentTypeError, InputError
from parallelrnn.interpret import local_dynamics, recurrence_features
from tests.interpret.models import data, make
from tests.support import dense_twin, raises

DATA = data(8, 3)


def test_of_a_linear_layer_they_are_its_features_everywhere() -> None:
    layer = make(ParaRNN, nonlinearity="linear", num_layers=2)
    features = recurrence_features(layer)
    for block in local_dynamics(layer, DATA).blocks:
        own = [f for f in features if (f.layer, f.block) == (block.layer, block.block)]
        np.testing.assert_allclose(block.eigenvalues[:, 0], np.full(24, own[0].eigenvalue), atol=1e-12)
        np.testing.assert_allclose(block.half_lives, own[0].half_life, rtol=1e-9)
        np.testing.assert_allclose(block.periods, own[0].period, rtol=1e-9)
        assert block.waves == (own[0].kind == "C")


def test_with_tanh_the_slope_scales_the_rows_of_the_matrix() -> None:
    layer = make(ParaRNN, num_layers=2, aggregate=None)
    output, _ = layer(DATA)
    matrices = [b.matrix.detach().numpy() for b in layer.recurrent_blocks() if b.layer == 1]
    for block, matrix in zip((b for b in local_dynamics(layer, DATA).blocks if b.layer == 1), matrices, strict=True):
        slope = 1 - output.detach()[..., 2 * block.block : 2 * block.block + 2].flatten(0, 1).numpy() ** 2
        expected = np.linalg.eigvals(slope[:, :, None] * matrix)
        np.testing.assert_allclose(np.sort(abs(block.eigenvalues)), np.sort(abs(expected)), atol=1e-12)


@pytest.mark.parametrize("block_size", [2, [1, 2, 3]])
@pytest.mark.parametrize("cls", [ParaRNN, ParaLSTM, ParaGRU])
def test_all_blocks_together_are_the_derivative_of_torchs_cell(cls: Any, block_size: Any) -> None:
    layer = make(cls, block_size=block_size, aggregate=None)
    twin = dense_twin(layer)
    blocks = local_dynamics(layer, data(5, 1)).blocks
    _, state = twin(data(4, 1))
    flat = torch.cat([s.flatten() for s in (state if isinstance(state, tuple) else (state,))])

    def step(state: torch.Tensor) -> torch.Tensor:
        parts = [part.view(1, 1, 6) for part in state.split(6)]
        _, after = twin(data(5, 1)[4:], tuple(parts) if len(parts) == 2 else parts[0])
        return torch.cat([s.flatten() for s in (after if isinstance(after, tuple) else (after,))])

    expected = np.linalg.eigvals(torch.autograd.functional.jacobian(step, flat.detach()).numpy())
    ours = np.concatenate([block.eigenvalues[4] for block in blocks])
    np.testing.assert_allclose(np.sort_complex(ours.round(9)), np.sort_complex(expected.round(9)), atol=1e-7)


@pytest.mark.parametrize("cls", [nn.RNN, nn.LSTM, nn.GRU])
def test_a_vanilla_layer_is_one_block(cls: Any) -> None:
    torch.manual_seed(0)
    dynamics = local_dynamics(cls(2, 4, num_layers=2), DATA.float())
    assert [(b.layer, b.block) for b in dynamics.blocks] == [(0, 0), (1, 0)]
    assert dynamics.blocks[0].eigenvalues.shape == (24, 8 if cls is nn.LSTM else 4)


def test_layouts_and_the_table() -> None:
    layer = make(ParaGRU)
    first = make(ParaGRU, batch_first=True)
    for ours, same in zip(
        local_dynamics(layer, DATA).blocks, local_dynamics(first, DATA.transpose(0, 1)).blocks, strict=True
    ):
        np.testing.assert_allclose(ours.eigenvalues, same.eigenvalues, atol=1e-12)
    assert local_dynamics(layer, DATA[:, 0]).blocks[0].eigenvalues.shape == (8, 2)
    summary = local_dynamics(layer, DATA, freq="D").summary(most=2)
    assert "3 blocks, 2 shown" in summary
    assert "24 steps" in summary.replace("\n", " ")
    assert " d " in summary


def test_rejected_layers_and_arguments() -> None:
    with raises(ArgumentTypeError, got="Linear"):
        local_dynamics(nn.Linear(2, 2), DATA)
    with raises(InputError):
        local_dynamics(make(ParaRNN, bidirectional=True), DATA)
    with raises(ArgumentError, argument="last", got=0):
        local_dynamics(make(ParaRNN), DATA, last=0)


def test_modes_that_do_not_fade_last_longest_and_only_waves_have_periods() -> None:
    layer = ParaRNN(1, 4, nonlinearity="linear", aggregate=nn.Linear(4, 1)).double()
    with torch.no_grad():
        layer.weight_hh_l0.copy_(torch.cat([torch.diag(torch.tensor([-0.5, 0.1])), 1.1 * torch.eye(2)]))
    dynamics = local_dynamics(layer, torch.randn(20, 1))
    assert np.isposinf(dynamics.blocks[1].half_lives).all()
    first, second = dynamics.display().rows
    assert first[1] == "1"
    assert second[-2:] == ("0%", "-")  # an alternation is no wave


@pytest.mark.parametrize("cls", [ParaRNN, ParaLSTM, ParaGRU])
def test_the_last_steps_are_where_all_data_lead(cls: Any) -> None:
    layer = cls(1, 4, num_layers=2, dtype=torch.float64)
    x = 3 * torch.randn(40, 2, 1, dtype=torch.float64)
    full, end = local_dynamics(layer, x), local_dynamics(layer, x, last=7)
    for all_steps, last in zip(full.blocks, end.blocks, strict=True):
        np.testing.assert_allclose(last.eigenvalues, all_steps.eigenvalues[-7 * 2 :], rtol=1e-9)
    longer = local_dynamics(layer, x, last=99)
    np.testing.assert_allclose(longer.blocks[0].eigenvalues, full.blocks[0].eigenvalues, rtol=1e-9)


def test_derivatives_are_taken_under_no_grad() -> None:
    layer, x = ParaGRU(1, 4), torch.randn(10, 1)
    with torch.no_grad():
        dynamics = local_dynamics(layer, x)
    np.testing.assert_allclose(dynamics.blocks[0].eigenvalues, local_dynamics(layer, x).blocks[0].eigenvalues)

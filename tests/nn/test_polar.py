"""Polar form: a modulus below one by construction, and what that guarantees."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from parallelrnn import ParaGRU, ParaLSTM, ParaRNN, ParaRNNCell
from parallelrnn.nn.blocks import modulus_to_log_rate, polar_blocks


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_no_parameter_makes_a_block_that_grows(dtype: torch.dtype) -> None:
    log_rate = torch.cat([torch.linspace(-1000, 1000, 500), torch.linspace(-25, 5, 500)]).to(dtype).requires_grad_()
    angle = torch.linspace(-10, 10, 1000).to(dtype)
    blocks = polar_blocks(log_rate, angle)
    assert blocks.isfinite().all()
    assert torch.autograd.grad(blocks.sum(), log_rate)[0].isfinite().all()
    assert torch.linalg.matrix_norm(blocks.double(), ord=2).max() < 1


def test_modulus_and_angle_are_those_of_the_eigenvalues() -> None:
    modulus = torch.linspace(0.01, 0.999, 50, dtype=torch.float64)
    angle = torch.linspace(0.01, math.pi - 0.01, 50, dtype=torch.float64)
    eigenvalues = np.linalg.eigvals(polar_blocks(modulus_to_log_rate(modulus), angle).numpy())
    np.testing.assert_allclose(abs(eigenvalues), modulus.numpy()[:, None].repeat(2, 1), rtol=1e-12)
    np.testing.assert_allclose(abs(np.angle(eigenvalues)), angle.numpy()[:, None].repeat(2, 1), rtol=1e-12)


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu", "sigmoid", "linear"])
def test_a_polar_layer_forgets_its_initial_state_whatever_it_was_trained_on(nonlinearity: str) -> None:
    layer = ParaRNN(2, 8, nonlinearity=nonlinearity, form="polar", aggregate=None, dtype=torch.float64)
    x = torch.randn(60, 16, 2, dtype=torch.float64)
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    for _ in range(30):  # pushed hard towards states as far apart as possible
        loss = -(layer(x, torch.ones(1, 16, 8, dtype=torch.float64))[0] - layer(x)[0]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    moduli = torch.stack([torch.linalg.eigvals(block.matrix).abs().max() for block in layer.recurrent_blocks()])
    assert moduli.max() < 1
    far, near = layer(x, torch.randn(1, 16, 8, dtype=torch.float64))[0], layer(x)[0]
    distance = (far - near).unflatten(-1, (4, 2)).norm(dim=-1)  # (T, B, K): of every block
    assert (distance[1:] <= distance[:-1] * moduli + 1e-13).all()  # the rest is rounding of states around one


@pytest.mark.parametrize("cls", [ParaRNN, ParaLSTM, ParaGRU])
def test_every_matrix_of_every_gate_is_a_damped_rotation(cls: Any) -> None:
    layer = cls(3, 8, num_layers=2, bidirectional=True, form="polar")
    assert not [name for name, _ in layer.named_parameters() if name.startswith("weight_hh")]
    blocks = list(layer.recurrent_blocks())
    assert len(blocks) == 4 * len(layer.gates) * 4
    for block in blocks:
        (a, b), (c, d) = block.matrix.tolist()
        assert (a, b) == (d, -c)
        assert math.hypot(a, b) < 1
    moduli = np.array([math.hypot(*block.matrix[0].tolist()) for block in blocks])
    assert 0.5 < moduli.mean() < 0.85  # of points spread evenly over the disc it is 2/3


def test_polar_form_is_for_square_blocks_of_size_2() -> None:
    with pytest.raises(ValueError, match="polar form is for blocks of size 2, got block_size=4; use form='free'"):
        ParaRNN(3, 8, block_size=4, form="polar")
    with pytest.raises(ValueError, match="polar form is for square blocks, which proj_size takes away"):
        ParaLSTM(3, 8, proj_size=4, form="polar")
    with pytest.raises(ValueError, match="form should be one of 'free', 'polar', got 'jordan'"):
        ParaRNNCell(3, 8, form="jordan")

"""Recurrent matrices: how they are read, and their polar form, whose modulus is below one by construction."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from parallelrnn import ParaGRU, ParaLSTM, ParaLSTMCell, ParaRNN, from_torch
from parallelrnn.nn import recurrent_blocks
from parallelrnn.nn.blocks import modulus_to_log_rate, polar_blocks


def test_recurrent_blocks_come_by_layer_direction_gate_and_block() -> None:
    layer = ParaLSTM(3, 7, num_layers=2, bidirectional=True, block_size=[2, 3, 2])
    blocks = list(layer.recurrent_blocks())
    keys = [block[:4] for block in blocks]
    assert keys == [
        (number, direction, gate, block)
        for number in (0, 1)
        for direction in ("forward", "reverse")
        for gate in ("input", "forget", "cell", "output")
        for block in (0, 1, 2)
    ]
    assert [len(block.matrix) for block in blocks[:3]] == [2, 3, 2]
    forget_of_block_2 = blocks[5].matrix
    # Gate-major rows of the parameter for size 2, which holds blocks 0 and 2: gate 1, second of two blocks.
    torch.testing.assert_close(forget_of_block_2, layer.weight_hh_l0_size2[6:8])


def test_a_recurrent_matrix_is_the_derivative_of_the_next_state() -> None:
    layer = ParaRNN(3, 7, nonlinearity="linear", block_size=[2, 3, 2], aggregate=None)
    jacobian = torch.autograd.functional.jacobian(lambda h: layer(torch.zeros(1, 3), h)[0][0], torch.zeros(1, 7))[:, 0]
    torch.testing.assert_close(jacobian, torch.block_diag(*(block.matrix for block in layer.recurrent_blocks())))


@pytest.mark.parametrize(
    "module",
    [
        nn.RNN(3, 4, 2, bidirectional=True),
        nn.LSTM(3, 4),
        nn.LSTM(3, 4, proj_size=2),
        nn.GRU(3, 4, 2),
        nn.LSTMCell(3, 4),
    ],
    ids=str,
)
def test_vanilla_modules_are_read_like_ours(module: nn.Module) -> None:
    theirs, ours = list(recurrent_blocks(module)), list(recurrent_blocks(from_torch(module)))
    assert [block[:4] for block in theirs] == [block[:4] for block in ours]
    for a, b in zip(theirs, ours, strict=True):
        assert a.matrix.shape == (4, 4)
        # With a projection the matrix is a product, here by matmul, there by bmm: some processors fuse multiplication
        # and addition in one of them only. Entries are sums of two terms below 1/4, so each is off by at most eps / 2.
        rounding = torch.finfo(torch.float32).eps if getattr(module, "proj_size", 0) else 0
        torch.testing.assert_close(a.matrix, b.matrix, rtol=0, atol=rounding)


def test_matrices_are_part_of_the_graph() -> None:
    layer = ParaLSTMCell(3, 4)
    sum(block.matrix.square().sum() for block in layer.recurrent_blocks()).backward()
    torch.testing.assert_close(layer.weight_hh.grad, 2 * layer.weight_hh.detach())


def test_a_projected_lstm_is_read_as_the_map_from_its_unprojected_state() -> None:
    layer = ParaLSTM(3, 8, proj_size=4, block_size=4)
    first = next(layer.recurrent_blocks())
    torch.testing.assert_close(first.matrix, layer.weight_hh_l0[:4] @ layer.weight_hr_l0[:2])


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

"""How units fall into blocks, and how recurrent matrices are read."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from parallelrnn import ParaGRU, ParaLSTM, ParaLSTMCell, ParaRNN, from_torch
from parallelrnn.nn import recurrent_blocks


@pytest.mark.parametrize(
    ("hidden_size", "block_size", "error", "text"),
    [
        (7, 2, ValueError, "hidden_size 7 is not a multiple of block_size 2; use 6 or 8, or block_size=[2, 2, 3]"),
        (129, 2, ValueError, "use 128 or 130, or block_size=[2] * 63 + [3]"),
        (11, 4, ValueError, "use 8 or 12, or block_size=[4, 4, 3]"),
        (6, 8, ValueError, "block_size 8 is larger than hidden_size 6; use at most 6"),
        (6, 0, ValueError, "block_size must be at least 1, got 0"),
        (
            6,
            [2, 2],
            ValueError,
            "block_size=[2, 2] adds up to 4 units, but hidden_size is 6; use hidden_size=4 or other",
        ),
        (6, [6, 0], ValueError, "every block needs at least 1 unit, got block_size=[6, 0]"),
        (6, [], ValueError, "block_size=[] names no block; hidden_size is 6"),
        (6, 2.0, TypeError, "block_size should be an int or a list of ints, got: float"),
        (6, True, TypeError, "block_size should be an int or a list of ints, got: bool"),
        (6, "2", TypeError, "block_size should be an int or a list of ints, got: str"),
        (6, [2, 4.0], TypeError, "block_size should be a list of ints, got [2, 4.0]"),
    ],
)
def test_blocks_that_do_not_fit(hidden_size: int, block_size: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        ParaGRU(3, hidden_size, block_size=block_size)
    assert text in str(caught.value)


def test_what_an_error_proposes_works() -> None:
    assert ParaRNN(3, 7, block_size=[2, 2, 3]).num_blocks == 3
    assert ParaRNN(3, 129, block_size=[2] * 63 + [3]).num_blocks == 64
    assert ParaRNN(3, 6, block_size=1).num_blocks == 6  # odd sizes are allowed


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
        torch.testing.assert_close(a.matrix, b.matrix, rtol=0, atol=0)


def test_matrices_are_part_of_the_graph() -> None:
    layer = ParaLSTMCell(3, 4)
    sum(block.matrix.square().sum() for block in layer.recurrent_blocks()).backward()
    torch.testing.assert_close(layer.weight_hh.grad, 2 * layer.weight_hh.detach())


def test_a_projected_lstm_is_read_as_the_map_from_its_unprojected_state() -> None:
    layer = ParaLSTM(3, 8, proj_size=4, block_size=4)
    first = next(layer.recurrent_blocks())
    torch.testing.assert_close(first.matrix, layer.weight_hh_l0[:4] @ layer.weight_hr_l0[:2])


def test_other_modules_have_no_blocks() -> None:
    with pytest.raises(TypeError, match="Linear has no recurrent blocks; expected ParaRNN"):
        recurrent_blocks(nn.Linear(3, 3))

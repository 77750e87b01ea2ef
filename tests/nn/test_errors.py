"""Errors say what was expected, what came and what to do; torch.nn's own error inputs are in test_torch_modules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence

from parallelrnn import ParaGRU, ParaLSTM, ParaLSTMCell, ParaRNN, ParaRNNCell

x = torch.randn(5, 4, 3)
INPUTS: list[tuple[Any, tuple[Any, ...], type[Exception], str]] = [
    (ParaRNN(3, 8), (x[0, 0],), ValueError, "got 1D tensor of shape (3,) instead"),
    (
        ParaRNN(3, 8),
        (x[None],),
        ValueError,
        "2D (time, features) or 3D (time, batch, features), got 4D tensor of shape",
    ),
    (ParaRNN(3, 8, batch_first=True), (x[None],), ValueError, "3D (batch, time, features)"),
    (ParaRNN(4, 8), (x,), RuntimeError, "Expected 4, got 3 in an input of shape (5, 4, 3)"),
    (
        ParaRNN(3, 8),
        (x[:0],),
        RuntimeError,
        "at least one time step, got none along dimension 0 of an input of shape (0, 4",
    ),
    (ParaGRU(3, 8, batch_first=True), (x[:, :0],), RuntimeError, "along dimension 1 of an input of shape (5, 0, 3)"),
    (ParaRNN(3, 8), (x[:0, 0],), RuntimeError, "at least one time step"),
    (ParaRNN(3, 8), (x.double(),), ValueError, "input.to(torch.float32), or convert model: model.to(torch.float64)"),
    (
        ParaRNN(3, 8),
        (x.long(),),
        ValueError,
        "(torch.int64) is not a floating-point one. Convert input",
    ),
    (ParaRNN(3, 8), (x.numpy(),), TypeError, "expected input to be a torch.Tensor, got ndarray; torch.as_tensor"),
    (ParaRNN(3, 8), (None,), TypeError, "ParaRNN: expected input to be a torch.Tensor, got NoneType"),
    (ParaRNN(3, 8), (x, np.zeros((1, 4, 8))), TypeError, "expected hx to be a torch.Tensor, got ndarray"),
    (ParaGRU(3, 8), (x, torch.zeros(1, 4, 7)), RuntimeError, "expected h_0 of shape (1, 4, 8) (num_layers * num_dir"),
    (
        ParaGRU(3, 8),
        (x, torch.zeros(1, 8)),
        RuntimeError,
        "for batched input, h_0 should be 3-D, got a 2-D tensor of shape (1, 8)",
    ),
    (ParaGRU(3, 8), (x[0], torch.zeros(1, 1, 8)), RuntimeError, "for unbatched input, h_0 should be 2-D"),
    (ParaGRU(3, 8), (x, torch.zeros(1, 4, 8).double()), ValueError, "h_0 dtype (torch.float64) does not match weight"),
    (
        ParaGRU(3, 8),
        (x, (torch.zeros(1, 4, 8),) * 2),
        TypeError,
        "ParaGRU: expected hx to be one tensor h_0, got a tuple of 2",
    ),
    (
        ParaLSTM(3, 8),
        (x, torch.zeros(1, 4, 8)),
        TypeError,
        "expected hx to be a pair of tensors (h_0, c_0), got Tensor",
    ),
    (
        ParaLSTM(3, 8),
        (x, (torch.zeros(1, 4, 8),)),
        TypeError,
        "expected hx to be a pair of tensors (h_0, c_0), got 1 of them",
    ),
    (
        ParaLSTM(3, 8),
        (x, (torch.zeros(1, 4, 8), None)),
        TypeError,
        "every part of hx to be a torch.Tensor, got NoneType",
    ),
    (
        ParaLSTM(3, 8),
        (x, (torch.zeros(1, 4, 8), torch.zeros(1, 4, 7))),
        RuntimeError,
        "expected c_0 of shape (1, 4, 8)",
    ),
    (ParaLSTM(3, 8, proj_size=4), (x, (torch.zeros(1, 4, 8),) * 2), RuntimeError, "expected h_0 of shape (1, 4, 4)"),
    (ParaRNN(4, 8), (pack_sequence([x[:, 0]]),), RuntimeError, "Expected 4, got 3"),
    (ParaRNN(3, 8), (pack_sequence([x[:, 0]]), torch.zeros(1, 2, 8)), RuntimeError, "expected h_0 of shape (1, 1, 8)"),
    (
        ParaRNN(3, 8),
        (pack_sequence([x[:, 0]]), torch.zeros(1, 8)),
        RuntimeError,
        "for batched input, h_0 should be 3-D",
    ),
    (ParaRNN(3, 8), (pack_sequence([x[:, 0]]), torch.zeros(1, 1, 8).double()), ValueError, "h_0.to(torch.float32)"),
    (
        ParaRNN(3, 8),
        (pack_sequence([x]),),
        ValueError,
        "Expected packed data to be 2D, got 3D tensor",
    ),
    (ParaRNNCell(3, 8), (x,), ValueError, "1D (features,) or 2D (batch, features), got 3D"),
    (ParaRNNCell(3, 8), (x[0], torch.zeros(8)), RuntimeError, "for 2D input, hidden should also be 2D, got 1D"),
    (ParaRNNCell(3, 8), (x[0].double(),), ValueError, "does not match weight dtype"),
    (
        ParaLSTMCell(3, 8),
        (x[0], torch.zeros(4, 8)),
        TypeError,
        "expected hx to be a pair of tensors (h_0, c_0), got Tensor",
    ),
]


@pytest.mark.parametrize(("module", "inputs", "error", "text"), INPUTS, ids=range(len(INPUTS)))
def test_inputs(module: nn.Module, inputs: tuple[Any, ...], error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        module(*inputs)
    assert text in str(caught.value)
    assert type(module).__name__ in str(caught.value)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: ParaRNN(3, 8, nonlinearity="gelu"), ValueError, "Select from 'tanh', 'relu', 'sigmoid', 'linear'"),
        (
            lambda: ParaRNN(3, 8, aggregate="mean"),
            ValueError,
            "one of 'linear', 'fc', 'ffn', None or an nn.Module, got 'mean'",
        ),
        (lambda: ParaRNN(3, 8, aggregate=nn.Linear(4, 2)), ValueError, "gets the 8 units of all blocks and directions"),
        (
            lambda: ParaRNN(3, 8, backend="cuda"),
            ValueError,
            "backend 'cuda' is not known; use one of 'auto', 'cpu', 'triton', 'reference'",
        ),
        (lambda: ParaRNN(3, 8, 1.0), TypeError, "num_layers should be of type int, got: float"),
        (lambda: ParaLSTM(3, 8, dropout=1.5), ValueError, "in range [0, 1]"),
        (lambda: ParaLSTM(3, 8, proj_size=8), ValueError, "proj_size has to be smaller than hidden_size"),
        (lambda: ParaLSTM(3, 8, proj_size=-1), ValueError, "positive integer or zero"),
        (lambda: ParaLSTM(3, 8, proj_size=3), ValueError, "proj_size 3 does not fit: use one of [4], or block_size=8"),
        (
            lambda: ParaLSTM(3, 9, proj_size=4, block_size=[1, 8]),
            ValueError,
            "4 does not fit: use block_size=9",
        ),
    ],
)
def test_constructors(make: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        make()
    assert text in str(caught.value)


def test_positional_arguments_are_in_the_order_of_torch() -> None:
    rnn = ParaRNN(3, 8, 2, "relu", False, True, 0.5, True)
    theirs = nn.RNN(3, 8, 2, "relu", False, True, 0.5, True)
    for name in ("num_layers", "nonlinearity", "bias", "batch_first", "dropout", "bidirectional"):
        assert getattr(rnn, name) == getattr(theirs, name)
    lstm = ParaLSTM(3, 8, 2, False, True, 0.5, True, 4)
    other = nn.LSTM(3, 8, 2, False, True, 0.5, True, 4)
    for name in ("num_layers", "bias", "batch_first", "dropout", "bidirectional", "proj_size"):
        assert getattr(lstm, name) == getattr(other, name)
    assert ParaRNNCell(3, 8, False, "relu").nonlinearity == nn.RNNCell(3, 8, False, "relu").nonlinearity

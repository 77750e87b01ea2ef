"""from_torch: whole modules exactly (see also test_torch_modules), and an nn.RNN cut into blocks."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import nn

from parallelrnn import ParaRNN, from_torch
from parallelrnn.errors import ArgumentError
from tests.support import raises


def linear_rnn(hidden_size: int, **options: Any) -> ParaRNN:
    defaults = {"nonlinearity": "linear", "block_size": hidden_size, "aggregate": None, "dtype": torch.float64}
    return ParaRNN(3, hidden_size, **{**defaults, **options})


@pytest.mark.parametrize("block_size", [2, 4, [2, 4, 2], [4, 4], [1, 2, 2, 3]], ids=str)
@pytest.mark.parametrize(
    "options", [{}, {"num_layers": 3, "bidirectional": True}, {"bias": False, "num_layers": 2}], ids=str
)
def test_a_linear_rnn_cut_into_blocks_computes_the_same(block_size: Any, options: dict[str, Any]) -> None:
    dense = linear_rnn(8, **options)
    if block_size == [1, 2, 2, 3]:  # odd blocks need real eigenvalues
        with torch.no_grad():
            for block in dense.recurrent_blocks():
                block.matrix.copy_(block.matrix + block.matrix.T)
    cut = from_torch(dense, block_size=block_size)
    assert cut.num_blocks == (8 // block_size if isinstance(block_size, int) else len(block_size))
    x = torch.randn(40, 5, 3, dtype=torch.float64)
    torch.testing.assert_close(cut(x)[0], dense(x)[0], rtol=1e-9, atol=1e-10)


def test_an_aggregate_is_kept() -> None:
    dense = linear_rnn(8, aggregate=nn.Linear(8, 8, dtype=torch.float64))
    x = torch.randn(10, 5, 3, dtype=torch.float64)
    torch.testing.assert_close(from_torch(dense, 2)(x)[0], dense(x)[0], rtol=1e-9, atol=1e-10)
    narrow = linear_rnn(8, bias=False, aggregate=nn.Linear(8, 1, dtype=torch.float64))
    torch.testing.assert_close(from_torch(narrow, 2)(x)[0], narrow(x)[0], rtol=1e-9, atol=1e-10)
    with raises(ArgumentError, "FeedForward", argument="module"):
        from_torch(linear_rnn(8, aggregate="ffn"), 2)


def test_states_of_the_copy_are_those_of_the_original_in_other_coordinates() -> None:
    dense = linear_rnn(6)
    cut = from_torch(dense, block_size=2)
    x, h_0 = torch.randn(7, 4, 3, dtype=torch.float64), torch.randn(1, 4, 6, dtype=torch.float64)
    transform = cut.aggregate.weight
    output, h_n = cut(x, torch.linalg.solve(transform, h_0.mT).mT)
    expected, expected_h_n = dense(x, h_0)
    torch.testing.assert_close(output, expected, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(cut.aggregate(h_n), expected_h_n, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
def test_a_cut_nn_rnn_has_the_spectrum_and_the_small_signal_response_of_the_original(nonlinearity: str) -> None:
    rnn = nn.RNN(3, 16, 2, nonlinearity=nonlinearity, bias=False, batch_first=True, dtype=torch.float64)
    cut = from_torch(rnn, block_size=2)
    assert (cut.nonlinearity, cut.batch_first, cut.block_size) == (nonlinearity, True, 2)
    for layer in (0, 1):
        blocks = [torch.linalg.eigvals(b.matrix) for b in cut.recurrent_blocks() if b.layer == layer]
        theirs = torch.linalg.eigvals(getattr(rnn, f"weight_hh_l{layer}"))
        ours = torch.cat(blocks)
        assert torch.allclose(
            (ours[:, None] - theirs).abs().min(0).values, torch.zeros(16, dtype=torch.float64), atol=1e-12
        )
    if nonlinearity == "tanh":  # near zero tanh is linear and the cut exact: the error falls with the input's square
        x = 1e-5 * torch.randn(4, 12, 3, dtype=torch.float64)
        torch.testing.assert_close(cut(x)[0], rnn(x)[0], rtol=1e-6, atol=1e-14)


def test_a_cut_layer_can_be_fine_tuned() -> None:
    rnn = nn.RNN(2, 16)
    cut = from_torch(rnn, block_size=2)
    x = torch.randn(20, 64, 2)
    target = rnn(x)[0].detach()
    optimizer = torch.optim.Adam(cut.parameters(), 3e-3)
    first = nn.functional.mse_loss(cut(x)[0], target).item()
    for _ in range(60):
        loss = nn.functional.mse_loss(cut(x)[0], target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < first / 5


def test_an_ill_conditioned_transform_is_reported() -> None:
    dense = linear_rnn(4, dtype=torch.float32)
    with torch.no_grad():  # close to C-2, a repeated pair of complex eigenvalues, which has no 2 x 2 blocks
        dense.weight_hh_l0.copy_(
            torch.tensor([[0.5, 0.4, 1, 0], [-0.4, 0.5, 0, 1], [0, 0, 0.5, 0.4001], [0, 0, -0.4001, 0.5]])
        )
    with pytest.warns(UserWarning, match=r"layer 0 \(forward\).* [0-9.]+e\+0[3-9]\b"):
        from_torch(dense, block_size=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_torch(dense, block_size=[4])  # whole blocks lose nothing


def test_modules_without_blocks_are_rejected() -> None:
    dense = linear_rnn(4)
    with torch.no_grad():
        dense.weight_hh_l0.copy_(
            torch.tensor([[0.5, 0.4, 1, 0], [-0.4, 0.5, 0, 1], [0, 0, 0.5, 0.4], [0, 0, -0.4, 0.5]])
        )
    with raises(ArgumentError, argument="block_size", got=(2, 2), hint="use larger blocks"):
        from_torch(dense, block_size=2)
    with raises(ArgumentError, "2 pairs", argument="block_size", got=(1, 3), hint="use even sizes"):
        from_torch(dense, block_size=[1, 3])


def test_flags_and_modes_come_along() -> None:
    assert from_torch(ParaRNN(3, 8, backend="reference"), block_size=4).backend == "reference"
    lstm = nn.LSTM(3, 4).eval().double()
    lstm.weight_ih_l0.requires_grad_(False)
    copy = from_torch(lstm)
    assert not copy.training
    assert copy.aggregate is None
    assert copy.weight_hh_l0.dtype == torch.float64
    assert [p.requires_grad for p in copy.parameters()] == [p.requires_grad for p in lstm.parameters()]
    assert copy.weight_hh_l0.data_ptr() != lstm.weight_hh_l0.data_ptr()

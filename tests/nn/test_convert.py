"""from_torch: whole modules exactly (see also test_torch_modules), and an nn.RNN cut into blocks."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from parallelrnn import ParaRNN, from_torch
from parallelrnn.nn.similarity import block_diagonalize


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
    dense = linear_rnn(8, aggregate="linear")
    x = torch.randn(10, 5, 3, dtype=torch.float64)
    torch.testing.assert_close(from_torch(dense, 2)(x)[0], dense(x)[0], rtol=1e-9, atol=1e-10)
    narrow = linear_rnn(8, bias=False, aggregate=nn.Linear(8, 1, dtype=torch.float64))
    torch.testing.assert_close(from_torch(narrow, 2)(x)[0], narrow(x)[0], rtol=1e-9, atol=1e-10)
    with pytest.raises(ValueError, match="should have aggregate=None or a linear one, got FeedForward"):
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
    if (
        nonlinearity == "tanh"
    ):  # near zero tanh is linear, and the cut exact: the error falls with the square of the input
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


@pytest.mark.parametrize("cls", [nn.LSTM, nn.GRU, nn.LSTMCell, nn.GRUCell])
def test_gated_cells_cannot_be_cut(cls: Any) -> None:
    with pytest.raises(
        ValueError, match=r"no one transform makes its [34] recurrent matrices .* block-diagonal together"
    ):
        from_torch(cls(3, 8), block_size=2)


def test_other_modules_are_refused() -> None:
    with pytest.raises(ValueError, match="a cell has no aggregate"):
        from_torch(nn.RNNCell(3, 8), block_size=2)
    with pytest.raises(TypeError, match=r"takes nn\.RNN, nn\.LSTM, nn\.GRU or one of their cells, got Sequential"):
        from_torch(nn.Sequential(nn.LSTM(3, 8)))
    with pytest.raises(ValueError, match="one of ours already; give the block_size"):
        from_torch(ParaRNN(3, 8))
    with pytest.raises(ValueError, match="hidden_size 8 is not a multiple of block_size 3"):
        from_torch(nn.RNN(3, 8), block_size=3)


def test_an_ill_conditioned_transform_is_reported() -> None:
    dense = linear_rnn(4, dtype=torch.float32)
    with (
        torch.no_grad()
    ):  # C-2, a repeated pair of complex eigenvalues: no 2 x 2 blocks, but close to matrices that have some
        dense.weight_hh_l0.copy_(
            torch.tensor([[0.5, 0.4, 1, 0], [-0.4, 0.5, 0, 1], [0, 0, 0.5, 0.4001], [0, 0, -0.4001, 0.5]])
        )
    with pytest.warns(UserWarning, match=r"layer 0 \(forward\).* condition number [0-9.]+e\+0[3-9]"):
        from_torch(dense, block_size=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_torch(dense, block_size=[4])  # whole blocks lose nothing


def test_a_matrix_without_finite_entries_is_refused() -> None:
    rnn = nn.RNN(3, 4)
    nn.init.constant_(rnn.weight_hh_l0, float("nan"))
    with pytest.raises(ValueError, match="the recurrent matrix has entries that are not finite"):
        from_torch(rnn, block_size=2)


def test_what_has_no_blocks_is_refused() -> None:
    dense = linear_rnn(4)
    with torch.no_grad():
        dense.weight_hh_l0.copy_(
            torch.tensor([[0.5, 0.4, 1, 0], [-0.4, 0.5, 0, 1], [0, 0, 0.5, 0.4], [0, 0, -0.4, 0.5]])
        )
    with pytest.raises(ValueError, match=r"no block-diagonal form with blocks of sizes \[2\].* use larger blocks"):
        from_torch(dense, block_size=2)
    with pytest.raises(ValueError, match=r"2 pairs of complex eigenvalues, and blocks of sizes \[1, 3\] hold only 1"):
        from_torch(dense, block_size=[1, 3])


@pytest.mark.parametrize("gap", [0.0, 1e-4])
def test_a_nearly_defective_pair_shares_a_block(gap: float) -> None:
    """Across two blocks it would make the condition of the transform about 1 / gap."""
    matrix = scipy.linalg.block_diag([[0.1]], [[0.3, 1.0], [0.0, 0.3 + gap]], [[0.7, 1.0], [0.0, 0.7 + gap]], [[0.9]])
    rotation = scipy.linalg.qr(np.random.default_rng(0).normal(size=(6, 6)))[0]
    form = block_diagonalize(rotation @ matrix @ rotation.T, (2, 2, 2))
    assert form.condition < 100
    spectra = sorted(sorted(np.linalg.eigvals(block).real) for block in form.blocks)
    np.testing.assert_allclose(spectra, [[0.1, 0.9], [0.3, 0.3 + gap], [0.7, 0.7 + gap]], atol=1e-7)


def test_blocks_do_not_depend_on_the_coordinates() -> None:
    """A complex pair near a real eigenvalue must not make that one take half of a nearly defective real pair."""
    matrix = scipy.linalg.block_diag([[0.5, 1e-4], [-1e-4, 0.5]], [[0.5001]], [[0.7, 1.0], [0.0, 0.701]], [[-0.9]])
    random = np.random.default_rng(0)
    for _ in range(30):
        rotation = scipy.linalg.qr(random.normal(size=(6, 6)))[0]
        assert block_diagonalize(rotation @ matrix @ rotation.T, (2, 2, 2)).condition < 2


@pytest.mark.parametrize(
    "matrix",
    [np.eye(4), np.zeros((4, 4)), np.diag([0.5, 0.5, 0.5, 0.9]), np.kron(np.eye(3), np.diag([0.3, 0.7]))],
    ids=["identity", "zero", "triple", "repeated"],
)
def test_repeated_eigenvalues_with_eigenvectors_of_their_own_are_no_obstacle(matrix: np.ndarray) -> None:
    rotation = scipy.linalg.qr(np.random.default_rng(0).normal(size=matrix.shape))[0]
    for similar in (matrix, rotation @ matrix @ rotation.T):
        form = block_diagonalize(similar, (2,) * (len(matrix) // 2))
        assert form.condition < 2
        again = form.transform @ scipy.linalg.block_diag(*form.blocks) @ np.linalg.inv(form.transform)
        np.testing.assert_allclose(again, similar, atol=1e-13)  # of eigenvalues moved by at most 6 * 16 units


@settings(max_examples=60, deadline=None)
@given(sizes=st.lists(st.sampled_from([2, 4, 6]), min_size=1, max_size=6), seed=st.integers(0, 2**31))
def test_block_diagonal_form_is_similar_to_the_matrix(sizes: list[int], seed: int) -> None:
    matrix = np.random.default_rng(seed).normal(size=(sum(sizes), sum(sizes)))
    form = block_diagonalize(matrix, tuple(sizes))
    assert [block.shape for block in form.blocks] == [(size, size) for size in sizes]
    start = 0
    for size in sizes:  # the columns of every block are orthonormal
        basis = form.transform[:, start : start + size]
        np.testing.assert_allclose(basis.T @ basis, np.eye(size), atol=1e-12)
        start += size
    again = form.transform @ scipy.linalg.block_diag(*form.blocks)
    np.testing.assert_allclose(again, matrix @ form.transform, atol=1e-11 * np.linalg.norm(matrix))


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

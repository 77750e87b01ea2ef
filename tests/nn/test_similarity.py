from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.linalg import block_diag, qr

from parallelrnn.nn.similarity import block_diagonalize, smallest_blocks

Array = NDArray[np.float64]


def wave(modulus: float, angle: float) -> Array:
    return modulus * np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])


def chain(value: float, size: int) -> Array:
    return value * np.eye(size) + np.eye(size, k=1)


@pytest.mark.parametrize(
    ("blocks", "sizes"),
    [
        ([wave(0.9, 0.3), wave(0.5, 2.0)], [2, 2]),
        ([wave(0.9, 0.3), np.diag([0.5]), np.diag([-0.4])], [2, 2]),
        ([wave(0.9, 0.3), np.diag([0.5])], [1, 2]),
        ([chain(0.5, 3), wave(0.9, 1.0), np.diag([-0.9])], [2, 4]),  # a block of two, of the chain, gets the third
        ([chain(0.0, 6)], [6]),
        ([np.eye(4)], [2, 2]),  # repeated, but with eigenvectors of their own
    ],
    ids=["waves", "two real", "one real", "chain", "delays", "identity"],
)
def test_blocks_are_as_small_as_the_condition_allows(blocks: list[Array], sizes: list[int]) -> None:
    turn, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((sum(map(len, blocks)),) * 2))
    matrix = turn @ block_diag(*blocks) @ turn.T
    form = smallest_blocks(matrix, 1e4)
    assert sorted(map(len, form.blocks)) == sizes
    assert form.condition <= 1e4
    product = form.transform @ block_diag(*form.blocks) @ np.linalg.inv(form.transform)
    np.testing.assert_allclose(product, matrix, atol=1e-11)


def test_one_block_is_always_possible() -> None:
    matrix = np.random.default_rng(0).standard_normal((7, 7))
    form = smallest_blocks(matrix, 1 + 1e-9)
    assert len(form.blocks) == 1
    np.testing.assert_allclose(form.transform @ form.blocks[0] @ form.transform.T, matrix, atol=1e-12)


@pytest.mark.parametrize("gap", [0.0, 1e-4])
def test_a_nearly_defective_pair_shares_a_block(gap: float) -> None:
    """Across two blocks it would make the condition of the transform about 1 / gap."""
    matrix = block_diag([[0.1]], [[0.3, 1.0], [0.0, 0.3 + gap]], [[0.7, 1.0], [0.0, 0.7 + gap]], [[0.9]])
    rotation = qr(np.random.default_rng(0).normal(size=(6, 6)))[0]
    form = block_diagonalize(rotation @ matrix @ rotation.T, (2, 2, 2))
    assert form.condition < 100
    spectra = sorted(sorted(np.linalg.eigvals(block).real) for block in form.blocks)
    np.testing.assert_allclose(spectra, [[0.1, 0.9], [0.3, 0.3 + gap], [0.7, 0.7 + gap]], atol=1e-7)


def test_blocks_do_not_depend_on_the_coordinates() -> None:
    """A complex pair near a real eigenvalue must not make that one take half of a nearly defective real pair."""
    matrix = block_diag([[0.5, 1e-4], [-1e-4, 0.5]], [[0.5001]], [[0.7, 1.0], [0.0, 0.701]], [[-0.9]])
    random = np.random.default_rng(0)
    for _ in range(30):
        rotation = qr(random.normal(size=(6, 6)))[0]
        assert block_diagonalize(rotation @ matrix @ rotation.T, (2, 2, 2)).condition < 2


@pytest.mark.parametrize(
    "matrix",
    [np.eye(4), np.zeros((4, 4)), np.diag([0.5, 0.5, 0.5, 0.9]), np.kron(np.eye(3), np.diag([0.3, 0.7]))],
    ids=["identity", "zero", "triple", "repeated"],
)
def test_repeated_eigenvalues_with_eigenvectors_of_their_own_are_no_obstacle(matrix: Array) -> None:
    rotation = qr(np.random.default_rng(0).normal(size=matrix.shape))[0]
    for similar in (matrix, rotation @ matrix @ rotation.T):
        form = block_diagonalize(similar, (2,) * (len(matrix) // 2))
        assert form.condition < 2
        product = form.transform @ block_diag(*form.blocks) @ np.linalg.inv(form.transform)
        np.testing.assert_allclose(product, similar, atol=1e-13)  # of eigenvalues moved by at most 6 * 16 units


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
    product = form.transform @ block_diag(*form.blocks)
    np.testing.assert_allclose(product, matrix @ form.transform, atol=1e-11 * np.linalg.norm(matrix))

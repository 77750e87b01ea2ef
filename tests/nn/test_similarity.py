from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import block_diag

from parallelrnn.nn.similarity import smallest_blocks

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
    again = form.transform @ block_diag(*form.blocks) @ np.linalg.inv(form.transform)
    np.testing.assert_allclose(again, matrix, atol=1e-11)


def test_one_block_is_always_possible() -> None:
    matrix = np.random.default_rng(0).standard_normal((7, 7))
    form = smallest_blocks(matrix, 1 + 1e-9)
    assert len(form.blocks) == 1
    np.testing.assert_allclose(form.transform @ form.blocks[0] @ form.transform.T, matrix, atol=1e-12)

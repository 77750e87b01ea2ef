from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import sympy
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize

from parallelrnn.errors import ArgumentError, ArgumentTypeError, InputError
from parallelrnn.interpret import JordanBlock, RealJordan, real_jordan, recurrence_features
from parallelrnn.interpret.jordan import Planar
from parallelrnn.interpret.spectrum import Spectrum
from tests.interpret.models import blocks, orthogonal, spectrum
from tests.support import raises

Array = NDArray[np.float64]

ENTRIES = st.floats(-2, 2, allow_subnormal=False).map(lambda number: round(number, 3))
PLANES = st.lists(ENTRIES, min_size=4, max_size=4).map(lambda numbers: np.array(numbers).reshape(2, 2))


def wave(modulus: float, angle: float) -> complex:
    return complex(modulus * np.cos(angle), modulus * np.sin(angle))


def assert_decomposes(jordan: RealJordan, matrix: Array) -> None:
    np.testing.assert_allclose(
        matrix @ jordan.S, jordan.S @ jordan.J, atol=10 * jordan.tol * np.linalg.norm(matrix) + 1e-14
    )
    rebuilt = scipy.linalg.solve(jordan.S.T, (jordan.S @ jordan.J).T).T  # S J S^-1
    error = np.linalg.norm(matrix - rebuilt) / (np.linalg.norm(matrix) or 1.0)
    assert jordan.backward_error == pytest.approx(error, rel=0.1, abs=1e-14 * jordan.condition)
    assert jordan.backward_error <= 10 * jordan.tol * jordan.condition
    singular = scipy.linalg.svdvals(jordan.S)
    assert jordan.condition == pytest.approx(singular[0] / singular[-1])


STRUCTURES = [
    [(1, 0.5)],
    [(2, 0.9)],
    [(1, wave(0.9, 0.3))],
    [(1, 0.3), (1, -0.7)],
    [(1, 0.4), (1, 0.4)],
    [(2, 0.0)],
    [(3, 0.5)],
    [(4, 0.9)],
    [(2, wave(0.9, 0.3))],
    [(2, 0.5), (1, 0.5), (1, 0.5)],
    [(2, -0.5), (2, -0.5)],
    [(3, 0.0), (1, 0.0), (1, 0.7)],
    [(1, wave(0.8, 1.0)), (1, wave(0.8, 1.0)), (1, 0.2)],
    [(2, wave(0.8, 2.0)), (1, wave(0.8, 2.0)), (3, 0.2), (1, 0.0)],
    [(4, 0.9), (2, wave(0.7, 0.5))],
    [(6, 0.9)],
    [(3, wave(0.9, 1.0)), (1, 0.3)],
]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("structure", STRUCTURES)
def test_planted_jordan_blocks_are_found(structure: list[tuple[int, complex]], dtype: type) -> None:
    planted = blocks(*structure)
    turn = orthogonal(len(planted))
    matrix = (turn @ planted @ turn.T).astype(dtype)
    jordan = real_jordan(matrix)
    expected = sorted((-abs(value), JordanBlock(order, complex(value)).label) for order, value in structure)
    assert sorted((round(-abs(b.eigenvalue), 4), b.label) for b in jordan.blocks) == [
        (pytest.approx(modulus, abs=1e-4), label) for modulus, label in expected
    ]
    assert jordan.nullity == sum(value == 0 for _, value in structure)
    assert_decomposes(jordan, matrix.astype(np.float64))
    lowest, highest = jordan.tol_range
    assert lowest <= jordan.tol <= highest
    for tol in (lowest * 1.01, highest * 0.99):
        if 0 < tol < 1:
            assert real_jordan(matrix, tol=tol).labels == jordan.labels


@pytest.mark.parametrize("size", [12, 13, 16, 24, pytest.param(64, marks=pytest.mark.slow)])
@pytest.mark.parametrize("value", [0.0, 0.5])
def test_long_chains(size: int, value: float) -> None:
    """A line of delays, which is the memory of an autoregression; its eigenvectors are one and the same."""
    matrix = value * np.eye(size) + np.eye(size, k=-1)
    jordan = real_jordan(matrix)
    assert jordan.labels == (f"R-{size}",)
    assert jordan.blocks[0].eigenvalue == pytest.approx(value, abs=1e-12)
    features = recurrence_features(matrix)
    assert [(feature.label, feature.modulus) for feature in features] == [(f"R-{size}", pytest.approx(value))]
    assert features.nullity == 0


def test_other_tolerances_give_other_answers() -> None:
    """A block of order 4, rounded to float32: read as float64 its eigenvalues are four, 1e-2 apart."""
    turn = orthogonal(4)
    rounded = (turn @ blocks((4, 0.9)) @ turn.T).astype(np.float32)
    assert real_jordan(rounded).labels == ("R-4",)
    precise = real_jordan(rounded.astype(np.float64))
    assert "R-4" not in precise.labels
    assert precise.tol_range[0] == 0
    assert real_jordan(rounded.astype(np.float64), tol=precise.tol_range[1] * 1.01).labels == ("R-4",)
    assert np.ptp([abs(block.eigenvalue) for block in precise.blocks]) > 1e-3


@pytest.mark.parametrize(
    "matrix",
    [
        [[5, 4, 2, 1], [0, 1, -1, -1], [-1, -1, 3, 0], [1, 1, -1, 2]],
        [[2, 1, 0, 0], [0, 2, 0, 0], [0, 0, 2, 0], [0, 0, 0, 3]],
        [[0, 1, 0], [0, 0, 1], [1, -3, 3]],
        [[3, -1, 1], [2, 0, 1], [1, -1, 2]],
        [[0, 1, 0, 0], [-1, 0, 1, 0], [0, 0, 0, 1], [0, 0, -1, 0]],
        [[0, 1, 1], [0, 0, 1], [0, 0, 0]],
        [[1, 2, 3], [2, 4, 6], [3, 6, 9]],
        [[0, 1], [-2, 2]],
        [[3, 1], [-1, 1]],
    ],
)
def test_as_sympy_says_exactly(matrix: list[list[int]]) -> None:
    _, exact = sympy.Matrix(matrix).jordan_form()
    expected, row = [], 0
    while row < exact.rows:
        order = 1
        while row + order < exact.rows and exact[row + order - 1, row + order] == 1:
            order += 1
        expected.append((complex(exact[row, row]), order))
        row += order
    result = real_jordan(np.array(matrix) / 8)  # eighths are exact
    expected = [(value / 8, order) for value, order in expected if value.imag >= 0]
    assert len(expected) == len(result.blocks)
    for block in result.blocks:
        nearest = min(expected, key=lambda pair: abs(pair[0] - block.eigenvalue) + abs(pair[1] - block.order))
        assert block.order == nearest[1]
        assert block.eigenvalue == pytest.approx(nearest[0], abs=1e-7)
        expected.remove(nearest)
    assert_decomposes(result, np.array(matrix) / 8)


@settings(max_examples=60, deadline=None)
@given(PLANES)
def test_the_distance_of_a_plane_to_a_repeated_eigenvalue_is_the_least_there_is(matrix: Array) -> None:
    distance = real_jordan(matrix).distance

    def gap(change: Array) -> float:  # of the eigenvalues, as their squared half difference
        (a, b), (c, d) = matrix + change.reshape(2, 2)
        return float(((a - d) / 2) ** 2 + b * c)

    reached = [
        minimize(
            lambda e: e @ e, start, constraints={"type": "eq", "fun": gap}, method="SLSQP", options={"ftol": 1e-14}
        )
        for start in (np.zeros(4) + 1e-3, *np.random.default_rng(0).normal(size=(3, 4)))
    ]
    least = min(np.sqrt(r.fun) for r in reached if abs(gap(r.x)) < 1e-9)
    assert distance == pytest.approx(least, abs=2e-4)


@settings(max_examples=100, deadline=None)
@given(PLANES)
def test_the_distance_of_a_plane_to_a_singular_one_is_its_smallest_singular_value(matrix: Array) -> None:
    assert Planar(matrix).planes.to_singular[0] == pytest.approx(np.linalg.svd(matrix)[1][1], abs=1e-9)


@pytest.mark.parametrize(
    ("structure", "merged"),
    [
        ([(1, wave(0.9, 0.3)), (1, wave(0.89, 0.31)), (1, 0.1)], "C-2"),
        ([(1, 0.9), (1, 0.85), (1, wave(0.3, 1.0))], "R-2"),
        ([(1, wave(0.9, 0.02)), (1, 0.1), (1, -0.5)], "R-2"),
    ],
)
def test_two_eigenvalues_merge_at_the_distance_given(structure: list[tuple[int, complex]], merged: str) -> None:
    planted = blocks(*structure)
    basis = np.random.default_rng(3).normal(size=planted.shape)
    matrix = basis @ planted @ np.linalg.inv(basis)
    distance = real_jordan(matrix).distance / np.linalg.norm(matrix)
    assert merged not in real_jordan(matrix, tol=0.99 * distance).labels
    jordan = real_jordan(matrix, tol=1.01 * distance)
    assert merged in jordan.labels
    assert jordan.tol_range[0] == pytest.approx(distance, rel=1e-3)


@settings(max_examples=100, deadline=None)
@given(PLANES)
def test_the_closed_form_agrees_with_the_general_one(matrix: Array) -> None:
    planar, general = Planar(matrix), Spectrum(matrix)
    assume(abs(planar.distance - 1e-8) > 1e-9)  # nobody knows which side
    tol = 1e-8

    def answer(spectrum: Planar | Spectrum) -> list[tuple[tuple[int, ...], complex]]:
        groups = ((group.orders, complex(np.round(group.eigenvalue, 6))) for group in spectrum.groups(tol))
        return sorted(groups, key=lambda item: (item[1].real, item[1].imag))

    assert answer(planar) == answer(general)
    if planar.distance > 1e-6:
        assert general.distance == pytest.approx(planar.distance, rel=1e-6)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 7), st.integers(0, 10_000))
def test_a_change_of_basis_changes_no_eigenvalue(size: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    matrix = generator.normal(size=(size, size))
    basis = orthogonal(size, seed) @ np.diag(generator.uniform(0.5, 2, size))
    first, second = real_jordan(matrix), real_jordan(basis @ matrix @ np.linalg.inv(basis))
    assert first.labels == second.labels
    np.testing.assert_allclose(
        [block.eigenvalue for block in first.blocks], [block.eigenvalue for block in second.blocks], atol=1e-8
    )
    assert_decomposes(first, matrix)


def test_precision_of_a_tensor_sets_the_tolerance() -> None:
    matrix = torch.tensor([[0.5, 1.0], [0.0, 0.5]])
    coarse, fine = real_jordan(matrix.bfloat16()), real_jordan(matrix.double())
    assert coarse.tol > 1e-2 > 1e-14 > fine.tol
    assert real_jordan(torch.nn.Parameter(matrix)).labels == ("R-2",)


@pytest.mark.parametrize(
    ("matrix", "kind", "fields"),
    [
        (np.ones((2, 3)), ArgumentError, {"got": (2, 3)}),
        (np.ones(3), ArgumentError, {"got": (3,)}),
        (np.zeros((0, 0)), ArgumentError, {"got": (0, 0)}),
        ([[np.nan]], InputError, {}),
        (np.eye(2) * 1j, ArgumentTypeError, {"got": "complex128"}),
        (torch.eye(2) * 1j, ArgumentTypeError, {"got": "complex64"}),
    ],
)
def test_rejected_matrices(matrix: object, kind: type[Exception], fields: dict[str, object]) -> None:
    with raises(kind, **fields):
        real_jordan(matrix)


@pytest.mark.parametrize("tol", [0, -1.0, 1.0, float("nan")])
def test_a_tolerance_lies_between_0_and_1(tol: float) -> None:
    with raises(ArgumentError, argument="tol"):
        real_jordan(np.eye(2), tol=tol)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 9), st.integers(0, 10_000))
def test_eigenvalues_are_those_on_the_diagonal_of_scipys_schur_form(size: int, seed: int) -> None:
    matrix = np.random.default_rng(seed).normal(size=(size, size))
    triangular, _ = scipy.linalg.schur(matrix, output="complex")
    expected = np.sort_complex(np.diagonal(triangular).round(8))
    np.testing.assert_allclose(spectrum(real_jordan(matrix).blocks, 8), expected, atol=1e-7)

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import sympy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.linalg import block_diag, schur
from scipy.optimize import minimize

from parallelrnn.errors import ArgumentError, InputError
from parallelrnn.theory.density import Certificate, certify_complex, near_two_by_two
from tests.interpret.models import blocks, orthogonal
from tests.support import raises

Array = NDArray[np.float64]

EPS = float(np.finfo(np.float64).eps)
NUMBERS = st.floats(-2, 2).map(lambda number: round(number, 3))


DEFECTIVE = {
    "R-4": blocks((4, 0.9)),
    "R-3 and R-1": blocks((3, 0.5), (1, 0.5)),
    "C-2": blocks((2, 0.8 * np.exp(0.7j))),
    "R-5": blocks((5, 0.0)),
    "C-2, R-3 and R-1": blocks((2, 0.5 + 0.5j), (3, 0.9), (1, -0.2)),
    "R-16": blocks((16, 0.9)),
}


def exact(matrix: Array) -> sympy.Matrix:
    return sympy.Matrix(*matrix.shape, [sympy.Rational(*Fraction(float(x)).as_integer_ratio()) for x in matrix.flat])


@pytest.mark.parametrize("epsilon", [0.1, 1e-3, 1e-5])
@pytest.mark.parametrize("name", DEFECTIVE)
@pytest.mark.parametrize("turned", [False, True])
def test_blocks_of_size_2_are_found_within_epsilon(name: str, epsilon: float, turned: bool) -> None:
    """None of these is similar to blocks of size 2: a chain of more than two eigenvectors does not come apart."""
    matrix = DEFECTIVE[name]
    if turned:
        turn = orthogonal(len(matrix))
        matrix = turn @ matrix @ turn.T
    result = near_two_by_two(matrix, epsilon)
    size = len(matrix)
    assert [block.shape for block in result.blocks] == [(2, 2)] * (size // 2) + [(1, 1)] * (size % 2)
    product = result.transform @ block_diag(*result.blocks) @ np.linalg.inv(result.transform)
    distance = np.linalg.norm(product - matrix)
    assert distance <= epsilon
    # The distance is reported with its rounding, and the product here has its own: units times the condition.
    assert result.distance == pytest.approx(distance, abs=100 * size * EPS * result.condition * np.linalg.norm(matrix))
    assert result.distance <= epsilon
    singular = np.linalg.svd(result.transform, compute_uv=False)
    assert result.condition == pytest.approx(singular[0] / singular[-1])


@pytest.mark.parametrize("name", ["R-4", "R-3 and R-1", "C-2", "R-5"])
def test_the_distance_holds_in_exact_arithmetic(name: str) -> None:
    """Transform and blocks as rational numbers: what they make is similar to the blocks without any rounding."""
    result = near_two_by_two(DEFECTIVE[name], 1e-4)
    transform = exact(result.transform)
    made = transform * sympy.diag(*map(exact, result.blocks)) * transform.inv()
    difference = made - exact(DEFECTIVE[name])
    squared = sum(entry**2 for entry in difference)
    assert squared <= Fraction(result.distance) ** 2 <= Fraction(1e-4) ** 2
    assert squared > 0


def test_the_condition_grows_like_one_over_epsilon() -> None:
    """Davies' conjecture. Eigenvalues moved apart on the diagonal would cost 1e3^15 here."""
    matrix = np.eye(16, k=1)
    coarse, fine = near_two_by_two(matrix, 1e-2), near_two_by_two(matrix, 1e-4)
    assert coarse.condition < 16**2 / 1e-2
    assert fine.condition < 16**2 / 1e-4
    assert fine.condition < 1e3 * coarse.condition


@pytest.mark.parametrize("matrix", [np.eye(6), np.zeros((3, 3)), np.diag([1.0, 1, 2, 2]), [[0.3]], orthogonal(7)])
def test_block_diagonal_matrices_are_unchanged(matrix: Array) -> None:
    result = near_two_by_two(torch.as_tensor(np.array(matrix)), 1e-10)
    product = result.transform @ block_diag(*result.blocks) @ np.linalg.inv(result.transform)
    np.testing.assert_allclose(product, matrix, atol=1e-13)
    assert result.distance < 1e-12
    assert result.condition < 10


@pytest.mark.parametrize(
    ("matrix", "epsilon"),
    [
        (np.eye(2), 0.0),
        (np.eye(2), -1.0),
        (np.eye(2), np.inf),
        (np.eye(16, k=1), 1e-14),  # beyond double precision
        (orthogonal(7), 1e-15),  # it consists of blocks itself, up to rounding
    ],
)
def test_rejected_epsilons(matrix: Array, epsilon: float) -> None:
    with raises(ArgumentError, argument="epsilon", got=epsilon):
        near_two_by_two(matrix, epsilon)


def check_evidence(result: Certificate, matrix: Array) -> None:
    """The certificate once more, from its evidence alone."""
    points = result.centre + result.radius * np.exp(1j * result.angles)
    assert result.radius <= result.centre.imag
    assert (np.diff(result.angles) > 0).all()
    assert result.angles[-1] < result.angles[0] + 2 * np.pi
    for point, value in zip(points[::7], result.singular_values[::7], strict=True):
        inverse = np.linalg.inv(point * np.eye(len(matrix)) - matrix)
        assert value == pytest.approx(1 / np.linalg.norm(inverse, 2), rel=1e-8)
    closed = np.append(result.angles, result.angles[0] + 2 * np.pi)
    values = np.append(result.singular_values, result.singular_values[0])
    lowest = ((values[1:] + values[:-1] - result.radius * np.diff(closed)) / 2).min()
    assert 0 < result.distance <= lowest
    inside = abs(np.linalg.eigvals(matrix) - result.centre) < result.radius
    assert result.eigenvalues == inside.sum() > 0


@settings(max_examples=15, deadline=None)
@given(NUMBERS, NUMBERS, NUMBERS, st.floats(1e-3, 2), st.sampled_from([-1, 1]))
def test_for_planes_the_distance_is_exact_to_one_percent(
    mean: float, p: float, s: float, distance: float, sign: int
) -> None:
    """|k| - rho: see tests/interpret/test_jordan.py, where that distance is held against an optimiser."""
    k = sign * (np.hypot(p, s) + distance)
    matrix = np.array([[mean + p, s + k], [s - k, mean - p]])
    result = certify_complex(matrix)
    assert 0.985 * distance <= result.distance <= distance
    check_evidence(result, matrix)


@pytest.mark.parametrize(
    ("matrix", "distance"),
    [
        (blocks((1, 1 + 1j)), 1.0),
        (block_diag(blocks((1, 1 + 1j)), [[5.0]], [[-3.0]]), 1.0),
        (block_diag(blocks((1, 1 + 1j)), 0.0, 0.0), 1 / np.sqrt(2)),  # the paper's example, with rank 2
        (block_diag(blocks((1, 1 + 1j)), blocks((1, 1 + 4j)), 9.0), 1.5),
        (blocks((1, 5 + 1j), (1, -5 + 1j)), 1.0),
    ],
)
def test_normal_matrices(matrix: Array, distance: float) -> None:
    """The best circle keeps away from all eigenvalues: half way to the nearest, or at most down to the real axis."""
    turn = orthogonal(len(matrix), seed=2)
    result = certify_complex(turn @ matrix @ turn.T)
    assert 0.97 * distance <= result.distance <= distance + 1e-9
    check_evidence(result, turn @ matrix @ turn.T)


@pytest.mark.parametrize(("size", "seed"), [(3, 1), (4, 0), (6, 1)])
def test_other_circles_are_not_much_better(size: int, seed: int) -> None:
    matrix = complex_matrix(size, seed)
    turns = np.exp(2j * np.pi * np.arange(120) / 120)
    eigenvalues = np.linalg.eigvals(matrix)
    best = 0.0
    for real in np.linspace(-2, 2, 11):
        for imag in np.geomspace(0.3, 2, 6):
            for radius in imag * np.array([0.4, 0.6, 0.8, 1.0]):
                if (abs(eigenvalues - complex(real, imag)) < radius).any():
                    points = complex(real, imag) + radius * turns
                    shifted = points[:, None, None] * np.eye(size) - matrix
                    best = max(best, np.linalg.svd(shifted, compute_uv=False)[:, -1].min())
    # One percent is lost between the points of the certificate, and another by taking `best` at points alone.
    assert certify_complex(matrix).distance > 0.98 * best


def complex_matrix(size: int, seed: int) -> Array:
    generator = np.random.default_rng(seed)
    while True:
        matrix = generator.normal(size=(size, size))
        if np.iscomplexobj(np.linalg.eigvals(matrix)):
            return matrix


@pytest.mark.parametrize(("size", "seed"), [(3, 1), (4, 0), (5, 2), (8, 3), (12, 4)])
def test_changes_within_the_distance_leave_complex_eigenvalues(size: int, seed: int) -> None:
    matrix = complex_matrix(size, seed)
    result = certify_complex(matrix)
    check_evidence(result, matrix)
    generator = np.random.default_rng(seed)
    changes = list(generator.normal(size=(200, size, size)))
    # The worst ones have rank one: they move an eigenvalue to a point at which z - W is nearly singular.
    point = result.centre + result.radius * np.exp(1j * result.angles[result.singular_values.argmin()])
    left, _, right = np.linalg.svd(point * np.eye(size) - matrix)
    changes += [np.outer(left[:, -1], right[-1]).real, (left[:, -1:] @ right[-1:]).imag]
    for change in changes:
        for sign in (-1, 1):
            changed = matrix + sign * 0.9999 * result.distance / np.linalg.norm(change, 2) * change
            inside = abs(np.linalg.eigvals(changed) - result.centre) < result.radius
            assert inside.sum() == result.eigenvalues


def nearest_real_spectrum(matrix: Array) -> float:
    """An upper bound of the distance, Frobenius: upper triangular matrices in turned coordinates, by optimisation.

    The start is the real Schur form without its entries below the diagonal. A real spectrum is what a real orthogonal
    transform makes triangular, so that the squared distance is the sum of squares below the diagonal.
    """
    size = len(matrix)
    _, turn = schur(matrix, output="real")
    rows, columns = np.tril_indices(size, -1)

    def below(numbers: Array) -> float:
        skew = np.zeros((size, size))
        skew[rows, columns] = numbers
        skew -= skew.T
        rotation = turn @ np.linalg.solve(np.eye(size) + skew, np.eye(size) - skew)
        return float((np.tril(rotation.T @ matrix @ rotation, -1) ** 2).sum())

    starts = [np.zeros(len(rows)), *np.random.default_rng(0).normal(scale=0.3, size=(3, len(rows)))]
    return min(float(minimize(below, start, method="BFGS").fun) for start in starts) ** 0.5


@pytest.mark.parametrize(("size", "seed"), [(2, 1), (3, 1), (3, 5), (4, 0), (4, 6), (5, 2)])
def test_the_certificate_is_below_the_distance_of_every_real_spectrum_found(size: int, seed: int) -> None:
    matrix = complex_matrix(size, seed)
    certified, reached = certify_complex(matrix).distance, nearest_real_spectrum(matrix)
    assert certified < reached
    if size == 2:  # here both are the distance itself
        assert certified > 0.985 * reached
    assert certified > 0.05 * reached


@pytest.mark.parametrize(
    "matrix", [np.diag([1.0, 2.0]), [[0.0, 1.0], [0.0, 0.0]], np.eye(1), [[1.0, 1e-15], [-1e-15, 1.0]]]
)
def test_rejects_spectra_that_are_real_up_to_rounding(matrix: Array) -> None:
    with raises(InputError):
        certify_complex(matrix)

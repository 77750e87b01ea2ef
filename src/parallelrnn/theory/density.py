"""Blocks of size 2 come arbitrarily close to every recurrent matrix, diagonal ones do not: Theorem 1, with numbers.

Theorem 1 of arXiv 2605.02692 says that real matrices similar to a direct sum of 2 x 2 blocks are dense, and that those
similar to a diagonal matrix are not. `near_two_by_two` finds the former, `certify_complex` measures the latter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag
from scipy.optimize import minimize

from parallelrnn.errors import ArgumentError, InputError, check_number
from parallelrnn.interpret.jordan import as_matrix
from parallelrnn.nn.similarity import BlockDiagonalForm, block_diagonalize

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]

_EPS = float(np.finfo(np.float64).eps)
_GOOD_CONDITION = 2.0**26  # half of the digits are left
_PERTURBATIONS = 8  # random changes of a matrix to try
_CIRCLES_TO_IMPROVE = 3
_LOSS_BETWEEN_POINTS = 0.01  # of the distance, on a circle
_MOST_POINTS = 20_000  # on a circle, roughly
_ENTRIES_PER_BATCH = 2**20  # complex numbers, 16 MB


@dataclass(frozen=True)
class TwoByTwo:
    """A matrix similar to 2 x 2 blocks: transform @ block_diag(*blocks) @ inv(transform)."""

    transform: Array  # (d, d)
    blocks: tuple[Array, ...]  # each (2, 2); the last is (1, 1) if d is odd
    condition: float  # of the transform, in the 2-norm
    distance: float  # an upper bound of the Frobenius distance to the given matrix, rounding included


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """A proof that every matrix closer than `distance` has as many complex eigenvalues in a circle as this one.

    On the circle the smallest singular value of z - W stays above `distance`, so that no eigenvalue of W + E crosses it
    while E grows from 0. It changes no faster than z: between neighbouring points, an arc of length l apart, it is at
    least (s + t - l) / 2, with s and t its values at the points.
    """

    distance: float  # in the 2-norm, hence also Frobenius
    centre: complex
    radius: float  # at most the imaginary part of the centre: the circle may touch the real axis
    eigenvalues: int  # inside
    angles: Array  # (n,): the points are centre + radius exp(i angle), ascending
    singular_values: Array  # (n,): the smallest of z - W at each point


def near_two_by_two(matrix: Any, epsilon: float) -> TwoByTwo:
    """Find a matrix within `epsilon`, in Frobenius norm, that is similar to a direct sum of real 2 x 2 blocks.

    This is the matrix itself if it is of this kind and its transform is well conditioned. Otherwise a random matrix of
    norm epsilon / 2 is added, which makes the eigenvalues distinct with probability one. Moreover, the condition number
    of the transform is then about |W| / epsilon times a power of d, for any W (Banks, Garza-Vargas, Kulkarni and
    Srivastava, "Overlaps, eigenvalue gaps, and pseudospectrum under real Ginibre and absolutely continuous
    perturbations", 2020); moving apart the eigenvalues on the diagonal of the Schur form could cost its (d - 1)th
    power.

    A matrix of odd size gets one block of size 1. Double precision reaches an epsilon of about 1e-7 |W| if W is far
    from any such matrix of moderate condition.
    """
    W, _ = as_matrix(matrix)  # noqa: N806
    check_number("epsilon", epsilon, "a finite number above 0", lambda value: 0 < value < np.inf)
    forms = [form for form in [_two_by_two(W, W)] if form and form.condition <= _GOOD_CONDITION]
    if not forms:
        changes = np.random.default_rng(0).normal(size=(_PERTURBATIONS, *W.shape))
        changes *= epsilon / 2 / np.linalg.norm(changes, axis=(1, 2), keepdims=True)
        forms = [form for form in (_two_by_two(W, W + change) for change in changes) if form]
    best = min(forms, key=lambda form: form.condition, default=None)
    if best is None or best.distance > epsilon:
        expected = f"a distance that double precision can reach for a matrix of norm {np.linalg.norm(W):.3g}"
        raise ArgumentError(argument="epsilon", expected=expected, got=epsilon, hint="use a larger one")
    return best


def certify_complex(matrix: Any) -> Certificate:
    """Find a distance within which all matrices have complex eigenvalues, so that none is similar to a diagonal one.

    The circle is found by search and need not be the best, but its points prove the distance; rounding is subtracted.
    For d = 2 the exact distance, in both norms, is |k| - rho (see `parallelrnn.interpret.jordan.Planes`), and the
    result is 1 % below. The search takes a few thousand singular value decompositions.
    """
    W, _ = as_matrix(matrix)  # noqa: N806
    eigenvalues = np.linalg.eigvals(W).astype(np.complex128)
    if not (eigenvalues.imag > 0).any():
        raise InputError("all eigenvalues of the matrix are real, so the distance is 0")
    certificates = (_certificate(W, eigenvalues, *circle) for circle in _circles(W, eigenvalues))
    best = max(certificates, key=lambda certificate: certificate.distance)
    if best.distance <= 0:
        raise InputError("double precision cannot tell the complex eigenvalues of this matrix from real ones")
    return best


def _certificate(W: Array, eigenvalues: Complex, centre: complex, radius: float) -> Certificate:  # noqa: N803
    angles, values = _refine(W, centre, radius)
    # Computed singular values and eigenvalues are those of a matrix closer than this. If any distance is left, that
    # matrix has as many eigenvalues in the circle as W.
    rounding = 32 * len(W) * _EPS * (np.linalg.norm(W, 2) + abs(centre) + radius)
    distance = float(_on_arcs(radius, angles, values).min() - rounding)
    return Certificate(
        distance=distance,
        centre=complex(centre),
        radius=float(radius),
        eigenvalues=_inside(eigenvalues, centre, radius),
        angles=angles,
        singular_values=values,
    )


def _two_by_two(wanted: Array, matrix: Array) -> TwoByTwo | None:
    """Return the blocks of `matrix` and their distance from `wanted`, or None if double precision does not suffice."""
    sizes = (2,) * (len(matrix) // 2) + (1,) * (len(matrix) % 2)
    try:
        form = block_diagonalize(matrix, sizes)
    except ValueError:
        return None
    return TwoByTwo(form.transform, form.blocks, form.condition, _distance(wanted, form))


def _distance(wanted: Array, form: BlockDiagonalForm) -> float:
    """Bound |W - B D B^-1| = |(W B - B D) B^-1|, including the rounding of the product in brackets."""
    B = form.transform  # noqa: N806
    difference = wanted @ B - B @ block_diag(*form.blocks)
    smallest = np.linalg.norm(B, 2) / form.condition
    rounding = 4 * len(B) * _EPS * (np.linalg.norm(wanted) + max(map(np.linalg.norm, form.blocks))) * len(B) ** 0.5
    return float(np.linalg.norm(np.linalg.solve(B.T, difference.T)) + rounding / smallest)


def _circles(W: Array, eigenvalues: Complex) -> Iterator[tuple[complex, float]]:  # noqa: N803
    """Yield circles above the real axis around one or more eigenvalues, improved from the best simple ones."""
    upper = eigenvalues[eigenvalues.imag > 0]
    others = abs(upper[:, None] - eigenvalues)  # (n, d)
    nearest = np.where(others == 0, np.inf, others).min(axis=1)
    simple = list(zip(upper, np.minimum(nearest / 2, upper.imag), strict=True))
    # One circle around all of them, which touches the axis.
    middle = upper.real.mean()
    height = ((upper.real - middle) ** 2 + upper.imag**2) / upper.imag
    simple.append((complex(middle, height.max()), height.max()))
    simple.sort(key=lambda circle: -_least_on(W, eigenvalues, *circle))

    def circle(numbers: Array) -> tuple[complex, float]:
        height = np.exp(numbers[1])
        return complex(numbers[0], height), float(height * min(1.0, np.exp(numbers[2])))

    for centre, radius in simple[:_CIRCLES_TO_IMPROVE]:
        start = np.array([centre.real, np.log(centre.imag), np.log(radius / centre.imag)])
        steps = np.vstack([start, start + np.diag([radius / 2, 0.3, 0.3])])
        result = minimize(
            lambda numbers: -_least_on(W, eigenvalues, *circle(numbers)),
            start,
            method="Nelder-Mead",
            options={"initial_simplex": steps, "xatol": 1e-2, "fatol": 1e-4 * radius, "maxfev": 300},
        )
        yield centre, radius
        yield circle(result.x)


def _least_on(W: Array, eigenvalues: Complex, centre: complex, radius: float) -> float:  # noqa: N803
    """Estimate the smallest singular value of z - W on a circle; -1 if there is no eigenvalue inside."""
    if not _inside(eigenvalues, centre, radius):
        return -1.0
    offsets = eigenvalues - centre
    close = np.argsort(abs(abs(offsets) - radius))[:16]  # to the circle, where the value is likely to be small
    angles = np.concatenate([np.angle(offsets[close]), np.linspace(-np.pi, np.pi, 16)])
    values = _smallest(W, centre, radius, angles)
    around = angles[values.argmin()] + np.array([-0.2, -0.1, 0.1, 0.2])
    return float(min(values.min(), _smallest(W, centre, radius, around).min()))


def _inside(eigenvalues: Complex, centre: complex, radius: float) -> int:
    return int((abs(eigenvalues - centre) < radius).sum())


def _smallest(W: Array, centre: complex, radius: float, angles: Array) -> Array:  # noqa: N803
    points = centre + radius * np.exp(1j * angles)
    groups = np.array_split(points, 1 + points.size * W.size // _ENTRIES_PER_BATCH)
    shifted = (group[:, None, None] * np.eye(len(W)) - W for group in groups)  # each (n, d, d)
    return np.concatenate([np.linalg.svd(matrices, compute_uv=False)[:, -1] for matrices in shifted])


def _on_arcs(radius: float, angles: Array, values: Array) -> Array:
    """Bound the smallest singular value from below on the arc that follows each point."""
    lengths = radius * (np.append(angles[1:], angles[0] + 2 * np.pi) - angles)
    return (values + np.roll(values, -1) - lengths) / 2


def _refine(W: Array, centre: complex, radius: float) -> tuple[Array, Array]:  # noqa: N803
    """Halve arcs until none can be much below the lowest point; return angles and singular values."""
    angles = np.linspace(-np.pi, np.pi, 32, endpoint=False)
    values = _smallest(W, centre, radius, angles)
    while len(angles) < _MOST_POINTS:
        low = _on_arcs(radius, angles, values) < (1 - _LOSS_BETWEEN_POINTS) * values.min()
        if not low.any():
            break
        following = np.append(angles[1:], angles[0] + 2 * np.pi)
        added = (angles[low] + following[low]) / 2
        angles = np.concatenate([angles, added])
        values = np.concatenate([values, _smallest(W, centre, radius, added)])
        order = np.argsort(angles)
        angles, values = angles[order], values[order]
    return angles, values

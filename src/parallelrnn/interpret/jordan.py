"""The real Jordan form of a matrix: its powers as sums of decays and damped waves.

Proposition 1 of arXiv 2605.02692, with the factor `modulus` in C(modulus, angle), angles in (0, pi), and any number of
Jordan blocks per eigenvalue. The type of a matrix is a claim within a tolerance, since arbitrarily close to every
matrix with a repeated eigenvalue there are matrices without one. So the answer includes the tolerance and the interval
of tolerances that give the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parallelrnn.errors import ArgumentError, ArgumentTypeError, InputError, check_number
from parallelrnn.interpret.dynamics import Dynamics
from parallelrnn.interpret.spectrum import Group, Spectrum

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]

# The search for the tolerances that give the same answer: their ratio from try to try, and its limits.
_TOLERANCE_RATIO, _LEAST_TOLERANCE, _MOST_TOLERANCE = 2.0, 1e-17, 1.0


@dataclass(frozen=True)
class JordanBlock(Dynamics):
    """One block of J: J_n(eigenvalue), or C_n(modulus, angle) for a pair of complex eigenvalues."""

    order: int
    eigenvalue: complex  # of a pair, the one in the upper half plane

    @property
    def matrix(self) -> Array:
        """The block as a matrix."""
        a, b = self.eigenvalue.real, self.eigenvalue.imag
        diagonal = np.array([[a, b], [-b, a]]) if b else np.array([[a]])
        ones = np.kron(np.eye(self.order, k=1), np.eye(len(diagonal)))
        block: Array = np.kron(np.eye(self.order), diagonal) + ones
        return block


@dataclass(frozen=True, kw_only=True)
class RealJordan:
    """The decomposition W = S J S^-1, up to `backward_error`, and how far it can be trusted."""

    S: Array  # (d, d)
    J: Array  # (d, d): the blocks, largest modulus first
    blocks: tuple[JordanBlock, ...]
    distance: float  # to the nearest matrix with a repeated eigenvalue: exact for d = 2, otherwise an upper bound
    tol: float  # relative to the Frobenius norm of W; smaller changes of W do not count
    tol_range: tuple[float, float]  # every tolerance tried in it, each twice the last, gives the same types
    backward_error: float  # |W - S J S^-1| / |W|, Frobenius
    condition: float  # of S, in the 2-norm

    @property
    def nullity(self) -> int:
        """The dimension of the null space: the number of blocks with eigenvalue 0."""
        return sum(block.eigenvalue == 0 for block in self.blocks)

    @property
    def labels(self) -> tuple[str, ...]:
        """The types of the blocks."""
        return tuple(block.label for block in self.blocks)


def real_jordan(W: Any, tol: float | None = None) -> RealJordan:  # noqa: N803
    """Compute the real Jordan form of a square matrix, given as an array or a tensor.

    Matrices that differ by at most `tol` times the Frobenius norm of W count as equal, and the result is the form of
    the most structured one. The default is 4 sqrt(d) times the machine epsilon of W's own precision, so pass weights
    in the precision in which they were trained.
    """
    from scipy.linalg import block_diag

    matrix, unit = as_matrix(W)
    tol = default_tolerance(len(matrix), unit) if tol is None else check_tolerance(tol)
    spectrum = spectrum_of(matrix)
    groups = sorted(spectrum.groups(tol), key=lambda group: (-abs(group.eigenvalue), group.eigenvalue.imag))
    blocks = tuple(JordanBlock(order, group.eigenvalue) for group in groups for order in group.orders)
    S = basis_of(groups)  # noqa: N806
    J = block_diag(*(block.matrix for block in blocks))  # noqa: N806
    norm = float(np.linalg.norm(matrix))
    residual = matrix - np.linalg.solve(S.T, (S @ J).T).T
    return RealJordan(
        S=S,
        J=J,
        blocks=blocks,
        distance=spectrum.distance,
        tol=tol,
        tol_range=_tolerances_with_the_same_answer(spectrum.groups, tol),
        backward_error=float(np.linalg.norm(residual)) / (norm or 1.0),
        condition=float(np.linalg.cond(S)),
    )


def spectrum_of(matrix: Array) -> Planar | Spectrum:
    """Compute the eigenvalues of a matrix, in closed form for d = 2."""
    return Planar(matrix) if len(matrix) == 2 else Spectrum(matrix)


@dataclass(frozen=True)
class Planes:
    """Many 2 x 2 matrices in closed form; each array is (N,).

    For [[a, b], [c, d]] put p = (a - d) / 2, s = (b + c) / 2, k = (b - c) / 2 and rho = sqrt(p^2 + s^2). The
    eigenvalues are (a + d) / 2 +- sqrt(rho^2 - k^2): real if rho > |k|, complex if rho < |k|.
    """

    mean: Array  # of the two eigenvalues
    rho: Array
    k: Array
    norm: Array  # Frobenius

    @classmethod
    def of(cls, matrices: Array) -> Planes:  # (N, 2, 2)
        """Compute the closed form of N matrices."""
        (a, b), (c, d) = np.moveaxis(matrices, 0, -1)
        return cls((a + d) / 2, np.hypot((a - d) / 2, (b + c) / 2), (b - c) / 2, np.linalg.norm(matrices, axis=(1, 2)))

    @property
    def root(self) -> Complex:
        """Half the difference of the two eigenvalues: real or imaginary."""
        # As a product, since rho and |k| may be nearly equal.
        squared = (self.rho - abs(self.k)) * (self.rho + abs(self.k))
        root: Complex = np.sqrt(squared.astype(complex))
        return root

    @property
    def distance(self) -> Array:
        """The Frobenius distance to the nearest matrix with a repeated eigenvalue."""
        return abs(self.rho - abs(self.k))

    @property
    def to_identity(self) -> Array:
        """The Frobenius distance to the nearest multiple of the identity."""
        distance: Array = np.sqrt(2) * np.hypot(self.rho, self.k)
        return distance

    @property
    def to_singular(self) -> Array:
        """The distance to the nearest singular matrix: the matrix is mean + k rotation + rho reflection."""
        return abs(np.hypot(self.mean, self.k) - self.rho)


class Planar:
    """The eigenvalues of one 2 x 2 matrix, with the interface of `Spectrum`."""

    def __init__(self, matrix: Array) -> None:
        self.matrix = matrix
        self.planes = Planes.of(matrix[None])
        self.norm = float(self.planes.norm[0]) or 1.0
        self.distance = float(self.planes.distance[0])

    def distance_of(self, group: Group) -> float:
        """Return the distance to a repeated eigenvalue, which is the same for both."""
        return self.distance

    def groups(self, tol: float) -> list[Group]:
        """Return the eigenvalues, as one group if a relative change of the matrix by `tol` merges them."""
        allowed = tol * self.norm
        mean = float(self.planes.mean[0])
        if self.distance > allowed:
            root = complex(self.planes.root[0])
            if root.imag:
                return [Group(mean + root, (1,), self._eigenvector(mean + root), frozenset([0]))]
            smaller, larger = sorted((mean + root.real, mean - root.real), key=abs)
            zero = self.planes.to_singular[0] <= allowed
            return [
                Group(0.0 if zero else smaller, (1,), self._eigenvector(smaller), frozenset([0])),
                Group(larger, (1,), self._eigenvector(larger), frozenset([1])),
            ]
        value = 0.0 if abs(mean) * 2**0.5 <= allowed else mean
        if self.planes.to_identity[0] <= allowed:
            return [Group(value, (1, 1), np.eye(2, dtype=complex), frozenset([0, 1]))]
        # The nearest matrix with a repeated eigenvalue is mean + sigma u v', of the largest singular value's u and v.
        left, singular, right = np.linalg.svd(self.matrix - mean * np.eye(2))
        chain = np.stack([singular[0] * left[:, 0], right[0]], axis=1)
        return [Group(value, (2,), chain.astype(complex), frozenset([0, 1]))]

    def _eigenvector(self, value: complex) -> Complex:
        """Return the vector (2, 1) orthogonal to the larger row of the matrix less the eigenvalue."""
        (a, b), (c, d) = self.matrix
        rows = np.array([[b, value - a], [value - d, c]], dtype=complex)
        vector = rows[np.linalg.norm(rows, axis=1).argmax()]
        unit: Complex = vector / np.linalg.norm(vector)
        return unit[:, None]


def projectors(groups: Sequence[Group]) -> Iterator[tuple[Group, int, Array]]:
    """Yield for each Jordan block its group, its order, and the projector (d, d) onto its subspace along the others."""
    basis = basis_of(groups)
    inverse = np.linalg.inv(basis)
    start = 0
    for group in groups:
        for order in group.orders:
            stop = start + order * (2 if group.eigenvalue.imag else 1)
            yield group, order, basis[:, start:stop] @ inverse[start:stop]
            start = stop


def as_matrix(W: Any) -> tuple[Array, float]:  # noqa: N803
    """Return a square matrix in double precision, and the machine epsilon of its original precision."""
    if hasattr(W, "detach"):
        tensor = W.detach().cpu()
        dtype = str(tensor.dtype).removeprefix("torch.")
        original = tensor if tensor.is_complex() else tensor.double().numpy()
    else:
        original = np.asarray(W)
        dtype = original.dtype.name
    if "complex" in dtype:
        raise ArgumentTypeError(expected="a real matrix", got=dtype)
    unit = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}.get(dtype, 2.0**-52)
    array = original.astype(np.float64)
    if array.ndim != 2 or array.shape[0] != array.shape[1] or not len(array):
        raise ArgumentError(expected="a square matrix", got=tuple(array.shape))
    if not np.isfinite(array).all():
        raise InputError("the matrix has entries that are not finite", hint="check whether training diverged")
    return array, unit


def check_tolerance(tol: float) -> float:
    """Return the tolerance; raise unless it lies between 0 and 1."""
    expected = "a number between 0 and 1, relative to the norm of the matrix"
    return check_number("tol", tol, expected, lambda value: 0 < value < 1)


def default_tolerance(size: int, unit: float) -> float:
    """Return the relative change that rounding and an eigenvalue computation may cause in a (size, size) matrix."""
    return float(4 * size**0.5 * unit)


def basis_of(groups: Sequence[Group]) -> Array:
    """Return S: the chains of all groups side by side, in real columns."""
    return np.concatenate([_real_columns(group) for group in groups], axis=1)


def _real_columns(group: Group) -> Array:
    # A z = lambda z for z = x + i y is A (x, y) = (x, y) C(modulus, angle).
    if not group.eigenvalue.imag:
        return group.chains.real
    pairs = np.stack([group.chains.real, group.chains.imag], axis=-1)  # (d, n, 2)
    return pairs.reshape(len(pairs), -1)


def _tolerances_with_the_same_answer(groups: Callable[[float], list[Group]], tol: float) -> tuple[float, float]:
    """Return the interval around `tol` in which every tolerance tried gives the same groups."""

    def answer(tol: float) -> set[tuple[frozenset[int], tuple[int, ...], bool]]:
        return {(group.positions, group.orders, group.eigenvalue == 0) for group in groups(tol)}

    here = answer(tol)
    plain = all(len(positions) == 1 and not zero for positions, _, zero in here)

    def last(ratio: float) -> float:
        """Return the last tolerance with the same answer on the way from `tol` in steps of this ratio."""
        inside = tol
        while _LEAST_TOLERANCE < inside < _MOST_TOLERANCE:
            outside = inside * ratio
            if answer(outside) != here:
                for _ in range(12):  # to three digits
                    middle = (inside * outside) ** 0.5
                    inside, outside = (middle, outside) if answer(middle) == here else (inside, middle)
                return inside
            inside = outside
        return 0.0 if ratio < 1 else np.inf

    return 0.0 if plain else last(1 / _TOLERANCE_RATIO), last(_TOLERANCE_RATIO)

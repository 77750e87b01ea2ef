"""The eigenvalues of a matrix, and which of them are equal within a tolerance.

A change of size e spreads the eigenvalues of a Jordan block of order n by e^(1/n): 1.4e-2 for n = 4 and rounding to
float32. So eigenvalues are compared not with each other but with the effect that a small change of the matrix can have
on them. Those that it might merge, to first order, are tested as a group: in an orthonormal basis of their invariant
subspace, the matrix less their mean has to be nilpotent, up to singular values below the tolerance. The numbers of
these singular values, stage by stage, give the sizes of the Jordan blocks (Golub and Wilkinson, SIAM Review 18, 1976).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]
Positions = NDArray[np.intp]

# Eigenvalues are tested as a group if perturbation theory merges them within this multiple of the tolerance. For a
# Jordan block of any order the theory overestimates the change needed, by a factor of up to 2 pi.
_MERGING_MARGIN = 10.0
_LARGEST = 1e100  # its square is still finite


@dataclass(frozen=True)
class Group:
    """Eigenvalues that are equal within the tolerance, and their Jordan chains."""

    eigenvalue: complex  # their mean, or 0; imag >= 0
    orders: tuple[int, ...]  # of the Jordan blocks, largest first
    chains: Complex  # (d, sum of orders): for each block its eigenvector, then its generalised eigenvectors
    positions: frozenset[int]  # among all eigenvalues; of complex pairs, those in the upper half plane


class Spectrum:
    """The eigenvalues of a matrix of any size."""

    def __init__(self, matrix: Array) -> None:
        # Imported here because scipy.linalg would slow down every `import parallelrnn`.
        from scipy.linalg import rsf2csf, schur

        self.matrix = matrix
        self.norm = float(np.linalg.norm(matrix)) or 1.0
        self._schur, self._basis = schur(matrix, output="real")
        triangular, basis = rsf2csf(self._schur, self._basis)
        self.values: Complex = np.array(np.diagonal(triangular))
        self.mirror = np.arange(len(matrix))
        for first in np.flatnonzero(np.diagonal(self._schur, -1)):  # the two of a pair are adjacent
            self.mirror[[first, first + 1]] = first + 1, first
            self.values[first + 1] = self.values[first].conj()
        single = self.mirror == np.arange(len(matrix))
        self.values[single] = self.values[single].real
        vectors, sensitivity = _eigenvectors(triangular, self.norm)
        self.vectors: Complex = basis @ vectors
        gaps = abs(self.values[:, None] - self.values[None, :])
        self._sensitivity = sensitivity
        # The relative change of the matrix that merges two eigenvalues, to first order.
        self._merging = gaps / (sensitivity[:, None] + sensitivity[None, :]) / self.norm

    @cached_property
    def _distances(self) -> Array:
        return merging_distances(self.values, self.vectors)

    @property
    def distance(self) -> float:
        """The smallest distance to a repeated eigenvalue over all pairs of eigenvalues, Frobenius."""
        return float(self._distances.min())

    def distance_of(self, group: Group) -> float:
        """Return the smallest distance to a repeated eigenvalue over the eigenvalues of a group."""
        return float(self._distances[sorted(group.positions)].min())

    def groups(self, tol: float) -> list[Group]:
        """Return the largest groups of eigenvalues that a relative change of the matrix by `tol` merges."""
        groups = []
        left = np.ones(len(self.matrix), dtype=bool)
        candidates = _components(self._merging <= _MERGING_MARGIN * tol, np.arange(len(left)))
        while candidates:
            positions = candidates.pop()
            positions = positions[left[positions]]
            if not len(positions):
                continue
            group = self._as_group(positions, tol)
            if group is None:
                candidates += self._split(positions)
                continue
            taken = np.array(sorted(group.positions))
            left[taken] = left[self.mirror[taken]] = False
            groups.append(group)
        return groups

    def _split(self, positions: Positions) -> list[Positions]:
        """Cut the weakest link that holds a candidate together."""
        links = self._merging[np.ix_(positions, positions)]
        nearest, outside, weakest = links[0].copy(), np.arange(1, len(links)), 0.0
        while len(outside):  # Prim's algorithm: the tree grows by the nearest eigenvalue outside it
            index = nearest[outside].argmin()
            weakest = max(weakest, nearest[outside[index]])
            nearest = np.minimum(nearest, links[outside[index]])
            outside = np.delete(outside, index)
        return _components(links < weakest, positions)

    def _as_group(self, positions: Positions, tol: float) -> Group | None:
        """Return the eigenvalues at these positions as one group, or None if they are not equal."""
        mirrored = set(self.mirror[positions].tolist())
        is_real = mirrored == set(positions.tolist())
        if not is_real and mirrored & set(positions.tolist()):
            return None  # one half of a pair: an eigenvalue equal to its conjugate is real
        if self.values[positions[0]].imag < 0:
            positions = self.mirror[positions]
        if len(positions) == 1:
            return self._single(int(positions[0]), tol)
        basis = self._invariant_subspace(positions, is_real)
        part = basis.conj().T @ self.matrix @ basis
        allowed = tol * self.norm / (1 if is_real else 2**0.5)  # a change of a pair changes both
        mean = complex(np.trace(part)) / len(part)
        if abs(mean) * len(part) ** 0.5 <= allowed:
            mean = 0j
        stairs = _staircase(part - mean * np.eye(len(part)), allowed)
        if stairs is None:
            return None
        orders, chains = _chains(*stairs)
        return Group(mean.real if is_real else mean, orders, basis @ chains, frozenset(positions.tolist()))

    def _single(self, position: int, tol: float) -> Group:
        value, vector = complex(self.values[position]), self.vectors[:, position]
        if not value.imag:
            value = 0j if abs(value) <= self._sensitivity[position] * tol * self.norm else value
            vector = vector * np.exp(-1j * np.angle(vector[abs(vector).argmax()]))  # real
        return Group(value, (1,), vector[:, None], frozenset([position]))

    def _invariant_subspace(self, positions: Positions, is_real: bool) -> Complex:
        """Return an orthonormal basis (d, n); it is real if the eigenvalues are closed under conjugation."""
        from scipy.linalg import schur
        from scipy.linalg.lapack import dtrsen

        selected = np.zeros(len(self.matrix), dtype=np.int32)
        selected[positions] = selected[self.mirror[positions]] = 1
        _, basis, *_ = dtrsen(selected, self._schur, self._basis, job="N")
        real: Array = basis[:, : selected.sum()]
        if is_real:
            return real.astype(complex)
        _, upper, count = schur(real.T @ self.matrix @ real, output="complex", sort=lambda z: z.imag > 0)
        basis_above: Complex = real @ upper[:, :count]
        return basis_above


@dataclass(frozen=True, kw_only=True)
class PlainEigenvalues:
    """Eigenvalues of many matrices, and which of the matrices need no closer look."""

    values: Complex  # (N, d)
    vectors: Complex  # (N, d, d)
    inverse: Complex  # (N, d, d), of the vectors; zeros if one of them is singular
    distances: Array  # (N, d): `merging_distances`
    is_plain: NDArray[np.bool_]  # (N,): no change within the tolerance merges two eigenvalues or makes one zero

    @classmethod
    def of(cls, matrices: Array, tol: Array) -> PlainEigenvalues:
        """Compute the eigenvalues of matrices (N, d, d) at relative tolerances (N,)."""
        values, vectors = np.linalg.eig(matrices)
        values, vectors = values.astype(complex), vectors.astype(complex)
        distances = merging_distances(values, vectors)
        try:
            inverse, is_plain = np.linalg.inv(vectors), np.ones(len(matrices), dtype=bool)
        except np.linalg.LinAlgError:  # some matrix has two equal eigenvectors
            inverse, is_plain = np.zeros_like(vectors), np.zeros(len(matrices), dtype=bool)
        with np.errstate(over="ignore", invalid="ignore"):  # eigenvectors may be all but equal
            sensitivity = np.linalg.norm(inverse, axis=-1)
        sensitivity = np.where(sensitivity < _LARGEST, sensitivity, _LARGEST)
        allowed = (tol * np.linalg.norm(matrices, axis=(1, 2)))[:, None]
        gaps = abs(values[:, :, None] - values[:, None, :])
        linked = gaps <= _MERGING_MARGIN * allowed[:, None] * (sensitivity[:, :, None] + sensitivity[:, None, :])
        in_pairs = linked.sum(axis=-1) <= 2  # itself and one other, for which the distance is exact
        is_plain &= (in_pairs & (distances > allowed) & (abs(values) > sensitivity * allowed)).all(axis=-1)
        return cls(values=values, vectors=vectors, inverse=inverse, distances=distances, is_plain=is_plain)

    def shares(self, index: int, form: Array | None) -> list[float]:
        """Return trace(F P) for the projector P of each eigenvalue of a matrix; for a pair, of both together."""
        if form is None:
            return [math.nan] * len(self.values[index])
        own = np.einsum("ij,ji->i", self.inverse[index] @ form, self.vectors[index]).real
        shares: list[float] = np.where(self.values[index].imag == 0, own, 2 * own).tolist()
        return shares


def merging_distances(values: Complex, vectors: Complex) -> Array:
    """Bound, for each eigenvalue (..., d), the Frobenius distance to a matrix in which it is repeated.

    In the plane of two eigenvectors at an angle phi the matrix is a 2 x 2 block, and the nearest block with a repeated
    eigenvalue is |difference| / 2 * tan(phi / 2) away. For two pairs that change is needed twice.
    """
    cosine = np.clip(abs(np.swapaxes(vectors.conj(), -1, -2) @ vectors), 0, 1)
    half_tangent = np.sqrt((1 - cosine) / (1 + cosine))  # tan(phi / 2)
    gaps = abs(values[..., :, None] - values[..., None, :])
    is_complex = values.imag != 0
    twice = is_complex[..., :, None] & is_complex[..., None, :] & (values[..., :, None] != values[..., None, :].conj())
    distances = gaps / 2 * half_tangent * np.where(twice, np.sqrt(2), 1)
    distances = np.where(np.eye(values.shape[-1], dtype=bool), np.inf, distances)
    nearest: Array = distances.min(axis=-1)
    return nearest


def _components(linked: NDArray[np.bool_], positions: Positions) -> list[Positions]:
    """Return the connected components of linked positions."""
    components = []
    left = np.ones(len(positions), dtype=bool)
    while left.any():
        reached = np.zeros(len(positions), dtype=bool)
        reached[left.argmax()] = True
        while True:
            further = reached | linked[reached].any(axis=0)
            if (further == reached).all():
                break
            reached = further
        components.append(positions[reached])
        left &= ~reached
    return components


def _eigenvectors(triangular: Complex, norm: float) -> tuple[Complex, Array]:
    """Return the unit eigenvectors of an upper triangular matrix, and the condition number of each eigenvalue."""
    from scipy.linalg import solve_triangular

    size = len(triangular)
    vectors = np.eye(size, dtype=complex)
    least = np.finfo(float).eps * norm
    for index in range(1, size):
        differences = np.diagonal(triangular)[:index] - triangular[index, index]
        differences = np.where(abs(differences) < least, least, differences)  # as LAPACK does
        shifted = triangular[:index, :index].copy()
        np.fill_diagonal(shifted, differences)
        solution = solve_triangular(shifted, -triangular[:index, index], check_finite=False)
        if abs(solution).max() < _LARGEST:
            vectors[:index, index] = solution
            vectors[:, index] /= np.linalg.norm(vectors[:, index])
        else:  # too large or NaN, because many eigenvalues are equal
            vectors[: index + 1, index] = _scaled_solution(triangular[:index, : index + 1], differences)
    ends = np.diagonal(vectors)
    np.fill_diagonal(vectors, np.where(abs(ends) < 1 / _LARGEST, 1 / _LARGEST, ends))
    with np.errstate(over="ignore", invalid="ignore"):
        left = abs(solve_triangular(vectors, np.eye(size), check_finite=False))
    left = np.where(left < _LARGEST, left, _LARGEST)  # NaN, too: such eigenvalues cannot be told apart
    return vectors, np.linalg.norm(left, axis=1)


def _scaled_solution(rows: Complex, differences: Complex) -> Complex:
    """Return the unit eigenvector that ends with the last column, rescaled whenever it grows too large."""
    vector = np.zeros(rows.shape[1], dtype=complex)
    vector[-1] = 1
    for row in reversed(range(len(rows))):
        vector[row] = -(rows[row, row + 1 :] @ vector[row + 1 :]) / differences[row]
        if abs(vector[row]) > _LARGEST:
            vector /= abs(vector[row])
    normed: Complex = vector / np.linalg.norm(vector)
    return normed


def _staircase(matrix: Complex, allowed: float) -> tuple[list[int], Complex, Complex] | None:
    """Compute the staircase form of a nilpotent matrix: the dimensions of its nested null spaces, basis and matrix.

    Singular values up to `allowed` count as zero. Return None if the matrix is not nilpotent.
    """
    size = len(matrix)
    basis = np.eye(size, dtype=complex)
    matrix = matrix.copy()
    stairs: list[int] = []
    start = 0
    while start < size:
        _, singular, rows = np.linalg.svd(matrix[start:, start:])
        dimension = int((singular <= allowed).sum())
        if dimension == 0 or (stairs and dimension > stairs[-1]):
            return None
        turn = rows.conj().T[:, ::-1]  # smallest singular values first
        matrix[:, start:] = matrix[:, start:] @ turn
        matrix[start:] = turn.conj().T @ matrix[start:]
        matrix[start:, start : start + dimension] = 0
        basis[:, start:] = basis[:, start:] @ turn
        stairs.append(dimension)
        start += dimension
    return stairs, basis, matrix


def _chains(stairs: list[int], basis: Complex, nilpotent: Complex) -> tuple[tuple[int, ...], Complex]:
    """Return the orders of the Jordan blocks, largest first, and their chains side by side."""
    starts = np.concatenate([[0], np.cumsum(stairs)])
    orders: list[int] = []
    levels: list[Complex] = []  # from the top stair down: one column for each block that reaches this height
    above = np.zeros((len(nilpotent), 0), dtype=complex)
    for level in reversed(range(len(stairs))):
        images = nilpotent @ above
        stair = slice(starts[level], starts[level + 1])
        # Directions of this stair that no chain from above covers are the tops of new chains.
        turn, _ = np.linalg.qr(images[stair], mode="complete") if images.shape[1] else (np.eye(stairs[level]), None)
        new = np.zeros((len(nilpotent), stairs[level] - images.shape[1]), dtype=complex)
        new[stair] = turn[:, images.shape[1] :]
        above = np.concatenate([images, new], axis=1)
        levels.append(above)
        orders += [level + 1] * new.shape[1]
    columns = []
    for block, order in enumerate(orders):
        chain = np.stack([levels[-1 - rise][:, block] for rise in range(order)], axis=1)
        columns.append(basis @ chain / np.linalg.norm(chain) * order**0.5)
    return tuple(orders), np.concatenate(columns, axis=1)

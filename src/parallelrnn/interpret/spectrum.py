"""The eigenvalues of a matrix, and which of them are one within a tolerance.

A Jordan block of order n, changed by e, has eigenvalues e^(1/n) apart: 1.4e-2 for n = 4 and a rounding to float32. So
eigenvalues are not compared with each other but with what a small change of the matrix can do to them. Those that it
might merge, to first order, are tried as one: in an orthonormal basis of their invariant subspace, what is left after
taking off their mean has to be nilpotent, up to singular values that are as small as the tolerance. The numbers of
these, stage by stage, are the sizes of the Jordan blocks (Golub and Wilkinson, SIAM Review 18, 1976).
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

# Eigenvalues are tried as one if perturbation theory merges them within so many times the tolerance. For a Jordan block
# of any order it overestimates by up to 2 pi.
_GENEROUS = 10.0
_LARGE = 1e100  # whose square is still a number


@dataclass(frozen=True)
class Group:
    """Eigenvalues that are one within the tolerance, and the chains of vectors that belong to them."""

    eigenvalue: complex  # their mean, or 0; imag >= 0
    orders: tuple[int, ...]  # of the Jordan blocks, largest first
    chains: Complex  # (d, sum of orders): for each block its eigenvector, then what leads to it
    positions: frozenset[int]  # among all eigenvalues; of a complex one, those of the upper half plane


class Spectrum:
    """The eigenvalues of a matrix of any size."""

    def __init__(self, matrix: Array) -> None:
        # Here and not above, since importing scipy.linalg would make every `import parallelrnn` slower.
        from scipy.linalg import rsf2csf, schur

        self.matrix = matrix
        self.norm = float(np.linalg.norm(matrix)) or 1.0
        self._schur, self._basis = schur(matrix, output="real")
        triangular, basis = rsf2csf(self._schur, self._basis)
        self.values: Complex = np.array(np.diagonal(triangular))
        self.mirror = np.arange(len(matrix))
        for first in np.flatnonzero(np.diagonal(self._schur, -1)):  # the two of a pair are neighbours
            self.mirror[[first, first + 1]] = first + 1, first
            self.values[first + 1] = self.values[first].conj()
        single = self.mirror == np.arange(len(matrix))
        self.values[single] = self.values[single].real
        vectors, sensitivity = _eigenvectors(triangular, self.norm)
        self.vectors: Complex = basis @ vectors
        gaps = abs(self.values[:, None] - self.values[None, :])
        self._sensitivity = sensitivity
        # The change of the matrix that merges two eigenvalues, to first order, relative.
        self._merging = gaps / (sensitivity[:, None] + sensitivity[None, :]) / self.norm

    @cached_property
    def _distances(self) -> Array:
        return merging_distances(self.values, self.vectors)

    @property
    def distance(self) -> float:
        """The smallest distance to a repeated eigenvalue that a pair of eigenvalues gives."""
        return float(self._distances.min())

    def distance_of(self, group: Group) -> float:
        """The same, for the eigenvalues of a group."""
        return float(self._distances[sorted(group.positions)].min())

    def groups(self, tol: float) -> list[Group]:
        """The largest groups of eigenvalues that a change of the matrix by `tol`, relative, makes one."""
        found = []
        left = np.ones(len(self.matrix), dtype=bool)
        candidates = _components(self._merging <= _GENEROUS * tol, np.arange(len(left)))
        while candidates:
            chosen = candidates.pop()
            chosen = chosen[left[chosen]]
            if not len(chosen):
                continue
            group = self._as_one(chosen, tol)
            if group is None:
                candidates += self._split(chosen)
                continue
            taken = np.array(sorted(group.positions))
            left[taken] = left[self.mirror[taken]] = False
            found.append(group)
        return found

    def _split(self, positions: Positions) -> list[Positions]:
        """Cut the weakest of the links that hold a candidate together."""
        links = self._merging[np.ix_(positions, positions)]
        nearest, outside, weakest = links[0].copy(), np.arange(1, len(links)), 0.0
        while len(outside):  # Prim's algorithm: the tree grows by the nearest that is outside
            index = nearest[outside].argmin()
            weakest = max(weakest, nearest[outside[index]])
            nearest = np.minimum(nearest, links[outside[index]])
            outside = np.delete(outside, index)
        return _components(links < weakest, positions)

    def _as_one(self, positions: Positions, tol: float) -> Group | None:
        """These eigenvalues as one, if they are."""
        mirrored = set(self.mirror[positions].tolist())
        is_real = mirrored == set(positions.tolist())
        if not is_real and mirrored & set(positions.tolist()):
            return None  # part of a pair: what is one with its mirror image is real
        if self.values[positions[0]].imag < 0:
            positions = self.mirror[positions]
        if len(positions) == 1:
            return self._single(int(positions[0]), tol)
        basis = self._invariant_subspace(positions, is_real)
        part = basis.conj().T @ self.matrix @ basis
        allowed = tol * self.norm / (1 if is_real else 2**0.5)  # what is done to a pair is done to both
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
        """An orthonormal basis (d, n); real for eigenvalues that are closed under conjugation."""
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


@dataclass(frozen=True)
class PlainEigenvalues:
    """Eigenvalues of many matrices, (N, d), and which matrices need no closer look."""

    values: Complex
    vectors: Complex  # (N, d, d)
    inverse: Complex  # (N, d, d), of the vectors; zeros where there is none
    distances: Array  # (N, d): `merging_distances`
    is_plain: NDArray[np.bool_]  # (N,): no change by the tolerance makes two eigenvalues one, or one zero

    @classmethod
    def of(cls, matrices: Array, tol: Array) -> PlainEigenvalues:
        """Of matrices (N, d, d) at tolerances (N,), relative."""
        values, vectors = np.linalg.eig(matrices)
        values, vectors = values.astype(complex), vectors.astype(complex)
        distances = merging_distances(values, vectors)
        try:
            inverse = np.linalg.inv(vectors)
        except np.linalg.LinAlgError:  # some matrix has eigenvectors that are equal
            return cls(values, vectors, np.zeros_like(vectors), distances, np.zeros(len(matrices), dtype=bool))
        with np.errstate(over="ignore", invalid="ignore"):  # eigenvectors that are all but equal
            sensitivity = np.linalg.norm(inverse, axis=-1)
        sensitivity = np.where(sensitivity < _LARGE, sensitivity, _LARGE)
        allowed = (tol * np.linalg.norm(matrices, axis=(1, 2)))[:, None]
        gaps = abs(values[:, :, None] - values[:, None, :])
        linked = gaps <= _GENEROUS * allowed[:, None] * (sensitivity[:, :, None] + sensitivity[:, None, :])
        in_pairs = linked.sum(axis=-1) <= 2  # itself and another, for which the distance is exact
        plain = in_pairs & (distances > allowed) & (abs(values) > sensitivity * allowed)
        return cls(values, vectors, inverse, distances, plain.all(axis=-1))

    def shares(self, index: int, form: Array | None) -> list[float]:
        """trace(F P) for the projectors P of the eigenvalues of a matrix; of a pair, of both together."""
        if form is None:
            return [math.nan] * len(self.values[index])
        own = np.einsum("ij,ji->i", self.inverse[index] @ form, self.vectors[index]).real
        shares: list[float] = np.where(self.values[index].imag == 0, own, 2 * own).tolist()
        return shares


def merging_distances(values: Complex, vectors: Complex) -> Array:
    """For each eigenvalue (..., d), how far a matrix with that eigenvalue repeated is at most, Frobenius.

    Within the plane of two eigenvectors, phi apart, the matrix is a 2 x 2 block, and the nearest block in which their
    eigenvalues are one is |difference| / 2 * tan(phi / 2) away. For two pairs it takes that change twice.
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
    """Sets of positions that links lead through."""
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
    """Those of an upper triangular matrix, of norm 1, and how far each eigenvalue moves with a change of the matrix."""
    from scipy.linalg import solve_triangular

    size = len(triangular)
    vectors = np.eye(size, dtype=complex)
    least = np.finfo(float).eps * norm
    for index in range(1, size):
        differences = np.diagonal(triangular)[:index] - triangular[index, index]
        differences = np.where(abs(differences) < least, least, differences)  # as LAPACK does
        shifted = triangular[:index, :index].copy()
        np.fill_diagonal(shifted, differences)
        found = solve_triangular(shifted, -triangular[:index, index], check_finite=False)
        if abs(found).max() < _LARGE:
            vectors[:index, index] = found
            vectors[:, index] /= np.linalg.norm(vectors[:, index])
        else:  # or not a number: many eigenvalues are equal
            vectors[: index + 1, index] = _scaled_solution(triangular[:index, : index + 1], differences)
    ends = np.diagonal(vectors)
    np.fill_diagonal(vectors, np.where(abs(ends) < 1 / _LARGE, 1 / _LARGE, ends))
    with np.errstate(over="ignore", invalid="ignore"):
        left = abs(solve_triangular(vectors, np.eye(size), check_finite=False))
    left = np.where(left < _LARGE, left, _LARGE)  # or not a number: nothing tells such eigenvalues apart
    return vectors, np.linalg.norm(left, axis=1)


def _scaled_solution(rows: Complex, differences: Complex) -> Complex:
    """The eigenvector of norm 1 that ends with the last column, made smaller whenever it grows too large."""
    vector = np.zeros(rows.shape[1], dtype=complex)
    vector[-1] = 1
    for row in reversed(range(len(rows))):
        vector[row] = -(rows[row, row + 1 :] @ vector[row + 1 :]) / differences[row]
        if abs(vector[row]) > _LARGE:
            vector /= abs(vector[row])
    normed: Complex = vector / np.linalg.norm(vector)
    return normed


def _staircase(matrix: Complex, allowed: float) -> tuple[list[int], Complex, Complex] | None:
    """Dimensions, basis and matrix of a nilpotent matrix's null space, of that of the rest, and so on.

    Singular values up to `allowed` count as zero. None if some stage has no null space: it is not nilpotent.
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
    """The orders of the Jordan blocks, largest first, and their chains side by side."""
    starts = np.concatenate([[0], np.cumsum(stairs)])
    orders: list[int] = []
    levels: list[Complex] = []  # from the top stair down: a column for each block that reaches so high
    above = np.zeros((len(nilpotent), 0), dtype=complex)
    for level in reversed(range(len(stairs))):
        images = nilpotent @ above
        stair = slice(starts[level], starts[level + 1])
        # What the chains that come from above leave of this stair are the tops of new ones.
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

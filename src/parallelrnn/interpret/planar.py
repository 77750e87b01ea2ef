"""2 x 2 blocks in closed form: two decays, or one damped wave, and exactly how far it is to the other.

For [[a, b], [c, d]] put p = (a - d) / 2, s = (b + c) / 2, k = (b - c) / 2 and rho = sqrt(p^2 + s^2). The eigenvalues
are (a + d) / 2 +- sqrt(rho^2 - k^2): real if rho > |k|, complex if rho < |k|. In Frobenius norm |rho - |k|| is the
distance to the nearest matrix with a repeated eigenvalue, and sqrt(2) sqrt(rho^2 + k^2) that to the nearest multiple of
the identity.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parallelrnn.interpret.spectrum import Group

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]


@dataclass(frozen=True)
class Planes:
    """The closed form of many 2 x 2 matrices at once, each array (N,)."""

    mean: Array  # of the two eigenvalues
    rho: Array
    k: Array
    norm: Array  # Frobenius

    @classmethod
    def of(cls, matrices: Array) -> Planes:  # (N, 2, 2)
        """Take N matrices apart."""
        (a, b), (c, d) = np.moveaxis(matrices, 0, -1)
        return cls((a + d) / 2, np.hypot((a - d) / 2, (b + c) / 2), (b - c) / 2, np.linalg.norm(matrices, axis=(1, 2)))

    @property
    def root(self) -> Complex:
        """Half the difference of the eigenvalues: real, or imaginary."""
        # As a product, since rho and |k| may be nearly equal.
        squared = (self.rho - abs(self.k)) * (self.rho + abs(self.k))
        root: Complex = np.sqrt(squared.astype(complex))
        return root

    @property
    def distance(self) -> Array:
        """To the nearest matrix with a repeated eigenvalue, Frobenius."""
        return abs(self.rho - abs(self.k))

    @property
    def to_identity(self) -> Array:
        """To the nearest multiple of the identity, Frobenius."""
        distance: Array = np.sqrt(2) * np.hypot(self.rho, self.k)
        return distance

    @property
    def to_singular(self) -> Array:
        """To the nearest singular matrix, the smallest singular value: the matrix is mean + k turn + rho reflection."""
        return abs(np.hypot(self.mean, self.k) - self.rho)


class Planar:
    """The eigenvalues of one 2 x 2 matrix; the twin of `Spectrum`."""

    def __init__(self, matrix: Array) -> None:
        self.matrix = matrix
        self.planes = Planes.of(matrix[None])
        self.norm = float(self.planes.norm[0]) or 1.0
        self.distance = float(self.planes.distance[0])

    def distance_of(self, group: Group) -> float:
        """The same for both eigenvalues."""
        return self.distance

    def groups(self, tol: float) -> list[Group]:
        """The two eigenvalues, as one where a change of the matrix by `tol`, relative, makes them one."""
        allowed = tol * self.norm
        mean = float(self.planes.mean[0])
        if self.distance > allowed:
            return self._two(mean, complex(self.planes.root[0]), allowed)
        value = 0.0 if abs(mean) * 2**0.5 <= allowed else mean
        if self.planes.to_identity[0] <= allowed:
            return [Group(value, (1, 1), np.eye(2, dtype=complex), frozenset([0, 1]))]
        # The nearest matrix with a repeated eigenvalue is mean + sigma u v', of the largest singular value's u and v.
        left, singular, right = np.linalg.svd(self.matrix - mean * np.eye(2))
        chain = np.stack([singular[0] * left[:, 0], right[0]], axis=1)
        return [Group(value, (2,), chain.astype(complex), frozenset([0, 1]))]

    def _two(self, mean: float, root: complex, allowed: float) -> list[Group]:
        if root.imag:
            value = mean + root
            return [Group(value, (1,), self._eigenvector(value), frozenset([0]))]
        values = sorted((mean + root.real, mean - root.real), key=abs)
        zero = self.planes.to_singular[0] <= allowed
        vectors = [self._eigenvector(value) for value in values]
        return [
            Group(0.0 if zero and index == 0 else value, (1,), vector, frozenset([index]))
            for index, (value, vector) in enumerate(zip(values, vectors, strict=True))
        ]

    def _eigenvector(self, value: complex) -> Complex:
        """(2, 1): orthogonal to the larger row of what is left when the eigenvalue is taken off."""
        (a, b), (c, d) = self.matrix
        rows = np.array([[b, value - a], [value - d, c]], dtype=complex)
        vector = rows[np.linalg.norm(rows, axis=1).argmax()]
        unit: Complex = vector / np.linalg.norm(vector)
        return unit[:, None]

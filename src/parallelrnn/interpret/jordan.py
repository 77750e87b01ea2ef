"""The real Jordan form of a matrix: its powers, taken apart into decays and damped waves.

Proposition 1 of arXiv 2605.02692, with the factor `modulus` in C(modulus, angle), angles in (0, pi), and as many Jordan
blocks for an eigenvalue as there are. What type a matrix has is a claim within a tolerance: next to every matrix with a
repeated eigenvalue lie others without. So the tolerance is part of the answer, and so is the interval of tolerances
that give the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parallelrnn.interpret.dynamics import Dynamics
from parallelrnn.interpret.planar import Planar
from parallelrnn.interpret.spectrum import Group, Spectrum

Array = NDArray[np.float64]

_STEP = 2.0  # the ratio of the tolerances that are tried in search of another answer
_LEAST, _MOST = 1e-17, 1.0  # and how far the search goes


@dataclass(frozen=True)
class JordanBlock(Dynamics):
    """One block of J: J_n(eigenvalue), or C_n(modulus, angle) for a pair of complex eigenvalues."""

    order: int
    eigenvalue: complex  # of a pair, the one in the upper half plane

    @property
    def matrix(self) -> Array:
        """The block itself."""
        a, b = self.eigenvalue.real, self.eigenvalue.imag
        diagonal = np.array([[a, b], [-b, a]]) if b else np.array([[a]])
        ones = np.kron(np.eye(self.order, k=1), np.eye(len(diagonal)))
        block: Array = np.kron(np.eye(self.order), diagonal) + ones
        return block


@dataclass(frozen=True)
class RealJordan:
    """W = S J S^-1 up to `backward_error`, and how far the answer can be trusted."""

    S: Array  # (d, d)
    J: Array  # (d, d): the blocks, largest modulus first
    blocks: tuple[JordanBlock, ...]
    distance: float  # to the nearest matrix with a repeated eigenvalue: exact for d = 2, else of the nearest one found
    tol: float  # relative to the Frobenius norm of W: changes of W up to this size count as none
    tol_range: tuple[float, float]  # tolerances that were tried in it, each twice the last, give the same types
    backward_error: float  # |W - S J S^-1| / |W|, Frobenius
    condition: float  # of S, in the 2-norm

    @property
    def nullity(self) -> int:
        """The dimension of the null space: the number of blocks with eigenvalue 0."""
        return sum(block.eigenvalue == 0 for block in self.blocks)

    @property
    def labels(self) -> tuple[str, ...]:
        """The types of all blocks."""
        return tuple(block.label for block in self.blocks)


def real_jordan(W: Any, tol: float | None = None) -> RealJordan:  # noqa: N803
    """The real Jordan form of a square matrix, an array or a tensor.

    Matrices that differ by at most `tol` times the Frobenius norm of W count as the same, and the form is that of the
    one with the most structure. Without `tol` it is 4 sqrt(d) rounding units of W's own precision, so pass weights in
    the precision in which they were trained.
    """
    matrix, unit = as_matrix(W)
    tol = default_tolerance(len(matrix), unit) if tol is None else check_tolerance(tol)
    spectrum = spectrum_of(matrix)
    groups = sorted(spectrum.groups(tol), key=lambda group: (-abs(group.eigenvalue), group.eigenvalue.imag))
    blocks = tuple(JordanBlock(order, group.eigenvalue) for group in groups for order in group.orders)
    S = basis_of(groups)  # noqa: N806
    J = _block_diagonal([block.matrix for block in blocks])  # noqa: N806
    norm = float(np.linalg.norm(matrix))
    residual = matrix - np.linalg.solve(S.T, (S @ J).T).T
    return RealJordan(
        S,
        J,
        blocks,
        spectrum.distance,
        tol,
        _same_answers(spectrum.groups, tol),
        float(np.linalg.norm(residual)) / (norm or 1.0),
        float(np.linalg.cond(S)),
    )


def spectrum_of(matrix: Array) -> Planar | Spectrum:
    """The eigenvalues of a matrix, for d = 2 in closed form."""
    return Planar(matrix) if len(matrix) == 2 else Spectrum(matrix)


def projectors(groups: Sequence[Group]) -> Iterator[tuple[Group, int, Array]]:
    """For each Jordan block its group, its order, and the projector (d, d) on its subspace along all others'."""
    basis = basis_of(groups)
    inverse = np.linalg.inv(basis)
    start = 0
    for group in groups:
        for order in group.orders:
            stop = start + order * (2 if group.eigenvalue.imag else 1)
            yield group, order, basis[:, start:stop] @ inverse[start:stop]
            start = stop


def as_matrix(W: Any) -> tuple[Array, float]:  # noqa: N803
    """A square matrix in double precision, and the rounding unit of the precision in which it came."""
    if hasattr(W, "detach"):
        tensor = W.detach().cpu()
        _check_real(tensor.is_complex())
        unit = _rounding_unit(str(tensor.dtype).removeprefix("torch."))
        array = tensor.double().numpy()
    else:
        given = np.asarray(W)
        _check_real(np.iscomplexobj(given))
        unit = _rounding_unit(given.dtype.name)
        array = given.astype(np.float64)
    if array.ndim != 2 or array.shape[0] != array.shape[1] or not len(array):
        raise ValueError(f"expected a square matrix, got shape {tuple(array.shape)}")
    if not np.isfinite(array).all():
        raise ValueError("the matrix has entries that are not finite; has its training diverged?")
    return array, unit


def _check_real(is_complex: bool) -> None:
    if is_complex:
        raise TypeError("expected a real matrix, got a complex one")


def check_tolerance(tol: float) -> float:
    """A tolerance that means something."""
    if not 0 < tol < 1:
        raise ValueError(f"tol is relative to the norm of the matrix and lies between 0 and 1, got {tol}")
    return float(tol)


def default_tolerance(size: int, unit: float) -> float:
    """What rounding a (size, size) matrix to this unit, and finding its eigenvalues then, may change, relative."""
    return float(4 * size**0.5 * unit)


def _rounding_unit(dtype: str) -> float:
    return {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}.get(dtype, 2.0**-52)


def basis_of(groups: Sequence[Group]) -> Array:
    """S: the chains of all groups side by side, real."""
    return np.concatenate([_real_columns(group) for group in groups], axis=1)


def _real_columns(group: Group) -> Array:
    """The columns of S: A z = lambda z for z = x + i y is A (x, y) = (x, y) C(modulus, angle)."""
    if not group.eigenvalue.imag:
        return group.chains.real
    pairs = np.stack([group.chains.real, group.chains.imag], axis=-1)  # (d, n, 2)
    return pairs.reshape(len(pairs), -1)


def _block_diagonal(blocks: list[Array]) -> Array:
    size = sum(map(len, blocks))
    whole = np.zeros((size, size))
    start = 0
    for block in blocks:
        stop = start + len(block)
        whole[start:stop, start:stop] = block
        start = stop
    return whole


def _same_answers(groups: Callable[[float], list[Group]], tol: float) -> tuple[float, float]:
    """The interval around `tol` in which every tolerance that is tried gives the same groups."""

    def answer(tol: float) -> set[tuple[frozenset[int], tuple[int, ...], bool]]:
        return {(group.positions, group.orders, group.eigenvalue == 0) for group in groups(tol)}

    here = answer(tol)
    plain = all(len(positions) == 1 and not zero for positions, _, zero in here)

    def last(step: float) -> float:
        """The last tolerance with the same answer on the way from `tol` in steps of this ratio."""
        inside = tol
        while _LEAST < inside < _MOST:
            outside = inside * step
            if answer(outside) != here:
                for _ in range(12):  # to three digits
                    middle = (inside * outside) ** 0.5
                    inside, outside = (middle, outside) if answer(middle) == here else (inside, middle)
                return inside
            inside = outside
        return 0.0 if step < 1 else np.inf

    return 0.0 if plain else last(1 / _STEP), last(_STEP)

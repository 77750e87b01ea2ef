"""Block-diagonal forms of a real matrix by a real similarity transform (the B of Eq. 5, arXiv 2605.02692)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parallelrnn.errors import ArgumentError, InputError

Array = NDArray[np.float64]

_MAX_CONDITION = 1e12  # leaves four digits of double precision


@dataclass(frozen=True)
class BlockDiagonalForm:
    """matrix = transform @ block_diag(*blocks) @ inv(transform)."""

    transform: Array  # B, (d, d): the columns of each block are orthonormal
    blocks: tuple[Array, ...]
    condition: float  # of the transform, in the 2-norm


@dataclass(frozen=True)
class _Piece:
    """A real eigenvalue or a conjugate pair, which no real block can split."""

    value: complex  # of a pair, the one in the upper half plane
    positions: tuple[int, ...]  # on the diagonal of the Schur form


def block_diagonalize(matrix: Array, sizes: tuple[int, ...]) -> BlockDiagonalForm:
    """Return blocks of these sizes, in this order, that are together similar to `matrix`.

    Each block acts on the invariant subspace of its eigenvalues, in an orthonormal basis of that subspace; so the
    condition number of the transform is within a factor sqrt(K) of the best possible for these blocks (Demmel, 1983).
    Eigenvalues that lie close together share a block where they can: a nearly defective pair is harmless inside one
    block, but across two it makes the transform ill-conditioned.
    """
    schur = _SchurForm(matrix)
    form = schur.blocks(_assign(schur.pieces, sizes))
    if form is None or not form.condition < _MAX_CONDITION:
        problem = f"the recurrent matrix is not similar to blocks of sizes {sorted(set(sizes))}"
        reason = "eigenvalues that repeat without their own eigenvectors (features of higher order) would be separated"
        raise ArgumentError(f"{problem}: {reason}", argument="block_size", got=sizes, hint="use larger blocks")
    return form


def smallest_blocks(matrix: Array, condition: float) -> BlockDiagonalForm:
    """Return blocks of size 2 (and one of size 1, if the size is odd), or larger ones where eigenvalues are too close.

    Merges the blocks with the closest eigenvalues until the condition number of the transform is at most `condition`.
    """
    schur = _SchurForm(matrix)
    groups = _assign(schur.pieces, (2,) * (len(matrix) // 2) + (1,) * (len(matrix) % 2))
    while True:
        form = schur.blocks(groups)
        if form is not None and form.condition <= condition:
            return form
        groups = _merge_nearest(groups)


class _SchurForm:
    """The real Schur form of a matrix, and its eigenvalues one by one."""

    def __init__(self, matrix: Array) -> None:
        # Not at the top of the file, because importing scipy.linalg would slow down `import parallelrnn`.
        from scipy.linalg import schur

        if not np.isfinite(matrix).all():
            raise InputError("the recurrent matrix has entries that are not finite", hint="did training diverge?")
        self.form, self.basis = schur(np.asarray(matrix, dtype=np.float64), output="real")
        self.pieces = _pieces(self.form)

    def blocks(self, groups: list[list[_Piece]]) -> BlockDiagonalForm | None:
        """Return one block for each group of eigenvalues, or None if LAPACK cannot separate them."""
        from scipy.linalg.lapack import dtrsen

        places = [[position for piece in group for position in piece.positions] for group in groups]
        shifts = self._shifts(groups)
        shifted = self.form.copy()
        for place, shift in zip(places, shifts, strict=True):
            shifted[place, place] += shift
        columns, blocks = [], []
        for place, shift in zip(places, shifts, strict=True):
            selected = np.zeros(len(self.form), dtype=np.int32)
            selected[place] = 1
            reordered, vectors, *_, info = dtrsen(selected, shifted, self.basis, job="N")
            if info != 0:
                return None
            columns.append(vectors[:, : len(place)])
            blocks.append(reordered[: len(place), : len(place)] - shift * np.eye(len(place)))
        transform = np.concatenate(columns, axis=1)
        return BlockDiagonalForm(transform, tuple(blocks), float(np.linalg.cond(transform)))

    def _shifts(self, groups: list[list[_Piece]]) -> list[float]:
        """Return shifts of a few units of rounding that separate groups with equal eigenvalues.

        LAPACK exchanges equal eigenvalues by doing nothing, and would give two blocks the same subspace even where the
        matrix has one for each (such as the identity).
        """
        unit = 16 * np.finfo(np.float64).eps * (np.linalg.norm(self.form, 2) or 1.0)
        owner = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
        equal = _distances([piece for group in groups for piece in group]) <= len(owner) * unit
        equal &= owner[:, None] != owner
        with_equal = {int(group) for group in owner[equal.any(axis=1)]}
        return [index * unit if index in with_equal else 0.0 for index in range(len(groups))]


def _pieces(schur_form: Array) -> list[_Piece]:
    pieces = []
    position = 0
    while position < len(schur_form):
        below = schur_form[position + 1, position] if position + 1 < len(schur_form) else 0.0
        if below == 0:
            pieces.append(_Piece(complex(schur_form[position, position]), (position,)))
            position += 1
        else:  # LAPACK standardises such a block to equal diagonal entries and off-diagonal ones of opposite sign
            imaginary = np.sqrt(-below * schur_form[position, position + 1])
            pieces.append(_Piece(complex(schur_form[position, position], imaginary), (position, position + 1)))
            position += 2
    return pieces


def _distances(pieces: list[_Piece]) -> Array:
    values = np.array([piece.value for piece in pieces])
    distances: Array = abs(values[:, None] - values[None, :])
    np.fill_diagonal(distances, np.inf)
    return distances


def _assign(pieces: list[_Piece], sizes: tuple[int, ...]) -> list[list[_Piece]]:
    """Fill every block with pieces, close ones together: each block starts from the piece nearest to another."""
    widths = [len(piece.positions) for piece in pieces]
    pairs = widths.count(2)
    if pairs > sum(size // 2 for size in sizes):
        problem = f"the recurrent matrix has {pairs} pairs of complex eigenvalues, more than fit into these blocks"
        raise ArgumentError(problem, argument="block_size", got=sizes, hint="use even sizes")
    distances = _distances(pieces)
    left = list(range(len(pieces)))
    filled = []
    for index, size in enumerate(sizes):
        # Closeness counts between pieces that one block can hold together.
        together = np.where(np.add.outer(widths, widths) <= size, distances, np.inf)
        later = sum(other // 2 for other in sizes[index + 1 :])  # pairs that later blocks can hold
        block: list[int] = []
        room = size
        while room:
            fitting = [
                p for p in left if widths[p] <= room and pairs - (widths[p] == 2) <= (room - widths[p]) // 2 + later
            ]
            chosen = fitting[int(together[np.ix_(fitting, block or left)].min(axis=1).argmin())]
            left.remove(chosen)
            block.append(chosen)
            room -= widths[chosen]
            pairs -= widths[chosen] == 2
        filled.append([pieces[p] for p in block])
    return filled


def _merge_nearest(groups: list[list[_Piece]]) -> list[list[_Piece]]:
    """Merge the two groups whose eigenvalues are closest to each other."""
    owner = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    distances = _distances([piece for group in groups for piece in group])
    distances[owner[:, None] == owner] = np.inf
    first, second = sorted(owner[list(np.unravel_index(distances.argmin(), distances.shape))])
    merged = [*groups[first], *groups[second]]
    return [merged if index == first else group for index, group in enumerate(groups) if index != second]

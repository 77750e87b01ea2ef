"""A real matrix made block-diagonal by a real similarity transform (the B of Eq. 5, arXiv 2605.02692)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_HOPELESS = 1e12  # a condition that leaves four digits of double precision, or none


@dataclass(frozen=True)
class BlockDiagonalForm:
    """matrix = transform @ block_diag(*blocks) @ inv(transform)."""

    transform: Array  # B, (d, d): the columns of each block are orthonormal
    blocks: tuple[Array, ...]
    condition: float  # of the transform, in the 2-norm


@dataclass(frozen=True)
class _Piece:
    """A real eigenvalue or a conjugate pair: what no real block can split."""

    value: complex  # of a pair, the one in the upper half plane
    positions: tuple[int, ...]  # on the diagonal of the Schur form


def block_diagonalize(matrix: Array, sizes: tuple[int, ...]) -> BlockDiagonalForm:
    """Blocks of these sizes, in this order, that are similar to `matrix`.

    Each block acts on the invariant subspace of the eigenvalues that it holds, in an orthonormal basis of that
    subspace; so the condition of the transform is within a factor sqrt(K) of the best that any transform to the same
    blocks can have (Demmel, 1983). Eigenvalues that lie close to each other share a block where they can: a nearly
    defective pair is harmless inside a block, and ruins the condition across two.
    """
    schur = _SchurForm(matrix)
    form = schur.blocks(_assign(schur.pieces, sizes))
    if form is None or not form.condition < _HOPELESS:
        raise ValueError(_inseparable(sizes))
    return form


def smallest_blocks(matrix: Array, condition: float) -> BlockDiagonalForm:
    """Blocks of size 2 (and one of size 1, if the size is odd), or larger ones where eigenvalues cannot be told apart.

    Blocks whose eigenvalues lie closest to each other are put together until the transform is no worse conditioned than
    asked for.
    """
    schur = _SchurForm(matrix)
    groups = _assign(schur.pieces, (2,) * (len(matrix) // 2) + (1,) * (len(matrix) % 2))
    while True:
        form = schur.blocks(groups)
        if form is not None and form.condition <= condition:
            return form
        groups = _put_nearest_together(groups)


class _SchurForm:
    """The real Schur form of a matrix, and its eigenvalues one by one."""

    def __init__(self, matrix: Array) -> None:
        # Here and not above, since importing scipy.linalg would make every `import parallelrnn` slower.
        from scipy.linalg import schur

        if not np.isfinite(matrix).all():
            raise ValueError("the recurrent matrix has entries that are not finite; has its training diverged?")
        self.form, self.basis = schur(np.asarray(matrix, dtype=np.float64), output="real")
        self.pieces = _pieces(self.form)

    def blocks(self, groups: list[list[_Piece]]) -> BlockDiagonalForm | None:
        """One block for each group of eigenvalues; None if LAPACK cannot tell them apart."""
        from scipy.linalg.lapack import dtrsen

        places = [[position for piece in group for position in piece.positions] for group in groups]
        moves = self._told_apart(groups)
        moved = self.form.copy()
        for place, move in zip(places, moves, strict=True):
            moved[place, place] += move
        columns, blocks = [], []
        for place, move in zip(places, moves, strict=True):
            selected = np.zeros(len(self.form), dtype=np.int32)
            selected[place] = 1
            reordered, vectors, *_, info = dtrsen(selected, moved, self.basis, job="N")
            if info != 0:
                return None
            columns.append(vectors[:, : len(place)])
            blocks.append(reordered[: len(place), : len(place)] - move * np.eye(len(place)))
        transform = np.concatenate(columns, axis=1)
        return BlockDiagonalForm(transform, tuple(blocks), float(np.linalg.cond(transform)))

    def _told_apart(self, groups: list[list[_Piece]]) -> list[float]:
        """How far each group is moved, a few units of rounding, if eigenvalues of several groups are equal.

        LAPACK exchanges equal eigenvalues by doing nothing, and would give two blocks the same subspace where the
        matrix has one for each (the identity, say).
        """
        unit = 16 * np.finfo(np.float64).eps * (np.linalg.norm(self.form, 2) or 1.0)
        owner = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
        equal = _distances([piece for group in groups for piece in group]) <= len(owner) * unit
        equal &= owner[:, None] != owner
        touched = {int(one) for one in owner[equal.any(axis=1)]}
        return [index * unit if index in touched else 0.0 for index in range(len(groups))]


def _inseparable(sizes: tuple[int, ...]) -> str:
    return (
        f"the recurrent matrix has no block-diagonal form with blocks of sizes {sorted(set(sizes))}: eigenvalues that "
        "repeat without eigenvectors of their own (features of a higher order) fall into different blocks; "
        "use larger blocks"
    )


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
    """Fill every block with pieces, close ones together: each block starts from the piece nearest to another one."""
    widths = [len(piece.positions) for piece in pieces]
    pairs = widths.count(2)
    if pairs > sum(size // 2 for size in sizes):
        raise ValueError(
            f"the recurrent matrix has {pairs} pairs of complex eigenvalues, and blocks of sizes {list(sizes)} hold "
            f"only {sum(size // 2 for size in sizes)}: a block of odd size has one unit that cannot oscillate; "
            "use even sizes"
        )
    distances = _distances(pieces)
    left = list(range(len(pieces)))
    filled = []
    for index, size in enumerate(sizes):
        # Closeness counts between pieces that one block can hold together.
        together = np.where(np.add.outer(widths, widths) <= size, distances, np.inf)
        later = sum(other // 2 for other in sizes[index + 1 :])  # pairs that the blocks after this one can hold
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


def _put_nearest_together(groups: list[list[_Piece]]) -> list[list[_Piece]]:
    """One group fewer: the two whose eigenvalues come closest to each other are one."""
    owner = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    distances = _distances([piece for group in groups for piece in group])
    distances[owner[:, None] == owner] = np.inf
    one, other = sorted(owner[list(np.unravel_index(distances.argmin(), distances.shape))])
    together = [*groups[one], *groups[other]]
    return [together if at == one else group for at, group in enumerate(groups) if at != other]

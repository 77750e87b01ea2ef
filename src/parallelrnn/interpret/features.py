"""Recurrence features: how a model remembers, read off its recurrent matrices (Section 3.2 of arXiv 2605.02692).

Not to be confused with forecast modes, the cycles that a model believes in: a recurrent matrix says how fast, and in
what rhythm, an input is forgotten, and no more.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from parallelrnn.interpret.jordan import as_matrix, check_tolerance, default_tolerance, projectors, spectrum_of
from parallelrnn.interpret.planar import Planes
from parallelrnn.interpret.shares import Shares
from parallelrnn.interpret.spectrum import Spectrum, plain_eigenvalues
from parallelrnn.interpret.text import Summary, table
from parallelrnn.interpret.units import Step
from parallelrnn.nn import RecurrentBlock, recurrent_blocks

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]
# For each matrix, its Jordan blocks: order, eigenvalue, distance, and the share where there are data.
Part = tuple[int, complex, float] | tuple[int, complex, float, float]
Found = Sequence[Sequence[Part]]

COLUMNS = (
    "layer direction gate block label kind order modulus angle period half_life distance share".split()  # noqa: SIM905
)


@dataclass(frozen=True)
class Feature:
    """One real Jordan block of a recurrent matrix: a decay (R) or a damped wave (C)."""

    layer: int
    direction: str
    gate: str
    block: int
    order: int
    eigenvalue: complex  # imag >= 0
    distance: float  # of the matrix from one in which this eigenvalue is repeated, Frobenius
    share: float = math.nan  # of the output's variance over data, if there are any: see `Shares`

    @property
    def kind(self) -> str:
        """R for a real eigenvalue, C for a pair of complex ones."""
        return "C" if self.eigenvalue.imag else "R"

    @property
    def label(self) -> str:
        """The type: R-1, C-1, R-2, ..."""
        return f"{self.kind}-{self.order}"

    @property
    def modulus(self) -> float:
        """What one more step leaves of an input."""
        return abs(self.eigenvalue)

    @property
    def angle(self) -> float:
        """Of the turn in one step, from 0 to pi."""
        return math.atan2(self.eigenvalue.imag, self.eigenvalue.real)

    @property
    def period(self) -> float:
        """Steps of a full turn: infinite for a decay, 2 for one that changes its sign at every step."""
        return 2 * math.pi / self.angle if self.angle else math.inf

    @property
    def half_life(self) -> float:
        """Steps until half is left: infinite for what does not fade."""
        if not 0 < self.modulus < 1:
            return 0.0 if self.modulus == 0 else math.inf
        return -math.log(2) / math.log(self.modulus)

    @property
    def meaning(self) -> str:
        """What happens to an input, in a word or two."""
        if self.modulus > 1:
            return "growing"
        if self.modulus == 1:
            return "never fades"
        if self.modulus == 0:
            return f"forgotten after {self.order} steps"
        return "fading"


@dataclass(frozen=True)
class Features(Sequence[Feature]):
    """The recurrence features of a model, longest memory first within each recurrent matrix."""

    rows: tuple[Feature, ...]
    nullity: int  # eigenvalues 0, which remember nothing and are no features
    step: Step

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> Feature: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Feature, ...]: ...
    def __getitem__(self, index: int | slice) -> Feature | tuple[Feature, ...]:
        return self.rows[index]

    def __iter__(self) -> Iterator[Feature]:
        return iter(self.rows)

    def counts(self) -> dict[str, int]:
        """How many features there are of each type, the most frequent first."""
        return dict(Counter(feature.label for feature in self).most_common())

    def to_frame(self) -> pd.DataFrame:
        """A row for each feature; period and half-life in steps."""
        import pandas as pd

        return pd.DataFrame([{name: getattr(feature, name) for name in COLUMNS} for feature in self], columns=COLUMNS)

    def summary(self, most: int = 20) -> Summary:
        """The features with the largest shares, or without data with the longest memory, as a table of so many."""
        with_shares = any(not math.isnan(feature.share) for feature in self)
        by_share = [feature.share if not math.isnan(feature.share) else -math.inf for feature in self]
        importance = by_share if with_shares else [feature.modulus for feature in self]
        order = sorted(range(len(self)), key=lambda index: -importance[index])
        shown = [self[index] for index in order[:most]]
        rows = [
            (
                str(feature.layer),
                feature.direction,
                feature.gate,
                str(feature.block),
                feature.label,
                f"{feature.modulus:.4f}",
                f"{feature.angle:.4f}",
                "-" if math.isinf(feature.period) else self.step.format(feature.period),
                self.step.format(feature.half_life, infinite=feature.meaning),
                f"{feature.distance:.2g}",
                *(["-" if math.isnan(feature.share) else f"{feature.share:.1%}"] if with_shares else []),
            )
            for feature in shown
        ]
        names = ["layer", "direction", "gate", "block", "type", "modulus", "angle", "period", "half-life", "distance"]
        names += ["share"] if with_shares else []
        return table("Recurrence features: how the model remembers", names, rows, self._notes(len(shown)))

    def _notes(self, shown: int) -> list[str]:
        counts = ", ".join(f"{count} {label}" for label, count in self.counts().items())
        notes = [f"{len(self)} features ({counts or 'none'})" + (f", {shown} shown." if shown < len(self) else ".")]
        if self.nullity:
            notes.append(f"{self.nullity} eigenvalues are 0: these remember nothing.")
        if any(feature.modulus >= 1 for feature in self):
            notes.append(
                "A modulus of 1 or more does not fade by itself: a linear layer diverges above 1, and in others only "
                "the activation or the gates hold the state."
            )
        notes.append(
            "Distance: the smallest change of the matrix that makes the eigenvalue a repeated one, where the type "
            "changes. These are the memory (MA side), not the cycles of a forecast."
        )
        return notes


def recurrence_features(
    obj: Any, x: Tensor | None = None, *, tol: float | None = None, freq: str | None = None
) -> Features:
    """Read the recurrence features of a layer or cell of ours, of `nn.RNN`, `nn.LSTM`, `nn.GRU`, or of a matrix.

    Also of a model that holds such layers. With x, an input of the layer, each feature of its last layer gets the share
    of the output that it carries. `tol` is that of `real_jordan`; `freq`, a frequency of pandas such as "h", names the
    time between steps.
    """
    if isinstance(obj, nn.Module):
        shares = None if x is None else Shares(obj, x)
        return features_of_blocks(recurrent_blocks(obj), shares, tol=tol, freq=freq)
    if x is not None:
        raise TypeError("a matrix alone has no output to share; give the layer that it belongs to")
    return features_of_blocks([RecurrentBlock(0, "forward", "hidden", 0, obj)], tol=tol, freq=freq)


def features_of_blocks(
    blocks: Iterable[RecurrentBlock],
    shares: Callable[[RecurrentBlock, Array], float] | None = None,
    *,
    tol: float | None = None,
    freq: str | None = None,
) -> Features:
    """The features of recurrent matrices; `shares` gets a block and the projector of each of its features."""
    step = Step.of(freq)
    if tol is not None:
        check_tolerance(tol)
    blocks = list(blocks)
    by_size: dict[int, list[int]] = {}
    matrices, tolerances = [], []
    for index, block in enumerate(blocks):
        matrix, unit = as_matrix(block.matrix)
        by_size.setdefault(len(matrix), []).append(index)
        matrices.append(matrix)
        tolerances.append(default_tolerance(len(matrix), unit) if tol is None else tol)
    rows: list[list[Feature]] = [[] for _ in blocks]
    nullity = 0
    for size, members in by_size.items():
        found: Found
        if shares is not None:
            found = [_read_with_shares(blocks[i], matrices[i], tolerances[i], shares) for i in members]
        else:
            stacked = np.stack([matrices[index] for index in members])
            found = _READERS.get(size, _read_large)(stacked, np.array([tolerances[index] for index in members]))
        for index, parts in zip(members, found, strict=True):
            nullity += sum(part[1] == 0 for part in parts)
            rows[index] = [
                Feature(*blocks[index][:4], *part)
                for part in sorted(parts, key=lambda part: -abs(part[1]))
                if part[1] != 0 or part[0] > 1
            ]
    return Features(tuple(feature for some in rows for feature in some), nullity, step)


def _read_scalars(matrices: Array, tol: Array) -> Found:
    return [[(1, complex(value), math.inf)] for value in matrices[:, 0, 0]]


def _read_planes(matrices: Array, tol: Array) -> Found:
    planes = Planes.of(matrices)
    allowed = tol * planes.norm
    repeated = planes.distance <= allowed
    singular = planes.to_singular <= allowed
    found: list[list[Part]] = []
    for index, (mean, root, distance) in enumerate(
        zip(planes.mean.tolist(), planes.root.tolist(), planes.distance.tolist(), strict=True)
    ):
        if repeated[index]:
            value = 0.0 if abs(mean) * 2**0.5 <= allowed[index] else mean
            alone = planes.to_identity[index] <= allowed[index]
            found.append([(1, value, distance)] * 2 if alone else [(2, value, distance)])
        elif root.imag:
            found.append([(1, mean + root, distance)])
        else:
            smaller, larger = sorted((mean - root.real, mean + root.real), key=abs)
            found.append([(1, larger, distance), (1, 0.0 if singular[index] else smaller, distance)])
    return found


def _read_large(matrices: Array, tol: Array) -> Found:
    values, distances, plain = plain_eigenvalues(matrices, tol)
    found: list[list[Part]] = []
    for index, is_plain in enumerate(plain):
        if is_plain:
            parts = zip(values[index].tolist(), distances[index].tolist(), strict=True)
            found.append([(1, value, distance) for value, distance in parts if value.imag >= 0])
            continue
        spectrum = Spectrum(matrices[index])
        found.append(
            [
                (order, complex(group.eigenvalue), spectrum.distance_of(group))
                for group in spectrum.groups(float(tol[index]))
                for order in group.orders
            ]
        )
    return found


def _read_with_shares(
    block: RecurrentBlock, matrix: Array, tol: float, shares: Callable[[RecurrentBlock, Array], float]
) -> list[Part]:
    spectrum = spectrum_of(matrix)
    return [
        (order, complex(group.eigenvalue), spectrum.distance_of(group), shares(block, projector))
        for group, order, projector in projectors(spectrum.groups(tol))
    ]


_READERS = {1: _read_scalars, 2: _read_planes}

"""Recurrence features: how a model remembers, read off its recurrent matrices (Section 3.2 of arXiv 2605.02692).

Not to be confused with forecast modes, the cycles that a model believes in: a recurrent matrix says how fast, and in
what rhythm, an input is forgotten, and no more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from parallelrnn.interpret.dynamics import Row, Table, format_share
from parallelrnn.interpret.jordan import as_matrix, check_tolerance, default_tolerance, projectors
from parallelrnn.interpret.planar import Planes
from parallelrnn.interpret.shares import Shares
from parallelrnn.interpret.spectrum import PlainEigenvalues, Spectrum
from parallelrnn.interpret.text import Display
from parallelrnn.interpret.units import Step
from parallelrnn.nn import RecurrentBlock, WaveDecoder, recurrent_blocks

Array = NDArray[np.float64]
Forms = Sequence[Array | None]  # of each matrix, see `Shares`
Part = tuple[int, complex, float, float]  # of a Jordan block: order, eigenvalue, distance, share
Found = Sequence[Sequence[Part]]  # for each matrix
_ATTENTION = ("query", "cross_query", "key", "value")  # gates


@dataclass(frozen=True)
class Feature(Row):
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
    def place(self) -> tuple[int, str, str]:
        """Layer, direction and gate; blocks have no order."""
        return (self.layer, self.direction, self.gate)


@dataclass(frozen=True)
class Features(Table[Feature]):
    """The recurrence features of a model, longest memory first within each recurrent matrix."""

    name: ClassVar[str] = "Recurrence features"
    rows: tuple[Feature, ...]
    nullity: int  # eigenvalues 0, which remember nothing and are no features
    time: Step
    at_once: tuple[tuple[str, float], ...] = ()  # by gate, what these carry: a share of the input of the same step

    @property
    def columns(self) -> tuple[str, ...]:
        """Where a feature stands, what it is, and how much it carries."""
        place = ("layer", "direction", "gate", "block")
        return (*place, "label", "kind", "order", "modulus", "angle", "period", "half_life", "distance", "share")

    def display(self, most: int = 20) -> Display:
        """The features with the largest shares, or without data with the longest memory, as a table of so many."""
        shown = self.most_important(most)
        rows = [
            (
                str(feature.layer),
                feature.direction,
                feature.gate,
                str(feature.block),
                feature.label,
                f"{feature.modulus:.4f}",
                f"{feature.angle:.4f}",
                "-" if math.isinf(feature.period) or self._of_attention else self.time.format(feature.period),
                "-" if self._of_attention else self.time.format(feature.half_life, infinite=feature.meaning),
                f"{feature.distance:.2g}",
                *([format_share(feature.share)] if self.has_shares else []),
            )
            for feature in shown
        ]
        names = ["layer", "direction", "gate", "block", "type", "modulus", "angle", "period", "half-life", "distance"]
        names += ["share"] if self.has_shares else []
        return Display(f"{self.name}: how the model remembers", names, rows, self._notes(len(shown)))

    @property
    def _of_attention(self) -> bool:
        """Whether the matrices map a state to queries, keys and values: no step follows from them alone."""
        return any(feature.gate in _ATTENTION for feature in self)

    def _notes(self, shown: int) -> list[str]:
        counts = ", ".join(f"{count} {label}" for label, count in self.counts().items())
        notes = [f"{len(self)} features ({counts or 'none'})" + (f", {shown} shown." if shown < len(self) else ".")]
        if self.nullity:
            carried = ", ".join(f"{format_share(share)} of the output ({gate})" for gate, share in self.at_once)
            notes.append(
                f"{self.nullity} {'eigenvalue is' if self.nullity == 1 else 'eigenvalues are'} 0 and "
                f"{'remembers' if self.nullity == 1 else 'remember'} nothing"
                + (f"; the input of the same step carries {carried}." if carried else ".")
            )
        if any(feature.modulus >= 1 for feature in self) and not self._of_attention:
            notes.append(
                "A modulus of 1 or more does not fade by itself: a linear layer diverges above 1, and in others only "
                "the activation or the gates hold the state."
            )
        notes.append(
            "Distance: a change of the matrix so large makes the eigenvalue a repeated one, where the type changes "
            "(blocks of size 2: no smaller one does). "
            + (
                "These are the matrices by which states enter attention, and no transition from one step to the next: "
                "they have no period and no half-life of their own, and what is kept is up to the gate."
                if self._of_attention
                else "These are the memory (MA side), not the cycles of a forecast."
            )
        )
        if self.has_shares and len({feature.gate for feature in self}) > 1:
            notes.append("The shares of each gate sum to one" + (", with those." if self.at_once else "."))
        return notes


def recurrence_features(
    obj: Any, x: Tensor | None = None, *, tol: float | None = None, freq: str | None = None
) -> Features:
    """Read the recurrence features of a layer or cell of ours, of `nn.RNN`, `nn.LSTM`, `nn.GRU`, or of a matrix.

    Also of a model that holds such layers; a wave decoder in it remembers nothing, and is left out. With x, an input of
    the layer, each feature of its last layer gets the share of the output that it carries. `tol` is that of
    `real_jordan`; `freq`, a frequency of pandas such as "h", names the time between steps.
    """
    if isinstance(obj, WaveDecoder):
        raise TypeError("a wave decoder has forecast modes and no memory; read it by forecast_modes")
    if isinstance(obj, nn.Module):
        shares = None if x is None else Shares.over(obj, x)
        return features_of_blocks(recurrent_blocks(obj), shares, tol=tol, freq=freq)
    if x is not None:
        raise TypeError("a matrix alone has no output to share; give the layer that it belongs to")
    return features_of_blocks([RecurrentBlock(0, "forward", "hidden", 0, obj)], tol=tol, freq=freq)


def features_of_blocks(
    blocks: Iterable[RecurrentBlock],
    shares: Callable[[RecurrentBlock], Array | None] | None = None,
    *,
    tol: float | None = None,
    freq: str | None = None,
) -> Features:
    """The features of recurrent matrices; `shares` gives the form of a block, see `Shares`."""
    time = Step.of(freq)
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
    at_once: dict[str, float] = {}
    for size, members in by_size.items():
        stacked = np.stack([matrices[index] for index in members])
        allowed = np.array([tolerances[index] for index in members])
        forms = [None if shares is None else shares(blocks[index]) for index in members]
        found = _READERS.get(size, _read_large)(stacked, allowed, forms)
        for index, parts in zip(members, found, strict=True):
            forgets = [part[0] == 1 and part[1] == 0 for part in parts]
            nullity += sum(forgets)
            for part in compress(parts, forgets):
                if not math.isnan(part[3]):
                    at_once[blocks[index].gate] = at_once.get(blocks[index].gate, 0.0) + part[3]
            kept = [part for part, forget in zip(parts, forgets, strict=True) if not forget]
            kept.sort(key=lambda part: -abs(part[1]))
            rows[index] = [Feature(*blocks[index][:4], *part) for part in kept]
    return Features(tuple(feature for some in rows for feature in some), nullity, time, tuple(at_once.items()))


def _read_scalars(matrices: Array, tol: Array, forms: Forms) -> Found:
    return [
        [(1, complex(value), math.inf, math.nan if form is None else float(form[0, 0]))]
        for value, form in zip(matrices[:, 0, 0], forms, strict=True)
    ]


def _read_planes(matrices: Array, tol: Array, forms: Forms) -> Found:
    planes = Planes.of(matrices)
    allowed = tol * planes.norm
    repeated = planes.distance <= allowed
    singular = planes.to_singular <= allowed
    found: list[list[Part]] = []
    for index, (mean, root, distance) in enumerate(
        zip(planes.mean.tolist(), planes.root.tolist(), planes.distance.tolist(), strict=True)
    ):
        form = forms[index]
        whole = math.nan if form is None else float(np.trace(form))
        if repeated[index] and planes.to_identity[index] <= allowed[index]:
            value = 0.0 if abs(mean) * 2**0.5 <= allowed[index] else mean
            # Any two directions part it; these are the block's units.
            parts = (math.nan, math.nan) if form is None else np.diagonal(form).tolist()
            found.append([(1, value, distance, part) for part in parts])
        elif repeated[index]:
            value = 0.0 if abs(mean) * 2**0.5 <= allowed[index] else mean
            found.append([(2, value, distance, whole)])
        elif root.imag:
            found.append([(1, mean + root, distance, whole)])
        else:
            smaller, larger = sorted((mean - root.real, mean + root.real), key=abs)
            # The projector of an eigenvalue a beside b is (W - b I) / (a - b).
            first = second = math.nan
            if form is not None:
                first = (float(np.sum(form * matrices[index].T)) - smaller * whole) / (larger - smaller)
                second = whole - first
            found.append([(1, larger, distance, first), (1, 0.0 if singular[index] else smaller, distance, second)])
    return found


def _read_large(matrices: Array, tol: Array, forms: Forms) -> Found:
    plain = PlainEigenvalues.of(matrices, tol)
    found: list[list[Part]] = []
    for index, form in enumerate(forms):
        if plain.is_plain[index]:
            values, distances = plain.values[index].tolist(), plain.distances[index].tolist()
            parts = zip(values, distances, plain.shares(index, form), strict=True)
            found.append([(1, value, distance, share) for value, distance, share in parts if value.imag >= 0])
            continue
        spectrum = Spectrum(matrices[index])
        groups = spectrum.groups(float(tol[index]))
        distance = {id(group): spectrum.distance_of(group) for group in groups}
        if form is None:
            found.append(
                [(order, complex(g.eigenvalue), distance[id(g)], math.nan) for g in groups for order in g.orders]
            )
        else:
            found.append(
                [
                    (order, complex(g.eigenvalue), distance[id(g)], float(np.sum(form * projector.T)))
                    for g, order, projector in projectors(groups)
                ]
            )
    return found


_READERS = {1: _read_scalars, 2: _read_planes}

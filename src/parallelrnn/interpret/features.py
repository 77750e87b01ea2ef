"""Recurrence features: how a model remembers, read off its recurrent matrices (Section 3.2 of arXiv 2605.02692).

Not to be confused with forecast modes, the cycles of a forecast: a recurrent matrix says only how fast, and in what
rhythm, an input is forgotten.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from parallelrnn.errors import ArgumentTypeError
from parallelrnn.interpret.contributions import NoVariationError
from parallelrnn.interpret.display import Step, count, format_share
from parallelrnn.interpret.dynamics import Row, Table
from parallelrnn.interpret.jordan import Planes, as_matrix, check_tolerance, default_tolerance, projectors
from parallelrnn.interpret.layers import as_blocks, as_input, evaluating, linear_map
from parallelrnn.interpret.local import LocalDynamics, local_dynamics
from parallelrnn.interpret.spectrum import PlainEigenvalues, Spectrum
from parallelrnn.interpret.uncertainty import Interval
from parallelrnn.nn import RecurrentBlock, WaveDecoder, recurrent_blocks

Array = NDArray[np.float64]
Forms = Sequence[Array | None]  # one per matrix, see `Shares`
JordanPart = tuple[int, complex, float, float]  # order, eigenvalue, distance and share of a Jordan block
_LOCAL_STEPS = 200  # at the end of the data, along which memory is measured
_MAX_LOCAL_SIZE = 64  # units of a block, whose derivatives are small enough to look at
_ATTENTION_GATES = ("query", "cross_query", "key", "value")


@dataclass(frozen=True, kw_only=True)
class Feature(Row):
    """One real Jordan block of a recurrent matrix: a decay (R) or a damped wave (C)."""

    layer: int
    direction: str
    gate: str
    block: int
    order: int
    eigenvalue: complex  # imag >= 0
    distance: float  # from the matrix to one in which this eigenvalue is repeated, Frobenius
    share: float = math.nan  # of the output's variance over the data, if given: see `Shares`

    @property
    def place(self) -> tuple[int, str, str]:
        """Layer, direction and gate; blocks have no order."""
        return (self.layer, self.direction, self.gate)


@dataclass(frozen=True)
class Features(Table[Feature]):
    """The recurrence features of a model, longest memory first within each recurrent matrix."""

    name: ClassVar[str] = "Recurrence features"
    subtitle: ClassVar[str] = "how the model remembers"
    rows: tuple[Feature, ...]
    nullity: int  # number of zero eigenvalues, which remember nothing and are not features
    time: Step
    at_once: tuple[tuple[str, float], ...] = ()  # gate and share of zero eigenvalues: the input of the same step
    along: LocalDynamics | None = field(default=None, compare=False, repr=False)  # how blocks remember along the data

    @property
    def columns(self) -> tuple[str, ...]:
        """The properties of a feature that a frame shows."""
        place = ("layer", "direction", "gate", "block")
        return (*place, "label", "kind", "order", "modulus", "angle", "period", "half_life", "distance", "share")

    def _cells(self, row: Feature) -> dict[str, str]:
        place = {name: str(getattr(row, name)) for name in ("layer", "direction", "gate", "block")}
        no_transition = {"period": "-", "half-life": "-"} if self._of_attention else {}
        cells = place | super()._cells(row) | no_transition | {"distance": f"{row.distance:.2g}"}
        if self.along is None:
            return cells
        block = next(own for own in self.along.blocks if (own.layer, own.block) == (row.layer, row.block))
        low, high = np.quantile(block.half_lives, (0.05, 0.95), method="lower")
        return cells | {"half-life along the data": Interval(math.nan, float(low), float(high)).span(self.time)}

    @property
    def _of_attention(self) -> bool:
        """Whether the matrices map a state to queries, keys and values, so that they are no transition matrices."""
        return any(feature.gate in _ATTENTION_GATES for feature in self)

    def _notes(self, shown: int) -> list[str]:
        types = ", ".join(f"{number} {label}" for label, number in self.counts().items())
        shown_of = f", {shown} shown." if shown < len(self) else "."
        notes = [f"{count(len(self), 'feature')} ({types or 'none'}){shown_of}"]
        if self.nullity:
            carried = ", ".join(f"{format_share(share)} of the output ({gate})" for gate, share in self.at_once)
            verbs = "is 0 and remembers" if self.nullity == 1 else "are 0 and remember"
            same_step = f"; the input of the same step carries {carried}." if carried else "."
            notes.append(f"{count(self.nullity, 'eigenvalue')} {verbs} nothing{same_step}")
        if any(feature.modulus >= 1 for feature in self) and not self._of_attention:
            notes.append(
                "A modulus of 1 or more does not fade by itself: a linear layer diverges above 1; in other layers only "
                "the activation or the gates bound the state."
            )
        notes.append(
            "Distance: how far the matrix is from one with a repeated eigenvalue, where the type changes (Frobenius "
            "norm; an upper bound for blocks larger than 2). "
            + (
                "These matrices map states to queries, keys and values. They are not transitions from one step to the "
                "next, so they have no period or half-life; the gate decides what is kept."
                if self._of_attention
                else "Features describe the memory (MA side), not the cycles of a forecast."
            )
        )
        if self.along is not None:
            notes.append(
                "Along the data: the layer is not linear, so that a block remembers as its state and gates have it; "
                "between these limits at 90 % of the last steps, whatever the gate of the row."
            )
        if self.has_shares and len({feature.gate for feature in self}) > 1:
            notes.append(
                "The shares of each gate sum to one" + (", including zero eigenvalues." if self.at_once else ".")
            )
        return notes


class Shares:
    """The shares of the features of a layer's last layer, over data.

    A block's state is the sum of its parts in the invariant subspaces of its recurrent matrix, so its contribution to
    the output is also a sum over its features. A share is the covariance of such a part with the output, relative to
    the output's variance; if the aggregate is not linear, its input takes the place of the output. The shares of all
    features of a gate, together with those of zero eigenvalues, sum to one.
    """

    def __init__(self, layer: Any, states: Tensor) -> None:
        """Take states (N, d) of the last layer's blocks, at any steps of any sequences."""
        sizes = layer.block_sizes
        weight, _ = linear_map(layer)
        centred = states.double() - states.double().mean(0)
        output = centred @ weight.double().T
        covariance = centred.T @ output  # (d, out)
        self._variance = float((output**2).sum())
        if not self._variance > 0:
            raise NoVariationError
        self._forms = [
            (part @ columns).cpu().numpy() / self._variance
            for part, columns in zip(covariance.split(sizes), weight.double().split(sizes, 1), strict=True)
        ]
        self._last = layer.num_layers - 1
        self._num_blocks = len(sizes) // (2 if layer.bidirectional else 1)

    @classmethod
    @torch.no_grad()
    def over(cls, layer: Any, x: Tensor) -> Shares:
        """Compute the shares over all steps of an input."""
        layer = evaluating(as_blocks(layer))
        return cls(layer, layer.block_states(as_input(layer, x)).flatten(0, -2))

    def __call__(self, block: RecurrentBlock) -> Array | None:
        """Return the form F (D, D) of a block: the part of its state under a projector P has the share trace(F P).

        None if that part does not reach the output: in layers below the last, and in an LSTM with `proj_size`.
        """
        form = self._forms[block.block + (self._num_blocks if block.direction == "reverse" else 0)]
        return form if block.layer == self._last and len(form) == len(block.matrix) else None


def recurrence_features(
    obj: Any, x: Tensor | None = None, *, tol: float | None = None, freq: str | None = None
) -> Features:
    """Read the recurrence features of a layer or cell of ours, of `nn.RNN`, `nn.LSTM` or `nn.GRU`, or of a matrix.

    A model that contains such layers works, too; its wave decoders are skipped, since they have no memory. With x, an
    input of the layer, each feature of the last layer gets its share of the output. `tol` is the tolerance of
    `real_jordan`; `freq` is the time between steps, a pandas frequency such as "h".
    """
    if isinstance(obj, WaveDecoder):
        problem = "a wave decoder has forecast modes but no memory"
        raise ArgumentTypeError(problem, argument="obj", hint="read it with forecast_modes")
    if isinstance(obj, nn.Module):
        shares = None if x is None else Shares.over(obj, x)
        features = features_of_blocks(recurrent_blocks(obj), shares, tol=tol, freq=freq)
        return features if x is None else replace(features, along=_along(obj, x, freq))
    if x is not None:
        raise ArgumentTypeError("shares need a layer, not just its matrix", argument="obj", hint="pass the layer")
    return features_of_blocks([RecurrentBlock(0, "forward", "hidden", 0, obj)], tol=tol, freq=freq)


def _along(layer: nn.Module, x: Tensor, freq: str | None) -> LocalDynamics | None:
    """Return how blocks remember along the data; None for a linear layer, whose features hold everywhere."""
    blocks = as_blocks(layer)
    if (
        getattr(blocks, "nonlinearity", None) == "linear"
        or blocks.bidirectional
        or blocks.proj_size
        or max(blocks.block_sizes) > _MAX_LOCAL_SIZE
    ):
        return None
    return local_dynamics(layer, x, last=_LOCAL_STEPS, freq=freq)


def features_of_blocks(
    blocks: Iterable[RecurrentBlock],
    shares: Callable[[RecurrentBlock], Array | None] | None = None,
    *,
    tol: float | None = None,
    freq: str | None = None,
) -> Features:
    """Read the features of recurrent matrices; `shares` returns the form of a block, see `Shares`."""
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
        for index, parts in zip(members, _READERS.get(size, _read_large)(stacked, allowed, forms), strict=True):
            gate, place = blocks[index].gate, blocks[index]._asdict()
            del place["matrix"]
            for order, value, distance, share in sorted(parts, key=lambda part: -abs(part[1])):
                if order == 1 and value == 0:  # remembers nothing
                    nullity += 1
                    if not math.isnan(share):
                        at_once[gate] = at_once.get(gate, 0.0) + share
                    continue
                feature = Feature(**place, order=order, eigenvalue=value, distance=distance, share=share)
                rows[index].append(feature)
    return Features(tuple(feature for of_block in rows for feature in of_block), nullity, time, tuple(at_once.items()))


def _read_scalars(matrices: Array, tol: Array, forms: Forms) -> list[list[JordanPart]]:
    return [
        [(1, complex(value), math.inf, math.nan if form is None else float(form[0, 0]))]
        for value, form in zip(matrices[:, 0, 0], forms, strict=True)
    ]


def _read_planes(matrices: Array, tol: Array, forms: Forms) -> list[list[JordanPart]]:
    planes = Planes.of(matrices)
    allowed = tol * planes.norm
    repeated = planes.distance <= allowed
    singular = planes.to_singular <= allowed
    parts: list[list[JordanPart]] = []
    for index, (mean, root, distance) in enumerate(
        zip(planes.mean.tolist(), planes.root.tolist(), planes.distance.tolist(), strict=True)
    ):
        form = forms[index]
        total = math.nan if form is None else float(np.trace(form))
        if repeated[index]:
            value = 0.0 if abs(mean) * 2**0.5 <= allowed[index] else mean
            if planes.to_identity[index] <= allowed[index]:
                # Any two directions split it; these are the block's units.
                shares = (math.nan, math.nan) if form is None else np.diagonal(form).tolist()
                parts.append([(1, value, distance, share) for share in shares])
            else:
                parts.append([(2, value, distance, total)])
        elif root.imag:
            parts.append([(1, mean + root, distance, total)])
        else:
            smaller, larger = sorted((mean - root.real, mean + root.real), key=abs)
            # The projector of an eigenvalue a beside b is (W - b I) / (a - b).
            first = second = math.nan
            if form is not None:
                first = (float(np.sum(form * matrices[index].T)) - smaller * total) / (larger - smaller)
                second = total - first
            parts.append([(1, larger, distance, first), (1, 0.0 if singular[index] else smaller, distance, second)])
    return parts


def _read_large(matrices: Array, tol: Array, forms: Forms) -> list[list[JordanPart]]:
    plain = PlainEigenvalues.of(matrices, tol)
    parts: list[list[JordanPart]] = []
    for index, form in enumerate(forms):
        if plain.is_plain[index]:
            values, distances = plain.values[index].tolist(), plain.distances[index].tolist()
            rows = zip(values, distances, plain.shares(index, form), strict=True)
            parts.append([(1, value, distance, share) for value, distance, share in rows if value.imag >= 0])
            continue
        spectrum = Spectrum(matrices[index])
        groups = spectrum.groups(float(tol[index]))
        distance = {id(group): spectrum.distance_of(group) for group in groups}
        if form is None:
            shares = [(group, order, math.nan) for group in groups for order in group.orders]
        else:
            shares = [(group, order, float(np.sum(form * p.T))) for group, order, p in projectors(groups)]
        parts.append([(order, complex(g.eigenvalue), distance[id(g)], share) for g, order, share in shares])
    return parts


_READERS = {1: _read_scalars, 2: _read_planes}

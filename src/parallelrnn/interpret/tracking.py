"""Recurrence features during training: Figure 3 of arXiv 2605.02692, and Figures A.1 and A.2 of its supplement."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from parallelrnn.errors import ArgumentError
from parallelrnn.interpret.display import optional
from parallelrnn.interpret.features import Features, features_of_blocks
from parallelrnn.interpret.jordan import as_matrix
from parallelrnn.nn import RecurrentBlock, recurrent_blocks

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The features of a model at one step of its training."""

    step: int
    counts: dict[str, int]  # features by type
    modulus: tuple[float, ...]  # percentiles
    angle: tuple[float, ...]  # percentiles
    distance: float | None  # |W - W*|, Frobenius, over all recurrent matrices; None if the truth is unknown
    metrics: dict[str, float]


class FeatureTracker:
    """Records the features of any model with recurrent layers while it is trained.

    Examples
    --------
    >>> import torch
    >>> from parallelrnn import ParaRNN
    >>> tracker = FeatureTracker(ParaRNN(1, 4))
    >>> for epoch in range(3):  # and train in between
    ...     snapshot = tracker.record(loss=1.0 / (epoch + 1))
    >>> [snapshot.step for snapshot in tracker.history]
    [0, 1, 2]
    """

    def __init__(
        self,
        model: nn.Module,
        truth: Iterable[Any] | None = None,  # the true recurrent matrices, in the order of recurrent_blocks(model)
        *,
        tol: float | None = None,
        percentiles: Sequence[float] = (5, 25, 50, 75, 95),
    ) -> None:
        self.model = model
        self.tol = tol
        self.percentiles = tuple(percentiles)
        self.history: list[Snapshot] = []
        self._truth = None if truth is None else [as_matrix(matrix)[0] for matrix in truth]
        shapes = [tuple(block.matrix.shape) for block in recurrent_blocks(model)]
        if self._truth is not None and [matrix.shape for matrix in self._truth] != shapes:
            raise ArgumentError(
                argument="truth",
                expected=f"a matrix for each recurrent block of the model, of shapes {shapes}",
                got=[matrix.shape for matrix in self._truth],
            )

    def record(self, step: int | None = None, **metrics: float) -> Snapshot:
        """Record the current features together with metrics such as the loss."""
        if step is None:
            step = self.history[-1].step + 1 if self.history else 0
        if self.history and step <= self.history[-1].step:
            raise ArgumentError(argument="step", expected=f"more than {self.history[-1].step}, the last", got=step)
        blocks = list(recurrent_blocks(self.model))
        features = features_of_blocks(blocks, tol=self.tol)
        snapshot = Snapshot(
            step=step,
            counts=features.counts(),
            modulus=self._percentiles(features, "modulus"),
            angle=self._percentiles(features, "angle"),
            distance=self._distance(blocks),
            metrics={name: float(value) for name, value in metrics.items()},
        )
        self.history.append(snapshot)
        return snapshot

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each snapshot: metrics, counts by type, percentiles, and the distance to the truth."""
        labels = sorted({label for snapshot in self.history for label in snapshot.counts})
        rows = []
        for snapshot in self.history:
            row: dict[str, float | int | None] = {"step": snapshot.step, **snapshot.metrics}
            row |= {label: snapshot.counts.get(label, 0) for label in labels}
            for name in ("modulus", "angle"):
                row |= {
                    f"{name} {percentile:g}%": value
                    for percentile, value in zip(self.percentiles, getattr(snapshot, name), strict=True)
                }
            if self._truth is not None:
                row["distance"] = snapshot.distance
            rows.append(row)
        return optional("pandas").DataFrame(rows)

    def _percentiles(self, features: Features, name: str) -> tuple[float, ...]:
        values = [getattr(feature, name) for feature in features]
        if not values:
            return (np.nan,) * len(self.percentiles)
        return tuple(np.percentile(values, self.percentiles).tolist())

    def _distance(self, blocks: Sequence[RecurrentBlock]) -> float | None:
        if self._truth is None:
            return None
        differences = (as_matrix(block.matrix)[0] - true for block, true in zip(blocks, self._truth, strict=True))
        return float(np.sqrt(sum((difference**2).sum() for difference in differences)))

"""SequenceClassifier: sequences in, classes out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, column_or_1d
from torch import Tensor

from parallelrnn.errors import ArgumentError
from parallelrnn.sequence.base import SequenceEstimator
from parallelrnn.sequence.learned import TargetScale
from parallelrnn.training.losses import cross_entropy

Array = NDArray[np.float64]


@dataclass(eq=False, repr=False, kw_only=True)
class SequenceClassifier(ClassifierMixin, SequenceEstimator):  # type: ignore[misc]
    """Classes of sequences, by recurrent blocks that can be read; a scikit-learn estimator.

    Sequences and parameters are those of `SequenceRegressor`, but for the loss. What is a sum over blocks is the
    logarithm of the odds of each class.

    Parameters
    ----------
    class_weight
        How much the sequences of each class count in training and validation: a dictionary from classes to weights,
        "balanced" for as much in each class as in every other, or None for all alike.

    Examples
    --------
    >>> import numpy as np
    >>> steps = np.arange(40)
    >>> slow, fast = (np.sin(steps / period + np.arange(50)[:, None]) for period in (4, 1))
    >>> X, y = np.concatenate([slow, fast]), ["slow"] * 50 + ["fast"] * 50
    >>> classifier = SequenceClassifier(random_state=0).fit(X, y)
    >>> classifier.predict(X[:1]).item()
    'slow'
    """

    class_weight: Any = None

    def fit(
        self,
        X: Any,  # noqa: N803
        y: Any,
        *,
        checkpoint: str | Path | None = None,
        resume: bool = False,
    ) -> SequenceClassifier:
        """Learn from sequences and the class of each.

        The state of the training is kept in the directory `checkpoint`, if given; with `resume` it goes on from there.
        """
        data = self._read(X, reset=True)
        if y is None:
            raise ValueError(
                "SequenceClassifier requires y to be passed, but the target y is None; give each sequence a class"
            )
        labels = column_or_1d(y, warn=True)
        check_classification_targets(labels)
        check_consistent_length(data.lengths, labels)
        classes, numbers = np.unique(labels, return_inverse=True)
        count = len(classes)
        units = TargetScale(np.ones(count), np.zeros(count))
        target = torch.from_numpy(numbers.astype(np.int64))
        weight = self._weights(labels)
        self._learn(data, target, units, cross_entropy, numbers, checkpoint, resume, weight)
        self.classes_ = classes
        return self

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """The most probable class of each sequence, (N,)."""
        best = self._outputs(X).argmax(1)
        found: NDArray[Any] = self.classes_[best]
        return found

    def predict_proba(self, X: Any) -> Array:  # noqa: N803
        """The probability of each class, (N, classes), in the order of `classes_`."""
        probabilities: Array = softmax(self._outputs(X), axis=1)
        return probabilities

    def predict_log_proba(self, X: Any) -> Array:  # noqa: N803
        """Its logarithm."""
        logarithms: Array = log_softmax(self._outputs(X), axis=1)
        return logarithms

    def _weights(self, labels: NDArray[Any]) -> Tensor:
        """How much each sequence counts, one on average."""
        weights = compute_sample_weight(self.class_weight, labels)
        if not (np.isfinite(weights) & (weights >= 0)).all() or not weights.any():
            raise ArgumentError(
                "class_weight: expected weights that are finite, not negative and not all zero, got "
                f"{self.class_weight!r}"
            )
        return torch.from_numpy(weights / weights.mean()).float()

    def _seen(self) -> dict[str, Any]:
        kind = self.classes_.dtype
        classes = self.classes_.astype(str) if kind.kind == "M" else self.classes_  # JSON has no times
        return {**super()._seen(), "classes": classes.tolist(), "kind": "O" if kind.hasobject else kind.str}

    def _see(self, seen: dict[str, Any]) -> None:
        super()._see(seen)
        self.classes_ = _as_kind(seen["classes"], seen["kind"])
        if len(self.classes_) != self._known().network.made_of.outputs:
            raise ValueError("its words and its tensors do not agree about classes")


def _as_kind(classes: list[Any], kind: str) -> NDArray[Any]:
    """Classes that were saved, as they were; of a kind that takes no more memory than they do."""
    wanted = np.dtype(kind)
    longest = max((len(str(one)) for one in classes), default=0)
    if wanted.kind not in "biufUSOM" or wanted.itemsize > max(16, 4 * longest):
        raise ValueError(f"its classes cannot be of the kind {kind!r}")
    return np.array(classes, dtype=wanted)

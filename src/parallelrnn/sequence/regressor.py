"""SequenceRegressor: sequences in, values out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_array, check_consistent_length
from torch import Tensor

from parallelrnn.errors import check_choice
from parallelrnn.sequence.base import SequenceEstimator
from parallelrnn.sequence.data import positive
from parallelrnn.sequence.learned import TargetScale
from parallelrnn.training.losses import LOSSES, pointwise
from parallelrnn.training.trainer import Loss

Array = NDArray[np.float64]


@dataclass(eq=False, repr=False, kw_only=True)
class SequenceRegressor(RegressorMixin, SequenceEstimator):  # type: ignore[misc]
    """Values of sequences, by recurrent blocks that can be read; a scikit-learn estimator.

    Sequences X are an array (N, T, C); a list of arrays (T,) or (T, C) of any lengths; or a table whose rows are
    sequences and whose columns are time steps. The states of the blocks, on average over a sequence or at its end, go
    through one linear map: a value is a sum over blocks.

    Parameters
    ----------
    cell
        What remembers: "linear", "rnn", "lstm", "gru"; or "brt", a Block-Recurrent Transformer, whose outputs are no
        sum over blocks.
    block_size, hidden_size, num_layers, bidirectional
        Of the blocks; one block of all units (`block_size=hidden_size`) is the dense layer of `torch.nn`.
    segment
        Steps that the cell reads at once; by default one, or as many as make a hundred of a typical long sequence.
    readout
        What the linear map sees of the states: their "mean" over the sequence, or the "last".
    normalize
        "channel": by mean and deviation of each channel over the training; "sequence": of each sequence by its own; or
        None.
    loss
        "mse", "mae" or "huber", of values at a scale of one.
    learning_rate, batch_size, max_epochs, epoch_steps, patience, gradient_clip, dropout, max_time
        Of the training: steps by Adam, whose size falls from epoch to epoch; until the error on validation has not
        fallen for `patience` epochs, or `max_time` seconds are over. An epoch sees all sequences once, but has no fewer
        and no more than `epoch_steps` steps.
    validation_fraction
        Of the sequences, not learned from, that tell when to stop; where that would be fewer than ten, all are learned
        from, and the error on them tells.
    random_state
        Fixes all that is random.
    accelerator, devices, precision
        Of Lightning Fabric.
    progress
        Whether to show a progress bar; by default if there is a terminal.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 30, 1))
    >>> y = X[:, :, 0].mean(1)
    >>> regressor = SequenceRegressor(random_state=0).fit(X, y)
    >>> bool(regressor.score(X, y) > 0.95)
    True
    """

    loss: str = "mse"

    def fit(
        self,
        X: Any,  # noqa: N803
        y: Any,
        *,
        checkpoint: str | Path | None = None,
        resume: bool = False,
    ) -> SequenceRegressor:
        """Learn from sequences and the value, or the values, of each.

        The state of the training is kept in the directory `checkpoint`, if given; with `resume` it goes on from there.
        """
        check_choice("loss", self.loss, LOSSES)
        data = self._read(X, reset=True)
        values = _values(y)
        check_consistent_length(data.lengths, values)
        table = values.reshape(len(values), -1)
        units = TargetScale(positive(table.std(0), table), table.mean(0))
        target = torch.from_numpy((table - units.level) / units.scale).float()
        self._learn(data, target, units, _loss_of(self.loss), None, checkpoint, resume)
        self._is_one_value = values.ndim == 1
        return self

    def predict(self, X: Any) -> Array:  # noqa: N803
        """The value of each sequence, (N,), or its values (N, outputs)."""
        values = self._outputs(X)
        return values[:, 0] if self._is_one_value else values

    def _seen(self) -> dict[str, Any]:
        return {**super()._seen(), "one_value": self._is_one_value}

    def _see(self, seen: dict[str, Any]) -> None:
        super()._see(seen)
        self._is_one_value = bool(seen["one_value"])

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn should know."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def _values(y: Any) -> Array:
    if y is None:
        raise ValueError(
            "SequenceRegressor requires y to be passed, but the target y is None; give each sequence a value"
        )
    values: Array = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
    if values.ndim not in (1, 2):
        raise ValueError(f"y: expected values (N,) or (N, outputs), got the shape {values.shape}")
    return values


def _loss_of(name: str) -> Loss:
    of_forecasts = pointwise(name)

    def loss(output: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        return of_forecasts(output[..., None], target, weight)

    return loss

"""How much of a layer's output each recurrence feature carries."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parallelrnn.interpret.contributions import NoVariationError
from parallelrnn.interpret.layers import as_blocks, as_input, evaluating, linear_map
from parallelrnn.nn import RecurrentBlock

Array = NDArray[np.float64]


class Shares:
    """The shares of the features of a layer's last layer, over data.

    A block's state is the sum of its parts in the invariant subspaces of its recurrent matrix, so its contribution to
    the output is a sum over its features too. The share is the covariance of that part with the output, relative to the
    output's variance; where the aggregate is not linear, with what enters it. Of each gate, the shares of all features
    (and of eigenvalues 0, if there are any) sum to one.
    """

    def __init__(self, layer: Any, states: Tensor) -> None:
        """`states` (N, d) of the last layer's blocks, at any steps of any sequences."""
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
        """Over all steps of some input."""
        layer = evaluating(as_blocks(layer))
        return cls(layer, layer.block_states(as_input(layer, x)).flatten(0, -2))

    def __call__(self, block: RecurrentBlock) -> Array | None:
        """The form F (D, D) of a block: what a projector P takes out of its state has the share trace(F P).

        None where that does not reach the output: in layers below the last, and where an LSTM projects its state
        (`proj_size`).
        """
        form = self._forms[block.block + (self._num_blocks if block.direction == "reverse" else 0)]
        return form if block.layer == self._last and len(form) == len(block.matrix) else None

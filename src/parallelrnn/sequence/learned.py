"""What an estimator of sequences has learned."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from parallelrnn.sequence.data import Scale
from parallelrnn.sequence.model import SequenceNetwork


@dataclass(frozen=True)
class TargetScale:
    """What outputs are multiplied by, and what is added to them then."""

    scale: NDArray[np.float64]  # (outputs,)
    level: NDArray[np.float64]  # (outputs,)


@dataclass(frozen=True)
class Learned:
    """All that it takes to predict, explain and save."""

    network: SequenceNetwork  # trained in single precision, used in double
    scale: Scale
    target: TargetScale
    sample: Tensor  # (n, d): what the linear map got for sequences of the training
    history: tuple[dict[str, float], ...]

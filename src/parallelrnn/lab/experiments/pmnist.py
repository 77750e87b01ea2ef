"""Permuted sequential MNIST: Section 6.3 of arXiv 2605.02692, its Table 1(b)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from parallelrnn.lab.datasets import load_mnist
from parallelrnn.lab.datasets.splits import permutation
from parallelrnn.lab.experiments.classification import ClassificationConfig, Prepare, classify, standardiser
from parallelrnn.lab.experiments.experiment import Experiment, Outcome, Workspace
from parallelrnn.lab.experiments.models import MODELS

_PERMUTATION_SEED = 0  # the predetermined order of pixels, the same in all runs


@dataclass(frozen=True, kw_only=True)
class PermutedMnistConfig(ClassificationConfig):
    """Two layers of width 128; transformers of three layers, their sequences in two segments."""


def cells() -> list[PermutedMnistConfig]:
    """Return all models."""
    return [PermutedMnistConfig(model=model) for model in MODELS]


def run(config: PermutedMnistConfig, seed: int, workspace: Workspace) -> Outcome:
    """Run a configuration on pixels one by one, in a fixed random order."""
    splits = load_mnist()
    return classify(config, splits, permuted(splits.train.inputs), seed, workspace)


def permuted(images: NDArray[np.uint8]) -> Prepare:
    """Return a function from images (B, 28, 28) to sequences (B, 784, 1)."""
    pixels = images[0].size
    order = torch.from_numpy(permutation(pixels, _PERMUTATION_SEED))
    standardise = standardiser(images[..., None])
    return lambda batch: standardise(batch.reshape(len(batch), pixels, 1)[:, order])


EXPERIMENT = Experiment(name="pmnist", config=PermutedMnistConfig, cells=cells, run=run, replicates=1)

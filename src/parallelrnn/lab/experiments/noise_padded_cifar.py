"""Noise-padded CIFAR-10: Section 6.3 of arXiv 2605.02692, its Table 1(d).

An image comes row by row, 96 numbers each, in the first 32 of 1000 steps. The rest is noise, drawn once and the same
for all images, as in the work that the paper follows (LEM, arXiv 2110.04744). Gates are initialised for such lengths.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from parallelrnn.lab.datasets import load_cifar10
from parallelrnn.lab.experiments.classification import ClassificationConfig, classify, standardiser
from parallelrnn.lab.experiments.experiment import Experiment, Outcome, Workspace

MODELS = ("LSTM", "ParaLSTM", "GRU", "ParaGRU", "BRT", "ParaBRT")
_NOISE_SEED = 0


@dataclass(frozen=True, kw_only=True)
class NoisePaddedCifarConfig(ClassificationConfig):
    """Two layers of width 128 with the chrono initialisation; transformers of four layers."""

    initial: str = "chrono"
    transformer_layers: int = 4
    length: int = 1000


def cells() -> list[NoisePaddedCifarConfig]:
    """Return the paper's models: an RNN without gates learns nothing here."""
    return [NoisePaddedCifarConfig(model=model) for model in MODELS]


def run(config: NoisePaddedCifarConfig, seed: int, workspace: Workspace) -> Outcome:
    """Run a configuration on the rows of images, followed by noise."""
    splits = load_cifar10()
    standardise = standardiser(splits.train.inputs)
    rows = splits.train.inputs.shape[1]
    random = torch.Generator().manual_seed(_NOISE_SEED)
    noise = torch.randn(config.length - rows, 3 * splits.train.inputs.shape[2], generator=random)

    def prepare(images: Tensor) -> Tensor:
        return torch.cat([standardise(images).flatten(2), noise.expand(len(images), -1, -1)], 1)

    return classify(config, splits, prepare, seed, workspace)


EXPERIMENT = Experiment(name="noise-padded-cifar", config=NoisePaddedCifarConfig, cells=cells, run=run, replicates=1)

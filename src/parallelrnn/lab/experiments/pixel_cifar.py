"""Pixel-by-pixel CIFAR-10: Section 6.3 of arXiv 2605.02692, its Table 1(c)."""

from __future__ import annotations

from dataclasses import dataclass

from parallelrnn.lab.datasets import load_cifar10
from parallelrnn.lab.experiments.classification import ClassificationConfig, classify, standardiser
from parallelrnn.lab.experiments.experiment import Experiment, Outcome, Workspace
from parallelrnn.lab.experiments.models import MODELS


@dataclass(frozen=True, kw_only=True)
class PixelCifarConfig(ClassificationConfig):
    """Three layers of width 128; transformers of four layers, their sequences in two segments."""

    num_layers: int = 3
    transformer_layers: int = 4


def cells() -> list[PixelCifarConfig]:
    """Return all models."""
    return [PixelCifarConfig(model=model) for model in MODELS]


def run(config: PixelCifarConfig, seed: int, workspace: Workspace) -> Outcome:
    """Run a configuration on sequences of 1024 pixels with three colours each."""
    splits = load_cifar10()
    standardise = standardiser(splits.train.inputs)
    return classify(config, splits, lambda images: standardise(images).flatten(1, 2), seed, workspace)


EXPERIMENT = Experiment(name="pixel-cifar", config=PixelCifarConfig, cells=cells, run=run, replicates=1)

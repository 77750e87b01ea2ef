"""Recurrence features as permuted MNIST is learned, from three initialisations: Figure 3 of arXiv 2605.02692."""

from __future__ import annotations

from dataclasses import dataclass

from parallelrnn.lab.experiments import pmnist
from parallelrnn.lab.experiments.experiment import Experiment

INITIAL = ("uniform", "identity", "mixed")


@dataclass(frozen=True)
class FeatureEvolutionConfig(pmnist.PermutedMnistConfig):
    """Vanilla models; features are read every 20 steps, since types change within the first."""

    epoch_steps: int | None = 20
    max_epochs: int = 20
    validation: int | None = 500
    test: int | None = 1_000


def cells() -> list[FeatureEvolutionConfig]:
    """Three models from three initialisations."""
    return [FeatureEvolutionConfig(model, initial=initial) for model in ("RNN", "LSTM", "GRU") for initial in INITIAL]


EXPERIMENT = Experiment(
    "feature-evolution",
    "Figure 3: feature types of vanilla models in training",
    FeatureEvolutionConfig,
    cells,
    pmnist.run,
    1,
    shorter=True,
)

"""Recurrence features while permuted MNIST is learned, from three initialisations: Figure 3 of arXiv 2605.02692."""

from __future__ import annotations

from dataclasses import dataclass

from parallelrnn.lab.experiments import pmnist
from parallelrnn.lab.experiments.experiment import Experiment

INITIAL = ("uniform", "identity", "mixed")


@dataclass(frozen=True, kw_only=True)
class FeatureEvolutionConfig(pmnist.PermutedMnistConfig):
    """Vanilla models; features are read every 20 steps, since types change within the first steps."""

    epoch_steps: int | None = 20
    max_epochs: int = 20
    validation: int | None = 500
    test: int | None = 1_000


def cells() -> list[FeatureEvolutionConfig]:
    """Return three models from three initialisations."""
    models = ("RNN", "LSTM", "GRU")
    return [FeatureEvolutionConfig(model=model, initial=initial) for model in models for initial in INITIAL]


EXPERIMENT = Experiment(
    name="feature-evolution", config=FeatureEvolutionConfig, cells=cells, run=pmnist.run, replicates=1, shorter=True
)

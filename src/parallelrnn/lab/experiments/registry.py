"""All experiments by name, in the order of the paper."""

from __future__ import annotations

from parallelrnn.lab.experiments import (
    adding,
    feature_evolution,
    feature_recovery,
    forecasting,
    noise_padded_cifar,
    pixel_cifar,
    pmnist,
    speed,
    tradeoff,
    worms,
)
from parallelrnn.lab.experiments.experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    module.EXPERIMENT.name: module.EXPERIMENT
    for module in (
        tradeoff,
        speed,
        forecasting,
        pmnist,
        pixel_cifar,
        noise_padded_cifar,
        worms,
        feature_evolution,
        feature_recovery,
        adding,
    )
}

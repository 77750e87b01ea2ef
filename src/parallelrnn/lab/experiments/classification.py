"""What the classification experiments share: paired models of several kinds, trained alike, and their accuracies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from parallelrnn.lab.datasets import Examples, Splits
from parallelrnn.lab.datasets.splits import permutation
from parallelrnn.lab.experiments.experiment import ExperimentError, Outcome, Workspace, reset_unused
from parallelrnn.lab.experiments.feature_types import types_of
from parallelrnn.lab.experiments.models import RECURRENT, Transformer, count_parameters, make_recurrent
from parallelrnn.lab.experiments.supervised import Subset, classification_scores, fit
from parallelrnn.nn import initialize

Prepare = Callable[[Tensor], Tensor]  # from examples as they are stored to sequences (B, T, C)


@dataclass(frozen=True, kw_only=True)
class ClassificationConfig:
    """One model; the paper's scheme for images: Adam at 2e-3, halved when validation no longer improves.

    The paper does not give the batch size, what counts as no improvement (here three epochs), nor which tasks have a
    fully connected aggregate and which a feed-forward one (here all have the latter).
    """

    model: str
    hidden_size: int = 128
    num_layers: int = 2
    block_size: int = 2
    batch_size: int = 128
    learning_rate: float = 2e-3
    max_epochs: int = 800
    patience: int = 2
    minimum_rate: float = 1e-6
    epoch_steps: int | None = None  # steps between validations; a pass over the examples if not given
    train: int | None = None  # how many examples are used, a fixed random choice; all if not given
    validation: int | None = None
    test: int | None = None
    initial: str = "uniform"  # recurrent matrices: uniform, identity or mixed; or chrono, of gates
    d_model: int = 256  # of transformers, and what follows
    transformer_layers: int = 3
    num_heads: int = 8
    num_states: int = 32
    num_segments: int = 2
    all_recurrent: bool = False

    def without_unused(self) -> ClassificationConfig:
        """Return the configuration with defaults for what its model does not use."""
        unused: tuple[str, ...] = ("hidden_size", "num_layers", "block_size", "initial")
        if self.model in RECURRENT:
            unused = ("d_model", "transformer_layers", "num_heads", "num_states", "num_segments", "all_recurrent")
            unused += () if self.model.startswith("Para") else ("block_size",)
        return reset_unused(self, unused)


def classify(
    config: ClassificationConfig, splits: Splits, prepare: Prepare, seed: int, workspace: Workspace
) -> Outcome:
    """Train on sequences and return the test accuracy."""
    counts = (config.train, config.validation, config.test)
    parts = zip((splits.train, splits.validation, splits.test), counts, strict=True)
    training, validation, test = (_part(examples, prepare, count) for examples, count in parts)
    channels = training.take(torch.zeros(1, dtype=torch.int64))[0]
    classes = int(splits.train.targets.max()) + 1
    torch.manual_seed(seed)
    network = make_network(config, channels.shape[2], classes, channels.shape[1], seed)
    observe = types_of if config.model in RECURRENT else None
    progress = fit(network, training, validation, config, seed, workspace, classes=True, observe=observe)
    metrics = classification_scores(network, test)
    largest = int(np.bincount(splits.train.targets).argmax())  # what a model that learned nothing would answer
    metrics |= {"largest_class": sum(float((y == largest).sum()) for _, y in test.chunks()) / test.count}
    metrics |= {"tested": test.count, "parameters": count_parameters(network)}
    metrics |= {"epochs": progress.epoch, "seconds": progress.seconds}
    return Outcome(metrics, progress.history, {"features": progress.notes} if progress.notes else {})


def make_network(config: ClassificationConfig, channels: int, classes: int, length: int, seed: int) -> nn.Module:
    """Return the model that a configuration names, with its initial recurrent weights."""
    if config.model not in RECURRENT:
        return Transformer(
            config.model,
            channels,
            classes,
            d_model=config.d_model,
            num_layers=config.transformer_layers,
            num_heads=config.num_heads,
            num_states=config.num_states,
            num_segments=config.num_segments,
            all_recurrent=config.all_recurrent,
        )
    network = make_recurrent(config, channels, classes, seed)
    layer: nn.RNNBase = network.layer  # type: ignore[assignment]
    if config.initial == "chrono":
        initialize.chrono_(layer, length)
    elif config.initial == "identity":
        initialize.identity_(layer)
    elif config.initial == "mixed":
        initialize.mixed_order_(layer)
    elif config.initial != "uniform":
        hint = "choose from uniform, identity, mixed, chrono"
        raise ExperimentError(f"there is no initialisation {config.initial!r}", hint=hint)
    return network


def standardiser(examples: NDArray[np.uint8]) -> Prepare:
    """Return a function from bytes (N, ..., C) to numbers of mean zero and deviation one in each channel.

    The first 10,000 examples decide mean and deviation.
    """
    pixels = examples[:10_000].reshape(-1, examples.shape[-1]) / 255
    mean, deviation = (torch.tensor(moment(pixels, axis=0), dtype=torch.float32) for moment in (np.mean, np.std))
    return lambda images: (images.float() / 255 - mean) / deviation


def _part(examples: Examples, prepare: Prepare, count: int | None) -> Subset:
    if count is not None:  # not the first: the test of MNIST begins with its harder half
        examples = examples.take(permutation(len(examples), 0)[:count])
    inputs, targets = torch.from_numpy(examples.inputs), torch.from_numpy(examples.targets)
    return Subset(len(targets), lambda rows: (prepare(inputs[rows]), targets[rows]))

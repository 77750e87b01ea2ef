"""Supervised learning of the experiments: examples in memory, their metrics, and trainings that stop and resume."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from parallelrnn.errors import TrainingError
from parallelrnn.lab.experiments.experiment import ExperimentError, OutOfTimeError, Workspace
from parallelrnn.training.checkpoint import Checkpoint
from parallelrnn.training.optimizers import Plateau
from parallelrnn.training.trainer import PassSampler, Progress, Trainer, TrainerConfig, make_fabric

_STEPS_AT_ONCE = 100_000  # of all sequences that are evaluated together: a transformer then needs less than 4 GB


class LabeledBatch(NamedTuple):
    """Inputs and targets."""

    inputs: Tensor
    target: Tensor
    weight: Tensor = torch.ones(())


@dataclass(frozen=True)
class Subset:
    """A training, validation or test set: how many examples, and how to get inputs and targets of some rows."""

    count: int
    take: Callable[[Tensor], tuple[Tensor, Tensor]]

    def batch(self, rows: Tensor) -> LabeledBatch:
        """Return some examples."""
        return LabeledBatch(*self.take(rows))

    def chunks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield all examples, some at a time."""
        length = self.take(torch.zeros(1, dtype=torch.int64))[0].shape[1]
        for rows in torch.arange(self.count).split(max(1, _STEPS_AT_ONCE // length)):
            yield self.take(rows)


@torch.no_grad()
def regression_errors(network: nn.Module, subset: Subset) -> dict[str, float]:
    """Return the mean squared and the mean absolute error."""
    squared = absolute = count = 0.0
    for inputs, targets in subset.chunks():
        errors = (network(inputs) - targets).double()
        squared += float(errors.square().sum())
        absolute += float(errors.abs().sum())
        count += errors.numel()
    return {"mse": squared / count, "mae": absolute / count}


@torch.no_grad()
def classification_scores(network: nn.Module, subset: Subset) -> dict[str, float]:
    """Return the accuracy and the mean cross-entropy."""
    correct = loss = 0.0
    for inputs, targets in subset.chunks():
        output = network(inputs)
        correct += float((output.argmax(-1) == targets).sum())
        loss += float(functional.cross_entropy(output, targets, reduction="sum"))
    return {"accuracy": correct / subset.count, "loss": loss / subset.count}


def fit(
    network: nn.Module,
    training: Subset,
    validation: Subset,
    config: Any,  # of an experiment: batch_size, learning_rate and others by their usual names
    seed: int,
    workspace: Workspace,
    *,
    classes: bool = False,  # cross-entropies of classes, else squared errors
    keep_best: bool = True,
    fingerprint: str = "",
    observe: Callable[[nn.Module], Any] | None = None,
) -> Progress:
    """Train a network by Adam, whose rate is halved when the validation error no longer falls."""

    def validate(network: nn.Module) -> dict[str, float]:
        if not classes:
            return {"validation": regression_errors(network, validation)["mse"]}
        scores = classification_scores(network, validation)
        return {"validation": scores["loss"], "accuracy": scores["accuracy"]}

    how = TrainerConfig(
        learning_rate=config.learning_rate,
        schedule=Plateau(patience=getattr(config, "patience", 0)),
        max_epochs=config.max_epochs,
        patience=getattr(config, "stop_after", None),
        minimum_rate=getattr(config, "minimum_rate", 0.0),
        keep_best=keep_best,
    )
    sampler = PassSampler(training.count, config.batch_size, seed, getattr(config, "epoch_steps", None))
    loss = functional.cross_entropy if classes else functional.mse_loss
    return train(network, training, sampler, loss, validate, how, workspace, fingerprint, observe)


def train(
    network: nn.Module,
    source: Any,
    sampler: Any,
    loss: Callable[[Tensor, Tensor], Tensor],
    validate: Callable[[nn.Module], dict[str, float]],
    config: TrainerConfig,
    workspace: Workspace,
    fingerprint: str = "",  # of the data, if these could be others when training is resumed
    observe: Callable[[nn.Module], Any] | None = None,  # before training and after each epoch, into the notes
) -> Progress:
    """Train a network, from where an earlier run stopped; raise OutOfTimeError if there is no time to finish."""
    checkpoint = None
    if workspace.directory is not None:
        checkpoint = Checkpoint(
            workspace.directory, fingerprint, True, every=workspace.checkpoint_every, each_epoch=False
        )
    rows = torch.empty(0, dtype=torch.int64)  # the sampler has them
    trainer = Trainer(
        network,
        source,
        rows,
        rows,
        lambda output, target, weight: loss(output, target),
        config,
        0,
        make_fabric(),
        checkpoint=checkpoint,
        sampler=sampler,
        forward=lambda module, batch: module(batch.inputs),
        validate=validate,
    )
    if trainer.resume():
        torch.set_num_threads(trainer.progress.threads)  # more or fewer would sum in another order
    progress = trainer.progress

    def note(trainer: Any = None) -> None:
        if observe is not None:
            progress.notes.append(observe(network))

    def should_stop() -> bool:
        workspace.report((progress.epoch + progress.step / sampler.steps) / config.max_epochs)
        return workspace.is_over

    if not progress.notes:
        note()
    try:
        trainer.run(note, should_stop)
    except TrainingError as error:
        raise ExperimentError(str(error)) from error
    if not trainer.is_done:
        raise OutOfTimeError
    return progress

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
from parallelrnn.training.trainer import Progress, Sampler, Source, Trainer, TrainerConfig, make_fabric

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


def train(
    network: nn.Module,
    source: Source,
    sampler: Sampler,
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
    no_rows = torch.empty(0, dtype=torch.int64)
    trainer = Trainer(
        network,
        source,
        no_rows,
        no_rows,
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

    def note(trainer: Trainer[nn.Module] | None = None) -> None:
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

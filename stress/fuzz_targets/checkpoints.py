"""Checkpoints of an estimator and of an experiment; training resumes from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fuzz_targets import grammar
from fuzz_targets.target import Target
from fuzz_targets.tensors import NOT_BUILT, Values
from parallelrnn.errors import CheckpointError
from parallelrnn.sequence.data import SequenceBatch
from parallelrnn.training.checkpoint import FILE, Checkpoint
from parallelrnn.training.trainer import PassSampler, Trainer, TrainerConfig, make_fabric

_values = Values()


class _Ones:
    """A data set of ones."""

    def batch(self, rows: Tensor) -> SequenceBatch:
        ones = torch.ones(len(rows), 1)
        return SequenceBatch(torch.ones(len(rows), 2), None, ones, ones)


def _trainer(folder: Path, index: int) -> Trainer[Any]:
    """Return the trainer of an estimator, which saves after an epoch, or of an experiment, which saves within one."""
    return Trainer(
        nn.Linear(2, 1),
        _Ones(),
        torch.arange(4),
        torch.arange(4),
        lambda output, target, weight: nn.functional.mse_loss(output, target),
        TrainerConfig(max_epochs=2, batch_size=2, epoch_steps=(1, 2)),
        0,
        make_fabric(),
        checkpoint=Checkpoint(directory=folder, fingerprint="a training"),
        sampler=PassSampler(4, 2, 0) if index else None,
        forward=lambda module, batch: module(batch.x),
    )


def _seeds(folder: Path) -> list[bytes]:
    seeds = []
    for index, steps in enumerate((2, 1)):
        trainer = _trainer(folder / str(index), index)
        trainer.resume()  # which makes the folder
        left = iter([False] * (steps - 1))
        trainer.run(should_stop=lambda left=left: next(left, True))  # type: ignore[misc]
        seeds.append(_values.describe(index, folder / str(index) / FILE))
    return seeds


def _resume(data: bytes, folder: Path) -> None:
    try:
        trainer = _trainer(folder, _values.build(data, folder / FILE))
    except NOT_BUILT:
        return
    assert trainer.resume(), "it was written just now"


TARGETS = [Target(name="checkpoints", seeds=_seeds, read=_resume, errors=(CheckpointError,), mutate=grammar.mutate)]

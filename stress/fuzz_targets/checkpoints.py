"""Trainings that were cut off, of an estimator and of an experiment, as they are gone on with."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from fuzz_targets import grammar
from fuzz_targets.target import Target
from fuzz_targets.tensors import NOT_BUILT, Numbers
from parallelrnn.errors import CheckpointError
from parallelrnn.io import load_tensors, save_tensors
from parallelrnn.lab.experiments.experiment import ExperimentError, Workspace
from parallelrnn.lab.experiments.tasks import Part, Regression
from parallelrnn.lab.experiments.training import Schedule, Training
from parallelrnn.training.checkpoint import FILE, Checkpoint
from parallelrnn.training.trainer import Progress

_OF = "a training"
_numbers = Numbers()


def _trainer() -> Any:
    """All of a `Trainer` that a checkpoint keeps."""
    network = nn.Linear(2, 1)
    optimizer = torch.optim.Adam(network.parameters())
    network(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    best = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    return SimpleNamespace(
        network=network, optimizer=optimizer, best=best, random=torch.Generator(), progress=Progress(history=[{"a": 1}])
    )


def _training(folder: Path) -> Training:
    part = Part(4, lambda rows: (torch.ones(len(rows), 2), torch.ones(len(rows), 1)))
    task = Regression(part, part, batch_size=2, seed=0)
    return Training(nn.Linear(2, 1), task, Schedule(1e-2, max_epochs=1), Workspace(folder, every=0.0))


def _seeds(folder: Path) -> list[bytes]:
    kept = Checkpoint(folder / "0", _OF, resume=False)
    kept.begin()
    kept.save(_trainer())
    training = _training(folder / "1")
    training.run()
    found = []
    for index in range(2):
        words, tensors = load_tensors(folder / str(index) / FILE)
        described = _numbers.describe(index, tensors)
        found.append(json.dumps({"from": index, "words": words, "tensors": described}).encode())
    return found


def _go_on(data: bytes, folder: Path) -> None:
    threads = torch.get_num_threads()
    try:
        document = json.loads(data)
        tensors = _numbers.build(document["from"], document["tensors"])
        save_tensors(folder / FILE, tensors, document["words"])
    except NOT_BUILT:
        return
    try:
        if document["from"] == 0:
            kept = Checkpoint(folder, _OF, resume=True)
            there = kept.begin()
            assert there is not None, "it was written just now"
            kept.restore(there, _trainer())
        else:
            _training(folder)._restore()
    finally:
        torch.set_num_threads(threads)


TARGETS = [Target("checkpoints", _seeds, _go_on, (CheckpointError, ExperimentError), grammar.mutate)]

"""A training that can be cut off: all that it takes to go on with it, in one file after each epoch.

Going on gives the same weights to the bit as never having stopped, since the random numbers go on where they were.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from parallelrnn.errors import CheckpointError, FileError
from parallelrnn.io import check_writable, decode_tensors, read_bytes, remove_leftovers, save_tensors, tensors_under
from parallelrnn.training.collectives import done_by_first
from parallelrnn.training.distributed import is_first
from parallelrnn.training.progress import progress_bar
from parallelrnn.training.trainer import ModuleT, Progress, Trainer

FILE = "training.safetensors"


def fingerprint(words: Any, arrays: Iterable[NDArray[Any]]) -> str:
    """Of all that decides how a training goes, so that none is gone on with under other conditions."""
    found = hashlib.sha256(json.dumps(words, default=str).encode())
    for array in arrays:
        found.update(str(array.shape).encode())
        found.update(array.tobytes())
    return found.hexdigest()


def pack(network: nn.Module, best: Mapping[str, Tensor], optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """All numbers of a training: weights, the best of them, what the optimizer remembers, and torch's randomness."""
    tensors: dict[str, Tensor] = {f"network.{name}": tensor for name, tensor in network.state_dict().items()}
    tensors |= {f"best.{name}": tensor for name, tensor in best.items()}
    for index, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{name}": torch.as_tensor(value) for name, value in state.items()}
    tensors["random.dropout"] = torch.get_rng_state()
    return {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}


def unpack(tensors: Mapping[str, Tensor], network: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Put all that was packed back in its place; the best weights, which have none, are given back."""
    network.load_state_dict(tensors_under("network.", tensors))
    state = optimizer.state_dict()
    state["state"] = {}
    for name, tensor in tensors_under("optimizer.", tensors).items():
        index, _, key = name.partition(".")
        state["state"].setdefault(int(index), {})[key] = tensor
    optimizer.load_state_dict(state)
    torch.set_rng_state(tensors["random.dropout"])
    return tensors_under("best.", tensors)


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Where the state of a training is kept, of which training, and whether to go on with what is there."""

    directory: Path
    of: str  # the fingerprint
    resume: bool

    @property
    def file(self) -> Path:
        """All of it."""
        return self.directory / FILE

    def begin(self) -> bytes | None:
        """What there is to go on with, if anything; an earlier training that is not gone on with is forgotten."""
        check_writable(self.directory)
        remove_leftovers(self.directory, re.escape(FILE))
        if not self.resume:
            self.file.unlink(missing_ok=True)
        return read_bytes(self.file) if self.file.exists() else None

    def save(self, trainer: Trainer[Any]) -> None:
        """Keep the state of a training after an epoch."""
        tensors = pack(trainer.network, trainer.best, trainer.optimizer)
        tensors["random.order"] = trainer.random.get_state()
        rates = [group["lr"] for group in trainer.optimizer.param_groups]
        words = {
            "of": self.of,
            "progress": json.dumps(dataclasses.asdict(trainer.progress)),
            "rates": json.dumps(rates),
        }
        save_tensors(self.file, tensors, words)

    def restore(self, data: bytes, trainer: Trainer[Any]) -> None:
        """Go on where a training was cut off."""
        try:
            words, tensors = decode_tensors(data, self.file)
        except FileError as error:
            raise CheckpointError(error.problem, hint="delete it to start over") from error
        if words.get("of") != self.of:
            raise CheckpointError(
                f"{self.file} is of a training with other data or other arguments; give it another directory, or "
                "remove it to start anew"
            )
        try:
            trainer.best = unpack(tensors, trainer.network, trainer.optimizer)
            for group, rate in zip(trainer.optimizer.param_groups, json.loads(words["rates"]), strict=True):
                group["lr"] = rate
            trainer.random.set_state(tensors["random.order"])
            trainer.progress = Progress(**json.loads(words["progress"]))
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise CheckpointError(f"{self.file} does not fit this release: {error}; remove it to start anew") from error


def train(trainer: Trainer[ModuleT], progress: bool | None, checkpoint: Checkpoint | None) -> ModuleT:
    """Run a training with a progress bar, or go on with one that was kept, and keep it after every epoch."""

    def by_first(work: Callable[[], bytes | None]) -> bytes | None:
        """Others may be where there is no such directory."""
        return done_by_first(work) if trainer.among_others else work()

    if checkpoint is not None:
        kept = by_first(checkpoint.begin)
        if kept is not None:
            checkpoint.restore(kept, trainer)
    with progress_bar(progress if is_first() else False) as watch:

        def after_epoch(trainer: Trainer[ModuleT]) -> None:
            watch(trainer)
            if checkpoint is not None:
                by_first(lambda: checkpoint.save(trainer))

        return trainer.run(after_epoch)

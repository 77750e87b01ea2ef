"""The file that holds all it takes to resume a training, so that it ends with the same weights to the bit."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from torch import Tensor

from parallelrnn.errors import CheckpointError, FileError
from parallelrnn.io import check_writable, decode_tensors, read_bytes, remove_leftovers, save_tensors

FILE = "training.safetensors"
START_OVER = "delete it to start over"


def fingerprint(arguments: Any, arrays: Iterable[NDArray[Any]]) -> str:
    """Return a checksum of all that decides how a training goes, so that none is resumed under other conditions."""
    digest = hashlib.sha256(json.dumps(arguments, default=str).encode())
    for array in arrays:
        digest.update(str(array.shape).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """Where the state of a training is saved, and when."""

    directory: Path
    fingerprint: str
    resume: bool = True  # from what is there already
    every: float = 60.0  # seconds between checkpoints within an epoch
    each_epoch: bool = True  # one after every epoch as well

    @property
    def file(self) -> Path:
        """Return the path of the file."""
        return self.directory / FILE

    def begin(self) -> bytes | None:
        """Return the checkpoint to resume from, or None. Deletes a stale checkpoint unless `resume`."""
        check_writable(self.directory)
        remove_leftovers(self.directory, re.escape(FILE))
        if not self.resume:
            self.file.unlink(missing_ok=True)
        return read_bytes(self.file) if self.file.exists() else None

    def save(self, progress: dict[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Replace the checkpoint atomically."""
        save_tensors(self.file, tensors, {"fingerprint": self.fingerprint, "progress": progress})

    def decode(self, data: bytes) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return the progress and the tensors of a checkpoint, if it is undamaged and of the same training."""
        metadata, tensors = _decode(data, self.file)
        if metadata.get("fingerprint") != self.fingerprint:
            problem = f"{self.file} belongs to a training with other data or other arguments"
            raise CheckpointError(problem, hint=f"use another directory, or {START_OVER}")
        return metadata.get("progress", {}), tensors


def _decode(data: bytes, file: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        return decode_tensors(data, file)
    except FileError as error:
        raise CheckpointError(error.problem, hint=START_OVER) from error

"""Models that take no training: a number in the metadata, and the same number in a tensor."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from parallelrnn.io import load_model, save_model

KIND = "small model"


def save(path: Path, number: int, size: int = 100, about: str = "") -> Path:
    """Save a model of that number; `size` is that of its tensor, `about` more metadata."""
    metadata = {"number": number, "about": about, "share": 0.1 + number}
    return save_model(path, KIND, 2, metadata, {"number": torch.full((size,), float(number))})


def save_old(path: Path, number: int, **changes: Any) -> Path:
    """Save a model as version 0.1.0 did, with some metadata changed before checksums were taken."""
    path.mkdir(exist_ok=True)
    data = safetensors.torch.save({"number": torch.full((2,), float(number))})
    checksum = hashlib.sha256(data).hexdigest()
    manifest = {"format": KIND, "version": 1, "weights": f"weights-{checksum[:16]}.safetensors", "sha256": checksum}
    (path / manifest["weights"]).write_bytes(data)  # type: ignore[operator]
    manifest |= {"number": number, **changes}
    manifest["words_sha256"] = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    (path / "model.json").write_text(json.dumps(manifest))
    return path


def load(path: Path) -> int:
    """Return the number of a model; a mixture of two has none."""

    def build(metadata: dict[str, Any], tensors: dict[str, Tensor]) -> int:
        (number,) = set(tensors["number"].tolist()) | {float(metadata["number"])}
        return int(number)

    return load_model(path, KIND, 2, build)


def names(path: Path) -> set[str]:
    """Return the names of all files of a directory."""
    return {file.name for file in path.iterdir()}

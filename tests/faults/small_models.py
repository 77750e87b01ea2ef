"""Models that take no training: a number as a word, and the same number in tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from parallelrnn.training.model_files import ModelFormat

FORMAT = ModelFormat("small model", 1)


def save(path: Path, number: int, size: int = 100, about: str = "") -> Path:
    """A model of that number; `size` is that of its tensor, `about` some more words."""
    words = {"number": number, "about": about, "share": 0.1 + number}
    return FORMAT.save(path, words, {"number": torch.full((size,), float(number))})


def load(path: Path) -> int:
    """The number of a model; no mixture has one."""

    def make(words: dict[str, Any], tensors: dict[str, Tensor]) -> int:
        (number,) = set(tensors["number"].tolist()) | {float(words["number"])}
        return int(number)

    return FORMAT.load(path, make)


def names(path: Path) -> set[str]:
    """Of all files of a directory."""
    return {file.name for file in path.iterdir()}

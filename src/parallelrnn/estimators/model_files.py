"""A fitted model as a directory: JSON for words and counts, safetensors for numbers, and nothing that runs.

`model.json` names its tensors' file by the sum of what is in it. It is written last and put in place at once, so that
whoever reads the directory, and whenever writing is cut off, finds a model that is whole.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import safetensors
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from parallelrnn.files import write_bytes, write_text

MANIFEST = "model.json"
ModelT = TypeVar("ModelT")


class ModelFileError(ValueError):
    """A directory that holds no model, or not a whole one."""


@dataclass(frozen=True)
class ModelFormat:
    """What kind of model a directory holds."""

    name: str
    version: int

    def save(self, path: str | Path, words: dict[str, Any], tensors: dict[str, Tensor]) -> Path:
        """Write a model; one that was there before is replaced at once."""
        directory = Path(path)
        directory.mkdir(parents=True, exist_ok=True)
        data = save_tensors({name: tensor.contiguous() for name, tensor in tensors.items()})
        checksum = hashlib.sha256(data).hexdigest()
        weights = f"weights-{checksum[:16]}.safetensors"
        manifest = {"format": self.name, "version": self.version, "weights": weights, "sha256": checksum, **words}
        manifest["words_sha256"] = _sum_of(manifest)
        text = json.dumps(manifest, indent=1, allow_nan=False)
        write_bytes(directory / weights, data)
        write_text(directory / MANIFEST, text)
        for old in directory.glob("weights-*.safetensors"):
            if old.name != weights:
                old.unlink()
        return directory

    def load(self, path: str | Path, make: Callable[[dict[str, Any], dict[str, Tensor]], ModelT]) -> ModelT:
        """Read a model; `make` makes it from its words and tensors, and may fail if these are not right."""
        directory = Path(path)
        manifest = self._manifest(directory)
        try:
            return make(manifest, _checked_tensors(directory, manifest))
        except (KeyError, TypeError, ValueError, RuntimeError, IndexError, AttributeError) as error:
            if isinstance(error, ModelFileError):
                raise
            raise ModelFileError(
                f"{directory} holds a model that is not whole: {type(error).__name__}: {error}"
            ) from error

    def _manifest(self, directory: Path) -> dict[str, Any]:
        file = directory / MANIFEST
        if not file.is_file():
            raise ModelFileError(f"there is no model in {directory}: it has no file {MANIFEST}")
        try:
            manifest = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ModelFileError(f"{file} is no JSON: {error}; it was cut off or changed") from error
        if not isinstance(manifest, dict) or manifest.get("format") != self.name:
            raise ModelFileError(f"{file} is not of a {self.name}")
        if manifest.get("version") != self.version:
            raise ModelFileError(
                f"{file} has version {manifest.get('version')!r}, and this release reads version {self.version}; "
                "install the release that wrote it, or fit again"
            )
        if manifest.pop("words_sha256", None) != _sum_of(manifest):
            raise ModelFileError(f"{file} is not what was saved: it was changed")
        return manifest


def _sum_of(manifest: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _checked_tensors(directory: Path, manifest: dict[str, Any]) -> dict[str, Tensor]:
    name = manifest["weights"]
    if not isinstance(name, str) or Path(name).name != name:
        raise ModelFileError(f"{directory / MANIFEST} names weights outside its directory: {name!r}")
    file = directory / name
    if not file.is_file():
        raise ModelFileError(f"the weights {name} are missing in {directory}")
    data = file.read_bytes()
    if hashlib.sha256(data).hexdigest() != manifest["sha256"]:
        raise ModelFileError(f"{file} is not what was saved: it was cut off or changed")
    try:
        found: dict[str, Tensor] = load_tensors(data)
    except safetensors.SafetensorError as error:
        raise ModelFileError(f"{file} holds no tensors: {error}") from error
    return found

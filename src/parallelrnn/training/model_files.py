"""A fitted model as a directory: JSON for words and counts, safetensors for numbers, and nothing that runs.

`model.json` names its tensors' file by the sum of what is in it. It is written last and put in place at once, so that
whoever reads the directory, and whenever writing is cut off, finds a model that is whole.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import safetensors
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from parallelrnn.errors import ModelFileError, is_out_of_memory
from parallelrnn.io import make_directory, one_at_a_time, read_bytes, sum_of, sweep, write_bytes, write_text

MANIFEST = "model.json"
_WEIGHTS = r"weights-[0-9a-f]{16}\.safetensors"  # others are not ours to remove
ModelT = TypeVar("ModelT")


@dataclass(frozen=True)
class ModelFormat:
    """What kind of model a directory holds."""

    name: str
    version: int

    def save(self, path: str | Path, words: dict[str, Any], tensors: dict[str, Tensor]) -> Path:
        """Write a model; one that was there before is replaced at once."""
        directory = Path(path)
        make_directory(directory)
        data = save_tensors({name: tensor.contiguous() for name, tensor in tensors.items()})
        checksum = hashlib.sha256(data).hexdigest()
        weights = f"weights-{checksum[:16]}.safetensors"
        manifest = {"format": self.name, "version": self.version, "weights": weights, "sha256": checksum, **words}
        manifest["words_sha256"] = sum_of(manifest)
        text = json.dumps(manifest, indent=1, allow_nan=False)
        with one_at_a_time(directory):
            try:
                write_bytes(directory / weights, data)
                write_text(directory / MANIFEST, text)
            finally:
                _remove_what_no_manifest_names(directory)
        return directory

    def load(self, path: str | Path, make: Callable[[dict[str, Any], dict[str, Tensor]], ModelT]) -> ModelT:
        """Read a model; `make` makes it from its words and tensors, and may fail if these are not right."""
        directory = Path(path)
        manifest, data = self._read(directory)
        try:
            return make(manifest, _checked_tensors(directory, manifest, data))
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            if isinstance(error, ModelFileError) or is_out_of_memory(error):
                raise
            raise ModelFileError(
                f"{directory} holds a model that is not whole: {type(error).__name__}: {error}"
            ) from error

    def _read(self, directory: Path) -> tuple[dict[str, Any], bytes]:
        """The words of a model and the file of its weights; both of the same model, whoever saves another meanwhile."""
        manifest = self._manifest(directory)
        while True:
            try:
                return manifest, read_bytes(_weights_file(directory, manifest))
            except FileNotFoundError as error:  # by one look: whoever saves another model may remove it between two
                before, manifest = manifest, self._manifest(directory)
                if manifest == before:  # else another model took its place after its words were read
                    raise ModelFileError(f"the weights {before['weights']} are missing in {directory}") from error
            except OSError as error:
                raise ModelFileError(
                    f"the weights {manifest['weights']} in {directory} cannot be read: {error.strerror}"
                ) from error

    def _manifest(self, directory: Path) -> dict[str, Any]:
        file = directory / MANIFEST
        if not file.is_file():
            raise ModelFileError(f"there is no model in {directory}: it has no file {MANIFEST}")
        try:
            manifest = json.loads(file.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:  # or nested deeper than anything that was saved
            raise ModelFileError(f"{file} is no JSON: {error}; it was cut off or changed") from error
        if not isinstance(manifest, dict) or manifest.get("format") != self.name:
            raise ModelFileError(f"{file} is not of a {self.name}")
        self._check_version(file, manifest.get("version"))
        if manifest.pop("words_sha256", None) != sum_of(manifest):
            raise ModelFileError(f"{file} is not what was saved: it was changed")
        return manifest

    def _check_version(self, file: Path, version: Any) -> None:
        if version == self.version:
            return
        told = f"{file} has version {version!r}, and this release reads version {self.version}"
        if isinstance(version, int) and version > self.version:
            raise ModelFileError(
                f"{told}: a newer release wrote it; upgrade, by pip install --upgrade parallelrnn say, or fit again"
            )
        raise ModelFileError(f"{told}; install the release that wrote it, or fit again")


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Those whose names begin so, by the rest of their names."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _weights_file(directory: Path, manifest: dict[str, Any]) -> Path:
    name = manifest.get("weights")
    if not isinstance(name, str) or not re.fullmatch(_WEIGHTS, name):
        raise ModelFileError(f"{directory / MANIFEST} names no weights of its own: {name!r}")
    return directory / name


def _checked_tensors(directory: Path, manifest: dict[str, Any], data: bytes) -> dict[str, Tensor]:
    file = _weights_file(directory, manifest)
    if hashlib.sha256(data).hexdigest() != manifest["sha256"]:
        raise ModelFileError(f"{file} is not what was saved: it was cut off or changed")
    try:
        found: dict[str, Tensor] = load_tensors(data)
    except safetensors.SafetensorError as error:
        raise ModelFileError(f"{file} holds no tensors: {error}") from error
    return found


def _remove_what_no_manifest_names(directory: Path) -> None:
    """Weights of a model that was replaced, or of one that could not be saved, and what killed processes left."""
    file = directory / MANIFEST
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))["weights"] if file.exists() else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return  # of a model that is not whole: whose weights these are is not known
    for name in os.listdir(directory):
        if re.fullmatch(_WEIGHTS, name) and name != kept:
            with suppress(OSError):  # it takes room and does no harm, and the next one who saves tries again
                (directory / name).unlink()
    sweep(directory, _WEIGHTS)

"""Atomic writes, and the one checksummed file format of models and checkpoints.

A file is a safetensors file. Its header starts with JSON metadata, and these start with a SHA-256 checksum of the whole
file, computed with zeros in the checksum's place: every byte counts, those of the header included.
"""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar, get_type_hints

from parallelrnn.errors import FileError, ModelFileError, check_integer, is_out_of_memory

try:
    import fcntl
except ImportError:  # not Unix
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:  # the command line writes files without importing torch
    from torch import Tensor, nn

MODEL_FILE = "model.safetensors"  # in the directory of a model
ModelT = TypeVar("ModelT")
Metadata = dict[str, Any]
Tensors = dict[str, "Tensor"]

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_PART_SUFFIX = r"\.[0-9a-f]{12}\.part"  # of a file that is being written
_LONGEST_STEM = 255 - len(".0123456789ab.part")  # bytes that file systems leave for the rest of its name
_KEY = "parallelrnn"  # of our JSON in the header
_ZEROS = b"0" * 64
_CHECKSUM = re.compile(rb'\{"__metadata__":\{"parallelrnn":"\{\\"sha256\\": \\"([0-9a-f]{64})\\"')
_OLD_MANIFEST = "model.json"  # of a model that version 0.1.0 saved, which was a directory of two files
_OLD_WEIGHTS = r"weights-[0-9a-f]{16}\.safetensors"


def write_text(path: str | Path, text: str) -> Path:
    """Write a text file atomically, in UTF-8."""
    return write_bytes(path, text.encode("utf-8"))


def write_bytes(path: str | Path, data: bytes) -> Path:
    """Write a file atomically: readers see the old file or the new one, whenever the process is killed.

    The file is on the disk when this returns. Temporary files that killed processes left beside it are removed.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: there is no directory {path.parent.absolute()}; create it first")
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "expected a file, got a directory", str(path))
    with os_errors_name(path):
        if path.exists() and not path.is_file():  # a device or a pipe cannot be replaced
            path.write_bytes(data)
        else:
            _replace(Path(os.path.realpath(path)), data)  # a link stays one
    return path


def read_bytes(path: Path) -> bytes:
    """Read a file; raise for a pipe or a device, which might never end."""
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # the system itself rejects a directory
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return path.read_bytes()


def make_directory(path: Path) -> None:
    """Make a directory and its parents; they are on the disk when this returns."""
    missing = [directory for directory in (path, *path.parents) if not directory.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for directory in missing:
        sync_directory(directory.parent)


def json_checksum(value: Any) -> str:
    """Return a checksum of a value that is the same before it is written as JSON and after it is read."""
    as_read = json.loads(json.dumps(value))
    return hashlib.sha256(json.dumps(as_read, sort_keys=True).encode()).hexdigest()


@contextmanager
def os_errors_name(path: Path) -> Iterator[None]:
    """Make errors of the system name this file: a full disk names none, and others name the temporary file."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def os_error_sentence(error: OSError) -> str:
    """Return what the system says about a file and what to do, without error numbers."""
    if not error.strerror or error.filename is None:
        return str(error)
    path = error.filename if error.filename2 is None else error.filename2
    hint = "free some space, or give another path" if error.errno in _DISK_FULL else "give another path"
    return f"{path}: {error.strerror.lower()}; {hint}"


def check_writable(directory: Path) -> None:
    """Make a directory and write into it, so that a long computation does not fail when it saves its results."""
    make_directory(directory)
    with os_errors_name(directory), tempfile.TemporaryFile(dir=directory) as file:  # has no name that could be left
        file.write(b"yes")
        file.flush()


def remove_leftovers(directory: Path, names: str) -> None:
    """Remove temporary files that killed processes left; `names` is a regular expression of the files they wrote.

    A process that writes holds a lock on its temporary file, and loses it when it is killed.
    """
    if fcntl is None:
        return
    for name in os.listdir(directory):
        if re.fullmatch(names + _PART_SUFFIX, name):
            with suppress(OSError), (directory / name).open("r+b") as file:  # another's, or gone already
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                (directory / name).unlink()


def sync_directory(directory: Path) -> None:
    """Put the names of files in a directory on the disk: a rename is not permanent before that."""
    if os.name == "nt":
        return  # has no such call
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system without it
            raise
    finally:
        os.close(handle)


def _replace(path: Path, data: bytes) -> None:
    exists = path.exists()
    if exists:
        path.open("r+b").close()  # raises if the file is write-protected, though its directory would let us replace it
    stem = path.name
    while len(os.fsencode(stem)) > _LONGEST_STEM:
        stem = stem[:-1]
    remove_leftovers(path.parent, re.escape(stem))  # first, since it may free the space that is needed
    file = _open_temporary(path.with_name(stem))
    temporary = Path(file.name)
    try:
        with file:
            if exists:
                _copy_owner(path, temporary)
                shutil.copymode(path, temporary)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            if os.name == "nt":
                file.close()  # Windows renames no open file
            temporary.replace(path)  # while it is locked, so that no other process removes it
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def _copy_owner(path: Path, temporary: Path) -> None:
    if os.name == "nt":
        return
    status = path.stat()
    with suppress(PermissionError):
        os.chown(temporary, status.st_uid, status.st_gid)


def _open_temporary(path: Path) -> IO[bytes]:
    """Open a new file with a unique name, locked while it is open."""
    while True:
        file = path.with_name(f"{path.name}.{uuid.uuid4().hex[:12]}.part").open("xb")
        if fcntl is None:
            return file
        with suppress(OSError):  # a network file system without locks, where nothing is removed either
            fcntl.flock(file, fcntl.LOCK_EX)
        if os.path.exists(file.name):
            return file
        file.close()  # another process removed it before it was locked


def save_tensors(path: str | Path, tensors: Mapping[str, Tensor], metadata: Metadata) -> Path:
    """Write tensors and JSON metadata atomically to one checksummed file."""
    return write_bytes(path, encode_tensors(tensors, metadata))


def load_tensors(path: str | Path) -> tuple[Metadata, Tensors]:
    """Read the metadata and tensors of a file; raise FileError unless it is exactly what was saved."""
    return decode_tensors(read_bytes(Path(path)), path)


def encode_tensors(tensors: Mapping[str, Tensor], metadata: Metadata) -> bytes:
    """Return the bytes of a checksummed file. Equal content gives equal bytes."""
    import safetensors.torch

    text = json.dumps({"sha256": _ZEROS.decode(), **metadata}, allow_nan=False)
    copies = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}  # none share memory
    data = safetensors.torch.save(copies, {_KEY: text})
    place = _CHECKSUM.match(data, 8)
    assert place is not None, "safetensors writes metadata first"
    return data[: place.start(1)] + _checksum(data, place) + data[place.end(1) :]


def decode_tensors(data: bytes, path: str | Path) -> tuple[Metadata, Tensors]:
    """Return the metadata and tensors in the bytes of a file; `path` is for errors."""
    import safetensors.torch

    place = _CHECKSUM.match(data, 8)
    if place is None:
        raise FileError(f"{path} has no checksum: it is truncated, damaged, or not a file of this library")
    if place[1] != _checksum(data, place):
        raise FileError(f"{path} is truncated or damaged: its checksum is wrong")
    try:
        tensors: Tensors = safetensors.torch.load(data)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        metadata: Metadata = json.loads(header["__metadata__"][_KEY], parse_constant=_reject_constant)
        del metadata["sha256"]
    except (safetensors.SafetensorError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise FileError(f"{path} holds no valid tensors or metadata: {error}") from error
    return metadata, tensors


def _checksum(data: bytes, place: re.Match[bytes]) -> bytes:
    view = memoryview(data)
    digest = hashlib.sha256(view[: place.start(1)])
    digest.update(_ZEROS)
    digest.update(view[place.end(1) :])
    return digest.hexdigest().encode()


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def save_model(path: str | Path, kind: str, version: int, metadata: Metadata, tensors: Mapping[str, Tensor]) -> Path:
    """Write a model into a directory, which is made if missing, or to a file whose name ends in `.safetensors`.

    A model that was there before is replaced atomically, one of version 0.1.0 included.
    """
    file = _model_file(Path(path))
    make_directory(file.parent)
    save_tensors(file, tensors, {"format": kind, "version": version, **metadata})
    if file.name == MODEL_FILE:
        _remove_old_model(file.parent)
    return Path(path)


def load_model(
    path: str | Path,
    kind: str,
    version: int,
    build: Callable[[Metadata, Tensors], ModelT],
    upgrade: Callable[[Metadata, Tensors], tuple[Metadata, Tensors]] | None = None,
) -> ModelT:
    """Read a model that `save_model` wrote, or a directory that version 0.1.0 wrote.

    `build` makes the model from metadata and tensors, and may raise anything if these are wrong. `upgrade` turns
    metadata and tensors of version 0.1.0 into those of today, where they differ.
    """
    file = _model_file(Path(path))
    try:
        old = None if file.exists() else _read_old_model(file, kind)
        metadata, tensors = load_tensors(file) if old is None else old
    except (FileNotFoundError, NotADirectoryError) as error:
        problem = f"{path} is a file" if file.parent.is_file() else f"there is no model in {path}"
        raise ModelFileError(problem, code="give the directory given to `save`") from error
    except OSError as error:
        raise ModelFileError(f"{error.filename or path} cannot be read: {error.strerror}") from error
    except FileError as error:
        raise ModelFileError(error.problem, hint=error.hint) from error
    if old is None:
        _check_kind(file, metadata, kind, version)
    try:
        if old is not None and upgrade is not None:
            metadata, tensors = upgrade(metadata, tensors)
        return build(metadata, tensors)
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, ModelFileError) or is_out_of_memory(error):
            raise
        raise ModelFileError(f"{path} holds a model that is not valid: {type(error).__name__}: {error}") from error


def has_model(path: str | Path) -> bool:
    """Return whether a directory holds a model, of this release or of version 0.1.0; or whether a model file exists."""
    file = _model_file(Path(path))
    return file.exists() or file.with_name(_OLD_MANIFEST).exists()


def _model_file(path: Path) -> Path:
    return path if path.suffix == ".safetensors" and not path.is_dir() else path / MODEL_FILE


def _check_kind(file: Path, metadata: Metadata, kind: str, version: int) -> None:
    """Raise unless a file is of this kind and version; both are taken out of its metadata."""
    if (saved := metadata.pop("format", None)) != kind:
        raise ModelFileError(f"{file} is of kind {str(saved)[:80]!r}, not {kind!r}")
    if (saved := metadata.pop("version", None)) != version:
        newer = isinstance(saved, int) and saved > version
        hint = "upgrade, e.g. pip install --upgrade parallelrnn" if newer else "install the release that wrote it"
        problem = f"{file} has version {saved!r}, and this release reads version {version}"
        raise ModelFileError(problem, hint=f"{hint}, or fit again")


def _read_old_model(file: Path, kind: str) -> tuple[Metadata, Tensors] | None:
    """Return the metadata and tensors of a model of version 0.1.0, or None where there is none.

    None as well if another process replaced it by a newer model meanwhile.
    """
    manifest = file.with_name(_OLD_MANIFEST)
    if file.name != MODEL_FILE or not manifest.exists():
        return None
    import safetensors.torch

    try:
        metadata = json.loads(read_bytes(manifest).decode("utf-8"), parse_constant=_reject_constant)
        if not isinstance(metadata, dict):
            raise ValueError(f"expected an object, got {type(metadata).__name__}")
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{manifest} is truncated or damaged: {error}") from error
    as_saved = dict(metadata)
    _check_kind(manifest, metadata, kind, 1)
    if metadata.pop("words_sha256", None) != json_checksum({k: v for k, v in as_saved.items() if k != "words_sha256"}):
        raise ModelFileError(f"{manifest} is damaged: its checksum is wrong")
    name = metadata.pop("weights", None)
    if not isinstance(name, str) or not re.fullmatch(_OLD_WEIGHTS, name):
        raise ModelFileError(f"{manifest} names no weights file of a model: {name!r}")
    weights = manifest.with_name(name)
    try:
        data = read_bytes(weights)
    except FileNotFoundError as error:
        if file.exists():
            return None
        raise ModelFileError(f"the weights {weights} are missing") from error
    if hashlib.sha256(data).hexdigest() != metadata.pop("sha256", None):
        raise ModelFileError(f"{weights} is truncated or damaged: its checksum is wrong")
    try:
        return metadata, safetensors.torch.load(data)
    except (safetensors.SafetensorError, KeyError) as error:  # KeyError: a dtype that torch does not have
        raise ModelFileError(f"{weights} holds no valid tensors: {error}") from error


def _remove_old_model(directory: Path) -> None:
    """Remove the files of a model of version 0.1.0, which another one replaced; the manifest last, for readers."""
    manifest = directory / _OLD_MANIFEST
    with suppress(OSError, ValueError, RecursionError):  # no such model, or damaged: whose files they are is not known
        metadata = json.loads(manifest.read_text(encoding="utf-8"))
        if isinstance(metadata, dict) and "words_sha256" in metadata:
            for name in os.listdir(directory):
                if re.fullmatch(_OLD_WEIGHTS, name):
                    (directory / name).unlink()
            manifest.unlink()


def tensors_under(prefix: str, tensors: Mapping[str, Tensor]) -> Tensors:
    """Return the tensors under `prefix`, with the prefix removed."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def check_agreement(checks: Mapping[str, bool]) -> None:
    """Raise if one of these checks of metadata and tensors failed; they come before memory is allocated."""
    wrong = [name for name, passed in checks.items() if not passed]
    if wrong:
        raise ValueError(f"metadata and tensors disagree on {', '.join(wrong)}")


def check_counts(config: Any) -> None:
    """Raise unless all int fields of a dataclass are such: JSON may hold 4.0 or true instead."""
    kinds = get_type_hints(type(config))
    for field in dataclasses.fields(config):
        if kinds[field.name] is int:
            check_integer(field.name, getattr(config, field.name), 0)


def shapes_of(make: Callable[[], nn.Module], prefix: str) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a network's tensors without allocating them."""
    import torch

    with torch.device("meta"):
        network = make()
    return {f"{prefix}{name}": tuple(tensor.shape) for name, tensor in network.state_dict().items()}


def check_shapes(expected: Mapping[str, tuple[int, ...]], tensors: Mapping[str, Tensor]) -> None:
    """Raise unless these are the tensors, no more and no fewer."""
    for name in expected.keys() | tensors.keys():
        if name not in tensors:
            raise ValueError(f"tensor {name!r} is missing")
        if name not in expected:
            raise ValueError(f"unexpected tensor {name!r}")
        if tuple(tensors[name].shape) != expected[name]:
            raise ValueError(f"tensor {name!r} has shape {tuple(tensors[name].shape)}, expected {expected[name]}")

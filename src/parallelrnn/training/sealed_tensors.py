"""Tensors and words in one safetensors file with a sum over all of it, so that no changed bit goes unnoticed.

The sum stands among the words. It is that of the file with zeros in its place, so that every byte counts: lengths,
names and shapes as well as numbers.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path

import safetensors
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from parallelrnn.io import read_bytes, write_bytes

_SUM = "sha256"
_ZEROS = b"0" * hashlib.sha256().digest_size * 2
_PLACE = re.compile(rb'"sha256":"([0-9a-f]{64})"')  # quotes inside of words are escaped, so that none looks like it


class SealError(ValueError):
    """A file that is not what was written."""


def write_sealed(path: Path, tensors: Mapping[str, Tensor], words: Mapping[str, str]) -> None:
    """Write tensors and words; what was there before is replaced at once."""
    data = save_tensors(dict(tensors), metadata={**words, _SUM: _ZEROS.decode()})
    start, end = _place(data, path)
    write_bytes(path, b"".join((data[:start], _sum_of(data, start, end), data[end:])))


def read_sealed(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """The words and the tensors of a file, if it is what was written."""
    return unseal(read_bytes(path), path)


def unseal(data: bytes, path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """The words and the tensors in the bytes of a file."""
    start, end = _place(data, path)
    if data[start:end] != _sum_of(data, start, end):
        raise SealError(f"{path} is not what was written: it was cut off or changed")
    try:
        tensors = load_tensors(data)
    except (safetensors.SafetensorError, KeyError) as error:  # KeyError: of a kind of numbers that torch has not
        raise SealError(f"{path} holds no tensors: {error}") from error
    words = json.loads(data[8 : _end_of_header(data)]).get("__metadata__") or {}
    return {name: text for name, text in words.items() if name != _SUM}, tensors


def _end_of_header(data: bytes) -> int:
    """Its length is the first eight bytes."""
    return min(len(data), 8 + int.from_bytes(data[:8], "little"))


def _place(data: bytes, path: Path) -> tuple[int, int]:
    """Where the sum stands: in the header."""
    found = _PLACE.search(data, 8, _end_of_header(data))
    if found is None:
        raise SealError(f"{path} has no sum: it was cut off or changed, or a release without sums wrote it")
    return found.span(1)


def _sum_of(data: bytes, start: int, end: int) -> bytes:
    view = memoryview(data)
    found = hashlib.sha256(view[:start])
    found.update(_ZEROS)
    found.update(view[end:])
    return found.hexdigest().encode()

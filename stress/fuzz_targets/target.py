"""What a target of the fuzzer is, and when reading an input is a finding."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import parallelrnn
from parallelrnn.errors import ParallelRNNError

DOCUMENTED = (ParallelRNNError, ValueError, TypeError, OSError, ImportError)  # errors that commands show as a sentence
_SOURCE = str(Path(parallelrnn.__file__).parent)
_NO_MEMORY = ("can't allocate memory", "Unable to allocate", "not enough memory")


@dataclass(frozen=True, kw_only=True)
class Target:
    """A reader of files that may come from anyone."""

    name: str
    seeds: Callable[[Path], list[bytes]]  # small valid inputs; the folder is empty, and for them alone
    read: Callable[[bytes, Path], None]  # reads one input, by way of files in the folder
    errors: tuple[type[Exception], ...] = DOCUMENTED  # that it may raise
    mutate: Callable[[bytes, int, int], bytes] | None = None  # by its grammar: data, maximum length, seed


def finding(target: Target, data: bytes, folder: Path) -> str | None:
    """Return what is wrong with how an input was read: an error that is not a documented one raised by our own code."""
    try:
        target.read(data, folder)
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in frames if frame.filename.startswith(_SOURCE)]
        place = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "?"
        documented = isinstance(error, target.errors) and frames[-1].filename.startswith(_SOURCE)
        if documented and not any(words in str(error) for words in _NO_MEMORY):
            return None
        return f"{type(error).__name__} at {place}: {str(error)[:200]}"
    return None

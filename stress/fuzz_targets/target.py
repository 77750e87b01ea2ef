"""What a target of the fuzzer is, and when what it does is a finding."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import parallelrnn
from parallelrnn.cli.errors import STATUS

REFUSALS = tuple(STATUS)  # what a command turns into a sentence
_OURS = str(Path(parallelrnn.__file__).parent)
_NO_MEMORY = ("can't allocate memory", "Unable to allocate", "not enough memory")


@dataclass(frozen=True)
class Target:
    """A reader of files that may come from anyone."""

    name: str
    seeds: Callable[[Path], list[bytes]]  # small valid inputs; the folder is empty and its own
    read: Callable[[bytes, Path], None]  # reads one input, by way of files in the folder
    refusals: tuple[type[Exception], ...] = REFUSALS
    mutate: Callable[[bytes, int, int], bytes] | None = None  # of an input, by its grammar: data, longest, seed


def finding(target: Target, data: bytes, folder: Path) -> str | None:
    """What is wrong with how an input was read: an error that is no refusal in our own words; None if nothing is."""
    try:
        target.read(data, folder)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in where if frame.filename.startswith(_OURS)]
        place = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "?"
        refused = isinstance(error, target.refusals) and where[-1].filename.startswith(_OURS)
        if refused and not any(words in str(error) for words in _NO_MEMORY):
            return None
        return f"{type(error).__name__} at {place}: {str(error)[:200]}"
    return None

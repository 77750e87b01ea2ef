"""Limits that the system sets for a while: files that cannot grow, memory that cannot be had."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def no_file_longer_than(size: int) -> Iterator[None]:
    """Writing beyond that fails after a part was written, as on a full disk; the signal of it Python ignores."""
    with _limit(resource.RLIMIT_FSIZE, size):
        yield


@contextmanager
def no_more_memory_than(more: int) -> Iterator[None]:
    """So many bytes on top of what this process has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    with _limit(resource.RLIMIT_AS, pages * resource.getpagesize() + more):
        yield


@contextmanager
def _limit(kind: int, size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(kind, (soft, hard))

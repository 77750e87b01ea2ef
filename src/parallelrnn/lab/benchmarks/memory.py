"""Peak memory, measured in a fresh process."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

STATUS = Path("/proc/self/status")
RESET = Path("/proc/self/clear_refs")
Result = TypeVar("Result")


def in_fresh_process(function: Callable[..., Result], *args: Any) -> Result:
    """Call a function in a Python process that has done nothing before; its errors are raised here."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *args).result()


def peak_of(work: Callable[[], object]) -> int:
    """Return the bytes of memory that some work needs at its peak, on top of what the process held before."""
    if STATUS.exists():
        RESET.write_text("5")  # forget the peak so far, which may be that of loading modules
    before = resident()
    work()
    return peak() - before


def resident() -> int:
    """Return the bytes that are resident now; the peak so far where that is all the system reports."""
    return _status("VmRSS") if STATUS.exists() else peak()


def peak() -> int:
    """Return the largest resident size so far, in bytes.

    Linux lets ru_maxrss start from the peak of the parent process, so VmHWM is used where it exists.
    """
    if STATUS.exists():
        return _status("VmHWM")
    import resource  # not on Windows

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _status(name: str) -> int:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024

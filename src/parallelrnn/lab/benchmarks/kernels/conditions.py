"""Under what conditions numbers were taken: without these they say nothing."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

import numpy as np
import torch

from parallelrnn.kernels.library import INSTRUCTIONS
from parallelrnn.lab.benchmarks.kernels import load, timing

CPUINFO = Path("/proc/cpuinfo")
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@dataclass(frozen=True)
class Conditions:
    """Numbers are comparable where these are equal."""

    processor: str
    cores: int
    threads: int
    instruction_set: str
    parallelrnn: str
    torch: str
    numpy: str
    python: str
    system: str
    dtype: str
    huge_pages: str  # the mode of transparent huge pages
    other_load: str  # what is done about other processes

    def differences(self, other: Conditions) -> list[str]:
        """What is not the same, as `name: ours, theirs`."""
        mine, theirs = asdict(self), asdict(other)
        return [f"{name}: {mine[name]}, {theirs[name]}" for name in mine if mine[name] != theirs[name]]


def current(threads: int) -> Conditions:
    """The conditions of this process."""
    return Conditions(
        processor=processor(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        threads=threads,
        instruction_set="none" if INSTRUCTIONS is None else INSTRUCTIONS.name,
        **versions(),
        system=platform.platform(),
        dtype="float32",
        huge_pages=_huge_pages(),
        other_load=_other_load(),
    )


def versions() -> dict[str, str]:
    """Of this package and what it runs on."""
    try:
        own = metadata.version("parallelrnn")
    except metadata.PackageNotFoundError:
        own = "not installed"  # run from its source
    return {
        "parallelrnn": own,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def processor() -> str:
    """The processor's name, as far as the system tells."""
    if CPUINFO.exists():
        for line in CPUINFO.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine() or "unknown"


def _huge_pages() -> str:
    if not HUGE_PAGES.exists():
        return "unknown"
    modes = HUGE_PAGES.read_text()  # always [madvise] never
    return modes[modes.find("[") + 1 : modes.find("]")]


def _other_load() -> str:
    if load.busy_seconds() is None:
        return "not measured: there is no /proc/stat"
    return f"windows with more than {timing.MAX_FOREIGN} of a processor used by others are taken again"

"""One job, from its configuration to its result."""

from __future__ import annotations

import subprocess
import time
from dataclasses import asdict
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any

import torch

from parallelrnn.bench import conditions
from parallelrnn.experiments.experiment import Job, OutOfTimeError, Workspace
from parallelrnn.experiments.registry import EXPERIMENTS
from parallelrnn.experiments.store import Line


def perform(job: Job, workspace: Workspace, threads: int) -> Line | None:
    """Run a job, or go on with it; its result, or None if the time was used up before."""
    torch.set_num_threads(threads)
    started = datetime.now(timezone.utc).isoformat(timespec="seconds")
    began = time.perf_counter()
    try:
        found = EXPERIMENTS[job.experiment].run(job.config, job.seed, workspace)
    except OutOfTimeError:
        return None
    return {
        **job.to_json(),
        "key": job.key,
        "commit": commit(),
        "machine": machine(threads),
        "started": started,
        "seconds": round(time.perf_counter() - began, 3),  # of this call; metrics hold those of all
        "metrics": found.metrics,
        "curve": found.curve,
        "details": found.details,
    }


@cache
def commit() -> str:
    """Of the source that runs, with a plus if it was changed since; the version if it is no checkout."""
    where = Path(__file__).parent
    asked: list[str] = []
    for words in (["rev-parse", "HEAD"], ["status", "--porcelain", "--", "."]):
        try:
            done = subprocess.run(["git", "-C", str(where), *words], capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            return f"version {conditions.versions()['parallelrnn']}"
        asked.append(done.stdout.strip())
    return asked[0] + ("+" if asked[1] else "")


def machine(threads: int) -> dict[str, Any]:
    """What it ran on."""
    found = asdict(conditions.current(threads))
    for name in ("other_load", "huge_pages", "dtype"):
        del found[name]  # these matter for times, and those of the speed experiment tell of others' load themselves
    return found

"""One job, from its configuration to its result."""

from __future__ import annotations

import time
from datetime import datetime, timezone

import torch

from parallelrnn.lab.experiments.experiment import Job, OutOfTimeError, Workspace
from parallelrnn.lab.experiments.registry import EXPERIMENTS
from parallelrnn.lab.running.provenance import commits, machine
from parallelrnn.lab.running.store import Line


def perform(job: Job, workspace: Workspace, threads: int) -> Line | None:
    """Run a job, or go on with it; its result, or None if the time was used up before."""
    made_by = commits(workspace.directory)
    started = datetime.now(timezone.utc).isoformat(timespec="seconds")
    began = time.perf_counter()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = EXPERIMENTS[job.experiment].run(job.config, job.seed, workspace)
        threads = torch.get_num_threads()  # a run that goes on keeps the number that it began with
    except OutOfTimeError:
        return None
    finally:
        torch.set_num_threads(before)
    return {
        **job.to_json(),
        "key": job.key,
        "commit": made_by[-1],
        "commits": made_by,
        "machine": machine(threads),
        "started": started,
        "seconds": round(time.perf_counter() - began, 3),  # of this call; metrics hold those of all
        "metrics": found.metrics,
        "curve": found.curve,
        "details": found.details,
    }

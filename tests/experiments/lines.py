"""Lines of a store as runs leave them, made by hand."""

from __future__ import annotations

from typing import Any

from parallelrnn.experiments.experiment import Job
from parallelrnn.experiments.registry import EXPERIMENTS
from parallelrnn.experiments.store import Line

MACHINE = {"processor": "EPYC", "cores": 2, "threads": 1, "instruction_set": "avx2"}
MACHINE |= {"torch": "2.6", "parallelrnn": "0.1"}


def line(
    experiment: str,
    metrics: dict[str, float],
    seed: int = 0,
    curve: list[dict[str, float]] | None = None,
    details: dict[str, Any] | None = None,
    **config: Any,
) -> Line:
    """One run of a configuration with these values."""
    job = Job(experiment, EXPERIMENTS[experiment].config(**config), seed)
    return {
        **job.to_json(),
        "key": job.key,
        "commit": "0123456789abcdef+",
        "machine": MACHINE,
        "started": "2026-01-02T03:04:05+00:00",
        "seconds": 7.0,
        "metrics": metrics,
        "curve": curve or [],
        "details": details or {},
    }

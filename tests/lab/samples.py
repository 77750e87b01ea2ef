"""Runs as experiments save them, made by hand."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from parallelrnn.lab.experiments.registry import EXPERIMENTS
from parallelrnn.lab.runs import Run
from parallelrnn.lab.select_runs import Selection, select_runs

MACHINE = {"processor": "EPYC", "cores": 2, "threads": 1, "instruction_set": "avx2"}
MACHINE |= {"torch": "2.6", "parallelrnn": "0.1"}
PROVENANCE = {"commit": "0123456789abcdef+", "machine": MACHINE, "started": "2026-01-02T03:04:05+00:00", "seconds": 7.0}


def make_run(
    experiment: str,
    metrics: dict[str, float],
    seed: int = 0,
    curve: list[dict[str, float]] | None = None,
    details: dict[str, Any] | None = None,
    **config: Any,
) -> Run:
    """A run of a configuration with these values."""
    return Run(
        experiment=experiment,
        config=asdict(EXPERIMENTS[experiment].config(**config)),
        seed=seed,
        result={"metrics": metrics, "curve": curve or [], "details": details or {}},
        provenance=PROVENANCE,
    )


def forecast(model: str, mse: float, seed: int = 0, horizon: int = 24, **config: Any) -> Run:
    """A run on ETTh1; its MAE is half of its MSE."""
    metrics = {"mse": mse, "mae": mse / 2}
    if not model.endswith("naive"):
        metrics |= {"epochs": 4, "seconds": 30.0, "parameters": 100}
    return make_run("forecasting", metrics, seed, dataset="ETTh1", horizon=horizon, model=model, **config)


def tradeoff(size: int, errors: dict[int, float], **config: Any) -> list[Run]:
    """Runs of a block size, from errors by seed."""
    metrics = {"variance": 9.0, "parameters": 10, "epochs": 2, "seconds": 3.0}
    config = {"max_epochs": 2, "recurrent_scale": 0.0884, "block_size": size} | config
    return [make_run("tradeoff", {"mse": mse} | metrics, seed, **config) for seed, mse in errors.items()]


def select(*runs: Run) -> Selection:
    """The selection from runs of one experiment."""
    return select_runs(EXPERIMENTS[runs[0].experiment], runs)

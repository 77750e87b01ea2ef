"""Lines of a store as runs leave them, made by hand."""

from __future__ import annotations

from typing import Any

from parallelrnn.lab.experiments.experiment import Job
from parallelrnn.lab.experiments.registry import EXPERIMENTS
from parallelrnn.lab.picking import pick
from parallelrnn.lab.running.store import Line

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


def forecast(model: str, mse: float, seed: int = 0, horizon: int = 24, **config: Any) -> Line:
    """A run on ETTh1; its MAE is half of its MSE."""
    metrics = {"mse": mse, "mae": mse / 2}
    if not model.endswith("naive"):
        metrics |= {"epochs": 4, "seconds": 30.0, "parameters": 100}
    return line("forecasting", metrics, seed, dataset="ETTh1", horizon=horizon, model=model, **config)


def picked_forecasts(*lines: Line) -> Any:
    """What is shown of forecasts."""
    return pick(EXPERIMENTS["forecasting"], lines)


def tradeoff(size: int, errors: dict[int, float], **config: Any) -> list[Line]:
    """Runs of a block size, from errors by seed."""
    metrics = {"variance": 9.0, "parameters": 10, "epochs": 2, "seconds": 3.0}
    config = {"max_epochs": 2, "recurrent_scale": 0.0884} | config
    return [line("tradeoff", {"mse": mse} | metrics, seed, block_size=size, **config) for seed, mse in errors.items()]

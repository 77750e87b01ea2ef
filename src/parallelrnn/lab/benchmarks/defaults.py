"""How the defaults of `Forecaster` are chosen: by validation inside the training parts of ETT, never by a test part.

    pip install 'parallelrnn[cli]'
    python -m parallelrnn.lab.benchmarks.defaults DATA       # an hour on two cores; the same command resumes

DATA is a folder with ETTh1.csv, ETTh2.csv and ETTm1.csv, of which only the first sixteen months are read: of hourly
data the first thirteen as well, the last three of them to compare, two before these to stop early, the rest to train.
Each variant changes one default; the tests of `forecasting` are on the four months after these.
"""

from __future__ import annotations

import math
import os
import statistics
from functools import partial
from pathlib import Path
from typing import Any

from parallelrnn.lab.benchmarks.forecasting import MONTH
from parallelrnn.lab.benchmarks.measuring import THREADS, provenance, run_missing
from parallelrnn.lab.runs import RunStore
from parallelrnn.lab.tables import Table

NAME = "defaults"
STEPS = {"ETTh1": 1, "ETTh2": 1, "ETTm1": 4}  # an hour
COMPARED, STOPPING = 3, 2  # months
MONTHS = [("ETTh1", 13), ("ETTh1", 16), ("ETTh2", 13), ("ETTh2", 16), ("ETTm1", 16)]
SIZES = [(96, 96), (336, 336)]  # look-back, horizon
VARIANTS: dict[str, list[Any]] = {
    "normalize": ["mean", "last", "standard"],
    "gate": [False],
    "max_epochs": [10],
    "hidden_size": [32, 128],
    "batch_size": [224, 896],
    "learning_rate": [2e-3, 1e-2],
    "loss": ["huber", "mse"],
    "dropout": [0.15, 0.5],
    "cycles": [None],
    "num_waves": [4, 16],
    "num_decays": [2, 8],
    "prune": [False],
}


def run(data: Path, results: Path = Path("results/benchmarks"), workers: int = os.cpu_count() or 1) -> None:
    """Evaluate the variants that the results do not hold yet."""
    os.environ |= dict.fromkeys(THREADS, "1")
    options: list[dict[str, Any]] = [{}, *({name: value} for name, values in VARIANTS.items() for value in values)]
    jobs = [
        ({"data": name, "months": months, "lookback": lookback, "horizon": horizon, "options": changed}, 0)
        for changed in options
        for name, months in MONTHS
        for lookback, horizon in SIZES
    ]
    run_missing(RunStore(results), NAME, jobs, partial(measure, data), provenance(1, ["pandas"]), workers, timed=False)


def measure(folder: Path, config: dict[str, Any], seed: int) -> dict[str, Any]:
    """Fit one variant and return its errors."""
    import pandas as pd
    import torch

    from parallelrnn import Forecaster
    from parallelrnn.forecast.evaluation import evaluate

    torch.set_num_threads(1)
    month = MONTH * STEPS[config["data"]]
    table = pd.read_csv(folder / f"{config['data']}.csv", nrows=config["months"] * month, parse_dates=["date"])
    forecaster = Forecaster(
        config["horizon"], config["lookback"], random_state=seed, progress=False, **config["options"]
    )
    panel = forecaster.read(table, time_col="date", target_col=list(table.columns[1:]))
    score = evaluate([forecaster], panel, COMPARED * month, STOPPING * month).scores[0]
    return {"mse": score.mse, "mae": score.mae, "seconds": score.seconds}


def table(results: Path) -> Table:
    """Return errors relative to the defaults': geometric means, and in how many settings they are lower."""
    scores: dict[str, dict[Any, dict[str, Any]]] = {}
    for one in RunStore(results / "benchmarks").load(NAME):
        changed = ", ".join(f"{name}={value!r}" for name, value in one.config["options"].items())
        setting = tuple(one.config[name] for name in ("data", "months", "lookback", "horizon"))
        scores.setdefault(changed, {})[setting] = one.result
    rows = []
    for changed, own in scores.items():
        if not changed or set(own) != set(scores[""]):
            continue
        cells = []
        for metric in ("mse", "mae"):
            ratios = [own[key][metric] / scores[""][key][metric] for key in own]
            mean = math.exp(statistics.fmean(map(math.log, ratios)))
            cells += [f"{mean - 1:+.1%}", f"{sum(ratio < 1 for ratio in ratios)} of {len(ratios)}"]
        rows.append([f"`{changed}`", *cells])
    rows.sort(key=lambda row: float(row[3].rstrip("%")))
    return Table(["variant", "MSE", "lower in", "MAE", "lower in"], rows)


if __name__ == "__main__":
    import typer

    typer.run(run)

"""Do intervals hold after a change? Series whose trend, level or variance changes shortly before the forecast.

    pip install 'parallelrnn[demo]'
    python -m parallelrnn.lab.benchmarks.changes             # a quarter of an hour on two cores; resumes

A series of 600 days is a sine of 24 days, a trend or nothing, in noise of variance one; or noise that wanders by
itself. Its last 40 or 100 days are changed. A forecaster with its defaults forecasts the 24 days after it. How
intervals adapt was chosen on the draws of seed 0; the table shows those of seed 1.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from parallelrnn.lab.benchmarks.measuring import THREADS, provenance, run_missing
from parallelrnn.lab.benchmarks.planted import EMPTY, Array
from parallelrnn.lab.runs import RunStore
from parallelrnn.lab.tables import Table

NAME = "changes"
Random = np.random.Generator
STEPS, HORIZON, DRAWS, LEVEL = 600, 24, 30, 80
TEST = 1  # the seed of the table
SERIES: dict[str, Callable[[Random, int], Array]] = {
    **EMPTY,
    "sine": lambda rng, steps: (
        2 * np.sin(np.linspace(0, math.pi / 12 * (steps - 1), steps)) + rng.standard_normal(steps)
    ),
    "trend": lambda rng, steps: np.linspace(0, 0.02 * (steps - 1), steps) + rng.standard_normal(steps),
}
# What is added at each step after a change.
CHANGES: dict[str, Callable[[Random, int], Array]] = {
    "none": lambda rng, steps: np.zeros(steps),
    "slope +0.1": lambda rng, steps: np.linspace(0, 0.1 * (steps - 1), steps),
    "slope -0.05": lambda rng, steps: np.linspace(0, -0.05 * (steps - 1), steps),
    "level +4": lambda rng, steps: np.full(steps, 4.0),
    "variance x 2": lambda rng, steps: rng.standard_normal(steps),
    "variance x 4": lambda rng, steps: math.sqrt(3) * rng.standard_normal(steps),
}
CASES = [
    *((name, "none", 0) for name in ("white noise", "sine", "AR(1), 0.9", "random walk", "GARCH")),
    *(("sine", "slope +0.1", since) for since in (40, 100)),
    *(("trend", "slope -0.05", since) for since in (40, 100)),
    *(("sine", "level +4", since) for since in (40, 100)),
    *(("white noise", "variance x 2", since) for since in (40, 100)),
    *(("sine", "variance x 4", since) for since in (40, 100)),
]


def run(results: Path = Path("results/benchmarks"), workers: int = os.cpu_count() or 1, seed: int = TEST) -> None:
    """Forecast the series that the results do not hold yet."""
    os.environ |= dict.fromkeys(THREADS, "1")
    jobs = [({"series": name, "change": change, "since": since}, seed) for name, change, since in CASES]
    run_missing(RunStore(results), NAME, jobs, measure, provenance(1, ["pandas"]), workers, timed=False)


def measure(config: dict[str, Any], seed: int) -> dict[str, Any]:
    """Return for each draw how much intervals hold, with and without adapting, and whether a change was noticed."""
    import pandas as pd
    import torch

    from parallelrnn import Forecaster
    from parallelrnn.forecast import conformal

    torch.set_num_threads(1)
    draws = []
    for number in range(DRAWS):
        rng = np.random.default_rng([seed, number, CASES.index((config["series"], config["change"], config["since"]))])
        values = SERIES[config["series"]](rng, STEPS + HORIZON)
        after = config["since"] + HORIZON
        values[-after:] += CHANGES[config["change"]](rng, after)
        table = pd.DataFrame({"ds": pd.date_range("2020-01-01", periods=STEPS, freq="D"), "y": values[:STEPS]})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the change
            forecaster = Forecaster(HORIZON, progress=False).fit(table)
            adapted = forecaster.predict(table, level=[LEVEL])
            with mock.patch.object(conformal, "find_change", return_value=0):
                plain = forecaster.predict(table, level=[LEVEL])
        errors = abs(values[STEPS:] - adapted["yhat"].to_numpy())
        width, width_before = ((own[f"yhat-hi-{LEVEL}"] - own["yhat"]).to_numpy() for own in (adapted, plain))
        held, held_before = (float((errors <= own).mean()) for own in (width, width_before))
        wider = float((width / width_before).mean())
        draws.append({"held": round(held, 4), "held_before": round(held_before, 4), "wider": round(wider, 4)})
        draws[-1]["noticed"] = wider != 1
    return {"draws": draws}


def table(results: Path) -> Table:
    """Return how many of the outcomes intervals hold, on average over draws (± a standard error)."""
    stored = RunStore(results / "benchmarks").load(NAME)
    runs = {tuple(run.config.values()): run.result["draws"] for run in stored if run.seed == TEST}
    rows = []
    for case in CASES:
        if case in runs:
            draws = runs[case]
            cells = [_mean([draw[name] for draw in draws]) for name in ("held_before", "held")]
            wider = float(np.mean([draw["wider"] for draw in draws])) - 1
            noticed = float(np.mean([draw["noticed"] for draw in draws]))
            rows.append([case[0], case[1], str(case[2] or "-"), *cells, f"{wider:+.0%}", f"{noticed:.0%}"])
    columns = ["series", "change", "steps ago", "held without adapting", "held", "wider by", "change noticed"]
    return Table(columns, rows)


def _mean(values: list[float]) -> str:
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return f"{np.mean(values):.0%} ± {error:.0%}"


if __name__ == "__main__":
    import typer

    typer.run(run)

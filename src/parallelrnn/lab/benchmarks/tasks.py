"""Forecasts of data that had no part in the making of this package: business, tourism and birth series.

    pip install 'parallelrnn[demo]' statsforecast==2.1.1
    python -m parallelrnn.lab.benchmarks.tasks DATA        # AutoARIMA takes hours, the others minutes; it resumes

DATA is a folder with `<task>.csv.gz`: unique_id, ds, y, and split (train or test). One fit on the training part; of
several windows, which are a horizon apart and end with the table, each is forecast from what is known by then. Defaults
are chosen by validation inside training parts. Beside our forecaster run AutoETS, AutoTheta and AutoARIMA of
statsforecast on all cores, and the last season.
"""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Callable, Container
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from parallelrnn.lab.benchmarks.measuring import provenance, run_missing
from parallelrnn.lab.runs import RunStore
from parallelrnn.lab.tables import Table

NAME = "tasks"
Array = NDArray[np.float64]
LEVELS = (20, 40, 60, 80, 95)  # of intervals, in per cent
QUANTILES = tuple(n / 10 for n in range(1, 10))  # of the weighted quantile loss
OURS, NAIVE = "Forecaster", "seasonal naive"
METHODS = (OURS, "AutoETS", "AutoTheta", "AutoARIMA", NAIVE)


class Task(NamedTuple):
    """What to forecast."""

    horizon: int
    season: int  # of the scaled error
    freq: str
    windows: int
    naive_mase: float  # of the last season, as published: whoever reproduces it has the right data
    naive_wql: float  # likewise; NaN where it was not published


TASKS = {
    "m1_monthly": Task(18, 12, "MS", 1, 1.3144, 0.1915),
    "m1_quarterly": Task(8, 4, "QS", 1, 2.0776, 0.1495),
    "m1_yearly": Task(6, 1, "YS", 1, 4.8940, 0.2093),
    "tourism_monthly": Task(24, 12, "MS", 1, 1.6309, 0.1042),
    "tourism_quarterly": Task(8, 4, "QS", 1, 1.6990, 0.1194),
    "tourism_yearly": Task(4, 1, "YS", 1, 3.5520, 0.2092),
    "nn5_weekly": Task(8, 1, "W-MON", 1, 1.0628, 0.1227),
    "us_births_D": Task(30, 1, "D", 20, 1.8648, 0.1195),
    "us_births_W": Task(8, 1, "W-TUE", 14, 1.5634, 0.0193),
    "us_births_M": Task(12, 12, "MS", 2, 0.7605, 0.0168),
    "m4_weekly": Task(13, 1, "W-MON", 1, 2.777, math.nan),
}
# MASE and WQL as published, of what is not run here. TiRex is a foundation model that was trained on other data.
PUBLISHED: dict[str, dict[str, tuple[float, float]]] = {
    "m1_monthly": {"AutoARIMA": (1.1137, 0.1544), "TiRex": (1.0604, 0.1323)},
    "m1_quarterly": {"AutoARIMA": (1.6885, 0.0883), "TiRex": (1.674, 0.0996)},
    "m1_yearly": {"AutoARIMA": (3.4858, 0.1328), "TiRex": (3.7032, 0.1312)},
    "tourism_monthly": {"AutoARIMA": (1.4829, 0.0909), "TiRex": (1.4488, 0.0749)},
    "tourism_quarterly": {"AutoARIMA": (1.5969, 0.0997), "TiRex": (1.606, 0.0592)},
    "tourism_yearly": {"AutoARIMA": (3.3464, 0.1289), "TiRex": (3.5264, 0.1561)},
    "nn5_weekly": {"AutoARIMA": (0.9306, 0.0844), "TiRex": (0.9111, 0.0833)},
    "us_births_D": {"AutoARIMA": (1.58, 0.0738), "AutoTheta": (1.63, 0.0748), "TiRex": (0.4425, 0.023)},
    "us_births_W": {"AutoARIMA": (1.48, 0.018), "TiRex": (1.0465, 0.0123)},
    "us_births_M": {"AutoARIMA": (0.466, 0.0104), "TiRex": (0.6017, 0.0124)},
}
COLUMNS = (*METHODS[:-1], "TiRex", NAIVE)


def run(data: Path, results: Path = Path("results/benchmarks")) -> None:
    """Forecast what the results do not hold yet, one after the other: each method may use all cores."""
    order = sorted(METHODS, key="AutoARIMA".__eq__)  # which takes longest
    jobs = [({"task": task, "method": method}, 0) for method in order for task in TASKS]
    about = provenance(os.cpu_count() or 1, ["pandas", "statsforecast"])
    run_missing(RunStore(results), NAME, jobs, partial(measure, data), about, timed=False)


def measure(folder: Path, config: dict[str, Any], seed: int) -> dict[str, Any]:
    """Return the errors of one method on one task, and how long it took to fit and forecast."""
    import pandas as pd

    import parallelrnn.forecast  # noqa: F401, not to be timed

    task = TASKS[config["task"]]
    table = pd.read_csv(folder / f"{config['task']}.csv.gz", parse_dates=["ds"])
    forecast = _METHODS[config["method"]]
    if config["method"] != OURS:
        import statsforecast  # noqa: F401
    first = table[table["split"] == "train"][["unique_id", "ds", "y"]]
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of short series, and of changes
        predict = forecast(first, task)
        windows = []
        for number in range(task.windows, 0, -1):
            hidden = table.groupby("unique_id").cumcount(ascending=False)
            known = table[hidden >= number * task.horizon][["unique_id", "ds", "y"]]
            actual = table[(hidden < number * task.horizon) & (hidden >= (number - 1) * task.horizon)]
            windows.append((known, actual, predict(known)))
    seconds = time.perf_counter() - began
    return {"seconds": round(seconds, 3), **_scores(windows, task)}


def _scores(windows: list[tuple[Any, Any, Any]], task: Task) -> dict[str, Any]:
    scaled, symmetric, losses, sizes = [], [], [], 0.0
    inside: dict[int, list[Array]] = {level: [] for level in (80, 95)}
    for known, actual, forecast in windows:
        joined = actual.merge(forecast, on=["unique_id", "ds"], how="left", validate="one_to_one")
        assert joined["yhat"].notna().all(), "a value without a forecast"
        history = {name: group.to_numpy() for name, group in known.groupby("unique_id")["y"]}
        for name, group in joined.groupby("unique_id"):
            y, yhat, past = group["y"].to_numpy(), group["yhat"].to_numpy(), history[name]
            changes = abs(past[task.season :] - past[: -task.season])
            unit = changes.mean() if len(changes) else math.nan
            scaled.append(abs(y - yhat).mean() / unit if unit > 0 else math.nan)
            symmetric.append(200 * (abs(y - yhat) / np.maximum(abs(y) + abs(yhat), 1e-12)).mean())
        y = joined["y"].to_numpy()
        sizes += float(abs(y).sum())
        for quantile in QUANTILES:
            own = joined[_column(quantile)].to_numpy()
            losses.append(2 * float(np.maximum(quantile * (y - own), (quantile - 1) * (y - own)).sum()))
        for level, hits in inside.items():
            hits.append((y >= joined[f"yhat-lo-{level}"].to_numpy()) & (y <= joined[f"yhat-hi-{level}"].to_numpy()))
    return {
        "mase": float(np.nanmean(scaled)),
        "smape": float(np.mean(symmetric)),
        "wql": sum(losses) / len(QUANTILES) / sizes,
        "coverage": {str(level): float(np.concatenate(hits).mean()) for level, hits in inside.items()},
        "series": len(scaled) // len(windows),
    }


def _column(quantile: float) -> str:
    level = round(200 * abs(quantile - 0.5))
    return "yhat" if not level else f"yhat-{'lo' if quantile < 0.5 else 'hi'}-{level}"


def _by_forecaster(train: Any, task: Task) -> Callable[[Any], Any]:
    from parallelrnn import Forecaster

    forecaster = Forecaster(task.horizon, progress=False).fit(train, freq=task.freq)
    return lambda known: forecaster.predict(None if len(known) == len(train) else known, level=LEVELS)


def _by_statsforecast(name: str, train: Any, task: Task) -> Callable[[Any], Any]:
    from statsforecast import StatsForecast, models

    model = getattr(models, name)(season_length=task.season, alias="yhat")
    fallback = models.SeasonalNaive(season_length=task.season, alias="yhat")

    def predict(known: Any) -> Any:
        runner = StatsForecast([model], freq=task.freq, n_jobs=-1, fallback_model=fallback)
        return runner.forecast(df=known, h=task.horizon, level=list(LEVELS))

    return predict


_METHODS: dict[str, Callable[[Any, Task], Callable[[Any], Any]]] = {
    OURS: _by_forecaster,
    **{name: partial(_by_statsforecast, name) for name in ("AutoETS", "AutoTheta", "AutoARIMA")},
    NAIVE: partial(_by_statsforecast, "SeasonalNaive"),
}


def table(results: Path) -> Table:
    """Return the errors of all methods by task, and their geometric means relative to the last season's, as published.

    Those are over the tasks that all methods have errors for, run here or published (in parentheses).
    """
    scores = _load(results) | _published(_load(results))
    ran = [method for method in COLUMNS if any((task, method) in scores for task in TASKS)]
    complete = [task for task in TASKS if all((task, method) in scores for method in ran)]
    rows = []
    for metric, title in (("mase", "MASE"), ("wql", "WQL")):
        for task in TASKS:
            rows.append([title, task, *(_shown(scores.get((task, method)), metric) for method in COLUMNS)])
        units = {task: getattr(TASKS[task], f"naive_{metric}") for task in complete}
        known = [task for task in complete if not math.isnan(units[task])]
        if known:
            logs = {own: [math.log(scores[task, own][metric] / units[task]) for task in known] for own in ran}
            means = [f"{math.exp(float(np.mean(logs[own]))):.3f}" if own in logs else "-" for own in COLUMNS]
            rows.append([title, f"relative to the last season, {len(known)} tasks", *means])
    return Table(["error", "task", *COLUMNS], rows)


def means(results: Path) -> Table:
    """Return the geometric means over tasks of errors relative to the last season's."""
    whole = table(results)
    rows = [[row[0], *row[2:-1]] for row in whole.rows if row[1].startswith("relative")]
    return Table(["error", *whole.columns[2:-1]], rows)


def _published(run_here: Container[tuple[str, str]]) -> dict[tuple[str, str], dict[str, Any]]:
    pairs = ((task, method, errors) for task, own in PUBLISHED.items() for method, errors in own.items())
    return {
        (task, method): {"mase": mase, "wql": wql, "is_published": True}
        for task, method, (mase, wql) in pairs
        if (task, method) not in run_here
    }


def _shown(score: dict[str, Any] | None, metric: str) -> str:
    if score is None:
        return "-"
    return f"({score[metric]:.4g})" if "is_published" in score else f"{score[metric]:.4g}"


def _load(results: Path) -> dict[tuple[str, str], dict[str, Any]]:
    runs = RunStore(results / "benchmarks").load(NAME)
    return {(run.config["task"], run.config["method"]): run.result for run in runs}


def details(results: Path) -> Table:
    """Return how often our intervals hold, and how long methods take."""
    scores, rows = _load(results), []
    ran = [method for method in METHODS if any((task, method) in scores for task in TASKS)]
    for task in TASKS:
        own = scores.get((task, OURS))
        if own is None:
            continue
        held = [f"{own['coverage'][level]:.1%}" for level in ("80", "95")]
        times = [f"{scores[task, method]['seconds']:.1f}" if (task, method) in scores else "-" for method in ran]
        rows.append([task, str(own["series"]), *held, *times])
    columns = ["task", "series", "in 80 %", "in 95 %", *(f"{method}, s" for method in ran)]
    return Table(columns, rows)


if __name__ == "__main__":
    import typer

    typer.run(run)

"""How accurate are the forecasts? `parallelrnn evaluate` on public data sets, at several look-backs and horizons.

    pip install 'parallelrnn[cli]'
    python -m parallelrnn.lab.benchmarks.forecasting DATA        # hours; the same command resumes

DATA is a folder with ETTh1.csv, ETTh2.csv, ETTm1.csv and WTH.csv. ETT has twelve months for training, four for
validation and four for the test, WTH seven tenths, one and two; every window of the test part is forecast. All channels
are forecast, each from itself alone, and errors are those of standardised values.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

from parallelrnn.lab.benchmarks.measuring import THREADS, provenance, run_missing
from parallelrnn.lab.runs import RunStore
from parallelrnn.lab.tables import Table

NAME = "forecasting"
MONTH = 30 * 24
# Rows that are read, the test part at their end, and the validation part before it, as in the literature.
SPLITS = {
    "ETTh1": (20 * MONTH, 4 * MONTH, 4 * MONTH),
    "ETTh2": (20 * MONTH, 4 * MONTH, 4 * MONTH),
    "ETTm1": (80 * MONTH, 16 * MONTH, 16 * MONTH),
    "WTH": (35064, 7013, 3506),
}
LOOKBACKS = (96, 336)
HORIZONS = (96, 192, 336, 720)
CELLS = ("linear", "gru")
SEEDS = (0, 1, 2)
LEVELS = ("80", "95")  # of intervals, in percent
BASELINES = ("linear (NLinear)", "seasonal naive", "naive")
# The lowest published MSE and MAE. Look-back 96: SegRNN (arXiv 2308.11200), and iTransformer, TimesNet, PatchTST,
# Crossformer, DLinear and FEDformer as in iTransformer's Table 10 (arXiv 2310.06625). Look-back 336: PatchTST
# (2211.14730), DLinear and NLinear (2205.13504) at 336 or 512, without their MAE.
PUBLISHED: dict[tuple[str, int], dict[int, tuple[float, float | None]]] = {
    ("ETTh1", 96): {96: (0.368, 0.395), 192: (0.408, 0.419), 336: (0.444, 0.440), 720: (0.446, 0.457)},
    ("ETTh2", 96): {96: (0.278, 0.335), 192: (0.359, 0.389), 336: (0.421, 0.432), 720: (0.427, 0.445)},
    ("ETTm1", 96): {96: (0.329, 0.367), 192: (0.367, 0.385), 336: (0.399, 0.410), 720: (0.454, 0.439)},
    ("ETTh1", 336): {96: (0.370, None), 192: (0.405, None), 336: (0.422, None), 720: (0.440, None)},
}
Scores = list[dict[str, Any]]  # of one method, one entry per seed
Setting = tuple[str, int, int]  # data, look-back and horizon


def run(data: Path, results: Path = Path("results/benchmarks"), workers: int = os.cpu_count() or 1) -> None:
    """Evaluate what the results do not hold yet, one seed after the other, and WTH, which takes longest, last."""
    order = sorted(itertools.product(SEEDS, SPLITS, LOOKBACKS, HORIZONS), key=lambda job: job[1] == "WTH")
    jobs = [({"data": name, "lookback": back, "horizon": ahead}, seed) for seed, name, back, ahead in order]
    run_missing(RunStore(results), NAME, jobs, partial(evaluate, data), provenance(1, ["pandas"]), workers)


def evaluate(folder: Path, config: dict[str, Any], seed: int) -> dict[str, Any]:
    """Run the command and return the scores that it prints."""
    rows, test, validation = SPLITS[config["data"]]
    options = {"rows": rows, "test-size": test, "val-size": validation, "seed": seed}
    options |= {name: config[name] for name in ("lookback", "horizon")}
    command = [str(Path(sys.executable).with_name("parallelrnn")), "evaluate", str(folder / f"{config['data']}.csv")]
    command += [word for name, value in options.items() for word in (f"--{name}", str(value))]
    command += [word for cell in CELLS for word in ("--cell", cell)]
    environment = {**os.environ, **dict.fromkeys(THREADS, "1")}
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip() or f"exit status {done.returncode}")
    printed: dict[str, Any] = json.loads(done.stdout)
    return {name: printed[name] for name in ("windows", "scores")}


def _load(results: Path) -> dict[Setting, dict[str, Scores]]:
    """Return the scores of all settings by method, with the method's options left out of its name."""
    scores: dict[Setting, dict[str, Scores]] = defaultdict(lambda: defaultdict(list))
    for run in RunStore(results / "benchmarks").load(NAME):
        setting = (run.config["data"], run.config["lookback"], run.config["horizon"])
        for method in (*CELLS, *BASELINES):
            prefix = f"Forecaster ({method}" if method in CELLS else method
            scores[setting][method].append(next(s for s in run.result["scores"] if s["name"].startswith(prefix)))
    return {setting: scores[setting] for setting in itertools.product(SPLITS, LOOKBACKS, HORIZONS) if setting in scores}


def _mean(scores: Scores, metric: str) -> float:
    return statistics.fmean(score[metric] for score in scores)


def _coverage(scores: Scores, level: str) -> float:
    return statistics.fmean(score["coverage"][level] for score in scores)


def errors(results: Path) -> Table:
    """Return MSE / MAE, means over seeds (± half the range of the MSE)."""

    def shown(scores: Scores) -> str:
        squares = [score["mse"] for score in scores]
        spread = (max(squares) - min(squares)) / 2
        text = f"{statistics.mean(squares):.3f} / {_mean(scores, 'mae'):.3f}"
        return f"{text} (± {spread:.3f})" if spread else text

    def published(setting: Setting) -> str:
        best = PUBLISHED.get(setting[:2], {}).get(setting[2], (None, None))
        return " / ".join("-" if value is None else f"{value:.3f}" for value in best)

    rows = []
    for setting, scores in _load(results).items():
        ours, others = ([shown(scores[method]) for method in methods] for methods in (CELLS, BASELINES))
        rows.append([*_name(setting, scores), *ours, published(setting), *others])
    columns = ["data", "look-back", "horizon", "seeds", *CELLS, "best published", "NLinear", "seasonal naive", "naive"]
    return Table(columns, rows)


def readme_table(results: Path) -> Table:
    """Return the mean squared errors at look-back 96 where there are published ones."""
    rows = [row for row in errors(results).rows if row[1] == "96" and not row[6].startswith("-")]
    columns = ["data", "horizon", "`Forecaster`", 'with `cell="gru"`', "best published", "NLinear"]
    cells = [[row[0], row[2], *(cell.split(" / ")[0] for cell in row[4:])] for row in rows]
    return Table([*columns, "last season", "last value"], cells)


def coverage(results: Path) -> Table:
    """Return how often values fell inside the intervals of 80 and 95 %."""
    by_setting = _load(results)
    rows = []
    for setting, scores in by_setting.items():
        shown = [", ".join(f"{_coverage(scores[cell], level):.1%}" for level in LEVELS) for cell in CELLS]
        rows.append([*_name(setting, scores), *shown])
    off = {level: [_coverage(s["linear"], level) - int(level) / 100 for s in by_setting.values()] for level in LEVELS}
    near = " and ".join(f"{sum(abs(value) <= 0.03 for value in off[level])} ({level} %)" for level in LEVELS)
    note = f"`linear` is within 3 points of the level in {near} of {len(rows)} settings."
    return Table(["data", "look-back", "horizon", "seeds", *CELLS], rows, note=note)


def _name(setting: Setting, scores: dict[str, Scores]) -> list[str]:
    return [*map(str, setting), str(len(scores["linear"]))]


def summary(results: Path) -> Table:
    """Return how the errors of the readable default compare with those of other methods."""
    excess: dict[str, dict[str, float]] = defaultdict(dict)  # relative, by row and setting
    for setting, scores in _load(results).items():
        mse, mae = (_mean(scores["linear"], metric) for metric in ("mse", "mae"))
        best_mse, best_mae = PUBLISHED.get(setting[:2], {}).get(setting[2], (None, None))
        others = {"best published MSE": (mse, best_mse), "best published MAE": (mae, best_mae)}
        others |= {f"MSE of {method}": (mse, _mean(scores[method], "mse")) for method in ("gru", *BASELINES)}
        for row, (ours, other) in others.items():
            if other is not None:
                excess[row]["{} {}/{}".format(*setting)] = ours / other - 1
    rows = []
    for row, by_setting in excess.items():
        counts = [sum(value <= limit for value in by_setting.values()) for limit in (math.inf, 0, 0.02)]
        ends = [choose(by_setting, key=by_setting.__getitem__) for choose in (min, max)]
        rows.append([row, *map(str, counts), *(f"{by_setting[end]:+.1%} ({end})" for end in ends)])
    return Table(["`linear` against", "settings", "equal or lower", "at most 2 % higher", "lowest", "highest"], rows)


if __name__ == "__main__":
    import typer

    typer.run(run)

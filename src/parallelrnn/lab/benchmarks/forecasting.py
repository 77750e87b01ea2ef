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
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
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


def coverage(results: Path) -> Table:
    """Return how often values fell inside the intervals of 80 and 95 %."""
    rows = []
    for setting, scores in _load(results).items():
        shown = [", ".join(f"{_coverage(scores[cell], level):.1%}" for level in ("80", "95")) for cell in CELLS]
        rows.append([*_name(setting, scores), *shown])
    return Table(["data", "look-back", "horizon", "seeds", *CELLS], rows)


def _name(setting: Setting, scores: dict[str, Scores]) -> Sequence[str]:
    return [*map(str, setting), str(len(scores["linear"]))]


def summary(results: Path) -> str:
    """Return, as a list in Markdown, how the readable default compares with the other methods."""
    excess: dict[str, dict[str, float]] = defaultdict(dict)  # relative, by what it is compared with and the setting
    points: dict[str, dict[str, float]] = defaultdict(dict)  # by level and setting: coverage minus level
    for setting, scores in _load(results).items():
        name = "{} {}/{}".format(*setting)
        published = PUBLISHED.get(setting[:2], {}).get(setting[2], (None, None))
        for metric, best in zip(("mse", "mae"), published, strict=True):
            if best is not None:
                excess[f"the best published {metric.upper()}"][name] = _mean(scores["linear"], metric) / best - 1
        for method in ("gru", *BASELINES):
            ratio = _mean(scores["linear"], "mse") / _mean(scores[method], "mse")
            excess[f"the MSE of {method}"][name] = ratio - 1
        for level in ("80", "95"):
            points[level][name] = 100 * _coverage(scores["linear"], level) - float(level)
    lines = []
    for other, by_setting in excess.items():
        least, most = min(by_setting, key=by_setting.__getitem__), max(by_setting, key=by_setting.__getitem__)
        below, near = (sum(value <= limit for value in by_setting.values()) for limit in (0, 0.02))
        lines.append(
            f"- `linear` against {other}: equal or lower in {below} of {len(by_setting)} settings, at most 2 % higher "
            f"in {near}; from {by_setting[least]:+.1%} ({least}) to {by_setting[most]:+.1%} ({most})."
        )
    for level, by_setting in points.items():
        near = sum(abs(value) <= 3 for value in by_setting.values())
        worst = max(by_setting, key=lambda name: abs(by_setting[name]))
        lines.append(
            f"- intervals of {level} %: coverage within 3 points in {near} of {len(by_setting)} settings; furthest off "
            f"by {by_setting[worst]:+.1f} ({worst})."
        )
    return "\n".join(lines)


if __name__ == "__main__":
    import typer

    typer.run(run)

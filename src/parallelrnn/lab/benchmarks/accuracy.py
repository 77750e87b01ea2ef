"""How good the forecasts are: `parallelrnn evaluate` on public data sets, at several look-backs, horizons and seeds.

    python -m parallelrnn.lab.benchmarks.accuracy run PATH results/benchmarks/accuracy.jsonl     # hours; cut off, it goes on
    python -m parallelrnn.lab.benchmarks.accuracy tables results/benchmarks/accuracy.jsonl

PATH holds ETTh1.csv, ETTh2.csv, ETTm1.csv and WTH.csv. Every line of the file is what one command printed. The first
twelve months of ETT are trained on, four validate, and every window of the next four is forecast; seven tenths, one
and two of WTH. All channels are forecast, each from itself alone, and errors are those of standardised values.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from parallelrnn.lab.benchmarks.journal import go_on, load
from parallelrnn.lab.benchmarks.kernels import conditions

MONTH = 30 * 24
# Rows that are read, of these at the end the test, and before it the validation; as in the literature.
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
# The least MSE and the least MAE among published rows; at look-back 336 those of the papers named, whose look-back is
# 336 or 512 and whose MAE is not at hand.
# Look-back 96: SegRNN (arXiv 2308.11200), and iTransformer, TimesNet, PatchTST, Crossformer, DLinear and FEDformer as
# in iTransformer's Table 10 (arXiv 2310.06625). Longer: PatchTST (2211.14730), DLinear and NLinear (2205.13504).
PUBLISHED: dict[tuple[str, int], dict[int, tuple[float, float | None]]] = {
    ("ETTh1", 96): {96: (0.368, 0.395), 192: (0.408, 0.419), 336: (0.444, 0.440), 720: (0.446, 0.457)},
    ("ETTh2", 96): {96: (0.278, 0.335), 192: (0.359, 0.389), 336: (0.421, 0.432), 720: (0.427, 0.445)},
    ("ETTm1", 96): {96: (0.329, 0.367), 192: (0.367, 0.385), 336: (0.399, 0.410), 720: (0.454, 0.439)},
    ("ETTh1", 336): {96: (0.370, None), 192: (0.405, None), 336: (0.422, None), 720: (0.440, None)},
}


@dataclass(frozen=True)
class Job:
    """One evaluation."""

    data: str
    lookback: int
    horizon: int
    seed: int

    def words(self, folder: Path) -> list[str]:
        """The command, as typed."""
        rows, test, validation = SPLITS[self.data]
        options = {
            "rows": rows,
            "test-size": test,
            "val-size": validation,
            "lookback": self.lookback,
            "horizon": self.horizon,
            "seed": self.seed,
        }
        words = ["evaluate", str(folder / f"{self.data}.csv")]
        for name, value in options.items():
            words += [f"--{name}", str(value)]
        for cell in CELLS:
            words += ["--cell", cell]
        return words


def jobs() -> Iterator[Job]:
    """All of them, one seed after the other; WTH, which takes longest, after the rest."""
    order = itertools.product(SEEDS, SPLITS, LOOKBACKS, HORIZONS)
    for seed, data, lookback, horizon in sorted(order, key=lambda one: one[1] == "WTH"):
        yield Job(data, lookback, horizon, seed)


def run(folder: Path, path: Path, workers: int) -> None:
    """Evaluate what the file does not hold yet; each result is written as it comes."""
    lines = go_on(path, current_conditions())
    done = {_job(line) for line in lines}
    wanted = [job for job in jobs() if job not in done]
    print(f"{len(done)} are there, {len(wanted)} to go", flush=True)
    failed = 0
    with ThreadPoolExecutor(workers) as pool, path.open("a") as file:
        futures = {pool.submit(_evaluate, job, folder): job for job in wanted}
        for future in as_completed(futures):
            found = future.result()
            print(futures[future], found.get("problem", "done"), flush=True)
            if "problem" in found:
                failed += 1
                continue
            file.write(json.dumps({**asdict(futures[future]), **found}) + "\n")
            file.flush()
    if failed:
        raise SystemExit(f"evaluations that failed: {failed}; the same command tries them again")


def _evaluate(job: Job, folder: Path) -> dict[str, Any]:
    program = [str(Path(sys.executable).with_name("parallelrnn")), *job.words(folder), "--json"]
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # evaluations run side by side, each on one
    done = subprocess.run(program, capture_output=True, text=True, env={**os.environ, **threads}, check=False)
    if done.returncode:
        return {"problem": done.stderr.strip() or f"exit status {done.returncode}"}
    found: dict[str, Any] = json.loads(done.stdout)
    return {name: found[name] for name in ("windows", "scores")}


def current_conditions() -> dict[str, Any]:
    """With what the numbers are made."""
    found = asdict(conditions.current(threads=1))
    del found["other_load"]  # times are no part of this
    return {**found, "pandas": version("pandas")}


def _job(line: dict[str, Any]) -> Job:
    return Job(line["data"], line["lookback"], line["horizon"], line["seed"])


def tables(made_under: dict[str, Any], lines: list[dict[str, Any]]) -> str:
    """Means over seeds, in Markdown: errors, and how often intervals held what came."""
    found: dict[tuple[str, int, int], list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        found[line["data"], line["lookback"], line["horizon"]].append(line)
    wanted = [(job.data, job.lookback, job.horizon) for job in jobs()]
    settings = [setting for setting in dict.fromkeys(wanted) if setting in found]
    head = ["data", "look-back", "horizon", "seeds", *CELLS, "best published", "NLinear", "seasonal naive", "naive"]
    methods = [*(f"Forecaster ({cell}" for cell in CELLS), "linear (NLinear)", "seasonal naive", "naive"]
    errors, held = [], []
    for setting in settings:
        name = [*map(str, setting), str(len(found[setting]))]
        own = [_errors(found[setting], method) for method in methods]
        errors.append([*name, *own[: len(CELLS)], _published(*setting), *own[len(CELLS) :]])
        held.append([*name, *(_held(found[setting], f"Forecaster ({cell}") for cell in CELLS)])
    return "\n".join(
        [
            "; ".join(f"{name} {value}" for name, value in made_under.items()),
            "",
            *_verdicts(found),
            "",
            "MSE / MAE, means over seeds (± half the range of the MSE):",
            "",
            *_table(head, errors),
            "",
            "Of what came, inside the intervals of 80 and of 95 %:",
            "",
            *_table(head[: 4 + len(CELLS)], held),
        ]
    )


def _verdicts(found: dict[tuple[str, int, int], list[dict[str, Any]]]) -> list[str]:
    """How the readable default stands to the others, in sentences."""
    beside: dict[str, dict[str, float]] = defaultdict(dict)  # by what it is compared with and the setting
    off: dict[str, dict[str, float]] = defaultdict(dict)
    for setting, lines in found.items():
        name = "{} {}/{}".format(*setting)
        mse, mae = (_mean(lines, "Forecaster (linear", what) for what in ("mse", "mae"))
        published = PUBLISHED.get(setting[:2], {}).get(setting[2], (None, None))
        for what, own, other in zip(("MSE", "MAE"), (mse, mae), published, strict=True):
            if other is not None:
                beside[f"the best published {what}"][name] = own / other - 1
        for other in ("Forecaster (gru", "linear (NLinear)", "seasonal naive", "naive"):
            beside[f"the MSE of {other.removeprefix('Forecaster (')}"][name] = mse / _mean(lines, other, "mse") - 1
        for level in ("80", "95"):
            held = statistics.mean(score["coverage"][level] for score in _scores(lines, "Forecaster (linear"))
            off[level][name] = 100 * held - float(level)
    sentences = []
    for what, excess in beside.items():
        least, most = min(excess, key=excess.__getitem__), max(excess, key=excess.__getitem__)
        below, near = (sum(value <= limit for value in excess.values()) for limit in (0, 0.02))
        sentences.append(
            f"- linear beside {what}: at or below in {below} of {len(excess)} settings, at most 2 % above in {near}; "
            f"from {excess[least]:+.1%} ({least}) to {excess[most]:+.1%} ({most})."
        )
    for level, points in off.items():
        near = sum(abs(value) <= 3 for value in points.values())
        worst = max(points, key=lambda name: abs(points[name]))
        sentences.append(
            f"- intervals of {level} %: within 3 points in {near} of {len(points)} settings; furthest off "
            f"{points[worst]:+.1f} ({worst})."
        )
    return sentences


def _mean(lines: list[dict[str, Any]], method: str, what: str) -> float:
    return statistics.mean(score[what] for score in _scores(lines, method))


def _scores(lines: list[dict[str, Any]], method: str) -> list[dict[str, Any]]:
    return [next(score for score in line["scores"] if score["name"].startswith(method)) for line in lines]


def _errors(lines: list[dict[str, Any]], method: str) -> str:
    scores = _scores(lines, method)
    squares = [score["mse"] for score in scores]
    spread = (max(squares) - min(squares)) / 2
    text = f"{statistics.mean(squares):.3f} / {statistics.mean(score['mae'] for score in scores):.3f}"
    return f"{text} (± {spread:.3f})" if spread else text


def _published(data: str, lookback: int, horizon: int) -> str:
    mse, mae = PUBLISHED.get((data, lookback), {}).get(horizon, (None, None))
    return " / ".join("-" if value is None else f"{value:.3f}" for value in (mse, mae))


def _held(lines: list[dict[str, Any]], method: str) -> str:
    scores = _scores(lines, method)
    return ", ".join(f"{statistics.mean(score['coverage'][level] for score in scores):.1%}" for level in ("80", "95"))


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    return ["| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *rows)]


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run")
    running.add_argument("folder", type=Path)
    running.add_argument("path", type=Path)
    running.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    commands.add_parser("tables").add_argument("path", type=Path)
    chosen = parser.parse_args()
    if chosen.command == "run":
        run(chosen.folder, chosen.path, chosen.workers)
    else:
        print(tables(*load(chosen.path)))


if __name__ == "__main__":
    main()

"""How fast does the excess risk of `SequenceRegressor` fall with the number of sequences? Section 4 as an experiment.

    pip install 'parallelrnn[sequences,plot]'
    python -m parallelrnn.lab.benchmarks.regression run results/benchmarks/regression.jsonl    # an hour; cut off, it goes on
    python -m parallelrnn.lab.benchmarks.regression table results/benchmarks/regression.jsonl
    python -m parallelrnn.lab.benchmarks.regression figure results/benchmarks/regression.jsonl docs/figures/regression.png
    python -m parallelrnn.lab.benchmarks.regression pilot                                      # how two constants were chosen

Sequences are uniform on [0, 1]^T, responses a known target and noise (`parallelrnn.theory.regression`). Each replicate
has a sample of its own, and signs of its own in the rough target. ParaRNNs have tanh blocks of two units in two layers,
read at the last step. Their width is SCALE N^eta log N with Corollary 1's largest eta, T / (2 T + 4 beta), which leaves
the depth fixed but for a logarithm; 0 for the analytic target. The training is the same for all N: 100 epochs of 64
steps at most, and the epoch that is best on a tenth of the sample. SCALE and the learning rate were chosen by `pilot`,
by the risk at N = 1000 over all targets and two samples of each, which are not used elsewhere.

Beside them, with parameters by cross-validation: nearest neighbours, and kernel ridge regression with a Gaussian
kernel, whose time grows with N^3, so that it stops at N = 2000.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from parallelrnn import SequenceRegressor
from parallelrnn.lab.benchmarks.journal import go_on, load
from parallelrnn.lab.benchmarks.kernels import conditions
from parallelrnn.theory.regression import (
    AnalyticTarget,
    Array,
    Fit,
    Predict,
    Risk,
    RoughTarget,
    Slope,
    Target,
    distance,
    minimax_slope,
    sample,
    slope_of,
)

SMOOTHNESS = 1.5
LENGTHS = (2, 4)
SIZES = (125, 250, 500, 1000, 2000, 4000, 8000)
LATE = 1000  # from here on a second slope
REPLICATES = 5
NOISE = 0.5
SCALE = 2  # 4 does as well and takes longer, 1 does worse
LEARNING_RATE = 3e-3
SETTINGS = {"noise": NOISE, "scale": SCALE, "learning_rate": LEARNING_RATE}
CONTENDERS = {"ParaRNN": "#1f6fb4", "nearest neighbours": "#c7522a", "kernel ridge": "0.45"}
LARGEST = {"kernel ridge": 2000}
NEIGHBOURS = (1, 2, 3, 5, 8, 12, 18, 27, 40, 60, 90, 135, 200)
WIDTHS_OF_KERNEL = (1.0, 3.0, 10.0, 30.0, 100.0)  # gamma in exp(-gamma distance^2)
RIDGES = (0.01, 0.1, 1.0)


def targets(seed: int = 0) -> dict[str, Target]:
    """Each with the name of its panel; the signs of a rough one are new in each replicate."""
    found: dict[str, Target] = {}
    for length in LENGTHS:
        found[f"rough, beta = {SMOOTHNESS}, T = {length}"] = RoughTarget(SMOOTHNESS, length, seed=seed)
        found[f"analytic, T = {length}"] = AnalyticTarget(length)
    return found


def width(size: int, target: Target, scale: float = SCALE) -> int:
    """Units of a layer, in whole blocks of two."""
    dimension = target.length * target.input_size
    eta = 0.0 if math.isinf(target.smoothness) else dimension / (2 * dimension + 4 * target.smoothness)
    return 2 * math.ceil(scale * math.pow(size, eta) * math.log(size) / 2)


def para_rnn(hidden_size: int, seed: int, learning_rate: float = LEARNING_RATE) -> Fit:
    """Ours."""

    def fit(x: Array, y: Array) -> Predict:
        regressor = SequenceRegressor(
            cell="rnn",
            hidden_size=hidden_size,
            num_layers=2,
            readout="last",
            learning_rate=learning_rate,
            batch_size=128,
            epoch_steps=(64, 64),
            random_state=seed,
            progress=False,
        )
        predict: Predict = regressor.fit(x, y).predict
        return predict

    return fit


def nearest_neighbours(x: Array, y: Array) -> Predict:
    """The mean of as many neighbours as five folds find best."""
    from sklearn.neighbors import KNeighborsRegressor

    numbers = [number for number in NEIGHBOURS if number <= len(y) * 4 // 5]
    return _searched(KNeighborsRegressor(), {"n_neighbors": numbers}, x, y, folds=5)


def kernel_ridge(x: Array, y: Array) -> Predict:
    """With the width of the kernel and the ridge that three folds find best."""
    from sklearn.kernel_ridge import KernelRidge

    return _searched(KernelRidge(kernel="rbf"), {"gamma": WIDTHS_OF_KERNEL, "alpha": RIDGES}, x, y, folds=3)


def _searched(regressor: Any, grid: dict[str, Any], x: Array, y: Array, folds: int) -> Predict:
    from sklearn.model_selection import GridSearchCV

    level = y.mean()  # kernel ridge has no intercept
    search = GridSearchCV(regressor, grid, scoring="neg_mean_squared_error", cv=folds)
    search.fit(x.reshape(len(x), -1), y - level)
    return lambda new: search.predict(new.reshape(len(new), -1)) + level


@dataclass(frozen=True)
class Job:
    """One fit."""

    target: str
    contender: str
    size: int
    seed: int


def jobs() -> Iterator[Job]:
    """All fits, replicate after replicate, so that what is cut off is even."""
    for seed in range(REPLICATES):
        for target in targets():
            for size in SIZES:
                for contender in CONTENDERS:
                    if size <= LARGEST.get(contender, size):
                        yield Job(target, contender, size, seed)


def measure(job: Job) -> dict[str, Any]:
    """Fit and compare with the target."""
    target = targets(job.seed)[job.target]
    found = asdict(job)
    if job.contender == "ParaRNN":
        found["hidden_size"] = width(job.size, target)
        fit = para_rnn(found["hidden_size"], job.seed)
    else:
        fit = {"nearest neighbours": nearest_neighbours, "kernel ridge": kernel_ridge}[job.contender]
    x, y = sample(target, job.size, NOISE, job.seed)
    began = time.perf_counter()
    predict = fit(x, y)
    found["seconds"] = round(time.perf_counter() - began, 2)
    found["excess"] = distance(predict, target, job.seed)
    return found


def run(path: Path) -> None:
    """Fit what the file does not hold yet; each result is written as it comes."""
    torch.set_num_threads(1)
    done = {Job(*(line[name] for name in Job.__annotations__)) for line in go_on(path, current_conditions())}
    for job in jobs():
        if job not in done:
            found = measure(job)
            print(found, flush=True)
            with path.open("a") as file:
                file.write(json.dumps(found) + "\n")


def pilot() -> None:
    """Print the geometric mean of the excess risk over all targets and two samples, by scale and learning rate."""
    torch.set_num_threads(1)
    size = 1000
    for learning_rate in (1e-2, 3e-3):
        for scale in (1, 2, 4):
            logs = []
            for target in targets().values():
                for seed in (1001, 1002):
                    fit = para_rnn(width(size, target, scale), 1, learning_rate)
                    logs.append(math.log(distance(fit(*sample(target, size, NOISE, seed)), target)))
            print(f"learning rate {learning_rate}, scale {scale}: {math.exp(np.mean(logs)):.4f}", flush=True)


def current_conditions() -> dict[str, Any]:
    """With what the numbers are made."""
    found = asdict(conditions.current(1))
    del found["other_load"]  # no times are compared
    return {**found, "scikit-learn": version("scikit-learn"), **SETTINGS}


def risks_of(lines: list[dict[str, Any]], target: str, contender: str) -> list[Risk]:
    """What one contender has come to, by size; of whole replicates alone, as all sizes make a slope."""
    mine = [line for line in lines if (line["target"], line["contender"]) == (target, contender)]
    sizes = [size for size in SIZES if size <= LARGEST.get(contender, size)]
    whole = Counter(line["seed"] for line in mine)
    return [
        Risk(line["size"], line["seed"], line["excess"])
        for line in sorted(mine, key=lambda line: line["size"])
        if whole[line["seed"]] == len(sizes)
    ]


def rate_of(target: Target) -> float:
    """The minimax slope."""
    return minimax_slope(target.smoothness, target.length * target.input_size)


def table(lines: list[dict[str, Any]]) -> str:
    """Geometric means over replicates, and slopes with their standard errors, in Markdown."""
    head = ["target", "method", *(f"N = {size}" for size in SIZES), "slope", f"from N = {LATE}", "minimax"]
    rows = [head, ["---"] * len(head)]
    for name, target in targets().items():
        for contender in CONTENDERS:
            risks = risks_of(lines, name, contender)
            late = [risk for risk in risks if risk.size >= LATE]
            means = {size: mean for size, _, mean, _ in spreads(risks)}
            cells = [f"{means[size]:.4f}" if size in means else "" for size in SIZES]
            cells += [_shown(slope_of(risks)), "" if contender in LARGEST else _shown(slope_of(late))]
            rows.append([name, contender, *cells, f"{rate_of(target):.2f}"])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _shown(slope: Slope) -> str:
    return f"{slope.value:.2f} ± {slope.standard_error:.2f}"


def spreads(risks: list[Risk]) -> list[tuple[int, float, float, float]]:
    """By size: the least, the geometric mean and the largest excess risk of all replicates."""
    found = []
    for size in sorted({risk.size for risk in risks}):
        values = np.array([risk.excess for risk in risks if risk.size == size])
        found.append((size, values.min(), float(np.exp(np.log(values).mean())), values.max()))
    return found


def figure(lines: list[dict[str, Any]], path: Path) -> None:
    """A panel for each target: excess risks with their spread, fitted lines, and the minimax slope."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import LogLocator, StrMethodFormatter

    _, axes = plt.subplots(2, 2, figsize=(10, 8), layout="constrained", sharex=True)
    for ax, (name, target) in zip(axes.T.flat, targets().items(), strict=True):
        for contender, colour in CONTENDERS.items():
            risks = risks_of(lines, name, contender)
            slope = slope_of(risks)
            sizes, least, mean, most = (np.array(column) for column in zip(*spreads(risks), strict=True))
            ax.errorbar(sizes, mean, (mean - least, most - mean), fmt="o", markersize=4, capsize=2, color=colour)
            ax.plot(
                sizes,
                [slope.at(size) for size in sizes],
                color=colour,
                linewidth=1,
                label=f"{contender}: {_shown(slope)}",
            )
        rate = rate_of(target)
        ours = slope_of(risks_of(lines, name, "ParaRNN"))
        middle = math.sqrt(SIZES[0] * SIZES[-1])
        line = [1.6 * ours.at(middle) * (size / middle) ** rate for size in SIZES]  # above ours, to be seen
        ax.plot(SIZES, line, color="black", linestyle="--", linewidth=1, label=f"minimax: {rate:.2f}")
        ax.set_title(name, fontsize="medium")
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xticks(SIZES, [str(size) for size in SIZES], fontsize="small")
        ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        ax.minorticks_off()
        ax.legend(fontsize="small", frameon=False, title="slope ± standard error", title_fontsize="small")
    for ax in axes[-1]:
        ax.set_xlabel("N, sequences")
    for ax in axes[:, 0]:
        ax.set_ylabel("excess risk")
    plt.savefig(path, dpi=110)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="what", required=True)
    parts.add_parser("pilot")
    for what in ("run", "table", "figure"):
        parts.add_parser(what).add_argument("results", type=Path)
    parts.choices["figure"].add_argument("path", type=Path)
    arguments = parser.parse_args()
    if arguments.what == "pilot":
        pilot()
    elif arguments.what == "run":
        run(arguments.results)
    elif arguments.what == "table":
        print(table(load(arguments.results)[1]))
    else:
        figure(load(arguments.results)[1], arguments.path)


if __name__ == "__main__":
    main()

"""How fast does the excess risk of `SequenceRegressor` fall with the number of sequences? Section 4 as an experiment.

    pip install 'parallelrnn[cli,sequences,plot]'
    python -m parallelrnn.lab.benchmarks.regression run       # an hour; the same command resumes
    python -m parallelrnn.lab.benchmarks.regression figure    # docs/figures/regression.png

Sequences are uniform on [0, 1]^T, responses a known target plus noise (`parallelrnn.theory.regression`). Each replicate
has its own sample, and its own signs in the rough target. ParaRNNs have tanh blocks of two units in two layers, read at
the last step. Their width is SCALE N^eta log N with Corollary 1's largest eta, T / (2 T + 4 beta), which leaves the
depth fixed but for a logarithm; eta is 0 for the analytic target. Training is the same for all N: at most 100 epochs of
64 steps, and the epoch that is best on a tenth of the sample. SCALE (of 1, 2, 4) and the learning rate (of 1e-2, 3e-3)
were chosen by the risk at N = 1000 over all targets and two samples of each, which are not used elsewhere.

Beside them, with parameters by cross-validation: nearest neighbours, and kernel ridge regression with a Gaussian
kernel, whose time grows with N^3, so that it stops at N = 2000.
"""

from __future__ import annotations

import math
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from parallelrnn import SequenceRegressor
from parallelrnn.interpret.colours import COLOURS
from parallelrnn.lab.benchmarks.measuring import provenance, run_missing
from parallelrnn.lab.runs import Run, RunStore
from parallelrnn.lab.tables import Table
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

NAME = "regression"
SMOOTHNESS = 1.5
LENGTHS = (2, 4)
SIZES = (125, 250, 500, 1000, 2000, 4000, 8000)
LATE = 1000  # from here on a second slope
REPLICATES = 5
NOISE = 0.5
SCALE = 2  # 4 does as well and takes longer, 1 does worse
LEARNING_RATE = 3e-3
SETTINGS = {"noise": NOISE, "scale": SCALE, "learning_rate": LEARNING_RATE}  # of all runs
CONTENDERS = {"ParaRNN": COLOURS["C"], "nearest neighbours": COLOURS["R"], "kernel ridge": "0.45"}
LARGEST = {"kernel ridge": 2000}
NEIGHBOURS = (1, 2, 3, 5, 8, 12, 18, 27, 40, 60, 90, 135, 200)
WIDTHS_OF_KERNEL = (1.0, 3.0, 10.0, 30.0, 100.0)  # gamma in exp(-gamma distance^2)
RIDGES = (0.01, 0.1, 1.0)


def targets(seed: int = 0) -> dict[str, Target]:
    """Return all targets by name; the seed decides the signs of the rough ones."""
    by_name: dict[str, Target] = {}
    for length in LENGTHS:
        by_name[f"rough, beta = {SMOOTHNESS}, T = {length}"] = RoughTarget(SMOOTHNESS, length, seed=seed)
        by_name[f"analytic, T = {length}"] = AnalyticTarget(length)
    return by_name


def width(size: int, target: Target) -> int:
    """Return the units of a layer, in whole blocks of two."""
    dimension = target.length * target.input_size
    eta = 0.0 if math.isinf(target.smoothness) else dimension / (2 * dimension + 4 * target.smoothness)
    return 2 * math.ceil(SCALE * math.pow(size, eta) * math.log(size) / 2)


def para_rnn(hidden_size: int, seed: int) -> Fit:
    """Return a fit of ours."""

    def fit(x: Array, y: Array) -> Predict:
        regressor = SequenceRegressor(
            cell="rnn",
            hidden_size=hidden_size,
            num_layers=2,
            readout="last",
            learning_rate=LEARNING_RATE,
            batch_size=128,
            epoch_steps=(64, 64),
            random_state=seed,
            progress=False,
        )
        predict: Predict = regressor.fit(x, y).predict
        return predict

    return fit


def nearest_neighbours(x: Array, y: Array) -> Predict:
    """Fit the mean of so many neighbours as five folds find best."""
    from sklearn.neighbors import KNeighborsRegressor

    numbers = [number for number in NEIGHBOURS if number <= len(y) * 4 // 5]
    return _searched(KNeighborsRegressor(), {"n_neighbors": numbers}, x, y, folds=5)


def kernel_ridge(x: Array, y: Array) -> Predict:
    """Fit with the kernel width and the ridge that three folds find best."""
    from sklearn.kernel_ridge import KernelRidge

    return _searched(KernelRidge(kernel="rbf"), {"gamma": WIDTHS_OF_KERNEL, "alpha": RIDGES}, x, y, folds=3)


def _searched(regressor: Any, grid: dict[str, Any], x: Array, y: Array, folds: int) -> Predict:
    from sklearn.model_selection import GridSearchCV

    level = y.mean()  # kernel ridge has no intercept
    search = GridSearchCV(regressor, grid, scoring="neg_mean_squared_error", cv=folds)
    search.fit(x.reshape(len(x), -1), y - level)
    return lambda new: search.predict(new.reshape(len(new), -1)) + level


def measure(config: dict[str, Any], seed: int) -> dict[str, Any]:
    """Fit samples of all sizes, and return the excess risk of each."""
    target = targets(seed)[config["target"]]
    result: dict[str, Any] = {}
    for size in sizes(config["contender"]):
        hidden_size = width(size, target) if config["contender"] == "ParaRNN" else None
        fits = {"nearest neighbours": nearest_neighbours, "kernel ridge": kernel_ridge}
        fit = fits[config["contender"]] if hidden_size is None else para_rnn(hidden_size, seed)
        x, y = sample(target, size, NOISE, seed)
        began = time.perf_counter()
        predict = fit(x, y)
        seconds = round(time.perf_counter() - began, 2)
        result[str(size)] = {"excess": distance(predict, target, seed), "seconds": seconds, "hidden_size": hidden_size}
    return result


def sizes(contender: str) -> list[int]:
    """Return the sample sizes that a contender is fitted to."""
    return [size for size in SIZES if size <= LARGEST.get(contender, size)]


def run(results: Path = Path("results/benchmarks")) -> None:
    """Fit what the results do not hold yet, replicate after replicate, on one thread."""
    torch.set_num_threads(1)
    jobs = [
        ({"target": target, "contender": contender, **SETTINGS}, seed)
        for seed in range(REPLICATES)
        for target in targets()
        for contender in CONTENDERS
    ]
    run_missing(RunStore(results), NAME, jobs, measure, provenance(1, ["scikit-learn"]))


def risks_of(runs: list[Run], target: str, contender: str) -> list[Risk]:
    """Return the excess risks of one contender, by size."""
    chosen = [run for run in runs if (run.config["target"], run.config["contender"]) == (target, contender)]
    return [
        Risk(size, run.seed, run.result[str(size)]["excess"])
        for size in sizes(contender)
        for run in sorted(chosen, key=lambda run: run.seed)
    ]


def rate_of(target: Target) -> float:
    """Return the minimax slope."""
    return minimax_slope(target.smoothness, target.length * target.input_size)


def table(results: Path) -> Table:
    """Return geometric means over replicates, and slopes with their standard errors."""
    runs = RunStore(results / "benchmarks").load(NAME)
    rows = []
    for (name, target), contender in product(targets().items(), CONTENDERS):
        risks = risks_of(runs, name, contender)
        late = [risk for risk in risks if risk.size >= LATE]
        means = {size: mean for size, _, mean, _ in spreads(risks)}
        cells = [f"{means[size]:.4f}" if size in means else "" for size in SIZES]
        cells += [_shown(slope_of(risks)), "" if contender in LARGEST else _shown(slope_of(late))]
        rows.append([name, contender, *cells, f"{rate_of(target):.2f}"])
    columns = ["target", "method", *(f"N = {size}" for size in SIZES), "slope", f"from N = {LATE}", "minimax"]
    return Table(columns, rows)


def _shown(slope: Slope) -> str:
    return f"{slope.value:.2f} ± {slope.standard_error:.2f}"


def spreads(risks: list[Risk]) -> list[tuple[int, float, float, float]]:
    """Return, by size, the smallest, the geometric mean and the largest excess risk of all replicates."""
    by_size = []
    for size in sorted({risk.size for risk in risks}):
        values = np.array([risk.excess for risk in risks if risk.size == size])
        by_size.append((size, values.min(), float(np.exp(np.log(values).mean())), values.max()))
    return by_size


def figure(results: Path = Path("results"), path: Path = Path("docs/figures/regression.png")) -> None:
    """Draw a panel for each target: excess risks with their spread, fitted lines, and the minimax slope."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import LogLocator, StrMethodFormatter

    runs = RunStore(results / "benchmarks").load(NAME)
    _, axes = plt.subplots(2, 2, figsize=(10, 8), layout="constrained", sharex=True)
    for ax, (name, target) in zip(axes.T.flat, targets().items(), strict=True):
        for contender, colour in CONTENDERS.items():
            risks = risks_of(runs, name, contender)
            slope = slope_of(risks)
            x, least, mean, most = (np.array(column) for column in zip(*spreads(risks), strict=True))
            ax.errorbar(x, mean, (mean - least, most - mean), fmt="o", markersize=4, capsize=2, color=colour)
            label = f"{contender}: {_shown(slope)}"
            ax.plot(x, [slope.at(size) for size in x], color=colour, linewidth=1, label=label)
        rate = rate_of(target)
        ours = slope_of(risks_of(runs, name, "ParaRNN"))
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


if __name__ == "__main__":
    import typer

    app = typer.Typer()
    for command in (run, figure):
        app.command()(command)
    app()

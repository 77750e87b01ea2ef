"""`Forecaster.fit` beside neuralforecast's and darts' recurrent models: time, peak memory and error on ETTh1.

    python benchmarks/end_to_end.py run PATH/ETTh1.csv --output benchmarks/results/end_to_end.json
    python benchmarks/end_to_end.py table benchmarks/results/end_to_end.json

Each fit runs in a process of its own, and the contenders take turns. Equal in all rows but those named "defaults":
one recurrent layer of the same kind and width, look-back, horizon, windows in a batch, optimiser steps, Adam at one
learning rate, clipping, absolute error, and no early stopping. README.md, beside this file, says what is not equal.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from parallelrnn import Forecaster
from parallelrnn.bench import conditions, load
from parallelrnn.bench.memory import RESET, STATUS
from parallelrnn.estimators.training import Recipe
from parallelrnn.files import write_text

Forecast = Callable[[pd.DataFrame, range], NDArray[Any]]  # a table and origins to (series, origins, horizon)
TRAINING, VALIDATION = 8640, 2880  # rows: twelve months and four, of thirty days
CLIP = 1.0
RELEASES = {"neuralforecast": "neuralforecast==3.3.0", "darts": "darts[torch]==0.48.1"}  # as pip calls them
TRAINER = {
    "accelerator": "cpu",
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "gradient_clip_val": CLIP,
}


@dataclass(frozen=True)
class Settings:
    """What is the same for all; batch, steps and learning rate are neuralforecast's defaults."""

    lookback: int = 336
    horizon: int = 96
    hidden_size: int = 64
    batch_size: int = 128  # windows
    steps: int = 1000
    learning_rate: float = 1e-3
    threads: int = 2
    every: int = 1  # validation windows are so many steps apart


class Stepped(Forecaster):
    """A forecaster whose epochs have a given number of steps, which no option says."""

    epoch_steps = 1

    def recipe(self) -> Recipe:
        """How to train."""
        return replace(super().recipe(), epoch_steps=(self.epoch_steps, self.epoch_steps))


def fit_ours(
    settings: Settings, seed: int, table: pd.DataFrame, cell: str, defaults: bool
) -> tuple[nn.Module, Forecast]:
    """What the others are, or with `defaults` what users get, without early stopping."""
    epochs = math.gcd(settings.steps, 10) if defaults else 1  # in one epoch the learning rate stays
    alike: dict[str, Any] = {
        "segment": 1,
        "decoder": "linear",
        "gate": False,
        "dropout": 0.0,
        "cycles": None,
        "normalize": "standard",
        "learning_rate": settings.learning_rate,
    }
    forecaster = Stepped(
        settings.horizon,
        settings.lookback,
        cell=cell,
        hidden_size=settings.hidden_size,
        batch_size=settings.batch_size,
        max_epochs=epochs,
        patience=epochs,
        gradient_clip=CLIP,
        random_state=seed,
        progress=False,
        **({} if defaults else alike),
    )
    forecaster.epoch_steps = settings.steps // epochs
    forecaster.fit(table, val_size=None if defaults else settings.horizon)  # it wants one window at least
    fitted = forecaster._known()

    def forecast(table: pd.DataFrame, origins: range) -> NDArray[Any]:
        view = fitted.view(forecaster._read(table, fitted).series)
        windows = [(index, origin) for index in range(len(view.series)) for origin in origins]
        return view.forecast(torch.tensor(windows)).reshape(len(view.series), len(origins), -1)

    return fitted.network, forecast


def fit_neuralforecast(
    settings: Settings, seed: int, table: pd.DataFrame, cell: str, series: int
) -> tuple[nn.Module, Forecast]:
    """A direct model; each step takes its windows from so many series."""
    from neuralforecast import NeuralForecast
    from neuralforecast.losses.pytorch import MAE
    from neuralforecast.models import GRU, LSTM

    model = {"gru": GRU, "lstm": LSTM}[cell](
        h=settings.horizon,
        input_size=settings.lookback,
        encoder_n_layers=1,
        encoder_hidden_size=settings.hidden_size,
        loss=MAE(),
        max_steps=settings.steps,
        learning_rate=settings.learning_rate,
        val_check_steps=settings.steps,
        batch_size=series,
        windows_batch_size=settings.batch_size,
        training_data_availability_threshold=1.0,  # whole windows; by default it pads them
        scaler_type="standard",
        random_seed=seed,
        **TRAINER,
    )
    models = NeuralForecast(models=[model], freq="h")
    models.fit(table)

    def forecast(table: pd.DataFrame, origins: range) -> NDArray[Any]:
        found = models.cross_validation(table, n_windows=len(origins), step_size=origins.step, use_fitted=True)
        return found[type(model).__name__].to_numpy().reshape(-1, len(origins), settings.horizon)

    return model, forecast


def fit_darts(
    settings: Settings, seed: int, table: pd.DataFrame, cell: str, direct: bool
) -> tuple[nn.Module, Forecast]:
    """BlockRNNModel, which is direct, or RNNModel, which learns the next step and is fed its own forecasts."""
    from darts import TimeSeries
    from darts.models import BlockRNNModel, RNNModel

    def read(table: pd.DataFrame) -> list[TimeSeries]:
        found = TimeSeries.from_group_dataframe(table, "unique_id", "ds", "y", drop_group_cols="unique_id")
        return [one.astype(np.float32) for one in found]  # it trains in the precision of the series

    if direct:
        kind, more = BlockRNNModel, {"output_chunk_length": settings.horizon, "use_reversible_instance_norm": True}
    else:  # as many steps as a forecast takes
        kind, more = RNNModel, {"training_length": settings.lookback + settings.horizon - 1}
    model = kind(
        input_chunk_length=settings.lookback,
        model=cell.upper(),
        hidden_dim=settings.hidden_size,
        n_rnn_layers=1,
        loss_fn=nn.L1Loss(),
        optimizer_kwargs={"lr": settings.learning_rate},
        batch_size=settings.batch_size,
        n_epochs=settings.steps,  # no less than needed: the trainer stops at the last step
        random_state=seed,
        pl_trainer_kwargs={**TRAINER, "max_steps": settings.steps},
        **more,
    )
    model.fit(read(table), dataloader_kwargs={"drop_last": True})  # batches of one size

    def forecast(table: pd.DataFrame, origins: range) -> NDArray[Any]:
        found = model.historical_forecasts(
            read(table),
            start=origins.start,
            start_format="position",
            forecast_horizon=settings.horizon,
            stride=origins.step,
            retrain=False,
            last_points_only=False,
            predict_kwargs={"batch_size": 1024},
        )
        return np.stack([[one.values(copy=False)[:, 0] for one in forecasts] for forecasts in found])

    return model.model, forecast


@dataclass(frozen=True)
class Contender:
    """A row of the tables."""

    cell: str
    library: str
    label: str
    fit: Callable[[Settings, int, pd.DataFrame], tuple[nn.Module, Forecast]]


def _contenders() -> dict[str, Contender]:
    found = {}
    for cell in ("gru", "lstm"):
        found |= {
            f"ours-{cell}": Contender(cell, "parallelrnn", "ours", partial(fit_ours, cell=cell, defaults=False)),
            f"neuralforecast-{cell}": Contender(
                cell, "neuralforecast", "neuralforecast", partial(fit_neuralforecast, cell=cell, series=7)
            ),
            f"neuralforecast-one-{cell}": Contender(
                cell,
                "neuralforecast",
                "neuralforecast, one series a step",
                partial(fit_neuralforecast, cell=cell, series=1),
            ),
            f"darts-block-{cell}": Contender(
                cell, "darts", "darts BlockRNNModel", partial(fit_darts, cell=cell, direct=True)
            ),
            f"darts-{cell}": Contender(cell, "darts", "darts RNNModel", partial(fit_darts, cell=cell, direct=False)),
        }
    for cell in ("gru", "lstm", "linear"):
        fit = partial(fit_ours, cell=cell, defaults=True)
        found[f"ours-defaults-{cell}"] = Contender(cell, "parallelrnn", f"ours, {cell}, defaults", fit)
    return found


CONTENDERS = _contenders()


def read_table(path: Path, rows: int) -> pd.DataFrame:
    """The first so many rows in long form; each column standardised by its training part."""
    wide = pd.read_csv(path, parse_dates=["date"], index_col="date")[:rows].sort_index(axis=1)
    wide = (wide - wide[:TRAINING].mean()) / wide[:TRAINING].std(ddof=0)
    return wide.rename_axis("ds").reset_index().melt("ds", var_name="unique_id", value_name="y")


def first_rows(table: pd.DataFrame, rows: int) -> pd.DataFrame:
    """The start of each series."""
    return table.groupby("unique_id").head(rows).reset_index(drop=True)


def measure(name: str, path: Path, settings: Settings, seed: int) -> dict[str, Any]:
    """Fit in this process, which has done nothing else."""
    torch.set_num_threads(settings.threads)
    lookback, horizon = settings.lookback, settings.horizon
    origins = range(TRAINING, TRAINING + VALIDATION - horizon + 1, settings.every)
    table = read_table(path, origins[-1] + horizon)
    training, fit = first_rows(table, TRAINING), CONTENDERS[name].fit
    fit(replace(settings, steps=1), seed, first_rows(table, 2 * (lookback + horizon)))  # imports, threads
    steps: list[int] = []
    register_optimizer_step_post_hook(lambda *_: steps.append(1))
    before = _memory("VmRSS")
    if STATUS.exists():
        RESET.write_text("5")  # forget the peak so far
    began = load.read()
    network, forecast = fit(settings, seed, training)
    ended, peak = load.read(), _memory("VmHWM")
    series = np.stack([one.to_numpy() for _, one in table.groupby("unique_id")["y"]])  # (series, rows)
    windows = np.lib.stride_tricks.sliding_window_view(series[:, TRAINING - lookback :], lookback + horizon, axis=1)
    past, future = np.split(windows[:, :: settings.every], [lookback], axis=2)  # (series, origins, steps)
    error = forecast(table, origins) - future
    return {
        "seconds": round(ended.wall - began.wall, 3),
        "foreign": load.foreign(began, ended),  # processors that others used meanwhile
        "peak": peak,
        "before": before,
        "mse": float((error**2).mean()),
        "mae": float(abs(error).mean()),
        "mse_of_mean": float(((past.mean(axis=2, keepdims=True) - future) ** 2).mean()),
        "windows": future.shape[0] * future.shape[1],
        "steps": len(steps),
        "parameters": sum(one.numel() for one in network.parameters()),
        "threads": torch.get_num_threads(),
    }


def _memory(name: str) -> int | None:
    """In bytes, where the system tells."""
    if not STATUS.exists():
        return None
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


def run(path: Path, output: Path, settings: Settings, rounds: int, names: Sequence[str]) -> None:
    """Measure what the file does not hold yet; each result is written as it comes."""
    now = _conditions(settings.threads)
    results = json.loads(output.read_text()) if output.exists() else {"conditions": now, "runs": []}
    if results["conditions"] != now:
        raise SystemExit(f"{output} was made under other conditions; write to another file")
    for library in {CONTENDERS[name].library for name in names} & set(RELEASES):
        if now[library] == "not installed":
            print(f"without {library}: pip install '{RELEASES[library]}'", flush=True)
            names = [name for name in names if CONTENDERS[name].library != library]
    failed = 0
    for turn in range(rounds):
        for name in names:
            key = {"name": name, "round": turn, "settings": asdict(settings)}
            if any(key.items() <= one.items() for one in results["runs"]):
                continue
            began = time.perf_counter()
            found = _in_process(name, path, settings, seed=turn + 1)
            print(
                f"round {turn + 1}, {name}: {time.perf_counter() - began:.0f} s", found.get("problem", ""), flush=True
            )
            if "problem" in found:
                failed += 1
                continue
            results["runs"].append({**key, **found})
            write_text(output, json.dumps(results, indent=1) + "\n")
    if failed:
        raise SystemExit(f"{failed} fits failed; the same command tries them again")


def _in_process(name: str, path: Path, settings: Settings, seed: int) -> dict[str, Any]:
    task = json.dumps({"name": name, "path": str(path), "settings": asdict(settings), "seed": seed})
    threads = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
    done = subprocess.run(
        [sys.executable, __file__, "measure", task],
        env={**os.environ, **dict.fromkeys(threads, str(settings.threads))},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return {"problem": (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1]}
    return json.loads(done.stdout.splitlines()[-1])  # libraries may have printed before


def _conditions(threads: int) -> dict[str, Any]:
    found = asdict(conditions.current(threads))
    del found["other_load"]  # which is about another benchmark
    for name in ("neuralforecast", "darts", "pytorch-lightning", "pandas"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def tables(results: dict[str, Any]) -> str:
    """All that was measured, in Markdown: a table for each cell and settings."""
    lines = ["; ".join(f"{name} {value}" for name, value in results["conditions"].items())]
    groups: dict[str, list[dict[str, Any]]] = {}
    for one in results["runs"]:
        groups.setdefault(json.dumps(one["settings"]), []).append(one)
    head = ["model", "seconds", "ours is faster", "peak, MB", "in fit, MB", "MSE", "MAE", "steps", "parameters"]
    for settings, runs in groups.items():
        foreign = [one["foreign"] for one in runs if one["foreign"] is not None]
        lines += ["", ", ".join(f"{name} {value}" for name, value in json.loads(settings).items())]
        lines.append(f"{runs[0]['windows']:,} windows; repeating a window's mean: MSE {runs[0]['mse_of_mean']:.3f}")
        lines.append(f"Others used up to {max(foreign):.2f} of a processor" if foreign else "Nobody watched others")
        for cell in ("gru", "lstm"):
            by_name = {name: [one for one in runs if one["name"] == name] for name in CONTENDERS}
            ours = by_name[f"ours-{cell}"]
            shown = [name for name, one in CONTENDERS.items() if one.cell in (cell, "linear") and by_name[name]]
            rows = [[CONTENDERS[name].label, *_row(by_name[name], ours)] for name in shown]
            lines += ["", f"{cell.upper()}:", ""]
            lines += ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)]
    return "\n".join(lines)


def _row(runs: list[dict[str, Any]], ours: list[dict[str, Any]]) -> list[str]:
    peaks = [one for one in runs if one["peak"] is not None]
    return [
        _spread([one["seconds"] for one in runs], ".1f"),
        _faster(runs, ours),
        _spread([one["peak"] / 1e6 for one in peaks], ".0f"),
        _spread([(one["peak"] - one["before"]) / 1e6 for one in peaks], ".0f"),
        _spread([one["mse"] for one in runs], ".3f"),
        _spread([one["mae"] for one in runs], ".3f"),
        _spread([one["steps"] for one in runs], ".0f"),
        _spread([one["parameters"] for one in runs], ".0f"),
    ]


def _faster(runs: list[dict[str, Any]], ours: list[dict[str, Any]]) -> str:
    """How many times; nothing for who learned nothing, and not without a word where ours errs more."""
    if not all(math.isfinite(one["mse"]) and one["mse"] < one["mse_of_mean"] for one in (*runs, *ours)):
        return "refused: no better than the mean"
    if not ours:
        return "-"
    times, errors = (
        [statistics.median(one[name] for one in some) for some in (runs, ours)] for name in ("seconds", "mse")
    )
    return f"{times[0] / times[1]:.2f} times" + (", at a higher error" if errors[1] > errors[0] else "")


def _spread(values: Sequence[float], form: str) -> str:
    """The median, and the range if there is one."""
    if not values:
        return "-"
    middle, low, high = (format(value, form) for value in (statistics.median(values), min(values), max(values)))
    return middle if low == high else f"{middle} ({low} to {high})"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="what", required=True)
    running = parts.add_parser("run", formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    running.add_argument("path", type=Path, help="ETTh1.csv")
    running.add_argument("--output", type=Path, required=True, help="what is there already is not measured again")
    running.add_argument("--rounds", type=int, default=3)
    running.add_argument("--contenders", nargs="+", choices=list(CONTENDERS), default=list(CONTENDERS), metavar="NAME")
    for one in fields(Settings):
        running.add_argument(f"--{one.name.replace('_', '-')}", type=type(one.default), default=one.default)
    parts.add_parser("table").add_argument("path", type=Path)
    parts.add_parser("measure").add_argument("task", type=json.loads, help="for the process that `run` starts")
    arguments = parser.parse_args()
    if arguments.what == "table":
        print(tables(json.loads(arguments.path.read_text())))
    elif arguments.what == "measure":
        task = arguments.task
        print(json.dumps(measure(task["name"], Path(task["path"]), Settings(**task["settings"]), task["seed"])))
    else:
        settings = Settings(**{one.name: getattr(arguments, one.name) for one in fields(Settings)})
        run(arguments.path, arguments.output, settings, arguments.rounds, arguments.contenders)


if __name__ == "__main__":
    main()

"""`Forecaster.fit` beside neuralforecast's and darts' recurrent models: time, peak memory and error on ETTh1.

    python -m parallelrnn.lab.benchmarks.end_to_end run PATH/ETTh1.csv --output results/benchmarks/end_to_end.json
    python -m parallelrnn.lab.benchmarks.end_to_end table results/benchmarks/end_to_end.json

Each fit runs in a process of its own, and the contenders take turns. Equal in all rows but those named "defaults":
one recurrent layer of the same kind and width, look-back, horizon, windows in a batch, optimiser steps, Adam at one
learning rate, clipping, absolute error, and no early stopping. README.md, beside this file, says what is not equal.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
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
from parallelrnn.io import write_text
from parallelrnn.lab.benchmarks.kernels import conditions, load
from parallelrnn.lab.benchmarks.kernels.memory import RESET, STATUS

Forecast = Callable[[pd.DataFrame, range], NDArray[Any]]  # a table and origins to (series, origins, horizon)
Fitted = tuple[nn.Module, Forecast]
TRAINING, VALIDATION = 8640, 2880  # rows: twelve months and four, of thirty days
CELLS = ("gru", "lstm")  # "linear" is ours alone
CLIP = 1.0
DIGITS = {"seconds": 1, "peak, MB": 0, "by fit, MB": 0, "MSE": 3, "MAE": 3, "steps": 0, "parameters": 0}  # columns
RELEASES = {"neuralforecast": "neuralforecast==3.3.0", "darts": "darts[torch]==0.48.1"}  # as pip calls them
QUIET = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
TRAINER = {"accelerator": "cpu", "gradient_clip_val": CLIP, **QUIET}  # of Lightning


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


def fit_ours(settings: Settings, seed: int, table: pd.DataFrame, cell: str, defaults: bool) -> Fitted:
    """What the others are, or with `defaults` what users get, without early stopping."""
    epochs = math.gcd(settings.steps, 10) if defaults else 1  # in one epoch the learning rate stays
    alike = {"segment": 1, "decoder": "linear", "gate": False, "dropout": 0.0, "cycles": None, "normalize": "standard"}
    steps = settings.steps // epochs
    forecaster = Forecaster(
        settings.horizon,
        settings.lookback,
        cell=cell,
        hidden_size=settings.hidden_size,
        batch_size=settings.batch_size,
        max_epochs=epochs,
        epoch_steps=(steps, steps),
        patience=epochs,
        gradient_clip=CLIP,
        random_state=seed,
        progress=False,
        **({} if defaults else {**alike, "learning_rate": settings.learning_rate}),
    )

    forecaster.fit(table, val_size=None if defaults else settings.horizon)  # it wants one window at least
    fitted = forecaster._known()

    def forecast(table: pd.DataFrame, origins: range) -> NDArray[Any]:
        view = fitted.view(forecaster._read(table, fitted).series)
        windows = [(index, origin) for index in range(len(view.series)) for origin in origins]
        return view.forecast(torch.tensor(windows)).reshape(len(view.series), len(origins), -1)

    return fitted.network, forecast


def fit_neuralforecast(settings: Settings, seed: int, table: pd.DataFrame, cell: str, series: int, kind: str) -> Fitted:
    """A direct model of theirs or of ours; each step takes its windows from so many series."""
    from neuralforecast import NeuralForecast
    from neuralforecast.losses.pytorch import MAE
    from neuralforecast.models import GRU, LSTM

    from parallelrnn.integrations.neuralforecast import ParaGRU, ParaLSTM, ParaRNN

    theirs = {"encoder_n_layers": 1, "encoder_hidden_size": settings.hidden_size}
    ours = {"hidden_size": settings.hidden_size}
    alike = {"segment": 1, "decoder": "linear", "gate": False, "dropout": 0.0, "num_lr_decays": -1}
    models = {"theirs": {"gru": GRU, "lstm": LSTM}}.get(kind, {"gru": ParaGRU, "lstm": ParaLSTM, "linear": ParaRNN})
    model = models[cell](
        h=settings.horizon,
        input_size=settings.lookback,
        loss=MAE(),
        max_steps=settings.steps,
        val_check_steps=settings.steps,
        batch_size=series,
        windows_batch_size=settings.batch_size,
        training_data_availability_threshold=1.0,  # whole windows; by default it pads them
        scaler_type="standard",
        random_seed=seed,
        **{"theirs": theirs, "ours": ours | alike, "ours-defaults": ours}[kind],
        **({} if kind == "ours-defaults" else {"learning_rate": settings.learning_rate}),
        **TRAINER,
    )
    forecaster = NeuralForecast(models=[model], freq="h")
    forecaster.fit(table)

    def forecast(table: pd.DataFrame, origins: range) -> NDArray[Any]:
        found = forecaster.cross_validation(table, n_windows=len(origins), step_size=origins.step, use_fitted=True)
        return found[type(model).__name__].to_numpy().reshape(-1, len(origins), settings.horizon)

    return model, forecast


def fit_darts(settings: Settings, seed: int, table: pd.DataFrame, cell: str, direct: bool) -> Fitted:
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


# The library, and how to fit.
CONTENDERS: dict[str, tuple[str, Callable[..., Fitted]]] = {
    "ours": ("parallelrnn", partial(fit_ours, defaults=False)),
    "neuralforecast": ("neuralforecast", partial(fit_neuralforecast, series=7, kind="theirs")),
    "neuralforecast-by-series": ("neuralforecast", partial(fit_neuralforecast, series=1, kind="theirs")),
    "darts-BlockRNNModel": ("darts", partial(fit_darts, direct=True)),
    "darts-RNNModel": ("darts", partial(fit_darts, direct=False)),
    "ours-defaults": ("parallelrnn", partial(fit_ours, defaults=True)),
    "ours-in-neuralforecast": ("neuralforecast", partial(fit_neuralforecast, series=1, kind="ours")),
    "ours-in-neuralforecast-defaults": ("neuralforecast", partial(fit_neuralforecast, series=1, kind="ours-defaults")),
}


def read_table(path: Path, rows: int) -> pd.DataFrame:
    """The first so many rows in long form; each column standardised by its training part."""
    wide = pd.read_csv(path, parse_dates=["date"], index_col="date")[:rows].sort_index(axis=1)
    wide = (wide - wide[:TRAINING].mean()) / wide[:TRAINING].std(ddof=0)
    return wide.rename_axis("ds").reset_index().melt("ds", var_name="unique_id", value_name="y")


def measure(name: str, cell: str, seed: int, path: Path, settings: Settings) -> dict[str, Any]:
    """Fit and forecast in this process, which does nothing else."""
    torch.set_num_threads(settings.threads)
    lookback, horizon = settings.lookback, settings.horizon
    origins = range(TRAINING, TRAINING + VALIDATION - horizon + 1, settings.every)
    table = read_table(path, origins[-1] + horizon)
    starts = (TRAINING, 2 * (lookback + horizon))
    training, little = (table.groupby("unique_id").head(rows).reset_index(drop=True) for rows in starts)
    _, fit = CONTENDERS[name]
    fit(replace(settings, steps=1, batch_size=2), seed, little, cell=cell)  # what only the first fit of a process does
    before = _memory("VmRSS")
    if STATUS.exists():
        RESET.write_text("5")  # forget the peak so far
    steps: list[int] = []
    register_optimizer_step_post_hook(lambda *_: steps.append(1))
    began = load.read()
    network, forecast = fit(settings, seed, training, cell=cell)
    ended, peak = load.read(), _memory("VmHWM")
    if len(steps) != settings.steps and name != "ours-defaults":  # which adds some when it takes out waves
        raise RuntimeError(f"{name} took {len(steps)} steps instead of {settings.steps}")
    series = np.stack([one.to_numpy() for _, one in table.groupby("unique_id")["y"]])  # (series, rows)
    windows = np.lib.stride_tricks.sliding_window_view(series[:, TRAINING - lookback :], lookback + horizon, axis=1)
    past, future = np.split(windows[:, :: settings.every], [lookback], axis=2)  # (series, origins, steps)
    error = forecast(table, origins) - future
    return {
        "seconds": round(ended.wall - began.wall, 3),
        "foreign": load.foreign(began, ended),  # processors that others used meanwhile
        "peak, MB": peak,
        "by fit, MB": None if peak is None or before is None else peak - before,
        "MSE": float((error**2).mean()),
        "MAE": float(abs(error).mean()),
        "MSE of the mean": float(((past.mean(axis=2, keepdims=True) - future) ** 2).mean()),
        "windows": future.shape[0] * future.shape[1],
        "steps": len(steps),
        "parameters": sum(one.numel() for one in network.parameters()),
        "threads": torch.get_num_threads(),
    }


def _memory(name: str) -> float | None:
    """In megabytes, where the system tells."""
    if not STATUS.exists():
        return None
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024 / 1e6


def run(path: Path, output: Path, settings: Settings, rounds: int, names: Sequence[str], cells: Sequence[str]) -> None:
    """Measure what the file does not hold yet; each result is written as it comes."""
    now = current_conditions(settings.threads)
    results = json.loads(output.read_text()) if output.exists() else {"conditions": now, "runs": []}
    changed = [name for name in now if results["conditions"].get(name) != now[name]]
    if changed:
        raise SystemExit(f"{output} was made under other conditions ({', '.join(changed)}); write to another file")
    missing = [library for library in RELEASES if now[library] == "not installed"]
    for library in missing:
        print(f"without {library}; for it: pip install '{RELEASES[library]}'", flush=True)
    names = [name for name in names if CONTENDERS[name][0] not in missing]
    pairs = [(name, cell) for cell in cells for name in names if cell != "linear" or name.endswith("defaults")]
    failed = 0
    for turn, (name, cell) in itertools.product(range(rounds), pairs):
        key = {"name": name, "cell": cell, "seed": turn + 1, "settings": asdict(settings)}
        if any(key.items() <= one.items() for one in results["runs"]):
            continue
        found = _in_process({**key, "path": str(path)})
        print(f"round {turn + 1}, {cell}, {name}:", found.get("problem") or f"{found['seconds']} s", flush=True)
        if "problem" in found:
            failed += 1
            continue
        results["runs"].append({**key, **found})
        write_text(output, json.dumps(results, indent=1) + "\n")
    if failed:
        raise SystemExit(f"fits that failed: {failed}; the same command tries them again")


def _in_process(task: dict[str, Any]) -> dict[str, Any]:
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
    threads = dict.fromkeys(names, str(task["settings"]["threads"]))
    command = [sys.executable, __file__, "measure", json.dumps(task)]
    done = subprocess.run(command, env={**os.environ, **threads}, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"problem": (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1]}
    return json.loads(done.stdout.splitlines()[-1])  # libraries may have printed before


def current_conditions(threads: int) -> dict[str, Any]:
    """Numbers compare where these are equal."""
    found = asdict(conditions.current(threads))
    del found["other_load"]  # what another benchmark does about it
    for name in ("neuralforecast", "darts", "pytorch-lightning", "pandas"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def tables(results: dict[str, Any]) -> str:
    """All that was measured, in Markdown: two tables for each cell and settings."""
    lines = ["; ".join(f"{name} {value}" for name, value in results["conditions"].items())]
    for settings in {json.dumps(one["settings"]): one["settings"] for one in results["runs"]}.values():
        runs = [one for one in results["runs"] if one["settings"] == settings]
        foreign = [one["foreign"] for one in runs if one["foreign"] is not None]
        lines += ["", ", ".join(f"{name} {value}" for name, value in settings.items()), ""]
        rounds = max(one["seed"] for one in runs)
        lines.append(
            f"{runs[0]['windows']:,} validation windows; repeating a window's mean has an MSE of "
            f"{runs[0]['MSE of the mean']:.3f}. Medians, ranges in brackets; rounds: {rounds}. "
            + (f"Others used up to {max(foreign):.2f} processors." if foreign else "Nobody watched the load of others.")
        )
        for cell in [cell for cell in CELLS if cell in {one["cell"] for one in runs}]:
            groups: dict[str, list[dict[str, Any]]] = {}
            for one in runs:
                if one["cell"] in (cell, "linear"):
                    groups.setdefault(f"{one['name']}, {one['cell']}", []).append(one)
            ours = [name for name in groups if name.startswith("ours")]
            lines += _markdown(["", *DIGITS], {name: _row(group) for name, group in groups.items()})
            others = [name for name in groups if name not in ours]
            faster = {name: [_times_as_fast(groups[mine], groups[name]) for mine in ours] for name in others}
            lines += _markdown(["times as fast as", *ours], faster)
    return "\n".join(lines)


def _markdown(head: list[str], rows: dict[str, list[str]]) -> list[str]:
    cells = [head, ["---"] * len(head), *([name, *row] for name, row in rows.items())]
    return ["", *("| " + " | ".join(row) + " |" for row in cells)]


def _row(runs: list[dict[str, Any]]) -> list[str]:
    return [_spread([one[name] for one in runs if one[name] is not None], digits) for name, digits in DIGITS.items()]


def _times_as_fast(ours: list[dict[str, Any]], other: list[dict[str, Any]]) -> str:
    """No number where either learned nothing, and none without a word where ours errs more."""
    if not all(one["MSE"] < one["MSE of the mean"] for one in (*ours, *other)):  # nor if an error is not a number
        return "refused: no better than the mean"
    seconds, mse = (
        [statistics.median(one[what] for one in runs) for runs in (ours, other)] for what in ("seconds", "MSE")
    )
    return f"{seconds[1] / seconds[0]:.2f}" + (", at a higher error" if mse[0] > mse[1] else "")


def _spread(values: Sequence[float], digits: int) -> str:
    """The median, and the range if there is one."""
    if not values:
        return "-"
    middle, low, high = (f"{value:.{digits}f}" for value in (statistics.median(values), min(values), max(values)))
    return middle if low == high else f"{middle} ({low} to {high})"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="what", required=True)
    running = parts.add_parser("run", formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    running.add_argument("path", type=Path, help="ETTh1.csv")
    running.add_argument("--output", type=Path, required=True, help="what is there already is not measured again")
    running.add_argument("--rounds", type=int, default=3, help="each with another seed")
    for name, known in (("contenders", list(CONTENDERS)), ("cells", [*CELLS, "linear"])):
        running.add_argument(f"--{name}", nargs="+", choices=known, default=known, metavar="NAME", help="some of them")
    for one in fields(Settings):
        running.add_argument(
            f"--{one.name.replace('_', '-')}", type=type(one.default), default=one.default, help="for all"
        )
    parts.add_parser("table").add_argument("path", type=Path)
    parts.add_parser("measure", help="what `run` starts").add_argument("task", type=json.loads)
    arguments = vars(parser.parse_args())
    what = arguments.pop("what")
    if what == "table":
        print(tables(json.loads(arguments["path"].read_text())))
    elif what == "measure":
        task = arguments["task"]
        settings, path = Settings(**task.pop("settings")), Path(task.pop("path"))
        print(json.dumps(measure(**task, path=path, settings=settings)))
    else:
        settings = Settings(**{one.name: arguments.pop(one.name) for one in fields(Settings)})
        names = arguments.pop("contenders")
        run(**arguments, names=names, settings=settings)


if __name__ == "__main__":
    main()

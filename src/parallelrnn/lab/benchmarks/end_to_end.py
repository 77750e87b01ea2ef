"""`Forecaster.fit` beside neuralforecast's and darts' recurrent models: time, peak memory and error on ETTh1.

    python -m venv end-to-end && . end-to-end/bin/activate
    pip install -c constraints.txt torch                      # first, and as a CPU build: what follows leaves it alone
    pip install -c constraints.txt '.[cli]' 'neuralforecast==3.3.0' 'darts[torch]==0.48.1'
    python -m parallelrnn.lab.benchmarks.end_to_end ETTh1.csv # the same command resumes

Each fit runs in a process of its own, and the contenders take turns. Equal in all rows but those named "defaults":
one recurrent layer of the same kind and width, look-back, horizon, windows in a batch, optimiser steps, Adam at one
learning rate, clipping, absolute error, and no early stopping. docs/performance.md says what is not equal. Our models
inside neuralforecast, in `plug-in`:

    python -m parallelrnn.lab.benchmarks.end_to_end ETTh1.csv --name plug-in --settings every=4 \\
        --contenders neuralforecast-by-series,ours-in-neuralforecast,ours-in-neuralforecast-defaults
"""

from __future__ import annotations

import itertools
import math
import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from parallelrnn import Forecaster
from parallelrnn.lab.benchmarks.measuring import THREADS, provenance, run_missing
from parallelrnn.lab.benchmarks.memory import in_fresh_process, peak, peak_of
from parallelrnn.lab.benchmarks.timing import foreign_load, read_clocks
from parallelrnn.lab.runs import Run, RunStore
from parallelrnn.lab.tables import Table

Forecast = Callable[[pd.DataFrame, range], NDArray[Any]]  # a table and origins to (series, origins, horizon)
Fitted = tuple[nn.Module, Forecast]
Results = list[dict[str, Any]]  # of one contender and cell, one entry per seed
TRAINING, VALIDATION = 8640, 2880  # rows: twelve months and four, of thirty days
CELLS = ("gru", "lstm")  # "linear" is ours alone
CLIP = 1.0
COLUMNS = {  # of the table: a result, and its decimals
    "seconds": ("seconds", 1),
    "peak, MB": ("peak_mb", 0),
    "added by fit, MB": ("fit_mb", 0),
    "MSE": ("mse", 3),
    "MAE": ("mae", 3),
    "steps": ("steps", 0),
    "parameters": ("parameters", 0),
}
PACKAGES = ("neuralforecast", "darts", "pytorch-lightning", "pandas")
QUIET = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
TRAINER = {"accelerator": "cpu", "gradient_clip_val": CLIP, **QUIET}  # of Lightning


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What all contenders share; batch, steps and learning rate are neuralforecast's defaults."""

    lookback: int = 96
    horizon: int = 96
    hidden_size: int = 64
    batch_size: int = 128  # windows
    steps: int = 1000
    learning_rate: float = 1e-3
    threads: int = 2
    every: int = 1  # steps between validation windows


def fit_ours(settings: Settings, seed: int, table: pd.DataFrame, cell: str, defaults: bool) -> Fitted:
    """Fit ours like the others, or with `defaults` as users get it, without early stopping."""
    epochs = math.gcd(settings.steps, 10) if defaults else 1  # in one epoch the learning rate stays
    options: dict[str, Any] = {}
    if not defaults:
        options = {"segment": 1, "decoder": "linear", "gate": False, "dropout": 0.0, "cycles": None}
        options |= {"normalize": "standard", "learning_rate": settings.learning_rate}
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
        **options,
    )
    forecaster.fit(table, val_size=None if defaults else settings.horizon)  # at least one window
    state = forecaster._fitted()

    def forecast(table: pd.DataFrame, origins: range) -> NDArray[Any]:
        dataset = forecaster._dataset(table, None)
        windows = torch.tensor([(index, origin) for index in range(len(dataset.series)) for origin in origins])
        columns, _ = state.forecast(dataset, windows)
        return columns["yhat"].reshape(len(dataset.series), len(origins), -1)

    return state.network, forecast


def fit_neuralforecast(settings: Settings, seed: int, table: pd.DataFrame, cell: str, series: int, kind: str) -> Fitted:
    """Fit a direct model of theirs or of ours; each step takes its windows from so many series."""
    from neuralforecast import NeuralForecast
    from neuralforecast.losses.pytorch import MAE
    from neuralforecast.models import GRU, LSTM

    from parallelrnn.integrations.neuralforecast import ParaGRU, ParaLSTM, ParaRNN

    options: dict[str, Any] = {"hidden_size": settings.hidden_size}
    if kind == "theirs":
        options = {"encoder_n_layers": 1, "encoder_hidden_size": settings.hidden_size}
    elif kind == "ours":
        options |= {"segment": 1, "decoder": "linear", "gate": False, "dropout": 0.0, "num_lr_decays": -1}
    if kind != "ours-defaults":
        options["learning_rate"] = settings.learning_rate
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
        **options,
        **TRAINER,
    )
    forecaster = NeuralForecast(models=[model], freq="h")
    forecaster.fit(table)

    def forecast(table: pd.DataFrame, origins: range) -> NDArray[Any]:
        windows = forecaster.cross_validation(table, n_windows=len(origins), step_size=origins.step, use_fitted=True)
        forecasts: NDArray[Any] = windows[type(model).__name__].to_numpy()
        return forecasts.reshape(-1, len(origins), settings.horizon)

    return model, forecast


def fit_darts(settings: Settings, seed: int, table: pd.DataFrame, cell: str, direct: bool) -> Fitted:
    """Fit BlockRNNModel, which is direct, or RNNModel, which learns the next step and is fed its own forecasts."""
    from darts import TimeSeries
    from darts.models import BlockRNNModel, RNNModel

    def read(table: pd.DataFrame) -> list[TimeSeries]:
        panel = TimeSeries.from_group_dataframe(table, "unique_id", "ds", "y", drop_group_cols="unique_id")
        return [series.astype(np.float32) for series in panel]  # it trains in the precision of the series

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
        forecasts = model.historical_forecasts(
            read(table),
            start=origins.start,
            start_format="position",
            forecast_horizon=settings.horizon,
            stride=origins.step,
            retrain=False,
            last_points_only=False,
            predict_kwargs={"batch_size": 1024},
        )
        return np.stack([[window.values(copy=False)[:, 0] for window in series] for series in forecasts])

    return model.model, forecast


# The package that a contender needs, and how to fit it.
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
    """Return the first rows in long form, each column standardised by its training part."""
    wide = pd.read_csv(path, parse_dates=["date"], index_col="date")[:rows].sort_index(axis=1)
    wide = (wide - wide[:TRAINING].mean()) / wide[:TRAINING].std(ddof=0)
    return wide.rename_axis("ds").reset_index().melt("ds", var_name="unique_id", value_name="y")


def measure(path: Path, config: dict[str, Any], seed: int) -> dict[str, Any]:
    """Fit and forecast in this process, which does nothing else."""
    options = dict(config)
    name, cell = options.pop("contender"), options.pop("cell")
    settings = Settings(**options)
    torch.set_num_threads(settings.threads)
    lookback, horizon = settings.lookback, settings.horizon
    origins = range(TRAINING, TRAINING + VALIDATION - horizon + 1, settings.every)
    table = read_table(path, origins[-1] + horizon)
    starts = (TRAINING, 2 * (lookback + horizon))
    training, small = (table.groupby("unique_id").head(rows).reset_index(drop=True) for rows in starts)
    _, fit = CONTENDERS[name]
    fit(replace(settings, steps=1, batch_size=2), seed, small, cell=cell)  # what only the first fit of a process does
    steps: list[int] = []
    register_optimizer_step_post_hook(lambda *_: steps.append(1))
    fitted: list[Fitted] = []
    began = read_clocks()
    grown = peak_of(lambda: fitted.append(fit(settings, seed, training, cell=cell)))
    ended, (network, forecast) = read_clocks(), fitted[0]
    peak_bytes = peak()
    if len(steps) != settings.steps and name != "ours-defaults":  # which adds some when it prunes waves
        raise RuntimeError(f"{name} took {len(steps)} steps instead of {settings.steps}")
    series = np.stack([values.to_numpy() for _, values in table.groupby("unique_id")["y"]])  # (series, rows)
    windows = np.lib.stride_tricks.sliding_window_view(series[:, TRAINING - lookback :], lookback + horizon, axis=1)
    past, future = np.split(windows[:, :: settings.every], [lookback], axis=2)  # (series, origins, steps)
    error = forecast(table, origins) - future
    return {
        "seconds": round(ended.wall - began.wall, 3),
        "foreign": foreign_load(began, ended),  # processors that others used meanwhile
        "peak_mb": peak_bytes / 1e6,
        "fit_mb": grown / 1e6,
        "mse": float((error**2).mean()),
        "mae": float(abs(error).mean()),
        "mse_of_mean": float(((past.mean(axis=2, keepdims=True) - future) ** 2).mean()),
        "windows": future.shape[0] * future.shape[1],
        "steps": len(steps),
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
        "threads": torch.get_num_threads(),
    }


def run(
    path: Path,
    results: Path = Path("results/benchmarks"),
    name: str = "end-to-end",
    rounds: int = 3,
    contenders: str = ",".join(CONTENDERS),
    settings: str = "",
) -> None:
    """Fit what the results do not hold yet, in rounds with a new seed each; PATH is ETTh1.csv.

    Other settings than the usual are written `--settings steps=5,every=96`.
    """
    changes = dict(setting.split("=") for setting in settings.split(",") if setting)
    shared = Settings(**{key: type(getattr(Settings, key))(value) for key, value in changes.items()})
    about = provenance(shared.threads, PACKAGES)
    missing = [package for package in PACKAGES if about["machine"][package] == "not installed"]
    chosen = [name for name in contenders.split(",") if CONTENDERS[name][0] not in missing]
    jobs = [
        ({"contender": contender, "cell": cell, **asdict(shared)}, seed)
        for seed, cell, contender in itertools.product(range(1, rounds + 1), (*CELLS, "linear"), chosen)
        if cell != "linear" or contender.endswith("defaults")
    ]
    os.environ |= dict.fromkeys(THREADS, str(shared.threads))
    run_missing(RunStore(results), name, jobs, partial(in_fresh_process, measure, path), about)


def table(results: Path) -> str:
    """Return, for each cell, times and errors of all contenders, and how many times as fast ours are."""
    return _tables(RunStore(results / "benchmarks").load("end-to-end"))


def plug_in_table(results: Path) -> str:
    """Return the same of our models in neuralforecast."""
    return _tables(RunStore(results / "benchmarks").load("plug-in"))


def _tables(runs: Sequence[Run]) -> str:
    tables = []
    for cell in CELLS:
        groups: dict[str, Results] = {}
        for config in itertools.product(CONTENDERS, (cell, "linear")):
            results = [run.result for run in runs if (run.config["contender"], run.config["cell"]) == config]
            groups |= {", ".join(config): results} if results else {}
        ours = [name for name in groups if name.startswith("ours")]
        rows = [
            [name, *(_spread([result[key] for result in group], digits) for key, digits in COLUMNS.values())]
            for name, group in groups.items()
        ]
        tables.append(Table(["", *COLUMNS], rows))
        faster = [
            [name, *(_speedup(groups[own], group) for own in ours)]
            for name, group in groups.items()
            if name not in ours
        ]
        tables.append(Table(["times as fast as", *ours], faster))
    return "\n\n".join(table.markdown() for table in tables)


def _speedup(ours: Results, other: Results) -> str:
    """Return no number where either learned nothing, and a warning where ours errs more."""
    if not all(result["mse"] < result["mse_of_mean"] for result in (*ours, *other)):  # NaN is not below it either
        return "not compared: no better than the mean"
    seconds, mse = (
        [statistics.median(result[key] for result in group) for group in (ours, other)] for key in ("seconds", "mse")
    )
    return f"{seconds[1] / seconds[0]:.2f}" + (", at a higher error" if mse[0] > mse[1] else "")


def _spread(values: Sequence[float], digits: int) -> str:
    """Return the median, and the range if there is one."""
    median, low, high = (f"{value:.{digits}f}" for value in (statistics.median(values), min(values), max(values)))
    return median if low == high else f"{median} ({low} to {high})"


if __name__ == "__main__":
    import typer

    typer.run(run)

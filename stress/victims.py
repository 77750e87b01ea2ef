"""What `kills.py` kills: how each victim starts or resumes, what it produces, and how to check that nothing is lost."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import lightning_fabric  # noqa: F401  imported before forks, which train
import numpy as np
import pandas as pd

from parallelrnn import Forecaster, SequenceRegressor
from parallelrnn.cli.app import app
from parallelrnn.io import MODEL_FILE, load_tensors
from parallelrnn.lab.runs import RunStore
from parallelrnn.training.checkpoint import FILE as CHECKPOINT_FILE

EXPERIMENT = ["reproduce", "adding", "--models", "ParaGRU", "--only", "length=100", "--threads", "1"]
SETTINGS = {"hidden_size": 4, "length": 10, "iterations": 300, "decay_every": 100, "epoch_steps": 50, "test": 20}
_RETRY_STATUSES = (1, 75)  # of reproduce: a worker was killed, or one of a killed command is still running


class DataLossError(Exception):
    """A file was lost, damaged or left behind, or a resumed run produced another result."""


@dataclass(frozen=True, kw_only=True)
class Victim:
    """A command or call that works in a folder of its own."""

    start: Callable[[Path], int]  # starts or resumes it, and returns its process
    check: Callable[[Path], object]  # raises unless models and results are intact; checkpoints are checked for all
    result: Callable[[Path], Any] | None = None  # what it produced once complete; None if it never ends
    prepare: Callable[[Path], None] = lambda folder: None
    choose_process: Callable[[int], int] = lambda process: process  # the one to kill; negative: a process group
    retry_statuses: tuple[int, ...] = ()  # after which the same command is run again
    weight: int = 8  # its share of all kills


def check_checkpoints(folder: Path) -> None:
    """Raise unless all checkpoints are intact."""
    for checkpoint in folder.rglob(CHECKPOINT_FILE):
        load_tensors(checkpoint)


def start_fork(work: Callable[[Path], None], folder: Path) -> int:
    """Do the work in a fork of this process, which has everything imported already."""
    process = os.fork()
    if process:
        return process
    status = 1
    try:
        with (folder.parent / "output").open("a") as output:
            for stream in (1, 2):
                os.dup2(output.fileno(), stream)
        work(folder)
        status = 0
    except SystemExit as exit_:
        status = exit_.code if isinstance(exit_.code, int) else 1
    finally:
        os._exit(status)


def check_model(kind: type[Forecaster | SequenceRegressor], folder: Path) -> None:
    """Raise unless the model, if there is one yet, is intact."""
    if (folder / MODEL_FILE).exists():
        kind.load(folder)


def model_bytes(folder: Path) -> bytes:
    """Return the file of a model."""
    return (folder / MODEL_FILE).read_bytes()


def write_series(folder: Path) -> None:
    """Write two hourly series, a daily wave and noise."""
    hours, generator = np.arange(200), np.random.default_rng(0)
    series = {name: np.sin(hours * np.pi / 12) + generator.normal(0, 0.3, len(hours)) for name in "ab"}
    table = pd.DataFrame({"ds": pd.date_range("2024-01-01", periods=len(hours), freq="h"), **series})
    table.to_csv(folder.parent / "series.csv", index=False)


def fit_forecaster(folder: Path) -> None:
    """Fit the two series on the command line."""
    data = folder.parent / "series.csv"
    app(["fit", str(data), "--horizon", "6", "--lookback", "12", "--cell", "gru", "--out", str(folder), "--resume"])


def fit_regressor(folder: Path) -> None:
    """Fit with dropout, which draws random numbers at every step."""
    x = np.random.default_rng(0).normal(size=(60, 20, 2))
    regressor = SequenceRegressor(
        hidden_size=8, max_epochs=8, epoch_steps=(30, 30), batch_size=16, patience=8, dropout=0.2, random_state=3
    )
    regressor.fit(x, x.sum((1, 2)), checkpoint=folder, resume=True).save(folder)


def train_two_models(folder: Path) -> None:
    """Train two models, once, and copy the first to where they will be saved."""
    if not list(folder.parent.glob("model-*")):
        write_series(folder)
        os.waitpid(start_fork(_train_models, folder), 0)  # a process that has trained cannot be forked
    shutil.copytree(folder.parent / "model-0", folder, dirs_exist_ok=True)


def _train_models(folder: Path) -> None:
    table = pd.read_csv(folder.parent / "series.csv", parse_dates=["ds"])[["ds", "a"]].rename(columns={"a": "y"})
    for seed in (0, 1):
        model = Forecaster(12, 24, hidden_size=8, num_waves=2, max_epochs=1, epoch_steps=(5, 5), random_state=seed)
        model.fit(table).save(folder.parent / f"model-{seed}")


def save_two_models(folder: Path) -> None:
    """Save two models over each other, forever."""
    models = [Forecaster.load(path) for path in sorted(folder.parent.glob("model-*"))]
    while True:
        for model in reversed(models):
            model.save(folder)


def check_saved_model(folder: Path) -> None:
    """Raise unless the model is one of the two, to the byte."""
    Forecaster.load(folder)
    if model_bytes(folder) not in [model_bytes(path) for path in folder.parent.glob("model-*")]:
        raise DataLossError("the model is neither of the two that were saved")


def reproduce_arguments(folder: Path) -> list[str]:
    """Return the arguments of a small experiment that saves checkpoints often."""
    settings = [argument for name, value in SETTINGS.items() for argument in ("--set", f"{name}={value}")]
    return [*EXPERIMENT, *settings, "--keep-every", "0.05s", "--replicates", "2", "--results", str(folder)]


def reproduce(folder: Path) -> None:
    """Run the experiment in this process."""
    app([*reproduce_arguments(folder), "--engine", "here"])


def start_workers(folder: Path) -> int:
    """Start the command with two workers, in a process group of its own."""
    command = [str(Path(sys.executable).with_name("parallelrnn")), *reproduce_arguments(folder), "--workers", "2"]
    with (folder.parent / "output").open("a") as output:
        return subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True).pid


def choose_any_process(process: int) -> int:
    """Return a random choice of the command's process group, its first process, and its workers."""
    children = Path(f"/proc/{process}/task/{process}/children")
    workers = [int(worker) for worker in children.read_text().split()] if children.exists() else []
    return random.choice([-process, process, *workers])


def run_results(folder: Path) -> dict[str, Any]:
    """Return curves and metrics of all finished runs, without times; raise unless all are intact."""
    results = {run.key: run.result for run in RunStore(folder).load("adding")}
    return {
        key: [result["curve"], {name: v for name, v in result["metrics"].items() if not name.endswith("seconds")}]
        for key, result in results.items()
    }


VICTIMS = {
    "save": Victim(start=partial(start_fork, save_two_models), check=check_saved_model, prepare=train_two_models),
    "sequences": Victim(
        start=partial(start_fork, fit_regressor), check=partial(check_model, SequenceRegressor), result=model_bytes
    ),
    "fit": Victim(
        start=partial(start_fork, fit_forecaster),
        check=partial(check_model, Forecaster),
        result=model_bytes,
        prepare=write_series,
    ),
    "reproduce": Victim(start=partial(start_fork, reproduce), check=run_results, result=run_results),
    "workers": Victim(
        start=start_workers,
        check=run_results,
        result=run_results,
        choose_process=choose_any_process,
        retry_statuses=_RETRY_STATUSES,
        weight=1,
    ),
}

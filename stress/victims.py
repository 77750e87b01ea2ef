"""What `kills.py` kills: how it is started and resumed, what it produces, and how to check that nothing is lost."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning_fabric  # noqa: F401  imported before forks, which train
import numpy as np
import pandas as pd

from parallelrnn import Forecaster, SequenceRegressor
from parallelrnn.cli.app import app
from parallelrnn.io import MODEL_FILE, load_tensors
from parallelrnn.lab.runs import RunStore
from parallelrnn.training.checkpoint import FILE as CHECKPOINT

ADDING = ["reproduce", "adding", "--models", "ParaGRU", "--only", "length=100", "--threads", "1"]
TINY = {"hidden_size": 4, "length": 10, "iterations": 300, "decay_every": 100, "epoch_steps": 50, "test": 20}
_RETRY = (1, 75)  # of reproduce: a worker was killed, or one of a killed command is still running


class LostError(Exception):
    """Something was lost."""


@dataclass(frozen=True)
class Victim:
    """What is killed, in a folder of its own, and how to check that nothing is lost."""

    start: Callable[[Path], int]  # start or resume, and return the process
    check: Callable[[Path], None]  # raise unless all files are intact
    result: Callable[[Path], Any] = lambda folder: None  # what it produced in the end
    prepare: Callable[[Path], None] = lambda folder: None
    choose: Callable[[int], int] = lambda process: process  # the process to kill; negative: a process group
    retry_statuses: tuple[int, ...] = ()  # after which the same command is run again
    has_end: bool = True
    share: int = 8  # of all kills


def forked(work: Callable[[Path], None]) -> Callable[[Path], int]:
    """Return a function that does the work in a process of its own that has everything imported."""

    def start(folder: Path) -> int:
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
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else 1
        finally:
            os._exit(status)

    return start


def check_model(load: Callable[[Path], Any]) -> Callable[[Path], None]:
    """Return a check that the checkpoint and the model in a folder are intact."""

    def check(folder: Path) -> None:
        for checkpoint in folder.glob(CHECKPOINT):
            load_tensors(checkpoint)
        if (folder / MODEL_FILE).exists():
            load(folder)

    return check


def model_files(folder: Path) -> Mapping[str, bytes]:
    """Return the files of a model."""
    return {file.name: file.read_bytes() for file in folder.glob("*") if file.name != CHECKPOINT}


def fit(folder: Path) -> None:
    """Fit as typed, two series of a few days."""
    data = folder.parent / "series.csv"
    app(["fit", str(data), "--horizon", "6", "--lookback", "12", "--cell", "gru", "--out", str(folder), "--resume"])


def write_series(folder: Path) -> None:
    """Write two hourly series, a daily wave and noise."""
    hours, noise = np.arange(200), np.random.default_rng(0)
    values = {name: np.sin(hours * np.pi / 12) + noise.normal(0, 0.3, len(hours)) for name in "ab"}
    table = pd.DataFrame({"ds": pd.date_range("2024-01-01", periods=len(hours), freq="h"), **values})
    table.to_csv(folder.parent / "series.csv", index=False)


def fit_sequences(folder: Path) -> None:
    """Fit with dropout, which draws random numbers at every step."""
    noise = np.random.default_rng(0)
    x = noise.normal(size=(60, 20, 2))
    regressor = SequenceRegressor(
        hidden_size=8, max_epochs=8, epoch_steps=(30, 30), batch_size=16, patience=8, dropout=0.2, random_state=3
    )
    regressor.fit(x, x.sum((1, 2)), checkpoint=folder, resume=True).save(folder)


def save_models(folder: Path) -> None:
    """Save two models over each other, for ever."""
    models = [Forecaster.load(saved) for saved in sorted(folder.parent.glob("model-*"))]
    while True:
        for model in reversed(models):
            model.save(folder)


def make_models(folder: Path) -> None:
    """Train two models in another process, as one that has trained cannot be forked, and start from the first."""
    if not list(folder.parent.glob("model-*")):
        write_series(folder)
        os.waitpid(forked(_train_models)(folder), 0)
    shutil.copytree(folder.parent / "model-0", folder, dirs_exist_ok=True)


def _train_models(folder: Path) -> None:
    table = pd.read_csv(folder.parent / "series.csv", parse_dates=["ds"])[["ds", "a"]].rename(columns={"a": "y"})
    for seed in (0, 1):
        quick = Forecaster(12, 24, hidden_size=8, num_waves=2, max_epochs=1, epoch_steps=(5, 5), random_state=seed)
        quick.fit(table).save(folder.parent / f"model-{seed}")


def check_saved(folder: Path) -> None:
    """Raise unless the model is one of the two, and no mixture."""
    Forecaster.load(folder)
    data = (folder / MODEL_FILE).read_bytes()
    if data not in [(saved / MODEL_FILE).read_bytes() for saved in folder.parent.glob("model-*")]:
        raise LostError("the model is neither of those that were saved")


def reproduce_arguments(folder: Path) -> list[str]:
    """Return the arguments of a small experiment that saves checkpoints often."""
    changed = [word for name, value in TINY.items() for word in ("--set", f"{name}={value}")]
    return [*ADDING, *changed, "--keep-every", "0.05s", "--replicates", "2", "--results", str(folder)]


def reproduce(folder: Path) -> None:
    """Run as typed, in one process."""
    app([*reproduce_arguments(folder), "--engine", "here"])


def start_workers(folder: Path) -> int:
    """Run as typed, in three processes."""
    program = [str(Path(sys.executable).with_name("parallelrnn")), *reproduce_arguments(folder), "--workers", "2"]
    with (folder.parent / "output").open("a") as output:
        return subprocess.Popen(program, stdout=output, stderr=output, start_new_session=True).pid


def any_of_a_command(process: int) -> int:
    """Return all processes of a command, its first, or one that it started."""
    children = Path(f"/proc/{process}/task/{process}/children")
    workers = [int(worker) for worker in children.read_text().split()] if children.exists() else []
    return random.choice([-process, process, *workers])


def check_results(folder: Path) -> None:
    """Raise unless results and checkpoints are intact."""
    RunStore(folder).load("adding")
    for checkpoint in folder.rglob(CHECKPOINT):
        load_tensors(checkpoint)


def results(folder: Path) -> dict[str, Any]:
    """Return what experiments produced, without times."""
    runs = {run.key: run.result for run in RunStore(folder).load("adding")}
    return {
        key: [result["curve"], {name: v for name, v in result["metrics"].items() if not name.endswith("seconds")}]
        for key, result in runs.items()
    }


VICTIMS = {
    "save": Victim(forked(save_models), check_saved, prepare=make_models, has_end=False),
    "sequences": Victim(forked(fit_sequences), check_model(SequenceRegressor.load), model_files),
    "fit": Victim(forked(fit), check_model(Forecaster.load), model_files, prepare=write_series),
    "reproduce": Victim(forked(reproduce), check_results, results),
    "workers": Victim(start_workers, check_results, results, choose=any_of_a_command, retry_statuses=_RETRY, share=1),
}

"""What `kills.py` kills: how it is begun and gone on with, what it comes to, and how to see that all of it is whole."""

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

import lightning_fabric  # noqa: F401  which trainings import; before they fork
import numpy as np
import pandas as pd

from parallelrnn import Forecaster, SequenceRegressor
from parallelrnn.cli.app import app
from parallelrnn.io import MODEL_FILE, load_tensors
from parallelrnn.lab.running.store import Store
from parallelrnn.training.checkpoint import FILE as CHECKPOINT

ADDING = ["reproduce", "adding", "--models", "ParaGRU", "--only", "length=100", "--threads", "1"]
TINY = {"hidden_size": 4, "length": 10, "iterations": 300, "decay_every": 100, "epoch_steps": 50, "test": 20}
_OF_REPRODUCE = (1, 75)  # a worker was killed; a worker of a command that was killed is still at it


class LostError(Exception):
    """Something was lost."""


@dataclass(frozen=True)
class Victim:
    """What is killed, in a folder of its own, and how to see that nothing is lost."""

    start: Callable[[Path], int]  # begin, or go on; the process
    result: Callable[[Path], Any]  # what it came to in the end
    check: Callable[[Path], None]  # whether all that is there is whole
    prepare: Callable[[Path], None] = lambda folder: None
    choose: Callable[[int], int] = lambda process: process  # whom to kill; below zero: a group
    try_again: tuple[int, ...] = ()  # statuses after which the same command is given again
    has_end: bool = True
    share: int = 8  # of all kills


def forked(work: Callable[[Path], None]) -> Callable[[Path], int]:
    """Do something in a process of its own that has everything imported."""

    def start(folder: Path) -> int:
        process = os.fork()
        if process:
            return process
        status = 1
        try:
            with (folder.parent / "said").open("a") as said:
                for stream in (1, 2):
                    os.dup2(said.fileno(), stream)
            work(folder)
            status = 0
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else 1
        finally:
            os._exit(status)

    return start


def check_model(load: Callable[[Path], Any]) -> Callable[[Path], None]:
    """Whether the checkpoint and the model in a folder are whole."""

    def check(folder: Path) -> None:
        for checkpoint in folder.glob(CHECKPOINT):
            load_tensors(checkpoint)
        if (folder / MODEL_FILE).exists():
            load(folder)

    return check


def model_files(folder: Path) -> Mapping[str, bytes]:
    """The files of a model."""
    return {file.name: file.read_bytes() for file in folder.glob("*") if file.name != CHECKPOINT}


def fit(folder: Path) -> None:
    """As typed, on two series of a few days."""
    data = folder.parent / "series.csv"
    app(["fit", str(data), "--horizon", "6", "--lookback", "12", "--cell", "gru", "--out", str(folder), "--resume"])


def write_series(folder: Path) -> None:
    """Two days of a wave and noise, hour by hour, a few times over."""
    hours, noise = np.arange(200), np.random.default_rng(0)
    values = {name: np.sin(hours * np.pi / 12) + noise.normal(0, 0.3, len(hours)) for name in "ab"}
    table = pd.DataFrame({"ds": pd.date_range("2024-01-01", periods=len(hours), freq="h"), **values})
    table.to_csv(folder.parent / "series.csv", index=False)


def fit_sequences(folder: Path) -> None:
    """With dropout, which draws random numbers at every step."""
    noise = np.random.default_rng(0)
    x = noise.normal(size=(60, 20, 2))
    regressor = SequenceRegressor(
        hidden_size=8, max_epochs=8, epoch_steps=(30, 30), batch_size=16, patience=8, dropout=0.2, random_state=3
    )
    regressor.fit(x, x.sum((1, 2)), checkpoint=folder, resume=True).save(folder)


def save_models(folder: Path) -> None:
    """Two models in turns, over each other, the other one first."""
    models = [Forecaster.load(one) for one in sorted(folder.parent.glob("model-*"))]
    while True:
        for model in reversed(models):
            model.save(folder)


def make_models(folder: Path) -> None:
    """Two of them, by another process: who has trained is not forked. The first is there to begin with."""
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
    """Whether the model is one of the two, and no mixture."""
    Forecaster.load(folder)
    data = (folder / MODEL_FILE).read_bytes()
    if data not in [(saved / MODEL_FILE).read_bytes() for saved in folder.parent.glob("model-*")]:
        raise LostError("the model is none of those that were saved")


def reproduce_words(folder: Path) -> list[str]:
    """A small experiment, kept often."""
    changed = [word for name, value in TINY.items() for word in ("--set", f"{name}={value}")]
    return [*ADDING, *changed, "--keep-every", "0.05s", "--replicates", "2", "--results", str(folder)]


def reproduce(folder: Path) -> None:
    """As typed, in one process."""
    app([*reproduce_words(folder), "--engine", "here"])


def start_workers(folder: Path) -> int:
    """As typed, in three processes."""
    program = [str(Path(sys.executable).with_name("parallelrnn")), *reproduce_words(folder), "--workers", "2"]
    with (folder.parent / "said").open("a") as said:
        return subprocess.Popen(program, stdout=said, stderr=said, start_new_session=True).pid


def any_of_a_command(process: int) -> int:
    """All processes of a command, its first, or one that it started."""
    listed = Path(f"/proc/{process}/task/{process}/children")
    workers = [int(one) for one in listed.read_text().split()] if listed.exists() else []
    return random.choice([-process, process, *workers])


def check_results(folder: Path) -> None:
    """Whether results and checkpoints are whole."""
    Store(folder).lines("adding")
    for checkpoint in folder.rglob(CHECKPOINT):
        load_tensors(checkpoint)


def results(folder: Path) -> dict[str, Any]:
    """What experiments found, without times."""
    lines = {line["key"]: line for line in Store(folder).lines("adding")}
    return {
        key: [line["curve"], {name: value for name, value in line["metrics"].items() if not name.endswith("seconds")}]
        for key, line in lines.items()
    }


def is_any_model(folder: Path) -> bool:
    """What saving over and over comes to is checked after each kill; there is nothing to compare it with."""
    return (folder / MODEL_FILE).exists()


VICTIMS = {
    "save": Victim(forked(save_models), is_any_model, check_saved, prepare=make_models, has_end=False),
    "sequences": Victim(forked(fit_sequences), model_files, check_model(SequenceRegressor.load)),
    "fit": Victim(forked(fit), model_files, check_model(Forecaster.load), prepare=write_series),
    "reproduce": Victim(forked(reproduce), results, check_results),
    "workers": Victim(start_workers, results, check_results, choose=any_of_a_command, try_again=_OF_REPRODUCE, share=1),
}

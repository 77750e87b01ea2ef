"""Memory that is used up: a sentence, and all that was saved is there."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import parallelrnn
from parallelrnn import Forecaster
from parallelrnn.cli.app import app
from parallelrnn.errors import is_out_of_memory
from parallelrnn.io import load_model
from parallelrnn.lab.executors import Event, Progress, run_jobs
from parallelrnn.lab.experiments import adding
from parallelrnn.lab.experiments.experiment import Job
from parallelrnn.lab.runs import RunStore
from tests.faults.limits import no_more_memory_than
from tests.faults.small_models import KIND, save
from tests.training.samples import hourly, quick

MUCH = 10**15  # more bytes than any machine has
TINY = {"length": "10", "iterations": "20", "decay_every": "10", "epoch_steps": "5", "test": "20"}


def job(hidden_size: int, **more: str) -> Job:
    (result,) = adding.EXPERIMENT.jobs(
        {"model": ["GRU"], "length": ["100"]}, {**TINY, "hidden_size": str(hidden_size), **more}, 1
    )
    return result


@pytest.mark.parametrize(
    "take", [lambda: torch.empty(MUCH), lambda: np.empty(MUCH), lambda: bytearray(MUCH), lambda: [0] * MUCH]
)
def test_who_says_that_memory_is_used_up(take: Any) -> None:
    with pytest.raises((MemoryError, RuntimeError)) as raised:
        take()
    assert is_out_of_memory(raised.value)


def test_other_errors_do_not_mention_memory() -> None:
    with pytest.raises(RuntimeError) as raised:
        torch.ones(2) @ torch.ones(3)
    assert not is_out_of_memory(raised.value)


def test_a_run_that_is_too_large_fails_and_the_others_continue(tmp_path: Path) -> None:
    large, small = job(40_000), job(4)  # whose recurrent weights alone take 19 GB
    with no_more_memory_than(4 << 30):
        progress = run_jobs([large, small], tmp_path, engine="here", threads=1)
    assert progress.done == {small.key}
    assert "memory" in progress.problems[large.key]
    assert [run.key for run in RunStore(tmp_path).load("adding")] == [small.key]


def test_a_fit_that_is_too_large_ends_with_a_sentence_and_the_model_before_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, model = tmp_path / "series.csv", tmp_path / "model"
    hourly(ids=("a",)).to_csv(data, index=False)
    expected = quick(max_epochs=1).fit(hourly()).save(model)
    before = {file.name: file.read_bytes() for file in expected.iterdir()}
    wide = {"hidden_size": 100_000_000}  # whose weights take more than a gigabyte
    monkeypatch.setattr(parallelrnn, "Forecaster", lambda horizon, _, **options: quick(horizon, **wide, **options))
    with no_more_memory_than(256 << 20):
        result = CliRunner().invoke(app, ["fit", str(data), "--horizon", "3", "--out", str(model)])
    assert result.exit_code == 6, result.output
    assert "out of memory (" in result.output
    assert {file.name: file.read_bytes() for file in model.iterdir()} == before
    Forecaster.load(model)


def test_a_model_is_not_to_blame_for_memory(tmp_path: Path) -> None:
    save(tmp_path, 1)
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        load_model(tmp_path, KIND, 2, lambda metadata, tensors: torch.empty(MUCH))


@pytest.mark.slow
def test_workers_without_memory_or_killed_fail_one_job_each(tmp_path: Path) -> None:
    """One has no memory for its job and continues with the next; one is killed in its job, as by a system without
    memory, and another takes its place."""
    large, long = job(40_000), job(4, iterations="3000", decay_every="1000", epoch_steps="100")
    small = [job(size) for size in (6, 8, 10)]
    killed: list[int] = []

    def kill_when_begun(progress: Progress, event: Event) -> None:
        if event.kind == "running" and event.job == long and not killed and RunStore(tmp_path).is_begun(long):
            killed.append(min(child.pid or 0 for child in multiprocessing.active_children()))  # the first to start
            os.kill(killed[0], signal.SIGKILL)

    with no_more_memory_than(8 << 30):  # workers inherit it
        progress = run_jobs(
            [long, large, *small], tmp_path, workers=2, threads=1, checkpoint_every=0.05, on_event=kill_when_begun
        )
    assert killed
    assert progress.done == {small_job.key for small_job in small}
    assert "memory" in progress.problems[large.key]
    assert "killed" in progress.problems[long.key]
    assert RunStore(tmp_path).is_begun(long)
    assert run_jobs([long], tmp_path, engine="here", threads=1).done == {long.key}
    run_jobs([long], tmp_path / "uninterrupted", engine="here", threads=1)
    (uninterrupted,) = RunStore(tmp_path / "uninterrupted").load("adding")
    resumed = RunStore(tmp_path).find(long.key)
    assert resumed is not None
    assert resumed.result["curve"] == uninterrupted.result["curve"]

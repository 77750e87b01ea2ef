"""Memory that is used up: a sentence, and all that was kept is there."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
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
from parallelrnn.lab.experiments import adding
from parallelrnn.lab.experiments.experiment import Job
from parallelrnn.lab.running.engines import Event, Settings, _next_of, processes
from parallelrnn.lab.running.runner import run
from parallelrnn.lab.running.store import Store
from tests.faults.limits import no_more_memory_than
from tests.faults.small_models import KIND, save
from tests.training.samples import hourly, quick

MUCH = 10**15  # more bytes than any machine has
TINY = {"length": "10", "iterations": "20", "decay_every": "10", "epoch_steps": "5", "test": "20"}


def job(hidden_size: int, **more: str) -> Job:
    (found,) = adding.EXPERIMENT.jobs(
        {"model": ["GRU"], "length": ["100"]}, {**TINY, "hidden_size": str(hidden_size), **more}, 1
    )
    return found


@pytest.mark.parametrize(
    "take", [lambda: torch.empty(MUCH), lambda: np.empty(MUCH), lambda: bytearray(MUCH), lambda: [0] * MUCH]
)
def test_who_says_that_memory_is_used_up(take: Any) -> None:
    with pytest.raises((MemoryError, RuntimeError)) as raised:
        take()
    assert is_out_of_memory(raised.value)


def test_other_errors_say_nothing_of_memory() -> None:
    with pytest.raises(RuntimeError) as raised:
        torch.ones(2) @ torch.ones(3)
    assert not is_out_of_memory(raised.value)


def test_a_run_that_is_too_large_fails_and_the_others_go_on(tmp_path: Path) -> None:
    large, small = job(40_000), job(4)  # whose recurrent weights alone take 19 GB
    with no_more_memory_than(4 << 30):
        grid = run([large, small], tmp_path, engine="here", threads=1)
    assert list(grid.done) == [small.key]
    assert grid.problems[large.key].startswith("memory was used up (")
    assert "try fewer --workers; the same command goes on" in grid.problems[large.key]
    assert [line["key"] for line in Store(tmp_path).lines("adding")] == [small.key]


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


def test_a_worker_that_was_killed_while_it_had_nothing_to_do_gets_no_job() -> None:
    context = multiprocessing.get_context("spawn")
    workers: list[tuple[Any, Any]] = []
    for _ in range(2):
        workers.append((context.Pipe()[0], context.Process(target=time.sleep, args=(600,), daemon=True)))
        workers[-1][1].start()
    alive, killed = workers
    killed[1].kill()
    killed[1].join()
    assert _next_of([alive, killed]) == alive
    assert _next_of([killed]) is None
    assert killed[0].closed
    alive[1].kill()
    alive[1].join()


@pytest.mark.slow
def test_workers_without_memory_or_killed_take_one_job_with_them(tmp_path: Path) -> None:
    """One has no memory for its job and goes on with the next; one is killed in its job, as by a system without memory,
    and another takes its place."""
    large, long, *small = (
        job(40_000),
        job(4, iterations="3000", decay_every="1000", epoch_steps="100"),
        *(job(size) for size in (6, 8, 10)),
    )
    problems: dict[str, str] = {}
    done: list[Event] = []
    killed = False
    with no_more_memory_than(8 << 30):  # workers inherit it
        for event in processes([large, long, *small], Settings(tmp_path, workers=2, threads=1, every=0.05)):
            if event.kind == "moved" and event.job == long and not killed and Store(tmp_path).is_begun(long):
                killed = True
                os.kill(_worker_of(long, tmp_path), signal.SIGKILL)
            if event.kind == "failed":
                problems[event.job.key] = event.problem
            if event.kind == "done":
                done.append(event)
    assert killed
    assert {event.job.key for event in done} == {one.key for one in small}
    assert problems[large.key].startswith("memory was used up (")
    assert "killed by signal 9 (signal 9 often means that memory was used up" in problems[long.key]
    assert Store(tmp_path).is_begun(long)
    grid = run([long], tmp_path, engine="here", threads=1)
    assert list(grid.done) == [long.key]
    run([long], tmp_path / "whole", engine="here", threads=1)
    (whole,) = Store(tmp_path / "whole").lines("adding")
    resumed = Store(tmp_path).find(long)
    assert resumed is not None
    assert resumed["curve"] == whole["curve"]


def _worker_of(one: Job, folder: Path) -> int:
    """The process that holds the lock of a job."""
    return int((Store(folder).workspace(one) / "lock").read_text().splitlines()[0])

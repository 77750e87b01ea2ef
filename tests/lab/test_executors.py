"""Which jobs are run, by whom and until when; and what a kill costs."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from parallelrnn.errors import ArgumentError
from parallelrnn.lab import executors
from parallelrnn.lab.executors import Event, ProcessesExecutor, Progress, parse_duration, run_jobs
from parallelrnn.lab.experiments import adding
from parallelrnn.lab.experiments.experiment import STOP, ExperimentError, Job
from parallelrnn.lab.experiments.registry import EXPERIMENTS
from parallelrnn.lab.runs import Run, RunStore
from tests.support import raises

TINY = {"hidden_size": "4", "length": "10", "iterations": "20", "decay_every": "10", "epoch_steps": "5", "test": "20"}
MINUTES = {"length": "100", "iterations": "50000", "decay_every": "50000", "epoch_steps": "50000"}


def tiny(models: tuple[str, ...] = ("GRU", "ParaGRU"), replicates: int = 2, **more: str) -> list[Job]:
    return adding.EXPERIMENT.jobs({"model": models, "length": ["100"]}, TINY | more, replicates)


def comparable(run: Run) -> dict[str, Any]:
    metrics = {name: value for name, value in run.result["metrics"].items() if not name.endswith("seconds")}
    return {"config": run.config, "seed": run.seed, "metrics": metrics, "curve": run.result["curve"]}


def load(folder: Path) -> list[dict[str, Any]]:
    return [comparable(run) for run in RunStore(folder).load("adding")]


def test_cells_are_chosen_and_changed() -> None:
    jobs = EXPERIMENTS["forecasting"].jobs(
        {"dataset": ["ETTh1"], "model": ["ParaGRU", "GRU"]}, {"max_epochs": "2", "learning_rate": "0.5"}, 3
    )
    assert len(jobs) == 4 * 2 * 3  # horizons, models, replicates
    assert {(job.config.max_epochs, job.config.learning_rate) for job in jobs} == {(2, 0.5)}
    assert [job.seed for job in jobs[:8]] == [0] * 8, "one replicate of everything comes before the next"
    assert len(EXPERIMENTS["forecasting"].jobs()) == 16 * (10 * 3 + 2), "two models are deterministic"


def test_values_that_a_model_does_not_use_make_no_other_runs() -> None:
    for name in ("pmnist", "forecasting", "worms"):
        usual, transformers, blocks = (
            {(job.config.model, job.key) for job in EXPERIMENTS[name].jobs(changes=changes, replicates=1)}
            for changes in ({}, {"d_model": "8"}, {"block_size": "4"})
        )
        assert {model for model, _ in usual - transformers} == {"BRT", "ParaBRT"}
        assert {model for model, _ in usual - blocks} == {"ParaRNN", "ParaLSTM", "ParaGRU"}
    jobs = EXPERIMENTS["forecasting"].jobs(
        {"dataset": ["ETTh1"], "horizon": ["24"], "model": ["naive", "Forecaster", "GRU"]}, {"max_epochs": "2"}, 3
    )
    assert [job.seed for job in jobs if job.config.model == "naive"] == [0]
    assert {job.config.model: job.config.max_epochs for job in jobs} == {"naive": 40, "Forecaster": 40, "GRU": 2}


@pytest.mark.parametrize(
    ("only", "changes", "facts"),
    [
        ({}, {"model": "GRUs"}, ("model 'GRUs'", "LSTM, ParaLSTM, GRU, ParaGRU")),
        ({"model": ["GRUs"]}, {}, ("model 'GRUs'", "LSTM, ParaLSTM, GRU, ParaGRU")),
        ({"models": ["GRU"]}, {}, ("models", "model, length")),
        ({}, {"iterations": "many"}, ("iterations 'many'", "integer")),
        ({}, {"iterations": "0"}, ("iterations '0'",)),
        ({}, {"iterations": "750"}, ("iterations 750", "epoch_steps 500")),
        ({}, {"epochs": "3"}, ("epochs", "iterations")),
    ],
)
def test_unknown_names_and_values_are_rejected(
    only: dict[str, list[str]], changes: dict[str, str], facts: tuple[str, ...]
) -> None:
    with raises(ExperimentError, *facts):
        adding.EXPERIMENT.jobs(only, changes)


def test_finished_runs_are_not_run_again(tmp_path: Path) -> None:
    kinds: list[str] = []
    first = run_jobs(tiny(), tmp_path, engine="here", on_event=lambda progress, event: kinds.append(event.kind))
    assert (len(first.done), first.problems) == (4, {})
    assert kinds == ["started", "done"] * 4
    run = RunStore(tmp_path).load("adding")[0]
    assert set(run.provenance) == {"commit", "commits", "machine", "started", "seconds"}
    assert set(run.result) == {"metrics", "curve", "details"}
    left = RunStore(tmp_path).workspace(tiny()[0])  # as of a kill after its run was saved
    left.mkdir()
    (left / "training.safetensors").touch()
    assert len(run_jobs(tiny(replicates=3), tmp_path, engine="here").done) == 6
    assert len(RunStore(tmp_path).load("adding")) == 6
    assert not left.exists()


def test_replicates_differ_and_repeat_and_threads_of_the_caller_are_left_alone(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    for folder in ("first", "second"):
        run_jobs(tiny(("ParaGRU",)), tmp_path / folder, engine="here", threads=before + 1)
    assert torch.get_num_threads() == before
    assert RunStore(tmp_path / "first").load("adding")[0].provenance["machine"]["threads"] == before + 1
    first, second = load(tmp_path / "first"), load(tmp_path / "second")
    assert first == second
    assert first[0]["metrics"]["mse"] != first[1]["metrics"]["mse"]


def test_a_budget_stops_and_the_next_call_resumes(tmp_path: Path) -> None:
    jobs = tiny(("ParaGRU",), 1, iterations="200", decay_every="100", epoch_steps="50")
    assert len(run_jobs(jobs, tmp_path / "uninterrupted", engine="here").done) == 1
    calls = 0
    while not load(tmp_path / "parts"):
        run_jobs(jobs, tmp_path / "parts", engine="here", budget=0.15, checkpoint_every=0.02)
        calls += 1
    assert calls > 1
    assert load(tmp_path / "uninterrupted") == load(tmp_path / "parts")
    assert not list((tmp_path / "parts" / ".checkpoints").iterdir())


def test_a_failure_is_reported_and_the_others_continue(tmp_path: Path) -> None:
    jobs = [*tiny(("ParaGRU",), 1, hidden_size="3"), *tiny(("ParaGRU",), 1)]
    progress = run_jobs(jobs, tmp_path, engine="here")
    assert progress.done == {jobs[1].key}
    assert "hidden_size" in progress.problems[jobs[0].key]
    assert len(load(tmp_path)) == 1
    assert not list((tmp_path / ".checkpoints").iterdir()), "there is nothing to resume"


@pytest.mark.slow
def test_processes_find_the_same_and_survive_a_kill(tmp_path: Path) -> None:
    """One of two workers is killed, and the same call again makes up for it."""
    jobs = tiny(("GRU", "ParaGRU"), 1, iterations="1500", decay_every="500", epoch_steps="250")
    run_jobs(jobs, tmp_path / "here", engine="here", threads=1)
    killed: list[int] = []

    def kill_one(progress: Progress, event: Event) -> None:
        if event.kind == "running" and not killed:
            killed.append(multiprocessing.active_children()[0].pid or 0)
            os.kill(killed[0], signal.SIGKILL)

    folder = tmp_path / "there"
    options: dict[str, Any] = {"workers": 2, "threads": 1, "checkpoint_every": 0.1}
    progress = run_jobs(jobs, folder, on_event=kill_one, **options)
    (problem,) = progress.problems.values()
    assert "killed" in problem
    assert len(progress.done) == len(load(folder)) == 1
    assert len(run_jobs(jobs, folder, **options).done) == 2
    assert load(tmp_path / "here") == load(folder)


def test_a_worker_that_was_killed_while_idle_gets_no_job() -> None:
    with ProcessesExecutor(1) as executor:
        first = executor.submit(os.getpid).result()
        assert executor.submit(os.getpid).result() == first, "workers are used again"
        os.kill(first, signal.SIGKILL)
        while any(child.pid == first for child in multiprocessing.active_children()):
            time.sleep(0.01)
        time.sleep(0.5)  # until its pool has noticed
        assert executor.submit(os.getpid).result() != first


def test_the_command_is_killed_and_resumes(tmp_path: Path) -> None:
    """A real run is killed with its worker, then without it; its numbers are those of one that never was."""
    changes = TINY | {"iterations": "400", "decay_every": "200", "epoch_steps": "100"}
    words = ["adding", "--models", "ParaGRU", "--only", "length=100", "--replicates", "1", "--threads", "1"]
    words += [word for name, value in changes.items() for word in ("--set", f"{name}={value}")]
    program = [str(Path(sys.executable).with_name("parallelrnn")), "reproduce", *words, "--keep-every", "0.05s"]
    (job,) = tiny(("ParaGRU",), 1, **changes)
    run_jobs([job], tmp_path / "uninterrupted", engine="here", threads=1)
    folder = tmp_path / "killed"
    checkpoint = RunStore(folder).workspace(job) / "training.safetensors"
    for kill in (os.killpg, os.kill, None):
        known = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
        words = [*program, "--results", str(folder)]
        command = subprocess.Popen(words, stdout=subprocess.DEVNULL, start_new_session=True)
        while kill and not (checkpoint.exists() and checkpoint.stat().st_mtime_ns > known):
            assert command.poll() is None, "it ended before it was killed"
            time.sleep(0.01)
        if kill:
            kill(command.pid, signal.SIGKILL)
        assert command.wait(timeout=120) == (-signal.SIGKILL if kill else 0)
        until = time.monotonic() + 30
        with suppress(ProcessLookupError):  # a worker whose command was killed ends by itself
            while os.killpg(command.pid, 0) is None:
                assert time.monotonic() < until
                time.sleep(0.01)
    assert load(tmp_path / "uninterrupted") == load(folder)


def test_a_signal_saves_a_checkpoint(tmp_path: Path) -> None:
    """As of Ctrl-C: runs end at their next step, however long it is until the next checkpoint."""
    jobs = tiny(("ParaGRU",), 2, iterations="2000", decay_every="1000", epoch_steps="500")
    kinds: list[str] = []
    before = signal.getsignal(signal.SIGINT)
    timer = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    options: dict[str, Any] = {"engine": "here", "threads": 1, "checkpoint_every": 1e9}
    progress = run_jobs(jobs, tmp_path, on_event=lambda progress, event: kinds.append(event.kind), **options)
    timer.join()
    assert kinds == ["started", "paused"], "and the second job does not start"
    assert not progress.done
    assert RunStore(tmp_path).is_begun(jobs[0])
    assert signal.getsignal(signal.SIGINT) is before, "the caller has its handler back"
    for folder in (tmp_path, tmp_path / "uninterrupted"):
        progress = run_jobs(jobs[:1], folder, engine="here", threads=1)
        assert (len(progress.done), progress.problems) == (1, {})
    assert load(tmp_path) == load(tmp_path / "uninterrupted")


def test_results_that_another_command_saves_meanwhile_count(tmp_path: Path) -> None:
    first, second = tiny(("ParaGRU",), 2)
    run_jobs([second], tmp_path / "elsewhere", engine="here", threads=1)
    store, (run,) = RunStore(tmp_path), RunStore(tmp_path / "elsewhere").load("adding")
    kinds: list[str] = []

    def save_when_taken(progress: Progress, event: Event) -> None:
        kinds.append(event.kind)
        if event.kind == "taken":
            store.save(run)

    with store.lock(second):
        progress = run_jobs([first, second], tmp_path, engine="here", threads=1, on_event=save_when_taken)
    assert kinds == ["started", "done", "started", "taken"]
    assert len(progress.done) == 2


def test_a_signal_to_a_worker_that_starts_is_no_failure(tmp_path: Path) -> None:
    """As of Ctrl-C, which reaches it while it imports what it takes to handle signals."""
    jobs = tiny(("ParaGRU",), 1, **MINUTES) + tiny(("GRU",), 1)
    kinds: list[str] = []

    def note(progress: Progress, event: Event) -> None:
        if event.kind != "running":
            kinds.append(event.kind)

    def signal_worker() -> None:
        while not multiprocessing.active_children():
            time.sleep(0.001)
        os.kill(multiprocessing.active_children()[0].pid or 0, signal.SIGINT)

    thread = threading.Thread(target=signal_worker)
    thread.start()
    run_jobs(jobs, tmp_path, threads=1, checkpoint_every=1e9, on_event=note)
    thread.join()
    assert kinds == ["started", "paused", "started", "done"], "and another worker does the next job"
    assert RunStore(tmp_path).is_begun(jobs[0])


def test_a_signal_to_the_command_alone_stops_its_workers(tmp_path: Path) -> None:
    """As of `kill`: the run, which would take minutes, saves a checkpoint and ends, and so does its process."""
    (job,) = tiny(("ParaGRU",), 1, **MINUTES)
    kinds: list[str] = []
    workers: list[int] = []

    def signal_this_process(progress: Progress, event: Event) -> None:
        kinds.append(event.kind)
        if event.kind == "running" and not workers:
            workers.append(multiprocessing.active_children()[0].pid or 0)
            os.kill(os.getpid(), signal.SIGTERM)

    run_jobs([job], tmp_path, threads=1, checkpoint_every=1e9, on_event=signal_this_process)
    assert kinds[-1] == "paused"
    assert not STOP.is_set(), "later jobs are not meant"
    assert RunStore(tmp_path).is_begun(job)
    with pytest.raises(ProcessLookupError):
        os.kill(workers[0], 0)


@pytest.mark.slow
def test_ray_finds_the_same(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    jobs = tiny(("ParaGRU",), 2)
    run_jobs(jobs, tmp_path / "here", engine="here", threads=1)
    progress = run_jobs(jobs, tmp_path / "ray", engine="ray", workers=2, threads=1)
    assert (len(progress.done), progress.problems) == (2, {})
    assert not list((tmp_path / "ray" / ".checkpoints").iterdir())
    assert load(tmp_path / "here") == load(tmp_path / "ray")


def test_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(executors.time, "monotonic", lambda: now)
    jobs = tiny(("GRU",), 5)
    progress = Progress(jobs=jobs, done={jobs[0].key}, begin=now)
    assert progress.seconds_left is None
    now = 10.0
    progress.update(Event(jobs[1], "done"))
    progress.update(Event(jobs[2], "running"), 0.25)  # where it resumed
    progress.update(Event(jobs[2], "running"), 0.75)
    # 1.5 jobs were done in 10 s; 0.25 of one and two others are left.
    assert progress.work_done == pytest.approx(2.75)
    assert progress.seconds_left == pytest.approx(2.25 * 10 / 1.5)


def test_durations() -> None:
    durations = {"90s": 90, "45m": 2700, "2h": 7200, "1h30m": 5400, "0.5h": 1800}
    assert {text: parse_duration("budget", text) for text in durations} == durations
    for text in ("", "2", "two hours", "h", "-1h", "1.2.3h"):
        with raises(ArgumentError, argument="budget", got=text):
            parse_duration("budget", text)

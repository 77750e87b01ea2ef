"""Grids of jobs: which, by whom, until when; and what a kill costs."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from parallelrnn.lab.experiments import adding
from parallelrnn.lab.experiments.experiment import STOP, ExperimentError, Job
from parallelrnn.lab.experiments.registry import EXPERIMENTS
from parallelrnn.lab.running import runner
from parallelrnn.lab.running.engines import Event, Settings, processes
from parallelrnn.lab.running.runner import Grid, run, seconds_of
from parallelrnn.lab.running.store import Store

TINY = {"hidden_size": "4", "length": "10", "iterations": "20", "decay_every": "10", "epoch_steps": "5", "test": "20"}
ADDING = adding.EXPERIMENT


def tiny(models: tuple[str, ...] = ("GRU", "ParaGRU"), replicates: int = 2, **more: str) -> list[Job]:
    return ADDING.jobs({"model": models, "length": ["100"]}, TINY | more, replicates)


def comparable(line: dict[str, Any]) -> dict[str, Any]:
    metrics = {name: value for name, value in line["metrics"].items() if not name.endswith("seconds")}
    return {"config": line["config"], "seed": line["seed"], "metrics": metrics, "curve": line["curve"]}


def test_cells_are_chosen_and_changed() -> None:
    jobs = EXPERIMENTS["forecasting"].jobs(
        {"dataset": ["ETTh1"], "model": ["ParaGRU", "GRU"]}, {"max_epochs": "2", "learning_rate": "0.5"}, 3
    )
    assert len(jobs) == 4 * 2 * 3  # horizons, models, replicates
    assert {job.config.max_epochs for job in jobs} == {2}
    assert {job.config.learning_rate for job in jobs} == {0.5}
    assert [job.seed for job in jobs[:8]] == [0] * 8, "a replicate of everything comes before the next"
    assert len(EXPERIMENTS["forecasting"].jobs()) == 16 * (10 * 3 + 2), "nothing is random about two models"


def test_what_a_model_does_not_have_does_not_make_its_runs_others() -> None:
    for name in ("pmnist", "forecasting", "worms"):
        usual, transformers, blocks = (
            {(job.config.model, job.key) for job in EXPERIMENTS[name].jobs(changes=changes, replicates=1)}
            for changes in ({}, {"d_model": "8"}, {"block_size": "4"})
        )
        assert {model for model, _ in usual - transformers} == {"BRT", "ParaBRT"}
        assert {model for model, _ in usual - blocks} == {"ParaRNN", "ParaLSTM", "ParaGRU"}


@pytest.mark.parametrize(
    ("only", "changes", "words"),
    [
        ({}, {"model": "GRUs"}, "model is one of LSTM, ParaLSTM, GRU, ParaGRU; got GRUs"),
        ({"model": ["GRUs"]}, {}, "model is one of LSTM, ParaLSTM, GRU, ParaGRU; got GRUs"),
        ({"models": ["GRU"]}, {}, "has no models; what can be chosen are model, length"),
        ({}, {"iterations": "many"}, "iterations takes a whole number above zero, got 'many'"),
        ({}, {"iterations": "0"}, "iterations takes a whole number above zero, got '0'"),
        ({}, {"iterations": "750"}, "iterations 750 is no multiple of epoch_steps 500"),
        ({}, {"epochs": "3"}, "has no epochs"),
    ],
)
def test_what_is_not_there_is_refused(only: dict[str, list[str]], changes: dict[str, str], words: str) -> None:
    with pytest.raises(ExperimentError, match=words):
        ADDING.jobs(only, changes)


def test_what_is_there_is_not_run_again(tmp_path: Path) -> None:
    events: list[Event] = []
    first = run(tiny(), tmp_path, engine="here", tell=lambda grid, event: events.append(event))
    assert (len(first.done), len(first.problems)) == (4, 0)
    assert [event.kind for event in events] == ["began", "done"] * 4
    lines = Store(tmp_path).lines("adding")
    assert {"commit", "machine", "started", "seconds", "metrics", "curve", "config", "seed"} <= set(lines[0])
    again = run(tiny(replicates=3), tmp_path, engine="here")
    assert len(again.done) == 6
    assert len(Store(tmp_path).lines("adding")) == 6


def test_threads_of_the_caller_are_left_alone(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    run(tiny(("ParaGRU",), 1), tmp_path, engine="here", threads=before + 1)
    assert torch.get_num_threads() == before
    assert Store(tmp_path).lines("adding")[0]["machine"]["threads"] == before + 1


def test_replicates_differ_and_repeat(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        run(tiny(("ParaGRU",)), tmp_path / folder, engine="here")
    one, two = (Store(tmp_path / folder).lines("adding") for folder in ("one", "two"))
    assert [comparable(line) for line in one] == [comparable(line) for line in two]
    assert one[0]["metrics"]["mse"] != one[1]["metrics"]["mse"]


def test_a_budget_stops_and_the_next_call_goes_on(tmp_path: Path) -> None:
    jobs = tiny(("ParaGRU",), 1, iterations="200", decay_every="100", epoch_steps="50")
    whole = run(jobs, tmp_path / "whole", engine="here")
    assert len(whole.done) == 1
    calls = 0
    while not Store(tmp_path / "parts").lines("adding"):
        run(jobs, tmp_path / "parts", engine="here", budget=0.15, every=0.02)
        calls += 1
    assert calls > 1
    one, two = (Store(tmp_path / folder).lines("adding")[0] for folder in ("whole", "parts"))
    assert comparable(one) == comparable(two)
    assert not list((tmp_path / "parts" / ".checkpoints").iterdir())


def test_a_failure_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    jobs = [*tiny(("ParaGRU",), 1, hidden_size="3"), *tiny(("ParaGRU",), 1)]
    grid = run(jobs, tmp_path, engine="here")
    assert len(grid.done) == 1
    assert "hidden_size 3 is not a multiple of block_size 2" in next(iter(grid.problems.values()))
    assert len(Store(tmp_path).lines("adding")) == 1
    assert not list((tmp_path / ".checkpoints").iterdir()), "there is nothing to go on with"


def test_what_a_kill_after_the_result_left_is_removed(tmp_path: Path) -> None:
    jobs = tiny(("ParaGRU",), 1)
    run(jobs, tmp_path, engine="here")
    left = Store(tmp_path).workspace(jobs[0])
    left.mkdir()
    (left / "training.safetensors").touch()
    assert len(run(jobs, tmp_path, engine="here").done) == 1
    assert not left.exists()


def test_nothing_random_is_run_once() -> None:
    jobs = EXPERIMENTS["forecasting"].jobs(
        {"dataset": ["ETTh1"], "horizon": ["24"], "model": ["naive", "Forecaster", "GRU"]}, {"max_epochs": "2"}, 3
    )
    assert [job.seed for job in jobs if job.config.model == "naive"] == [0]
    assert [job.seed for job in jobs if job.config.model == "GRU"] == [0, 1, 2]
    epochs = {job.config.model: job.config.max_epochs for job in jobs}
    assert epochs == {"naive": 40, "Forecaster": 40, "GRU": 2}, "what is changed for twins does not change neighbours"


@pytest.mark.slow
def test_processes_find_what_one_finds_and_survive_a_kill(tmp_path: Path) -> None:
    """Two workers; the first that begins is killed, and the same call again makes up for it."""
    long = tiny(("GRU", "ParaGRU"), 1, iterations="1500", decay_every="500", epoch_steps="250")
    expected = run(long, tmp_path / "here", engine="here", threads=1)
    assert len(expected.done) == 2
    folder = tmp_path / "there"
    problems: list[str] = []
    killed = False
    for event in processes(long, Settings(folder, workers=2, threads=1, every=0.1)):
        if event.kind == "moved" and not killed:
            killed = True
            os.kill(_worker_of(event.job, folder), signal.SIGKILL)
        if event.kind == "failed":
            problems.append(event.problem)
    assert len(problems) == 1
    assert "killed by signal 9" in problems[0]
    assert len(Store(folder).lines("adding")) == 1
    grid = run(long, folder, workers=2, threads=1)
    assert len(grid.done) == 2
    by_key = [
        {line["key"]: comparable(line) for line in Store(one).lines("adding")} for one in (tmp_path / "here", folder)
    ]
    assert by_key[0] == by_key[1]


def _worker_of(job: Job, folder: Path) -> int:
    """The process that holds the lock of a job."""
    return int((Store(folder).workspace(job) / "lock").read_text().splitlines()[0])


def test_the_command_is_killed_and_goes_on(tmp_path: Path) -> None:
    """A real run, killed with its workers wherever it happens to be, several times; the numbers are those of one that
    never was."""
    words = ["adding", "--models", "ParaGRU", "--only", "length=100", "--replicates", "1", "--threads", "1"]
    for name, value in (TINY | {"iterations": "2000", "decay_every": "1000", "epoch_steps": "500"}).items():
        words += ["--set", f"{name}={value}"]
    program = [str(Path(sys.executable).with_name("parallelrnn")), "reproduce", *words]
    whole = tiny(("ParaGRU",), 1, iterations="2000", decay_every="1000", epoch_steps="500")
    run(whole, tmp_path / "whole", engine="here", threads=1)
    folder, kills = tmp_path / "killed", 0
    while True:
        began = subprocess.Popen(
            [*program, "--results", str(folder), "--keep-every", "0.05s"],
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        checkpoint = Store(folder).workspace(whole[0]) / "training.safetensors"
        known = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
        while kills < 2 and began.poll() is None:
            if checkpoint.exists() and checkpoint.stat().st_mtime_ns > known:
                os.killpg(began.pid, signal.SIGKILL)
                kills += 1
                break
            time.sleep(0.01)
        if began.wait(timeout=120) == 0:
            break
    assert kills == 2
    one, two = (Store(one).lines("adding")[0] for one in (tmp_path / "whole", folder))
    assert comparable(one) == comparable(two)


def test_a_signal_keeps_what_there_is(tmp_path: Path) -> None:
    """As of Ctrl-C: runs end at their next step, however long it is until the next checkpoint."""
    jobs = tiny(("ParaGRU",), 2, iterations="2000", decay_every="1000", epoch_steps="500")
    seen: list[str] = []
    before = signal.getsignal(signal.SIGINT)
    timer = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    grid = run(jobs, tmp_path, engine="here", threads=1, every=1e9, tell=lambda grid, event: seen.append(event.kind))
    timer.join()
    assert seen == ["began", "paused"], "and the second is not begun"
    assert len(grid.done) == 0
    assert Store(tmp_path).is_begun(jobs[0])
    assert signal.getsignal(signal.SIGINT) is before, "who calls has its own back"
    for folder in (tmp_path, tmp_path / "whole"):
        grid = run(jobs[:1], folder, engine="here", threads=1)
        assert (len(grid.done), grid.problems) == (1, {})
    one, two = (Store(one).lines("adding")[0] for one in (tmp_path, tmp_path / "whole"))
    assert comparable(one) == comparable(two)


def test_what_another_command_did_meanwhile_counts(tmp_path: Path) -> None:
    first, second = tiny(("ParaGRU",), 2)
    run([second], tmp_path / "elsewhere", engine="here", threads=1)
    store, (line,) = Store(tmp_path), Store(tmp_path / "elsewhere").lines("adding")
    seen: list[str] = []

    def tell(grid: Grid, event: Event) -> None:
        seen.append(event.kind)
        if event.kind == "taken":  # by the other, which is done with it a moment later
            store.append(line)

    with store.claim(second):
        grid = run([first, second], tmp_path, engine="here", threads=1, tell=tell)
    assert seen == ["began", "done", "began", "taken"]
    assert len(grid.done) == 2


def test_a_signal_while_a_worker_starts_is_no_failure(tmp_path: Path) -> None:
    """As of Ctrl-C, which reaches it too: it has not imported all of what it takes to heed signals."""
    jobs = tiny(("ParaGRU",), 1, iterations="50000", decay_every="50000", epoch_steps="50000") + tiny(("GRU",), 1)
    seen: list[str] = []
    for event in processes(jobs, Settings(tmp_path, threads=1, every=1e9)):
        if event.kind == "moved":
            continue
        seen.append(event.kind)
        if seen == ["began"]:
            (worker,) = multiprocessing.active_children()
            assert worker.pid is not None
            os.kill(worker.pid, signal.SIGINT)
    assert seen == ["began", "paused", "began", "done"], "and another worker does the next"
    assert Store(tmp_path).is_begun(jobs[0])


def test_a_signal_to_the_command_alone_stops_its_workers(tmp_path: Path) -> None:
    """As of `kill`: the run, which would take minutes, is kept and ends, and so does its process."""
    (job,) = tiny(("ParaGRU",), 1, length="100", iterations="50000", decay_every="50000", epoch_steps="50000")
    seen: list[str] = []
    worker = 0
    for event in processes([job], Settings(tmp_path, threads=1, every=1e9)):
        seen.append(event.kind)
        if event.kind == "moved" and not worker:
            worker = _worker_of(job, tmp_path)
            os.kill(os.getpid(), signal.SIGTERM)
    assert seen[-1] == "paused"
    assert not STOP.is_set(), "what is run later is not meant"
    assert Store(tmp_path).is_begun(job)
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)


@pytest.mark.slow
def test_ray_finds_what_one_process_finds(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    jobs = tiny(("ParaGRU",), 2)
    run(jobs, tmp_path / "here", engine="here", threads=1)
    grid = run(jobs, tmp_path / "ray", engine="ray", workers=2, threads=1)
    assert (len(grid.done), grid.problems) == (2, {})
    assert not list((tmp_path / "ray" / ".checkpoints").iterdir())
    found = [sorted(map(json.dumps, map(comparable, Store(tmp_path / one).lines("adding")))) for one in ("here", "ray")]
    assert found[0] == found[1]


def test_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(runner.time, "monotonic", lambda: now)
    jobs = tiny(("GRU",), 4)
    grid = Grid(jobs, workers=2)
    assert grid.seconds_left is None
    for job in jobs[:2]:
        grid.take(Event(job, "began"))
    now = 10.0
    grid.take(Event(jobs[0], "done"))
    grid.take(Event(jobs[1], "moved", part=0.0))
    grid.take(Event(jobs[1], "moved", part=0.5))
    # 10 s took the first, 20 s will the second: half of it is left, and two jobs of 15 s each, for two workers.
    assert grid.seconds_left == pytest.approx((10 + 2 * 15) / 2)
    assert grid.part_done == pytest.approx(1.5 / 4)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("45m", 2700), ("2h", 7200), ("1h30m", 5400), ("0.5h", 1800)]
)
def test_times(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "2", "two hours", "h", "-1h"])
def test_times_that_are_none(text: str) -> None:
    with pytest.raises(ExperimentError, match="a time is written like"):
        seconds_of(text)


def test_unknown_engine(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match="engine is one of local, ray, here, got 'dask'"):
        run(tiny(), tmp_path, engine="dask")

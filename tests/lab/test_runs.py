"""A run is stored completely or not at all, whoever saves and whenever it is killed."""

from __future__ import annotations

import fcntl
import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import IO

import pytest

from parallelrnn.errors import FileError
from parallelrnn.lab.experiments.adding import AddingConfig
from parallelrnn.lab.experiments.experiment import Job
from parallelrnn.lab.runs import RunStore
from tests.lab.samples import make_run
from tests.support import raises

JOB = Job("adding", AddingConfig(model="GRU"), 0)
RUN = make_run("adding", {"mse": 0.25}, model="GRU")


def test_a_saved_run_is_found(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "new")
    assert store.load("adding") == []
    assert store.find(RUN.key) is None
    assert store.save(RUN) == store.folder / "adding" / f"{JOB.key}.json"
    assert store.find(JOB.key) == RUN
    assert store.load("adding") == [RUN]
    assert store.find(replace(RUN, seed=1).key) is None


def test_the_key_covers_all_that_decides_a_result() -> None:
    configs = (AddingConfig(model="GRU"), AddingConfig(model="LSTM"), AddingConfig(model="GRU", iterations=500))
    keys = {Job("adding", config, seed).key for config in configs for seed in (0, 1)}
    assert len(keys) == 6


def test_a_file_that_does_not_hold_its_run_is_rejected(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    file = store.save(RUN)
    content = file.read_text()
    for text in (content[:-10], "nonsense", "{}", "null", content.replace("0.25", "0.26")):
        file.write_text(text)
        with raises(FileError, file.name):
            store.load("adding")
    file.write_text(content)
    file.rename(file.with_name("0123456789abcdef.json"))
    with raises(FileError, "file name"):
        store.find("0123456789abcdef")
    assert json.loads(content)["key"] == RUN.key


def test_many_threads_may_save_at_once(tmp_path: Path) -> None:
    runs = [replace(RUN, seed=seed % 8) for seed in range(64)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(RunStore(tmp_path).save, runs))
    assert sorted(run.seed for run in RunStore(tmp_path).load("adding")) == list(range(8))


def test_one_process_holds_the_lock_of_a_job(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    with store.lock(JOB) as ours:
        assert ours
        with RunStore(tmp_path).lock(JOB) as theirs:
            assert not theirs
    with store.lock(JOB) as ours:
        assert ours
        store.save(RUN)
    assert not store.workspace(JOB).exists(), "nothing is left to resume"


def test_a_removed_lock_file_locks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One process opens the lock file while its holder ends and removes the workspace; then a third comes."""
    store, flock = RunStore(tmp_path), fcntl.flock
    with ExitStack() as first, ExitStack() as third:
        first.enter_context(store.lock(JOB))

        def late(file: IO[bytes], how: int) -> None:
            monkeypatch.undo()
            first.close()
            assert third.enter_context(RunStore(tmp_path).lock(JOB))
            flock(file, how)

        monkeypatch.setattr(fcntl, "flock", late)
        with RunStore(tmp_path).lock(JOB) as ours:
            assert not ours


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_lock_is_released_though_a_forked_child_lives_on(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    with store.lock(JOB):
        Path(store.workspace(JOB) / "training.safetensors").touch()  # so that the lock file stays
        child = os.fork()
        if not child:
            signal.pause()
            os._exit(0)
    try:
        with store.lock(JOB) as ours:
            assert ours
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

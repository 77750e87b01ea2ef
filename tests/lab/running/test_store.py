"""Results are whole or not there, whoever writes and whenever it is killed."""

from __future__ import annotations

import fcntl
import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import IO

import pytest

from parallelrnn.lab.experiments.adding import AddingConfig
from parallelrnn.lab.experiments.experiment import ExperimentError, Job
from parallelrnn.lab.running.store import Store

JOB = Job("adding", AddingConfig("GRU"), 0)


def line(number: int = 0) -> dict[str, object]:
    return {**JOB.to_json(), "key": JOB.key, "metrics": {}, "number": number}


def test_what_is_kept_is_found(tmp_path: Path) -> None:
    store = Store(tmp_path / "new")
    assert store.lines("adding") == []
    assert store.find(JOB) is None
    store.append(line())
    assert store.find(JOB) == line()
    assert store.find(Job("adding", AddingConfig("GRU"), 1)) is None
    assert store.find(Job("adding", AddingConfig("GRU", hidden_size=64), 0)) is None


def test_a_line_that_was_cut_off_does_not_count(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.append(line(0))
    whole = store.path("adding").read_bytes()
    store.path("adding").write_bytes(whole + b'{"key": "cut')
    assert len(store.lines("adding")) == 1
    store.append(line(1))
    assert [one["number"] for one in store.lines("adding")] == [0, 1]


def test_a_line_that_is_no_result_is_named(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.append(line())
    with store.path("adding").open("a") as file:
        file.write("nonsense\n")
    with pytest.raises(ExperimentError, match=r"adding\.jsonl, line 2: no result"):
        store.lines("adding")


def test_many_may_write_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: Store(tmp_path).append(line(number)), range(64)))
    assert sorted(one["number"] for one in Store(tmp_path).lines("adding")) == list(range(64))


def test_a_job_is_claimed_by_one(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with store.claim(JOB) as mine:
        assert mine
        with Store(tmp_path).claim(JOB) as yours:
            assert not yours
    with store.claim(JOB) as mine:
        assert mine
        store.append(line())
    assert not store.workspace(JOB).exists(), "what it took to go on is not needed any more"


def test_a_job_is_told_apart_by_all_that_decides_how_it_goes() -> None:
    keys = {
        Job("adding", config, seed).key
        for config in (AddingConfig("GRU"), AddingConfig("LSTM"), AddingConfig("GRU", iterations=500))
        for seed in (0, 1)
    }
    assert len(keys) == 6
    assert json.dumps(JOB.to_json())  # and it can be written


def test_a_lock_that_was_removed_claims_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One opens the lock while another, who has it, ends and removes the workspace; a third comes."""
    store, flock = Store(tmp_path), fcntl.flock
    with ExitStack() as first, ExitStack() as third:
        first.enter_context(store.claim(JOB))

        def late(file: IO[bytes], how: int) -> None:
            monkeypatch.undo()
            first.close()
            assert third.enter_context(Store(tmp_path).claim(JOB))
            flock(file, how)

        monkeypatch.setattr(fcntl, "flock", late)
        with Store(tmp_path).claim(JOB) as mine:
            assert not mine


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_claim_ends_though_a_child_lives_on(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with store.claim(JOB):
        Path(store.workspace(JOB) / "training.safetensors").touch()  # so that the lock stays
        child = os.fork()
        if not child:
            signal.pause()
            os._exit(0)
    try:
        with store.claim(JOB) as mine:
            assert mine
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

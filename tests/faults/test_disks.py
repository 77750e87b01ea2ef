"""Places that are full or cannot be written: a sentence says which, and what was there before is as it was."""

from __future__ import annotations

import errno
import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import parallelrnn
from parallelrnn import Forecaster
from parallelrnn.cli.app import app
from parallelrnn.io import os_error_sentence, write_text
from parallelrnn.lab import runs
from parallelrnn.lab.executors import run_jobs
from parallelrnn.lab.experiments import adding
from parallelrnn.lab.runs import RunStore
from parallelrnn.training.checkpoint import FILE
from tests.faults.limits import no_file_longer_than
from tests.faults.small_models import load, names, save
from tests.support import raises
from tests.training.samples import hourly, quick

ROOT = Path(__file__).parents[2]
UNSHARE = ["unshare", "--map-root-user", "--mount"]
TINY = {"hidden_size": "16", "length": "10", "iterations": "40", "decay_every": "20", "epoch_steps": "5", "test": "20"}


def test_a_full_disk_leaves_the_older_file(tmp_path: Path) -> None:
    path = write_text(tmp_path / "page.html", "old")
    with no_file_longer_than(1000), raises(OSError, errno=errno.EFBIG, filename=str(path)) as raised:
        write_text(path, "new" * 1000)
    assert os_error_sentence(raised.value) == f"{path}: file too large; free some space, or give another path"
    assert path.read_text() == "old"
    assert names(tmp_path) == {"page.html"}


@pytest.mark.parametrize(("size", "about"), [(10_000, ""), (100, "word" * 5000)])  # no room for weights, or metadata
def test_a_full_disk_leaves_the_older_model_and_nothing_of_the_newer(tmp_path: Path, size: int, about: str) -> None:
    save(tmp_path, 1)
    before = names(tmp_path)
    with no_file_longer_than(5000), raises(OSError, errno=errno.EFBIG):
        save(tmp_path, 2, size, about)
    assert load(tmp_path) == 1
    assert names(tmp_path) == before


def test_a_run_without_room_fails_and_resumes_later(tmp_path: Path) -> None:
    jobs = adding.EXPERIMENT.jobs({"model": ["ParaGRU"], "length": ["100"]}, TINY, 1)
    with no_file_longer_than(2000):
        progress = run_jobs(jobs, tmp_path, engine="here", threads=1, checkpoint_every=0.0)
    (problem,) = progress.problems.values()
    assert f"{FILE}: file too large; free some space" in problem
    assert "resumes" in problem
    assert len(run_jobs(jobs, tmp_path, engine="here", threads=1).done) == 1


def test_a_result_without_room_is_made_up_for(tmp_path: Path) -> None:
    jobs = adding.EXPERIMENT.jobs({"model": ["ParaGRU"], "length": ["100"]}, TINY, 2)
    run_jobs(jobs[:1], tmp_path, engine="here", threads=1)
    (before,) = RunStore(tmp_path).load("adding")
    with no_file_longer_than(len((tmp_path / "adding" / f"{jobs[0].key}.json").read_bytes()) // 2):
        progress = run_jobs(jobs, tmp_path, engine="here", threads=1)
    assert list(progress.problems) == [jobs[1].key]
    assert f"{jobs[1].key}.json: file too large" in progress.problems[jobs[1].key]
    assert RunStore(tmp_path).load("adding") == [before]
    assert len(run_jobs(jobs, tmp_path, engine="here", threads=1).done) == 2
    assert RunStore(tmp_path).find(jobs[0].key) == before


def test_all_commits_of_a_run_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "COMMIT", "first")
    assert runs.commits(tmp_path) == ["first"]
    monkeypatch.setattr(runs, "COMMIT", "second")
    with no_file_longer_than(8), raises(OSError, errno=errno.EFBIG):
        runs.commits(tmp_path)
    assert runs.commits(tmp_path) == ["first", "second"]


def test_the_command_reports_it_and_keeps_the_older_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, model = tmp_path / "series.csv", tmp_path / "model"
    hourly(ids=("a",)).to_csv(data, index=False)
    quick(max_epochs=1).fit(hourly()).save(model)
    before = {file.name: file.read_bytes() for file in model.iterdir()}
    monkeypatch.setattr(parallelrnn, "Forecaster", lambda horizon, lookback, **options: quick(horizon, 48, **options))
    with no_file_longer_than(5000):
        result = CliRunner().invoke(app, ["fit", str(data), "--horizon", "3", "--out", str(model)])
    assert result.exit_code == 3, result.output
    assert f"{FILE}: file too large; free some space" in "".join(result.output.split("\n"))
    assert {file.name: file.read_bytes() for file in model.iterdir()} == before
    Forecaster.load(model)


def test_an_unwritable_path_is_reported_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "series.csv"
    hourly(ids=("a",)).to_csv(data, index=False)
    made = quick(12)
    monkeypatch.setattr(parallelrnn, "Forecaster", lambda horizon, lookback, **options: made)
    monkeypatch.setattr("parallelrnn.training.trainer.Trainer._step", lambda trainer: pytest.fail("it trained"))
    result = CliRunner().invoke(app, ["fit", str(data), "--horizon", "12", "--out", str(data / "model"), "--resume"])
    assert result.exit_code == 3, result.output
    assert "series.csv/model: not a directory; give another path" in "".join(result.output.split("\n"))


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="there is no device that is always full")
def test_a_device_is_written_to_and_stays_one() -> None:
    with raises(OSError, errno=errno.ENOSPC, filename="/dev/full"):
        write_text("/dev/full", "text")
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)
    assert write_text("/dev/null", "text") == Path("/dev/null")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_a_file_system_of_its_own_that_is_full_then_read_only(tmp_path: Path) -> None:
    if subprocess.run([*UNSHARE, "mount", "-t", "tmpfs", "none", str(tmp_path)], capture_output=True).returncode:
        pytest.skip("this user may mount nothing, not even for a process of its own")
    program = [*UNSHARE, sys.executable, "-m", "tests.faults.places", str(tmp_path)]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    output = json.loads(done.stdout)
    full, closed = "no space left on device; free some space", "read-only file system; give another path"
    files = {"model": "model.safetensors: ", "checkpoint": "training.safetensors: ", "result": ".json: "}
    for name, file in files.items():
        for state, message in (("full", full), ("read-only", closed)):
            assert file in output[f"{name}, {state}"]
            assert message in output[f"{name}, {state}"]
            assert ".part" not in output[f"{name}, {state}"]
    assert output["as it was, full"] == output["as it was, read-only"] == "True"
    assert output["results"] == "2"

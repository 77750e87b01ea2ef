"""The command `reproduce`: what it runs, what it prints, and its exit status."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from parallelrnn.cli import doctor
from parallelrnn.cli.app import app
from parallelrnn.lab.experiments import adding
from parallelrnn.lab.experiments.registry import TITLES
from parallelrnn.lab.runs import RunStore
from parallelrnn.training.checkpoint import FILE

TINY = ["hidden_size=4", "length=8", "iterations=10", "decay_every=5", "epoch_steps=5", "test=10"]


def reproduce(*words: str) -> Result:
    return CliRunner().invoke(app, ["reproduce", *words], env={"COLUMNS": "160"})


def tiny(folder: Path, *words: str) -> Result:
    changes = [word for change in TINY for word in ("--set", change)]
    return reproduce("adding", "--only", "length=100", "--engine", "here", "--results", str(folder), *changes, *words)


def test_every_experiment_is_a_command() -> None:
    output = reproduce("--help").output
    for name in (*TITLES, "status", "tables"):
        assert name in output


def test_help_and_usage_errors_import_neither_torch_nor_experiments() -> None:
    code = "import sys; from parallelrnn.cli import reproduce; print([m for m in sys.modules if m in {names}])"
    names = {"torch", "numpy", "rich", "parallelrnn.lab.runs", "parallelrnn.lab.experiments.adding"}
    done = subprocess.run([sys.executable, "-c", code.format(names=names)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_runs_and_resumes(tmp_path: Path) -> None:
    first = tiny(tmp_path, "--models", "GRU,ParaGRU", "--replicates", "1")
    assert first.exit_code == 0, first.output
    assert "runs done: 2 of 2" in first.output
    again = tiny(tmp_path, "--models", "GRU,ParaGRU", "--replicates", "2")
    assert "runs done: 4 of 4" in again.output
    assert len(RunStore(tmp_path).load("adding")) == 4
    none = tiny(tmp_path, "--models", "LSTM", "--replicates", "1", "--budget", "0s")
    assert "runs done: 0 of 1; not yet: 1" in none.output
    assert none.exit_code == 75


def test_a_missing_package_is_reported_once_and_before_any_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "missing_packages", lambda: {"lab": ["pooch"]})
    result = tiny(tmp_path / "results", "--replicates", "10")
    assert result.exit_code == 3
    assert result.output.count("pooch") == 1
    assert not (tmp_path / "results").exists()


def test_status(tmp_path: Path) -> None:
    tiny(tmp_path, "--models", "GRU", "--replicates", "2")
    (job,) = adding.EXPERIMENT.jobs({"model": ["LSTM"], "length": ["500"]}, replicates=1)
    workspace = RunStore(tmp_path).workspace(job)
    with RunStore(tmp_path).lock(job):
        (workspace / FILE).touch()
        (workspace / "progress").write_text("0.25")
    result = reproduce("status", "--results", str(tmp_path))
    assert result.exit_code == 0
    row = next(line for line in result.output.splitlines() if line.strip().startswith("adding"))
    assert row.split()[-2:] == ["2", "1"], "runs, and those in progress"
    assert "0 of 8" in row, "no cell of the paper has this length"
    assert "in progress: adding, model LSTM, length 500, seed 0: 25%" in result.output


def test_status_shows_what_can_be_read(tmp_path: Path) -> None:
    tiny(tmp_path, "--models", "GRU", "--replicates", "2")
    for name in ("pmnist", "worms"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0123456789abcdef.json").write_text("{}")
    result = reproduce("status", "--results", str(tmp_path))
    assert result.exit_code == 3
    rows = {line.split()[0]: line.split() for line in result.output.splitlines() if line.strip()}
    assert rows["adding"][-2:] == ["2", "0"]
    assert rows["pmnist"][-2:] == ["-", "0"]
    for name in ("pmnist", "worms"):
        assert f"{name}/0123456789abcdef.json" in result.output.replace("\n", "")


def test_cells_and_values_are_listed() -> None:
    lines = [line.strip() for line in reproduce("adding", "--list").output.splitlines()]
    assert {"model: LSTM, ParaLSTM, GRU, ParaGRU", "length: 100, 500", "iterations: 60000"} <= set(lines)
    assert "10 replicates" in lines[0]


def test_cells_named_twice_are_both_run(tmp_path: Path) -> None:
    words = ["--only", "model=GRU", "--only", "model=ParaGRU, LSTM", "--replicates", "1", "--budget", "0s"]
    assert "0 of 3" in tiny(tmp_path, *words).output
    result = reproduce(
        "tradeoff", "--only", "noise_variance=1", "--only", "block_size=2", "--budget", "0s", "--results", str(tmp_path)
    )
    assert "0 of 50" in result.output, "1 is 1.0"


def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    result = reproduce("status", "--results", str(tmp_path / "typo"))
    assert result.exit_code == 3
    assert "typo" in result.output


def test_a_file_in_place_of_the_folder_is_rejected_before_any_run(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    rejected = tiny(file, "--models", "GRU")
    assert rejected.exit_code == 3
    assert "--results" in rejected.output


@pytest.mark.parametrize(
    ("words", "facts", "status"),
    [
        (["--models", "GRUs"], ["--models: ", "'GRUs'", "LSTM, ParaLSTM, GRU, ParaGRU"], 3),
        (["--only", "length"], ["--only", "'length'"], 2),
        (["--only", "foo=1"], ["--only: ", "foo", "model, length"], 3),
        (["--only", "model=foo"], ["--only: ", "'foo'"], 3),
        (["--set", "foo=1"], ["--set: ", "foo", "model, length"], 3),
        (["--set", "model=foo"], ["--set: ", "'foo'"], 3),
        (["--set", "iterations=few"], ["--set: ", "iterations", "'few'"], 3),
        (["--budget", "soon"], ["--budget", "'soon'"], 2),
        (["--keep-every", "now"], ["--keep-every", "'now'"], 2),
        (["--datasets", "ETTh1"], ["--datasets: ", "model, length"], 3),
        (["--engine", "slurm"], ["--engine", "'slurm'"], 2),
    ],
)
def test_invalid_requests_are_rejected(tmp_path: Path, words: list[str], facts: list[str], status: int) -> None:
    rejected = reproduce("adding", *words, "--results", str(tmp_path))
    assert rejected.exit_code == status
    assert not rejected.output.startswith("\n")
    for fact in facts:
        assert fact in rejected.output
    assert not list(tmp_path.iterdir())


def test_missing_data_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARALLELRNN_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    words = ["--datasets", "WTH", "--models", "naive", "--only", "horizon=24", "--replicates", "1", "--engine", "here"]
    failed = reproduce("forecasting", *words, "--results", str(tmp_path / "results"))
    assert failed.exit_code == 1
    assert "wth/WTH.csv" in failed.output.replace("\n", "")
    assert "failed: 1" in failed.output

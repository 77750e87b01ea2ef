"""The command `reproduce`: what it runs, what it says, how it ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from parallelrnn.cli.app import app
from parallelrnn.experiments.registry import EXPERIMENTS
from parallelrnn.experiments.store import Store

TINY = ["hidden_size=4", "length=8", "iterations=10", "decay_every=5", "epoch_steps=5", "test=10"]


def reproduce(*words: str) -> Result:
    return CliRunner().invoke(app, ["reproduce", *words], env={"COLUMNS": "160"})


def tiny(folder: Path, *words: str) -> Result:
    changes = [word for change in TINY for word in ("--set", change)]
    return reproduce("adding", "--only", "length=100", "--engine", "here", "--results", str(folder), *changes, *words)


def test_every_experiment_is_a_command() -> None:
    told = reproduce("--help").output
    for name in (*EXPERIMENTS, "status", "tables"):
        assert name in told


def test_runs_and_goes_on(tmp_path: Path) -> None:
    first = tiny(tmp_path, "--models", "GRU,ParaGRU", "--replicates", "1")
    assert first.exit_code == 0, first.output
    assert "2 of 2 runs are there." in first.output
    again = tiny(tmp_path, "--models", "GRU,ParaGRU", "--replicates", "2")
    assert "4 of 4 runs are there." in again.output
    assert len(Store(tmp_path).lines("adding")) == 4
    none = tiny(tmp_path, "--models", "LSTM", "--replicates", "1", "--budget", "0s")
    assert "0 of 1 runs are there; 1 are not yet; the same command goes on with them." in none.output


def test_status(tmp_path: Path) -> None:
    tiny(tmp_path, "--models", "GRU", "--replicates", "2")
    told = reproduce("status", "--results", str(tmp_path))
    assert told.exit_code == 0
    row = next(line for line in told.output.splitlines() if line.strip().startswith("adding"))
    assert row.split()[-1] == "2", "runs"
    assert "0 of 8" in row, "no cell of the paper has this length"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--models", "GRUs"], "model is one of LSTM, ParaLSTM, GRU, ParaGRU; got GRUs"),
        (["--only", "length"], "--only takes name=value, got 'length'"),
        (["--set", "iterations=few"], "iterations takes a whole number above zero, got 'few'"),
        (["--budget", "soon"], "a time is written like 90s, 45m, 2h or 1h30m, got 'soon'"),
        (["--datasets", "ETTh1"], "adding has no dataset; what can be chosen are model, length"),
        (["--engine", "slurm"], "engine is one of local, ray, here, got 'slurm'"),
    ],
)
def test_refusals(tmp_path: Path, words: list[str], told: str) -> None:
    found = reproduce("adding", *words, "--results", str(tmp_path))
    assert found.exit_code == 3
    assert told in found.output
    assert not list(tmp_path.iterdir())


def test_missing_data_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARALLELRNN_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    words = ["--datasets", "WTH", "--models", "naive", "--only", "horizon=24", "--replicates", "1", "--engine", "here"]
    found = reproduce("forecasting", *words, "--results", str(tmp_path / "results"))
    assert found.exit_code == 1
    assert "wth/WTH.csv" in found.output.replace("\n", "")
    assert "1 failed" in found.output

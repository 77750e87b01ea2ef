"""The command `reproduce`: what it runs, what it says, how it ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from parallelrnn.cli import reproduce as commands
from parallelrnn.cli.app import app
from parallelrnn.lab.experiments.registry import EXPERIMENTS
from parallelrnn.lab.running.store import Store

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
    assert "runs that are there: 2 of 2" in first.output
    again = tiny(tmp_path, "--models", "GRU,ParaGRU", "--replicates", "2")
    assert "runs that are there: 4 of 4" in again.output
    assert len(Store(tmp_path).lines("adding")) == 4
    none = tiny(tmp_path, "--models", "LSTM", "--replicates", "1", "--budget", "0s")
    assert "runs that are there: 0 of 1; not yet: 1, and the same command goes on with them" in none.output
    assert none.exit_code == 75


def test_what_is_not_installed_is_said_once_and_before_any_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "missing_packages", lambda: {"lab": ["pooch"]})
    told = tiny(tmp_path / "results", "--replicates", "10")
    assert told.exit_code == 3
    assert "reproduce needs pooch, which is not installed: pip install 'parallelrnn[lab]'" in told.output
    assert not (tmp_path / "results").exists()


def test_status(tmp_path: Path) -> None:
    tiny(tmp_path, "--models", "GRU", "--replicates", "2")
    told = reproduce("status", "--results", str(tmp_path))
    assert told.exit_code == 0
    row = next(line for line in told.output.splitlines() if line.strip().startswith("adding"))
    assert row.split()[-2:] == ["2", "0"], "runs, and what was begun"
    assert "0 of 8" in row, "no cell of the paper has this length"
    file = tmp_path / "adding.jsonl"
    file.write_bytes(file.read_bytes() * 2)  # as where two copies of a folder were put together
    assert row in reproduce("status", "--results", str(tmp_path)).output.splitlines()


def test_status_tells_what_can_be_read(tmp_path: Path) -> None:
    tiny(tmp_path, "--models", "GRU", "--replicates", "2")
    (tmp_path / "pmnist.jsonl").write_text("{}\n")
    (tmp_path / "worms.jsonl").write_text("{}\n")
    told = reproduce("status", "--results", str(tmp_path))
    assert told.exit_code == 3
    rows = {line.split()[0]: line.split() for line in told.output.splitlines() if line.strip()}
    assert rows["adding"][-2:] == ["2", "0"]
    assert rows["pmnist"][-5:] == ["cannot", "be", "read", "-", "0"]
    for name in ("pmnist", "worms"):
        assert f"{name}.jsonl, line 1: a result without key" in told.output


def test_help_tells_cells_and_values() -> None:
    told = " ".join(reproduce("adding", "--help").output.split())
    assert "model LSTM, ParaLSTM, GRU, ParaGRU; length 100, 500; 10 replicates" in told
    assert "iterations 60000" in told
    assert "--datasets" not in told, "it has none"


def test_cells_named_twice_are_both_run(tmp_path: Path) -> None:
    words = ["--only", "model=GRU", "--only", "model=ParaGRU, LSTM", "--replicates", "1", "--budget", "0s"]
    assert "0 of 3" in tiny(tmp_path, *words).output
    one = reproduce(
        "tradeoff", "--only", "noise_variance=1", "--only", "block_size=2", "--budget", "0s", "--results", str(tmp_path)
    )
    assert "0 of 50" in one.output, "1 is 1.0"


@pytest.mark.parametrize(
    ("text", "told"),
    [(b"{}\n", "a result without key"), (b"null\n", "a result without key"), (b"\xff\xfe\n", "no result")],
)
def test_odd_lines_are_named(tmp_path: Path, text: bytes, told: str) -> None:
    (tmp_path / "adding.jsonl").write_bytes(b"\n" + text)
    for command in ("status", "tables"):
        found = reproduce(command, "--results", str(tmp_path))
        assert found.exit_code == 3
        assert "adding.jsonl, line 2: " + told in found.output.replace("\n", "")


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    told = reproduce("status", "--results", str(tmp_path / "typo"))
    assert told.exit_code == 3
    assert "there is no folder" in told.output


def test_tables_that_are_refused_leave_nothing_written(tmp_path: Path) -> None:
    tiny(tmp_path / "results", "--models", "GRU", "--replicates", "1")
    page, out = tmp_path / "page.md", tmp_path / "out.md"
    where = ["--results", str(tmp_path / "results"), "--out", str(out), "--claims", str(page)]
    told = reproduce("tables", *where)
    assert (told.exit_code, out.exists()) == (3, False)
    assert "there is no page" in told.output
    page.write_text("without marks")
    told = reproduce("tables", *where)
    assert (told.exit_code, out.exists()) == (3, False)
    page.write_text("<!-- claims --><!-- /claims -->")
    assert reproduce("tables", *where).exit_code == 0
    assert "claims, which are" in page.read_text()
    assert "claims, which are" in out.read_text()


def test_a_broken_checkpoint_is_told(tmp_path: Path) -> None:
    folder = tmp_path / ".checkpoints" / "adding-0123"
    folder.mkdir(parents=True)
    (folder / "training.safetensors").write_bytes(b"short")
    told = reproduce("status", "--results", str(tmp_path))
    assert told.exit_code == 0
    assert "begun: adding, a checkpoint that is not whole" in told.output


def test_results_that_cannot_be_kept_are_told_before(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    found = tiny(file, "--models", "GRU")
    assert found.exit_code == 3
    assert "is a file; name a folder for results" in found.output.replace("\n", " ")


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
    assert "failed: 1" in found.output

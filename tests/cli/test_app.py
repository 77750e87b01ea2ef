from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from parallelrnn import cli
from parallelrnn.cli import doctor
from parallelrnn.cli.app import _command, app
from parallelrnn.kernels import cpu, dispatch, library
from parallelrnn.lab.benchmarks.kernels import gate
from parallelrnn.lab.benchmarks.kernels import run as bench_run
from tests.lab.benchmarks.kernels.tiny import made_up, make_tiny

RUNNER = CliRunner(env={"COLUMNS": "80"})
NOT_BUILT = library.load(Path("/nowhere/recurrence.so"))


@pytest.fixture
def without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (library, cpu, dispatch, bench_run):
        monkeypatch.setattr(module, "INSTRUCTIONS", None)
    for module in (library, dispatch):
        monkeypatch.setattr(module, "LIBRARY", NOT_BUILT)
    monkeypatch.setattr(library, "BUILT", NOT_BUILT)


def wide_lines(text: str) -> list[str]:
    """Lines of more than 80 columns that are not a path."""
    return [line for line in text.splitlines() if len(line) > 80 and "/" not in line]


def test_doctor_finds_the_fast_kernels() -> None:
    result = RUNNER.invoke(app, ["doctor"])
    assert result.exit_code == 0
    assert "cpu for a float32 layer on the CPU: C kernels, with" in result.output
    assert str(library.LIBRARY.path) in result.output
    assert "the kernels give what the reference gives" in result.output
    assert f"torch.get_num_threads() is {torch.get_num_threads()}" in result.output
    assert f"torch {torch.__version__}" in " ".join(result.output.split())
    assert not wide_lines(result.output)


def test_doctor_for_machines() -> None:
    result = RUNNER.invoke(app, ["doctor", "--json"])
    found = json.loads(result.output)
    assert (found["backend"], found["healthy"], found["agrees"]) == ("cpu", True, True)
    assert found["instruction_set"] in found["instruction_sets"]
    assert found["variable"] == "PARALLELRNN_INSTRUCTIONS"
    assert found["extras"]["cli"]
    assert set(found["errors"]) == {"RNN", "LSTM", "GRU"}


@pytest.mark.usefixtures("without_kernels")
def test_doctor_without_kernels_says_what_to_do() -> None:
    result = RUNNER.invoke(app, ["doctor"])
    text = " ".join(result.output.split())
    assert result.exit_code == 1
    assert "a loop in Python, because the C kernels were not built" in text
    assert "install a C compiler" in text
    assert "not checked: there is nothing but the reference" in text
    assert not wide_lines(result.output)
    found = json.loads(RUNNER.invoke(app, ["doctor", "--json"]).output)
    assert (found["backend"], found["healthy"], found["instruction_sets"]) == ("reference", False, [])


def test_doctor_sees_kernels_that_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    forward = cpu.forward

    def wrong(*args: Any) -> Any:
        final, stored = forward(*args)
        return final, stored._replace(output=stored.output * 1.001)

    monkeypatch.setattr(cpu, "forward", wrong)
    result = RUNNER.invoke(app, ["doctor"])
    assert result.exit_code == 1
    assert "the kernels differ from the reference" in result.output


def test_doctor_tells_of_another_instruction_set() -> None:
    found = doctor.diagnose()
    others = set(found.instruction_sets) - {found.instruction_set}
    text = "\n".join(line for line, _ in doctor.lines(found))
    assert bool(others) == ("PARALLELRNN_INSTRUCTIONS=" in text)


def test_bench_prints_a_table_and_saves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_tiny(monkeypatch)
    path = tmp_path / "results.json"
    result = RUNNER.invoke(app, ["bench", "--quick", "--threads", "1", "--output", str(path)])
    assert result.exit_code == 0, result.output
    assert "S1 forward" in result.output
    assert "S3 training" in result.output
    assert not wide_lines(result.stdout)
    found = json.loads(path.read_text())
    assert {one["case"]["name"] for one in found["cases"]} == {"S1", "S3"}
    assert found["conditions"]["threads"] == 1
    again = RUNNER.invoke(app, ["bench", "--quick", "--threads", "1", "--output", str(path)])
    assert again.exit_code == 1
    assert "add --resume" in again.output


@pytest.mark.parametrize("words", [["--output", "/a//b.json"], ["--output=/a/b.json"]])
def test_the_place_of_the_file_is_not_saved_with_it(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["parallelrnn", "bench", "--quick", *words])
    command = _command(Path("/a/b.json"))
    assert command == f"parallelrnn bench --quick {' '.join(words).replace('/a/', '').replace('/', '')}"


def test_bench_prints_no_times_if_ours_are_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_tiny(monkeypatch)
    monkeypatch.setattr(gate, "OUTPUT", -1.0)
    result = RUNNER.invoke(app, ["bench", "--quick", "--output", str(tmp_path / "results.json")])
    assert result.exit_code == 1
    assert "ours and torch.nn differ, so nothing is timed" in result.output
    assert "outputs differ by" in result.output
    assert " ms)" not in result.output
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("without_kernels")
def test_bench_without_kernels_points_to_doctor() -> None:
    result = RUNNER.invoke(app, ["bench", "--quick"])
    assert result.exit_code == 1
    assert "`parallelrnn doctor` tells what to do" in result.output


def test_bench_prints_a_file_as_markdown(tmp_path: Path) -> None:
    made_up().save(tmp_path / "results.json")
    result = RUNNER.invoke(app, ["bench", "--markdown", str(tmp_path / "results.json")])
    assert result.exit_code == 0
    assert "| S1 training | 10.0 (2.00 ms) | - | - |" in result.output
    missing = RUNNER.invoke(app, ["bench", "--markdown", str(tmp_path / "missing.json")])
    assert missing.exit_code == 1
    assert "missing.json" in missing.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cases", "S1,S9"], "got S9"),
        (["--cells", "rnn"], "takes some of RNN, LSTM, GRU"),
        (["--kinds", ""], "got nothing"),
        (["--resume"], "name it with --output"),
    ],
)
def test_bench_says_which_options_there_are(arguments: list[str], message: str) -> None:
    result = RUNNER.invoke(app, ["bench", *arguments])
    assert result.exit_code == 2
    assert message in " ".join(result.output.replace("│", " ").split())


@pytest.mark.parametrize("module", ["typer", "rich"])
def test_without_typer_or_rich_it_says_what_to_install(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, "parallelrnn.cli.app")
    with pytest.raises(SystemExit) as info:
        cli.main()
    message = str(info.value.code)
    assert message == f"the command line needs {module}, which is not installed: pip install 'parallelrnn[cli]'"


def test_it_tells_its_version() -> None:
    assert CliRunner().invoke(app, ["--version"]).output == f"parallelrnn {version('parallelrnn')}\n"


def test_main_runs_the_commands(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["parallelrnn", "--help"])
    with pytest.raises(SystemExit) as info:
        cli.main()
    assert info.value.code == 0
    assert "doctor" in capsys.readouterr().out

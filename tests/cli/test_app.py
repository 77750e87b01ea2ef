"""How the command line starts, and the commands doctor and bench."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import requires, version
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.main import get_command

from parallelrnn import cli
from parallelrnn.cli import doctor
from parallelrnn.cli.app import app
from parallelrnn.kernels import cpu, dispatch, library
from parallelrnn.lab.benchmarks import gate, kernels
from parallelrnn.lab.runs import RunStore
from tests.cli import run
from tests.lab.benchmarks.tiny import made_up, make_tiny

NOT_BUILT = library.load(Path("/nowhere/recurrence.so"))
needs_kernels = pytest.mark.skipif(library.INSTRUCTIONS is None, reason="there are no C kernels")


@pytest.fixture
def without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (library, cpu, dispatch, kernels):
        monkeypatch.setattr(module, "INSTRUCTIONS", None)
    for module in (library, dispatch):
        monkeypatch.setattr(module, "LIBRARY", NOT_BUILT)
    monkeypatch.setattr(library, "BUILT", NOT_BUILT)


def wide_lines(text: str) -> list[str]:
    """Return the lines of more than 80 columns, except for paths."""
    return [line for line in text.splitlines() if len(line) > 80 and "/" not in line]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--version"], 0),
        (["--help"], 0),
        *(([command, "--help"], 0) for command in ("fit", "evaluate", "doctor", "bench")),
        (["nonsense"], 2),
        (["fit", "--nonsense"], 2),
        (["fit", "data.csv"], 2),
        (["bench", "--cases", "S9"], 2),
        (["reproduce", "adding", "--help"], 0),
        (["reproduce", "tables", "--nonsense"], 2),
    ],
)
def test_help_and_usage_errors_import_nothing_slow(words: list[str], code: int) -> None:
    script = (
        f"import sys; sys.argv = {['parallelrnn', *words]}\n"
        "from parallelrnn.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: code = end.code\n"
        "slow = 'lightning_fabric matplotlib narwhals numpy pandas rich scipy torch'.split()\n"
        "print(code, [name for name in slow if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == f"{code} []", ran.stderr


def test_every_command_has_help_with_an_example() -> None:
    for name in set(get_command(app).commands) - {"reproduce"}:  # type: ignore[attr-defined]
        text = run(name, "--help").output
        assert f"Example: parallelrnn {name}" in " ".join(text.split())
        assert not wide_lines(text)


@pytest.mark.parametrize("words", [(), ("reproduce",)])
def test_no_summary_of_a_command_is_cut_off(words: tuple[str, ...]) -> None:
    assert "..." not in run(*words, "--help").output.replace("[ARGS]...", "")


def test_version() -> None:
    assert run("--version").output == f"parallelrnn {version('parallelrnn')}\n"
    ran = subprocess.run([sys.executable, "-m", "parallelrnn", "--version"], capture_output=True, text=True)
    assert ran.stdout == run("--version").output


@pytest.mark.parametrize("module", ["typer", "rich"])
def test_without_typer_or_rich_it_says_what_to_install(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    for name in [name for name in sys.modules if name.startswith("parallelrnn.cli.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "argv", ["parallelrnn", "forecast", "nowhere"])
    with pytest.raises(SystemExit, match=rf"{module}.*parallelrnn\[cli\]"):
        cli.main()


@needs_kernels
def test_doctor_finds_the_fast_kernels() -> None:
    text = run("doctor").output
    for fact in (library.LIBRARY.path, f"torch {torch.__version__}", f"get_num_threads() is {torch.get_num_threads()}"):
        assert str(fact) in " ".join(text.split())
    assert not wide_lines(text)
    facts = json.loads(run("doctor", "--json").output)
    assert (facts["backend"], facts["healthy"], facts["agrees"]) == ("cpu", True, True)
    assert facts["instruction_set"] in facts["instruction_sets"]
    assert (len(facts["instruction_sets"]) > 1) == (facts["variable"] in text)
    assert set(facts["errors"]) == {"RNN", "LSTM", "GRU"}


def test_extras_are_those_of_the_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {line.split("extra == ")[1].strip("'\"") for line in requires("parallelrnn") or [] if "extra ==" in line}
    assert set(doctor.missing_packages()) == names
    lines = [
        "torch>=2.6",
        'no.such-package[x]<2,>=1; extra == "a"',
        "torch; extra == 'b'",
        'parallelrnn[a,b]; extra == "c"',
        'nor-this; sys_platform == "linux" and extra == "b"',
    ]
    monkeypatch.setattr(doctor.metadata, "requires", lambda _: lines)
    assert doctor.missing_packages() == {"a": ["no.such-package"], "b": [], "c": ["no.such-package"]}


@pytest.mark.usefixtures("without_kernels")
def test_doctor_without_kernels_says_what_to_do() -> None:
    text = run("doctor", code=1).output
    assert "install a C compiler" in " ".join(text.split())
    assert not wide_lines(text)
    facts = json.loads(run("doctor", "--json", code=1).output)
    assert (facts["backend"], facts["healthy"], facts["instruction_sets"]) == ("reference", False, [])


@needs_kernels
def test_doctor_sees_kernels_that_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    forward = cpu.forward

    def wrong(*args: Any) -> Any:
        final, stored = forward(*args)
        return final, stored._replace(output=stored.output * 1.001)

    monkeypatch.setattr(cpu, "forward", wrong)
    assert "differ from the reference" in run("doctor", code=1).output


@needs_kernels
def test_bench_prints_a_table_and_saves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_tiny(monkeypatch)
    folder = tmp_path / "numbers"
    command = ("bench", "--quick", "--threads", 1, f"--output={folder}")
    monkeypatch.setattr(sys, "argv", list(map(str, ("parallelrnn", *command))))
    result = run(*command)
    assert "S1 forward" in result.output
    assert "S3 training" in result.output
    assert not wide_lines(result.stdout)
    saved = kernels.load(folder)
    assert {measured.config["case"]["name"] for measured in saved} == {"S1", "S3"}
    assert saved[0].provenance["machine"]["threads"] == 1
    assert saved[0].provenance["commands"][0]["command"].endswith("--threads 1 --output=numbers")
    assert "--resume" in run(*command, code=1).output


@needs_kernels
def test_bench_prints_no_times_if_ours_are_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_tiny(monkeypatch)
    monkeypatch.setattr(gate, "OUTPUT", -1.0)
    result = run("bench", "--quick", "--output", tmp_path / "numbers", code=1)
    assert "outputs differ by" in result.output
    assert " ms)" not in result.output
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("without_kernels")
def test_bench_without_kernels_points_to_doctor() -> None:
    assert "parallelrnn doctor" in run("bench", "--quick", code=1).output


def test_bench_prints_saved_results_as_markdown(tmp_path: Path) -> None:
    RunStore(tmp_path).save(made_up())
    result = run("bench", "--markdown", tmp_path)
    assert "| S1 training | 10.0 (2.00 ms) | - | - |" in result.output
    assert "missing" in run("bench", "--markdown", tmp_path / "missing", code=1).output


@pytest.mark.parametrize(
    ("words", "fact"),
    [
        (["--cases", "S1,S9"], "got S9"),
        (["--cells", "rnn"], "RNN, LSTM, GRU"),
        (["--kinds", ""], "got nothing"),
        (["--resume"], "--output"),
    ],
)
def test_bench_says_which_choices_there_are(words: list[str], fact: str) -> None:
    assert fact in " ".join(run("bench", *words, code=2).output.split())

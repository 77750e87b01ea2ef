"""A terminal shows what comes from files, and does not obey it."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from parallelrnn.cli import forecasting
from parallelrnn.cli.errors import note
from parallelrnn.errors import printable
from parallelrnn.interpret.display import Display
from tests.cli import run
from tests.hostile.names import NAMES, OBEYED


def obeyed(text: str) -> set[str]:
    return set(text) & set(OBEYED)


def test_control_characters_are_escaped_and_all_else_stays() -> None:
    assert printable("\x1b[31m\x00\u202e\x9b\ud800\n") == r"\x1b[31m\x00\u202e\x9b\ud800\n"
    assert printable("a\tb\nc\r", keep="\t\n") == "a\tb\nc\\r"
    plain = "Größe — 温度 👩‍🔬 \xa0 [red] \\x1b"
    assert printable(plain) == plain


@pytest.mark.parametrize("name", NAMES)
def test_a_note_shows_names_without_control_characters(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    note(f"unused: {name}")
    printed = capsys.readouterr().err
    assert not obeyed(printed)
    assert printed == f"note: unused: {printable(name, keep=chr(10) + chr(9))}\n".expandtabs()


def test_a_table_keeps_its_lines() -> None:
    shown = Display("title", ["name", "number"], [[name, "1"] for name in NAMES], [NAMES[10]]).text()
    assert not obeyed(shown)
    assert len(shown.splitlines()) == 4 + len(NAMES) + 2
    assert {len(line) for line in shown.splitlines()[2:-2]} == {len(shown.splitlines()[1])}


def test_forecasts_are_printed_as_they_are_into_files_and_escaped_on_a_terminal(
    hostile_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    piped = run("forecast", hostile_model).stdout_bytes.decode()  # the text of a result has other ends of lines
    run("forecast", hostile_model, "--out", tmp_path / "forecast.csv")
    written = (tmp_path / "forecast.csv").read_bytes().decode()
    for text in (piped, written):
        rows = list(csv.reader(io.StringIO(text, newline="")))
        assert list(dict.fromkeys(row[0] for row in rows[1:])) == list(NAMES)
    monkeypatch.setattr(forecasting, "sys", SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True)))
    shown = run("forecast", hostile_model).stdout
    assert not obeyed(shown)
    assert r"\x1b[31mred" in shown


def test_commands_obey_no_column_name(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    table = pd.DataFrame({"ds": pd.date_range("2024-01-01", periods=4), "y": 1.0})
    for name in NAMES:
        table[name] = "text"
    table.to_csv(path, index=False)
    message = run("fit", path, "--horizon", 2, "--target", "z\x1b[31m", "--out", tmp_path / "model", code=3)
    assert not obeyed(message.output)
    assert r"\x1b[31m" in message.output
    message = run("fit", path, "--horizon", 20, "--target", "y", "--out", tmp_path / "model", code=3)
    assert "note: unused columns: <script>alert(1)</script>" in message.output
    assert "[red]rich[/red] [/]" in message.output
    assert not obeyed(message.output)

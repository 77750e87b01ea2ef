"""The whole page, and the command that writes it."""

from __future__ import annotations

import json
import re
from pathlib import Path

from typer.testing import CliRunner

from parallelrnn.cli.app import app
from parallelrnn.lab.document import claims, document
from parallelrnn.lab.experiments.registry import EXPERIMENTS
from parallelrnn.lab.running.store import Store
from tests.lab.lines import forecast, line, tradeoff


def test_all_rows_of_a_table_are_as_long_as_its_header() -> None:
    lines = {"tradeoff": tradeoff(1, {0: 3.0}), "forecasting": [forecast("naive", 0.9)]}
    text = document(lines, {"tradeoff": ["figures/tradeoff.png"]})
    width = 0
    for row in text.splitlines():
        width = (width or row.count("|")) if row.startswith("|") else 0
        assert row.count("|") == width, row
    titles = [title.split(":")[0] for title in re.findall("^## (.*)$", text, re.MULTILINE)]
    assert titles == ["Claims", *EXPERIMENTS]
    assert text.count("\n\nNot run.\n") == len(EXPERIMENTS) - 2
    assert "![tradeoff](figures/tradeoff.png)" in text


def test_claims_are_counted_and_those_without_runs_stand_apart() -> None:
    drop = [one for size, error in ((1, 3.0), (2, 1.0)) for one in tradeoff(size, {0: error, 1: error, 2: error})]
    text = claims({"tradeoff": drop})
    head, _, short, _, run, _, rest, _, rules = text.split("\n\n")
    found = re.fullmatch(
        r"Of (\d+) claims, which are (\d+) statements .*: (\d+) holds \(all at smaller .*\), (\d+) are not yet known.",
        head,
    )
    assert found is not None, head
    total, statements, holds, unknown = map(int, found.groups())
    assert (total, holds) == (holds + unknown, 1)
    rows = [len(table.splitlines()) - 2 for table in (short, run, rest)]
    assert (rows[0], rows[1] + rows[2]) == (statements, total)
    assert "holds at this budget (1 of 2), not yet known (1 of 2)" in short, "with recurrent weights of two scales"
    numbers = {int(number) for number in re.findall(r"; rule (\d+) \|", run + rest)}
    assert numbers == set(range(1, len(rules.splitlines()) + 1))
    assert run.count("**holds at this budget**") == 1
    assert "not run" not in run


def test_the_command_prints_and_writes(tmp_path: Path) -> None:
    store = Store(tmp_path / "results")
    for one in tradeoff(1, {0: 3.0}):
        store.append(one)
    run = CliRunner().invoke
    printed = run(app, ["reproduce", "tables", "--results", str(store.folder)])
    assert printed.exit_code == 0
    assert "3.000 (n 1, budget 1)" in printed.output
    page = tmp_path / "page.md"
    where = ["--results", str(store.folder), "--out", str(page), "--figures", str(tmp_path / "made" / "figures")]
    written = run(app, ["reproduce", "tables", *where])
    assert (written.exit_code, written.output) == (0, "")
    addresses = re.findall(r"!\[.*?\]\((.*?)\)", page.read_text())
    assert addresses == ["made/figures/tradeoff.png"]
    assert (page.parent / addresses[0]).is_file()


def test_the_command_refuses_in_words(tmp_path: Path) -> None:
    run = CliRunner().invoke
    nothing = run(app, ["reproduce", "tables", "--results", str(tmp_path)])
    assert nothing.exit_code == 3
    assert "there are no results in" in nothing.output
    (tmp_path / "adding.jsonl").write_text(json.dumps(line("adding", {}, model="LSTM"))[:-2] + "\n")
    broken = run(app, ["reproduce", "tables", "--results", str(tmp_path)])
    assert broken.exit_code == 3
    assert "line 1: no result" in broken.output

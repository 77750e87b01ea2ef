"""What the documents show runs as shown."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import io
import json
import pkgutil
import re
from pathlib import Path

import pytest
import torch

import parallelrnn
from parallelrnn.lab.document import document, renew_claims
from parallelrnn.lab.experiments.registry import EXPERIMENTS
from parallelrnn.lab.running.store import Store

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MODULES = [name for _, name, _ in pkgutil.walk_packages(parallelrnn.__path__, "parallelrnn.")]


# Both come from inside torch's ONNX exporter, as in tests/nn/test_onnx.py.
@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*values missing in series:UserWarning")  # docs/forecasting.md tells of it
@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_python_blocks_run_in_order(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block of text after one of Python is what that prints, numbers to 5 %: rounding differs between processors."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    printed = ""
    for language, block in re.findall(r"^```(python|text)\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE):
        if language == "text":
            words, numbers = split(block)
            assert (words, numbers) == (split(printed)[0], pytest.approx(split(printed)[1], rel=0.05, abs=0.02))
            continue
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(compile(block, path.name, "exec"), names)
        printed = output.getvalue()


def split(text: str) -> tuple[list[str], list[float]]:
    """The words of a printed table, without its rules, and its numbers."""
    text = re.sub(r"[-=]{3,}", "", text)
    number = r"(?<![\w-])-?\d+\.?\d*"
    return re.sub(number, "#", text).split(), [float(found) for found in re.findall(number, text)]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_between_documents_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text()):
        assert (path.parent / target).exists(), f"{path.name} links to {target}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_nothing_is_left_to_be_filled_in(path: Path) -> None:
    assert not re.findall(r"^[A-Z]{4,}\d*$", path.read_text(), re.MULTILINE)


@pytest.mark.slow
def test_the_tables_of_recovered_waves_are_those_of_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    recovery = importlib.import_module("recovery")
    printed = recovery.tables(recovery.load(ROOT / "results" / "benchmarks" / "recovery.jsonl")[1])
    section = (ROOT / "docs" / "reading-a-model.md").read_text().split("## Is it true?")[1]
    shown = [line for line in section.splitlines() if line.startswith("|")]
    assert len(shown) == 4 * 10
    assert [line for line in printed.splitlines() if line.startswith("|")] == shown


def test_the_tables_of_errors_are_those_of_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    accuracy = importlib.import_module("accuracy")
    printed = accuracy.tables(*accuracy.load(ROOT / "results" / "benchmarks" / "accuracy.jsonl"))
    section = (ROOT / "docs" / "forecasting.md").read_text().split("## How accurate is it?")[1].split("\n## ")[0]
    shown = [line for line in section.splitlines() if line.startswith(("|", "- "))]
    assert len(shown) == 2 * (2 + 32) + 8
    assert [line for line in printed.splitlines() if line.startswith(("|", "- "))] == shown
    mse, mae = re.findall(r"the best published M.E: at or below in (\d+ of \d+)", printed)
    readme = " ".join((ROOT / "README.md").read_text().split())
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in shown if line.startswith("| ETT")]
    chosen = [row for row in rows if row[1] == "96" and len(row) == 10]
    errors = [[float(cell.split(" / ")[0]) for cell in (row[4], row[6])] for row in chosen]
    here = f"{sum(ours <= best for ours, best in errors)} of these {len(chosen)}"
    assert f"at or below it in {here} settings, and in {mse} with those at a look-back of 336;" in readme
    assert f"absolute error in {mae}." in readme
    short = [f"| {row[0]} | {row[2]} | {' | '.join(cell.split(' / ')[0] for cell in row[4:])} |" for row in chosen]
    assert [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("| ETT")] == short


def test_the_tables_of_estimators_are_those_of_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    results = ROOT / "results" / "benchmarks"
    classification, end_to_end = (importlib.import_module(name) for name in ("classification", "end_to_end"))
    classified = classification.table(*classification.load(results / "classification.jsonl"))
    printed = classified + "\n" + end_to_end.tables(json.loads((results / "plug_in.json").read_text()))
    section = (ROOT / "docs" / "estimators.md").read_text().split("## How do they compare?")[1]
    shown = [line for line in section.splitlines() if line.startswith("|")]
    assert len(shown) == 2 + 2 * 6 + 2 * (2 + 4 + 2 + 1)
    assert [line for line in printed.splitlines() if line.startswith("|")] == shown


def test_the_table_of_times_is_that_of_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    end_to_end = importlib.import_module("end_to_end")
    printed = end_to_end.tables(json.loads((ROOT / "results" / "benchmarks" / "end_to_end.json").read_text()))
    section = (ROOT / "docs" / "forecasting.md").read_text().split("## How fast is it?")[1]
    shown = [line for line in section.splitlines() if line.startswith("|")]
    assert len(shown) == 2 * (9 + 6)
    assert [line for line in printed.splitlines() if line.startswith("|")] == shown


def test_the_table_of_attention_is_that_of_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    transformer = importlib.import_module("transformer")
    printed = transformer.table(json.loads((ROOT / "results" / "benchmarks" / "transformer.json").read_text()))
    section = (ROOT / "docs" / "performance.md").read_text().split("## Attention of narrow heads")[1]
    assert [line for line in section.splitlines() if line.startswith("|")] == printed.splitlines()


def test_the_table_of_risks_is_that_of_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    regression = importlib.import_module("regression")
    printed = regression.table(regression.load(ROOT / "results" / "benchmarks" / "regression.jsonl")[1])
    section = (ROOT / "docs" / "mathematics.md").read_text().split("## Does the rate show?")[1].split("\n## ")[0]
    assert [line for line in section.splitlines() if line.startswith("|")] == printed.splitlines()


def test_the_pages_of_experiments_are_those_of_the_results() -> None:
    """No number that the store does not hold, and none that it holds and the pages do not."""
    store = Store(ROOT / "results")
    lines = {name: store.lines(name) for name in EXPERIMENTS}
    page = (ROOT / "docs" / "reproducing.md").read_text()
    assert renew_claims(page, lines) == page
    tables = (ROOT / "results" / "README.md").read_text()
    pictures: dict[str, list[str]] = {}
    for name, address in re.findall(r"^!\[([\w-]+)\]\((.*)\)$", tables, re.MULTILINE):
        assert (ROOT / "results" / address).exists()
        pictures.setdefault(name, []).append(address)
    assert document(lines, pictures) == tables


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name: str) -> None:
    results = doctest.testmod(importlib.import_module(name), extraglobs={"torch": torch})
    assert results.failed == 0


def test_the_tables_of_stress_are_those_of_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "stress")
    text = (ROOT / "docs" / "reliability.md").read_text()
    assert importlib.import_module("tables").renewed(text) == text

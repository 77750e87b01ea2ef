"""Documents: their code runs and prints what they show, their links resolve, their tables come from results/."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import io
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.main import get_command

import parallelrnn
from parallelrnn.cli.app import app
from parallelrnn.lab.results_page import results_page, select_all
from parallelrnn.lab.tables import marked_documents, renew_tables

ROOT = Path(__file__).parents[1]
GUIDES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), ROOT / "results" / "README.md"]
MODULES = [name for _, name, _ in pkgutil.walk_packages(parallelrnn.__path__, "parallelrnn.")]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?![a-z]+:)([^)#\s]*)#?([^)\s]*)\)")  # path and anchor of a link inside the repository


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # inside torch's ONNX exporter, as is the next
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*missing:UserWarning")  # docs/forecasting.md shows missing values
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=path.name, marks=[pytest.mark.slow] * ("```bash" in path.read_text())) for path in GUIDES],
)
def test_code_runs_and_prints_what_is_shown(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run Python and bash blocks in order; a text block is what the block before it prints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", os.fspath(Path(sys.executable).parent), prepend=os.pathsep)
    monkeypatch.setenv("COLUMNS", "120")
    names: dict[str, object] = {}
    printed = ""
    for language, block in FENCE.findall(path.read_text()):
        if language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as output:
                exec(compile(block, path.name, "exec"), names)
            printed = output.getvalue()
        elif language == "bash":
            printed = subprocess.run(["bash", "-euc", block], check=True, stdout=subprocess.PIPE, text=True).stdout
        elif language == "text":
            words, numbers = split(block)
            printed_words, printed_numbers = split(printed)
            assert words == printed_words
            # Rounding differs between processors, and training amplifies it.
            assert numbers == pytest.approx(printed_numbers, rel=0.05, abs=0.02)


def split(text: str) -> tuple[list[str], list[float]]:
    """Return the words of a printed table and its numbers, without rules and durations."""
    text = re.sub(r"[-=]{3,}|\d+\.\d s\b", "", text)
    number = r"(?<![\w-])-?\d+\.?\d*"
    return re.sub(number, "#", text).split(), [float(digits) for digits in re.findall(number, text)]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_resolve(path: Path) -> None:
    for target, anchor in LINK.findall(FENCE.sub("", path.read_text())):
        linked = path.parent / target if target else path
        assert linked.exists(), f"{target} does not exist"
        assert not anchor or anchor in anchors(linked), f"{target}#{anchor} does not exist"


def anchors(path: Path) -> set[str]:
    """Return the anchors that a code host gives to the headings of a document."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", path.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.name, marks=[pytest.mark.slow] * (path.stem == "reading-a-model"))  # many matchings
        for path in marked_documents(DOCUMENTS)
    ],
)
def test_marked_tables_come_from_results(path: Path) -> None:
    assert renew_tables(path.read_text(), ROOT / "results") == path.read_text()


def test_the_page_of_results_comes_from_results() -> None:
    page = (ROOT / "results" / "README.md").read_text()
    figures: dict[str, list[str]] = {}
    for name, address in re.findall(r"^!\[([\w-]+)\]\((.*)\)$", page, re.MULTILINE):
        figures.setdefault(name, []).append(address)
    assert results_page(select_all(ROOT / "results"), figures) == page


def test_every_option_of_the_command_line_is_documented() -> None:
    page = (ROOT / "docs" / "api" / "command-line.md").read_text()
    sections = dict(section.split("\n", 1) for section in page.split("\n## ")[1:])
    commands: dict[str, Any] = dict(get_command(app).commands)
    experiments = commands.pop("reproduce")
    commands |= {f"reproduce {name}": experiments.get_command(None, name) for name in ("status", "tables")}
    commands["reproduce"] = experiments.get_command(None, "adding")  # the options of all experiments
    for name, command in commands.items():
        options = [
            option.opts[0] if option.opts[0].startswith("-") else option.opts[0].upper() for option in command.params
        ]
        assert [option for option in options if f"`{option}`" not in sections[name]] == [], name


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name), extraglobs={"torch": torch}).failed == 0

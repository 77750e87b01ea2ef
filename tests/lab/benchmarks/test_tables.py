from __future__ import annotations

from pathlib import Path

import pytest

from parallelrnn.lab.tables import marked_documents, renew_tables

ROOT = Path(__file__).parents[3]
DOCUMENTS = {path.name: path for path in marked_documents([ROOT / "README.md", ROOT / "docs"])}
SLOW = "reading-a-model.md"  # its table of intervals matches 24,000 bootstrap fits


@pytest.mark.parametrize(
    "path", [pytest.param(path, id=name, marks=[pytest.mark.slow] * (name == SLOW)) for name, path in DOCUMENTS.items()]
)
def test_tables_of_documents_are_those_of_the_results(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert renew_tables(text, ROOT / "results") == text

"""Tables in Markdown and in terminals, and the numbers in them."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest
from rich.console import Console
from scipy import stats

from parallelrnn.lab.tables import (
    MARKED_TABLES,
    Table,
    deviation,
    escape_markdown,
    mean,
    mean_and_deviation,
    number,
    paired_interval,
    span,
)

TABLE = Table(["name", "n"], [["a", "1"], ["long name"]], "A title.", "A note.")


def test_a_table_in_markdown() -> None:
    assert TABLE.markdown() == "A title.\n\n| name | n |\n| --- | --- |\n| a | 1 |\n| long name | - |\n\nA note."
    assert Table(["x"], []).markdown() == "| x |\n| --- |"


def test_a_table_in_a_terminal() -> None:
    console = Console(file=io.StringIO(), width=40)
    console.print(Table(["name", "n"], [["[bold]a\x1b", "1"], ["b"]], "A title.").rich())
    rows = [line.split() for line in console.file.getvalue().splitlines() if line.strip()]  # type: ignore[attr-defined]
    assert rows[0] == ["A", "title."]
    assert rows[-2:] == [["[bold]a\\x1b", "1"], ["b", "-"]]


def test_text_from_files_has_no_markup() -> None:
    escaped = escape_markdown("a|b <script> ![x](y) `c`\x1b[0m")
    assert not set("|<>`[]\x1b") & set(escaped)


def test_marked_tables_exist() -> None:
    for place in MARKED_TABLES.values():
        module, _, function = place.partition(":")
        assert callable(getattr(pytest.importorskip(module), function))


def test_numbers() -> None:
    assert [number(value) for value in (0.12345, 12345.6, 99.96)] == ["0.123", "12,346", "100"]
    assert (mean([1.0, 2.0, 6.0]), deviation([1.0, 2.0, 6.0])) == (3.0, pytest.approx(math.sqrt(7)))
    assert deviation([1.0]) is None
    assert [mean_and_deviation(values, ".3f") for values in ([0.5], [0.5, 0.7])] == ["0.500", "0.600 ± 0.141"]
    assert [span(values) for values in ([], [2, 2], [1, 3])] == ["-", "2", "1 to 3"]


def test_paired_intervals_are_those_of_students_t() -> None:
    noise, extra = np.random.default_rng(0).normal(size=(2, 6))
    ours, theirs = 5 + noise + 0.1 * extra, 4 + noise
    interval = paired_interval({**dict(enumerate(ours)), 8: 1e6}, {**dict(enumerate(theirs)), 9: 1e6})
    assert interval is not None
    low, high = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    assert (interval.mean, interval.margin) == pytest.approx(((low + high) / 2, (high - low) / 2))
    assert interval.pairs == 6
    assert paired_interval({0: 1.0}, {1: 1.0}) is None
    assert str(paired_interval({0: 1.5}, {0: 1.0}, 100)) == "+50 (1 pair)"

"""Tables of results, in Markdown and for terminals; and the marked tables of documents, which a command updates.

In a document a table stands between two comments, and is made from the results folder by the function that
`MARKED_TABLES` names for it:

    <!-- table: experiments -->
    <!-- end table -->
"""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from parallelrnn.errors import InputError, printable

if TYPE_CHECKING:
    from rich.table import Table as RichTable

# By name, the function that makes a table from the results folder, as `module:function`: a Table, or Markdown.
MARKED_TABLES: dict[str, str] = {
    "attention": "parallelrnn.lab.benchmarks.transformer:table",
    "changes": "parallelrnn.lab.benchmarks.changes:table",
    "classification": "parallelrnn.lab.benchmarks.classification:table",
    "defaults": "parallelrnn.lab.benchmarks.defaults:table",
    "end-to-end": "parallelrnn.lab.benchmarks.end_to_end:table",
    "experiments": "parallelrnn.lab.results_page:experiments_table",
    "forecasting": "parallelrnn.lab.benchmarks.forecasting:readme_table",
    "forecasting-coverage": "parallelrnn.lab.benchmarks.forecasting:coverage",
    "forecasting-errors": "parallelrnn.lab.benchmarks.forecasting:errors",
    "forecasting-summary": "parallelrnn.lab.benchmarks.forecasting:summary",
    "kernels": "parallelrnn.lab.benchmarks.kernels:readme_table",
    "kernels-scaling": "parallelrnn.lab.benchmarks.kernels:scaling_table",
    "plug-in": "parallelrnn.lab.benchmarks.end_to_end:plug_in_table",
    "reading-empty": "parallelrnn.lab.benchmarks.reading_tables:empty_table",
    "reading-lookbacks": "parallelrnn.lab.benchmarks.reading_tables:lookback_table",
    "reading-methods": "parallelrnn.lab.benchmarks.reading_tables:methods_table",
    "reading-planted": "parallelrnn.lab.benchmarks.reading_tables:planted_table",
    "recovery-coverage": "parallelrnn.lab.benchmarks.recovery:coverage",
    "recovery-errors": "parallelrnn.lab.benchmarks.recovery:errors",
    "recovery-features": "parallelrnn.lab.benchmarks.recovery:feature_errors",
    "recovery-tanh": "parallelrnn.lab.benchmarks.recovery:tanh_errors",
    "tasks": "parallelrnn.lab.benchmarks.tasks:table",
    "tasks-means": "parallelrnn.lab.benchmarks.tasks:means",
    "tasks-details": "parallelrnn.lab.benchmarks.tasks:details",
    "regression": "parallelrnn.lab.benchmarks.regression:table",
}

_MARKED = re.compile(r"(<!-- table: (?P<name>[^>]*?) -->\n)(?P<table>.*?)(<!-- end table -->)", re.DOTALL)


@dataclass(frozen=True)
class Table:
    """Rows of text under columns, with a sentence above and a note below. Short rows end in dashes."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    note: str = ""

    def markdown(self) -> str:
        """Return title, table and note as paragraphs of Markdown."""
        lines = [self.columns, ["---"] * len(self.columns), *self._full_rows()]
        table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
        return "\n\n".join(part for part in (self.title, table, self.note) if part)

    def rich(self) -> RichTable:
        """Return the table for a terminal, to be printed by a rich Console."""
        from rich import box
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(
            title=self.title or None, caption=self.note or None, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0)
        )
        for number, name in enumerate(self.columns):
            table.add_column(Text(printable(name)), no_wrap=number == 0)
        for row in self._full_rows():
            table.add_row(*(Text(printable(cell)) for cell in row))
        return table

    def _full_rows(self) -> list[list[str]]:
        return [[*row, *["-"] * (len(self.columns) - len(row))] for row in self.rows]


def renew_tables(document: str, results: Path) -> str:
    """Return a Markdown document with its marked tables made again from the results folder."""

    def renewed(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in MARKED_TABLES:
            raise InputError(f"there is no table {name!r}", hint=f"mark one of {', '.join(sorted(MARKED_TABLES))}")
        module, _, function = MARKED_TABLES[name].partition(":")
        make: Callable[[Path], Table | str] = getattr(importlib.import_module(module), function)
        table = make(results)
        return f"{match[1]}\n{table.markdown() if isinstance(table, Table) else table}\n\n{match[4]}"

    return _MARKED.sub(renewed, document)


def marked_documents(paths: Iterable[Path]) -> list[Path]:
    """Return the Markdown files with marked tables among these files and below these folders."""
    files = [file for path in paths for file in (sorted(path.rglob("*.md")) if path.is_dir() else [path])]
    return [file for file in files if _MARKED.search(file.read_text(encoding="utf-8"))]


def escape_markdown(text: str) -> str:
    """Return a text from a file, escaped so that none of it is Markdown or HTML."""
    return re.sub(
        r"[\\`*<>|&]|!?\[|\]", lambda match: "".join(f"&#{ord(letter)};" for letter in match[0]), printable(text)
    )


def number(value: float, form: str = ".3g") -> str:
    """Return a number without an exponent where a plain one is as short."""
    if form.lstrip("+") in (".2g", ".3g") and abs(value) >= 100:
        return f"{value:{'+' if form.startswith('+') else ''},.0f}"
    return f"{value:{form}}"


def mean(values: Sequence[float]) -> float:
    """Return the mean over replicates."""
    return float(np.mean(values))


def deviation(values: Sequence[float]) -> float | None:
    """Return the standard deviation over replicates, or None for a single one."""
    with np.errstate(invalid="ignore"):  # a run that diverged
        return float(np.std(values, ddof=1)) if len(values) > 1 else None


@dataclass(frozen=True)
class Interval:
    """A mean difference over pairs, and half of its 95 % interval by Student's t; None for a single pair."""

    mean: float
    margin: float | None
    pairs: int

    def __str__(self) -> str:
        margin = "" if self.margin is None else f" ± {number(self.margin, '.2g')}"
        return f"{number(self.mean, '+.3g')}{margin} ({self.pairs} pair{'s' if self.pairs != 1 else ''})"


def paired_interval(ours: Mapping[Any, float], theirs: Mapping[Any, float], scale: float = 1.0) -> Interval | None:
    """Return the mean difference of values with the same key (a seed, a data set); None if no key has both."""
    from scipy.special import stdtrit

    differences = [scale * (ours[key] - theirs[key]) for key in ours if key in theirs]
    if not differences:
        return None
    pairs, spread = len(differences), deviation(differences)
    margin = None if spread is None else spread / math.sqrt(pairs) * float(stdtrit(pairs - 1, 0.975))
    return Interval(mean(differences), margin, pairs)


def mean_and_deviation(values: Sequence[float], form: str = "#.4g") -> str:
    """Return the mean, followed by ± and the standard deviation if there are several values."""
    spread = deviation(values)
    if spread is None:
        return f"{mean(values):{form}}"
    return f"{mean(values):{form}} ± {spread:{'.2g' if form == '#.4g' else form}}"


def span(values: Sequence[float]) -> str:
    """Return the smallest and the largest value, or the one that all are."""
    if not values:
        return "-"
    low, high = number(min(values)), number(max(values))
    return low if low == high else f"{low} to {high}"

"""Tables for the terminal, in the manner of statsmodels."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence


class Summary(str):
    """A text that shows itself as it is, also at the end of a notebook's cell."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str] = ()) -> Summary:
    """Columns flush right under their names, between rules, with notes below."""
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    width = max(sum(widths) + 2 * (len(widths) - 1), len(title))

    def line(cells: Sequence[str]) -> str:
        return "  ".join(cell.rjust(size) for cell, size in zip(cells, widths, strict=True))

    body = [title.center(width).rstrip(), "=" * width, line(columns), "-" * width, *map(line, rows), "=" * width]
    below = [wrapped for note in notes for wrapped in textwrap.wrap(note, max(width, 60))]
    return Summary("\n".join([*body, *below]))

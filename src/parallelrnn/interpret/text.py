"""Tables for people; in the terminal in the manner of statsmodels."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass


class Summary(str):
    """A text that shows itself as it is, also at the end of a notebook's cell."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True)
class Display:
    """A table for people: words in cells."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()

    def text(self) -> Summary:
        """For the terminal: columns flush right under their names, between rules, with notes below."""
        widths = [max(map(len, column)) for column in zip(self.columns, *self.rows, strict=True)]
        width = max(sum(widths) + 2 * (len(widths) - 1), len(self.title))

        def line(cells: Sequence[str]) -> str:
            return "  ".join(cell.rjust(size) for cell, size in zip(cells, widths, strict=True))

        head = [self.title.center(width).rstrip(), "=" * width, line(self.columns), "-" * width]
        below = [wrapped for note in self.notes for wrapped in textwrap.wrap(note, max(width, 60))]
        return Summary("\n".join([*head, *map(line, self.rows), "=" * width, *below]))

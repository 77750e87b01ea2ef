"""Tables for people; in the terminal in the manner of statsmodels."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

# Control characters, halves of characters, and those that end lines or turn the direction of writing.
_OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str, keep: str = "") -> str:
    """A text from who knows where, with escapes for all that a terminal would obey instead of show, but for `keep`."""
    return _OBEYED.sub(lambda found: found[0] if found[0] in keep else ascii(found[0])[1:-1], text)


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
        header, *rows = ([printable(cell) for cell in row] for row in (self.columns, *self.rows))
        widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
        width = max(sum(widths) + 2 * (len(widths) - 1), len(self.title))

        def line(cells: Sequence[str]) -> str:
            return "  ".join(cell.rjust(size) for cell, size in zip(cells, widths, strict=True))

        head = [self.title.center(width).rstrip(), "=" * width, line(header), "-" * width]
        below = [
            wrapped for note in self.notes for wrapped in textwrap.wrap(printable(note, keep="\n"), max(width, 60))
        ]
        return Summary("\n".join([*head, *map(line, rows), "=" * width, *below]))

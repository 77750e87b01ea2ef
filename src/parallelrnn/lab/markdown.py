"""Numbers in words, and tables of them in Markdown."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from parallelrnn.interpret.display import printable
from parallelrnn.lab.picking import deviation, mean


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows under a header; what a row lacks at its end is a dash."""
    lines = [header, ["---"] * len(header), *([*row, *["-"] * (len(header) - len(row))] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def as_text(words: str) -> str:
    """Words from a file of results, none of which is Markdown or HTML."""
    return re.sub(r"[\\`*<>|&]|!?\[|\]", lambda found: "".join(f"&#{ord(one)};" for one in found[0]), printable(words))


def number(value: float, form: str = ".3g") -> str:
    """A number, never with an exponent where a plain one is as short."""
    if form.lstrip("+") in (".2g", ".3g") and abs(value) >= 100:
        return f"{value:{'+' if form.startswith('+') else ''},.0f}"
    return f"{value:{form}}"


def spread(values: Sequence[float], form: str = "#.4g") -> str:
    """A mean, and the standard deviation if there are several."""
    around = deviation(values)
    if around is None:
        return f"{mean(values):{form}}"
    return f"{mean(values):{form}} ± {around:{'.2g' if form == '#.4g' else form}}"


def interval(values: Sequence[float]) -> str:
    """From the smallest to the largest, or the one."""
    if not values:
        return "-"
    low, high = number(min(values)), number(max(values))
    return low if low == high else f"{low} to {high}"


def types(counts: Mapping[str, int]) -> str:
    """Counts of feature types, the most frequent first."""
    return ", ".join(
        f"{count} {as_text(label)}" for label, count in sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    )

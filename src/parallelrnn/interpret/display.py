"""How results are shown: time in calendar units, tables for the terminal, and the optional packages that draw them."""

from __future__ import annotations

import importlib
import math
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from parallelrnn.errors import ArgumentError, MissingPackageError, printable

_EXTRAS = {"matplotlib": "plot", "pandas": "plot", "plotly": "report", "jinja2": "report", "statsmodels": "demo"}
# Units that convert into each other; months and years have no fixed number of days.
_UNIT_FAMILIES: tuple[dict[str, float], ...] = (
    {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0},
    {"business days": 1.0},
    {"weeks": 1.0},
    {"months": 1.0, "years": 12.0},
    {"steps": 1.0},
    {"segments": 1.0},
)
# The frequency aliases of pandas, old and new, as a number of one of these units.
_FREQUENCIES = {
    **dict.fromkeys(("ms", "L"), (1, "ms")),
    **dict.fromkeys(("s", "S"), (1, "s")),
    **dict.fromkeys(("min", "T"), (1, "min")),
    **dict.fromkeys(("h", "H"), (1, "h")),
    **dict.fromkeys(("D", "d"), (1, "d")),
    **dict.fromkeys(("B",), (1, "business days")),
    **dict.fromkeys(("W",), (1, "weeks")),
    **dict.fromkeys(("M", "MS", "ME", "BM", "BMS", "BME"), (1, "months")),
    **dict.fromkeys(("Q", "QS", "QE", "BQ", "BQS", "BQE"), (3, "months")),
    **dict.fromkeys(("Y", "YS", "YE", "A", "AS", "BY", "BYS", "BYE"), (1, "years")),
}


@dataclass(frozen=True)
class Step:
    """The time from one step of a series to the next."""

    amount: float = 1.0
    unit: str = "steps"

    @classmethod
    def of(cls, freq: Any) -> Step:
        """Return the step of a pandas frequency such as "h", "15min" or "MS"; without one, time counts in steps."""
        if freq is None:
            return cls()
        freq = str(getattr(freq, "freqstr", freq))  # of a pandas offset
        match = re.fullmatch(r"(\d*)([A-Za-z]+)(-[A-Z]{3})?", freq)
        if match is None or match[2] not in _FREQUENCIES or match[1].strip("0") == "" != match[1]:
            expected = "a pandas frequency such as s, min, 15min, h, D, B, W, MS, QS or YS"
            raise ArgumentError(argument="freq", expected=expected, got=freq)
        amount, unit = _FREQUENCIES[match[2]]
        return cls(float(match[1] or 1) * amount, unit)

    def format(self, steps: float, infinite: str = "inf", digits: int = 3) -> str:
        """Return a number of steps in the largest unit of which it makes at least two: "23.8 h", "3 d", "11 years"."""
        if math.isinf(steps) or math.isnan(steps):
            return infinite
        family = next(family for family in _UNIT_FAMILIES if self.unit in family)
        total = steps * self.amount * family[self.unit]
        names = list(family)[list(family).index(self.unit) :]  # no unit is smaller than the series' own
        unit = next((name for name in reversed(names) if total / family[name] >= 2), self.unit)
        number = _rounded(total / family[unit], digits)
        return f"{number} {unit.removesuffix('s') if number == '1' and len(unit) > 3 else unit}"


def _rounded(value: float, digits: int) -> str:
    if value == 0 or not 1e-3 <= abs(value) < 1e6:
        return f"{value:.{digits}g}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def format_share(share: float) -> str:
    """Return a share as a percentage, or a dash if it is unknown."""
    return "-" if math.isnan(share) else f"{round(share, 3) + 0.0:.1%}"  # 0.0%, not -0.0%


def count(number: int, noun: str) -> str:
    """Return a number with its noun, "1 block" or "3 blocks"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


class Summary(str):
    """A string that shows itself unquoted, also as the last line of a notebook cell."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True)
class Display:
    """A table to be read by people; every cell is text."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()

    def text(self) -> Summary:
        """Format the table for the terminal as statsmodels does: right-aligned columns between rules, notes below."""
        header, *rows = ([printable(cell) for cell in row] for row in (self.columns, *self.rows))
        widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
        width = max(sum(widths) + 2 * (len(widths) - 1), len(self.title))

        def line(cells: Sequence[str]) -> str:
            return "  ".join(cell.rjust(size) for cell, size in zip(cells, widths, strict=True))

        head = [self.title.center(width).rstrip(), "=" * width, line(header), "-" * width]
        notes = [row for note in self.notes for row in textwrap.wrap(printable(note, keep="\n"), max(width, 60))]
        return Summary("\n".join([*head, *map(line, rows), "=" * width, *notes]))


def optional(module: str) -> Any:
    """Import a module of an optional package; raise an error that names the extra if it is not installed."""
    package = module.split(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        extra = _EXTRAS[package]
        raise MissingPackageError(f"{package} is not installed", hint=f"pip install 'parallelrnn[{extra}]'") from error

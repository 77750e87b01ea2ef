"""What features and modes have in common: an eigenvalue, read as a decay or a damped wave."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, overload

from parallelrnn.interpret.display import Display, Step, Summary, format_share, optional

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

T = TypeVar("T", bound="Row")
_ROUNDING_OF_MODULUS = 4e-16  # cosine and sine are rounded, so their squares do not sum to exactly one


class Dynamics:
    """A decay (R) or a damped wave (C) of some order."""

    order: int
    eigenvalue: complex  # imag >= 0

    @property
    def kind(self) -> str:
        """R for a real eigenvalue, C for a complex pair."""
        return "C" if self.eigenvalue.imag else "R"

    @property
    def label(self) -> str:
        """The type: R-1, C-1, R-2, ..."""
        return f"{self.kind}-{self.order}"

    @property
    def modulus(self) -> float:
        """The factor by which the amplitude changes in one step."""
        size = abs(self.eigenvalue)
        return 1.0 if abs(size - 1) <= _ROUNDING_OF_MODULUS else size

    @property
    def angle(self) -> float:
        """The rotation in one step, from 0 to pi."""
        return math.atan2(abs(self.eigenvalue.imag), self.eigenvalue.real)  # an imaginary part of -0.0 counts as 0

    @property
    def period(self) -> float:
        """The steps of a full turn: infinite for a decay, 2 for a decay that alternates in sign."""
        return 2 * math.pi / self.angle if self.angle else math.inf

    @property
    def half_life(self) -> float:
        """The steps until half of the amplitude is left; infinite if it does not fade."""
        return half_life_of(self.modulus)

    @property
    def meaning(self) -> str:
        """What the modulus means, in a word or two."""
        if self.modulus > 1:
            return "growing"
        if self.modulus == 1:
            return "never fades"
        if self.modulus == 0:
            return f"gone after {self.order} steps"
        return "fading"


def half_life_of(modulus: float) -> float:
    """Return the steps until half is left if each step keeps this part; infinite for a part of one or more."""
    if not 0 < modulus < 1:
        return 0.0 if modulus <= 0 else math.inf
    return -math.log(2) / math.log(modulus)


class Row(Dynamics):
    """A decay or wave that carries a share of an output."""

    share: float  # NaN if unknown

    @property
    def place(self) -> tuple[Any, ...]:
        """Where the row belongs; rows of different fits are matched only if their places agree."""
        return ()


class Table(Sequence[T], ABC):
    """Rows of one kind."""

    name: ClassVar[str]
    subtitle: ClassVar[str]
    rows: tuple[T, ...]
    time: Step

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The properties of a row that a frame shows."""

    def display(self, most: int = 20) -> Display:
        """Return at most `most` rows as a table: those with the largest shares or, without data, the largest moduli."""
        shown = self.most_important(most)
        rows = [self._cells(row) | ({"share": format_share(row.share)} if self.has_shares else {}) for row in shown]
        columns = list(rows[0] if rows else self.columns)
        cells = [list(row.values()) for row in rows]
        return Display(f"{self.name}: {self.subtitle}", columns, cells, self._notes(len(shown)))

    def _cells(self, row: T) -> dict[str, str]:
        return {
            "type": row.label,
            "modulus": f"{row.modulus:.4f}",
            "angle": f"{row.angle:.4f}",
            "period": "-" if math.isinf(row.period) else self.time.format(row.period),
            "half-life": self.time.format(row.half_life, infinite=row.meaning),
        }

    @abstractmethod
    def _notes(self, shown: int) -> list[str]: ...

    def summary(self, most: int = 20) -> Summary:
        """Return the most important rows as text for the terminal."""
        return self.display(most).text()

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        return self.rows[index]

    def __iter__(self) -> Iterator[T]:
        return iter(self.rows)

    def counts(self) -> dict[str, int]:
        """Return the number of rows of each type, the most frequent first."""
        return dict(Counter(row.label for row in self).most_common())

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas frame; periods and half-lives are in steps."""
        rows: list[dict[str, Any]] = [{name: getattr(row, name) for name in self.columns} for row in self]
        return optional("pandas").DataFrame(rows, columns=list(self.columns))

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw all rows in the unit disk with matplotlib: area by share, the most important labelled by period."""
        from parallelrnn.interpret.plots import plot_disk

        return plot_disk(self, ax)

    def most_important(self, most: int) -> list[T]:
        """Return the rows with the largest shares in magnitude or, without shares, the largest moduli."""
        if self.has_shares:
            return sorted(self, key=lambda row: -1.0 if math.isnan(row.share) else abs(row.share), reverse=True)[:most]
        return sorted(self, key=lambda row: row.modulus, reverse=True)[:most]

    @property
    def has_shares(self) -> bool:
        """Whether the share of any row is known."""
        return any(not math.isnan(row.share) for row in self)

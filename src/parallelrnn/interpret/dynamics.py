"""What features and modes have in common: an eigenvalue, read as a decay or a damped wave."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, overload

from parallelrnn.interpret.optional import optional
from parallelrnn.interpret.text import Display, Summary
from parallelrnn.interpret.units import Step

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

T = TypeVar("T", bound="Row")
_ROUNDING = 4e-16  # of cosine and sine, whose squares should sum to one


class Dynamics:
    """A decay (R) or a damped wave (C) of some order."""

    order: int
    eigenvalue: complex  # imag >= 0

    @property
    def kind(self) -> str:
        """R for a real eigenvalue, C for a pair of complex ones."""
        return "C" if self.eigenvalue.imag else "R"

    @property
    def label(self) -> str:
        """The type: R-1, C-1, R-2, ..."""
        return f"{self.kind}-{self.order}"

    @property
    def modulus(self) -> float:
        """What one more step leaves."""
        size = abs(self.eigenvalue)
        return 1.0 if abs(size - 1) <= _ROUNDING else size

    @property
    def angle(self) -> float:
        """Of the turn in one step, from 0 to pi."""
        return math.atan2(abs(self.eigenvalue.imag), self.eigenvalue.real)  # an imaginary part of -0.0 is 0 too

    @property
    def period(self) -> float:
        """Steps of a full turn: infinite for a decay, 2 for one that changes its sign at every step."""
        return 2 * math.pi / self.angle if self.angle else math.inf

    @property
    def half_life(self) -> float:
        """Steps until half is left: infinite for what does not fade."""
        return half_life_of(self.modulus)

    @property
    def meaning(self) -> str:
        """What becomes of it, in a word or two."""
        if self.modulus > 1:
            return "growing"
        if self.modulus == 1:
            return "never fades"
        if self.modulus == 0:
            return f"gone after {self.order} steps"
        return "fading"


def half_life_of(modulus: float) -> float:
    """Steps until half is left of what each step leaves so much of: infinite for what does not fade."""
    if not 0 < modulus < 1:
        return 0.0 if modulus <= 0 else math.inf
    return -math.log(2) / math.log(modulus)


class Row(Dynamics):
    """Dynamics that carry a part of an output."""

    share: float  # NaN where it is not known

    @property
    def place(self) -> tuple[Any, ...]:
        """Rows of different fits at different places are not the same, however alike."""
        return ()


class Table(Sequence[T], ABC):
    """Rows of one kind."""

    name: ClassVar[str]
    rows: tuple[T, ...]
    time: Step  # from one step to the next

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The properties of a row that a frame shows."""

    @abstractmethod
    def display(self, most: int = 20) -> Display:
        """The rows with the largest shares, or without data the largest moduli, as a table of so many."""

    def summary(self, most: int = 20) -> Summary:
        """The same for the terminal."""
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
        """How many rows there are of each type, the most frequent first."""
        return dict(Counter(row.label for row in self).most_common())

    def to_frame(self) -> pd.DataFrame:
        """A pandas frame; period and half-life in steps."""
        rows: list[dict[str, Any]] = [{name: getattr(row, name) for name in self.columns} for row in self]
        frame: pd.DataFrame = optional("pandas").DataFrame(rows, columns=list(self.columns))
        return frame

    def plot(self, ax: Axes | None = None) -> Axes:
        """All rows in the unit disk, by matplotlib: area by share, the most important named by their periods."""
        from parallelrnn.interpret.plots import plot_disk

        return plot_disk(self, ax)

    def most_important(self, most: int) -> list[T]:
        """The rows with the largest shares, for or against, or where there are none the largest moduli."""
        if self.has_shares:
            return sorted(self, key=lambda row: -1.0 if math.isnan(row.share) else abs(row.share), reverse=True)[:most]
        return sorted(self, key=lambda row: row.modulus, reverse=True)[:most]

    @property
    def has_shares(self) -> bool:
        """Whether any row has a share."""
        return any(not math.isnan(row.share) for row in self)


def format_share(share: float) -> str:
    """A share as a percentage."""
    return "-" if math.isnan(share) else f"{share:.1%}"

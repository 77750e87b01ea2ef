"""Counts of feature types, as claims speak of them."""

from __future__ import annotations

from collections.abc import Iterable

from parallelrnn.lab.experiments.feature_types import Types, total
from parallelrnn.lab.markdown import as_text

LOW = frozenset(("R-1", "C-1"))
# Eigenvalues that are closer than the rounding of their matrix are read as one of a higher order.
_RARE = 0.001
RARE_IN_WORDS = (
    f"fewer than 1 in {1 / _RARE:,.0f} are of another type, and all cells were run (eigenvalues that the rounding of "
    "their matrix does not tell apart are read as one, of a higher order)"
)


def are_rare(others: Types, all_of_them: Types, whole: bool) -> bool | None:
    """Whether there are next to none of these types among all; None if not all was run."""
    return sum(others.values()) < _RARE * sum(all_of_them.values()) if whole and all_of_them else None


def summed(some: Iterable[Types]) -> Types:
    """Over readings, runs or models."""
    return total({str(number): types for number, types in enumerate(some)})


def listed(counts: Types) -> str:
    """In words, by type."""
    return ", ".join(f"{as_text(label)}: {count:,}" for label, count in sorted(counts.items()))

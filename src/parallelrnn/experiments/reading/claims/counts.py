"""Counts of feature types, as claims speak of them."""

from __future__ import annotations

from collections.abc import Iterable

from parallelrnn.experiments.feature_types import Types, total
from parallelrnn.experiments.reading.markdown import as_text

LOW = frozenset(("R-1", "C-1"))


def summed(some: Iterable[Types]) -> Types:
    """Over readings, runs or models."""
    return total({str(number): types for number, types in enumerate(some)})


def listed(counts: Types) -> str:
    """In words, by type."""
    return ", ".join(f"{as_text(label)}: {count:,}" for label, count in sorted(counts.items()))

"""Checks of what an estimator is told."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

from parallelrnn.errors import ArgumentError


def check_choice(name: str, value: Any, known: Sequence[Any]) -> None:
    """One of those that are known."""
    if value not in known:
        raise ArgumentError(f"{name} should be one of {', '.join(map(repr, known))}, got {value!r}")


def check_blocks(hidden_size: int, block_size: int) -> None:
    """Whole blocks."""
    if hidden_size % block_size:
        raise ArgumentError(f"hidden_size {hidden_size} is not a multiple of block_size {block_size}")


def check_training(dropout: Any, learning_rate: Any, gradient_clip: Any, max_time: Any) -> None:
    """Numbers that a training can work with."""
    for name, value in (("dropout", dropout), ("learning_rate", learning_rate), ("gradient_clip", gradient_clip)):
        if isinstance(value, bool) or not isinstance(value, Real):
            raise TypeError(f"{name} should be a number, got {value!r}")
    if not 0 <= dropout < 1:
        raise ArgumentError(f"dropout should be at least 0 and below 1, got {dropout}")
    if not 0 < learning_rate < float("inf"):
        raise ArgumentError(f"learning_rate should be above 0, got {learning_rate}")
    if not gradient_clip >= 0:
        raise ArgumentError(f"gradient_clip should be at least 0, which clips nothing, got {gradient_clip}")
    if max_time is not None and not (isinstance(max_time, Real) and float(max_time) > 0):
        raise ArgumentError(f"max_time should be a number of seconds above 0, got {max_time!r}")


def epoch_limits(value: Any) -> tuple[int, int]:
    """The fewest and the most steps of an epoch."""
    limits = tuple(value) if isinstance(value, Sequence) else ()
    if len(limits) != 2 or not all(isinstance(one, Integral) for one in limits) or not 1 <= limits[0] <= limits[1]:
        raise ArgumentError(f"epoch_steps: expected the fewest and the most steps of an epoch, got {value!r}")
    return int(limits[0]), int(limits[1])

"""Checks of what a loader or a simulation is told."""

from __future__ import annotations

from numbers import Integral
from typing import Any


def whole_number(name: str, value: Any, least: int) -> int:
    """A whole number that is large enough, of any kind."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} should be a whole number, got {value!r}")
    if value < least:
        raise ValueError(f"{name} should be at least {least}, got {value}")
    return int(value)

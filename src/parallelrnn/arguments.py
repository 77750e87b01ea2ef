"""Checks of what is passed to loaders and estimators."""

from __future__ import annotations

from numbers import Integral
from typing import Any


class OptionError(ValueError):
    """An argument that is not one of those that there can be."""


def whole_number(name: str, value: Any, least: int) -> int:
    """A whole number that is large enough, of any kind."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} should be a whole number, got {value!r}")
    if value < least:
        raise OptionError(f"{name} should be at least {least}, got {value}")
    return int(value)

"""Libraries that only some users need, imported when they are used."""

from __future__ import annotations

import importlib
from typing import Any

EXTRA = "plot"  # of pyproject.toml


def optional(module: str) -> Any:
    """A module of the extra, or an error that says how to install it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"this needs {module.split('.')[0]}, which is not installed: pip install 'parallelrnn[{EXTRA}]'",
            name=error.name,
        ) from error

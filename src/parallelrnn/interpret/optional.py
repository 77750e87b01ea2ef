"""Libraries that only some users need, imported when they are used."""

from __future__ import annotations

import importlib
from typing import Any

_EXTRAS = {"matplotlib": "plot", "pandas": "plot", "plotly": "report", "jinja2": "report"}  # of pyproject.toml


def optional(module: str) -> Any:
    """A module of an extra, or an error that says how to install it."""
    library = module.split(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"this needs {library}, which is not installed: pip install 'parallelrnn[{_EXTRAS[library]}]'",
            name=error.name,
        ) from error

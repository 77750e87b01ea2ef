"""The command `parallelrnn`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command; without the packages that it is made with, say what to install."""
    try:
        from parallelrnn.cli.app import app
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("typer", "rich"):
            raise
        sys.exit(f"the command line needs {error.name}, which is not installed: pip install 'parallelrnn[cli]'")
    app()

"""The command `parallelrnn`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line, or say how to install what it needs."""
    try:
        from parallelrnn.cli.app import app

        app()
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("typer", "rich"):
            raise
        sys.exit(f"{error}; the command line needs it: pip install 'parallelrnn[cli]'")

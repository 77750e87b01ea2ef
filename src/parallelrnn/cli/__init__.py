"""The command `parallelrnn`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line, or say how to install what it needs."""
    try:
        from parallelrnn.cli.app import app
    except ModuleNotFoundError as error:
        if error.name != "typer":
            raise
        sys.exit("the command line needs typer, which is not installed; pip install 'parallelrnn[cli]'")
    app()

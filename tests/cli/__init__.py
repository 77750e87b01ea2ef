"""Commands as typed."""

from typing import Any

from typer.testing import CliRunner

from parallelrnn.cli.app import app


def run(*words: object, code: int = 0) -> Any:
    """Run a command in this process; check its exit status, and that no error shows a traceback."""
    result = CliRunner(env={"COLUMNS": "80"}).invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output + repr(result.exception)
    assert "Traceback" not in result.output
    return result

"""How a command fails: one sentence that names the command's own options, and an exit status."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import typer

from parallelrnn.errors import (
    ArgumentError,
    ModelFileError,
    ParallelRNNError,
    TrainingError,
    is_out_of_memory,
    printable,
)
from parallelrnn.io import os_error_sentence
from parallelrnn.lab.benchmarks import BenchError

STATUS: dict[type[Exception], int] = {  # the first class that an error is an instance of decides
    BenchError: 1,
    ModelFileError: 4,
    TrainingError: 5,
    MemoryError: 6,
    ArgumentError: 2,  # as for an unknown option
    ParallelRNNError: 3,
    ValueError: 3,
    TypeError: 3,
    OSError: 3,
    ImportError: 3,
}
OPTIONS = {  # of arguments in Python, where the names differ
    "changes": "--set",
    "futr_df": "--future",
    "future_covariates": "--future",
    "id_col": "--id",
    "past_covariates": "--past",
    "random_state": "--seed",
    "static_covariates": "--static",
    "target_col": "--target",
    "time_col": "--time",
}


def option(argument: str, command: str) -> str:
    """Return the option of a command that sets an argument, or the argument itself if there is none."""
    if argument == "df":
        return "the table"
    name = OPTIONS.get(argument, f"--{argument.replace('_', '-')}")
    return name if name in known_options(command) else argument


@cache
def known_options(command: str) -> frozenset[str]:
    """Return the options of a command."""
    from parallelrnn.cli.app import app

    commands: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    commands |= commands["reproduce"].commands
    return frozenset(name for parameter in commands[command].params for name in parameter.opts)


@contextmanager
def exit_on_error(command: str) -> Iterator[None]:
    """Print an expected error and exit with its status; other errors keep their traceback."""
    try:
        yield
    except Exception as error:
        kind = MemoryError if is_out_of_memory(error) else type(error)
        status = next((status for known, status in STATUS.items() if issubclass(kind, known)), None)
        if status is None:
            raise
        _print(_message(error, command), "red")
        raise typer.Exit(status) from None


@contextmanager
def print_warnings(command: str) -> Iterator[None]:
    """Print each different warning once, at the end of the block."""
    caught: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
    finally:
        for text in dict.fromkeys(_message(warning.message, command) for warning in caught):
            note(text)


def note(text: str) -> None:
    """Print a remark to the standard error stream."""
    _print(f"note: {text}", "yellow")


def _message(error: Warning | Exception | str, command: str) -> str:
    if isinstance(error, ParallelRNNError):
        return error.sentence(lambda argument: option(argument, command))
    if isinstance(error, Exception) and is_out_of_memory(error):
        detail = str(error) or type(error).__name__
        return f"out of memory ({detail}); use less data or a smaller model, or close other programs"
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return os_error_sentence(error)
    return str(error)


def _print(text: str, style: str) -> None:
    from rich.console import Console

    text = printable(text, keep="\n\t")  # names of columns and of series come from files
    Console(stderr=True, highlight=False).print(text, style=style, markup=False, soft_wrap=True)

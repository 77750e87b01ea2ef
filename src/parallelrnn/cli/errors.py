"""How a command fails: one sentence that names the command's own options, and an exit status."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import typer
from typer.core import TyperGroup

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
    **dict.fromkeys((ParallelRNNError, ValueError, TypeError, OSError, ImportError), 3),
}
_NUMBERS = {int: "an integer", float: "a number", list[float]: "a number"}
OPTIONS = {"changes": "--set", "futr_df": "--future", "random_state": "--seed"}  # of arguments with other names


def option(argument: str, command: str) -> str:
    """Return the option of a command that sets an argument, or the argument itself if there is none."""
    if argument == "df":
        return "the table"
    stem = argument.removesuffix("_col").removesuffix("_covariates")  # --id for id_col, --past for past_covariates
    name = OPTIONS.get(argument, f"--{stem.replace('_', '-')}")
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


class Group(TyperGroup):
    """Commands that reject a number like any other argument: with what was expected and the value that came."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            parameter: Any = error.param
            rejected: list[Any] = getattr(error.__cause__, "errors", list)()  # of pydantic; click shows values itself
            kind = _NUMBERS.get(parameter.type_descriptor.annotation) if rejected else None
            if kind is None:
                raise
        name, got = parameter.opts[0], rejected[0]["input"]
        expected = kind if parameter.min is None else f"{kind} of at least {parameter.min}"
        parts = got.split(",") if parameter.multiple else ()
        hint = f"repeat the option: {' '.join(f'{name} {part}' for part in parts)}" if len(parts) > 1 else ""
        with exit_on_error(str(ctx.invoked_subcommand)):
            raise ArgumentError(argument=name, expected=expected, got=got, hint=hint)


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
    return os_error_sentence(error) if isinstance(error, OSError) else str(error)


def _print(text: str, style: str) -> None:
    from rich.console import Console

    text = printable(text, keep="\n\t")  # names of columns and of series come from files
    Console(stderr=True, highlight=False).print(text, style=style, markup=False, soft_wrap=True)

"""Errors and warnings as the command line shows them."""

from __future__ import annotations

import warnings

import pytest
import typer

from parallelrnn.cli.errors import OPTIONS, exit_on_error, known_options, print_warnings
from parallelrnn.errors import ArgumentError, InputWarning, ModelFileError, TableError, TrainingError


def test_errors_and_warnings_name_options(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit), exit_on_error("fit"):
        raise ArgumentError(
            argument="val_size", expected="more", got=1, hint="or {id_col}, {futr_df}, {devices}", code="df.x"
        )
    with print_warnings("fit"):
        for _ in range(2):
            warnings.warn(InputWarning("odd", hint="give {target_col}"), stacklevel=1)
    assert (
        capsys.readouterr().err
        == "--val-size: expected more, got 1; or --id, --future, devices\nnote: odd; give --target\n"
    )


@pytest.mark.parametrize(("command", "name"), [("fit", "--id"), ("forecast", "id_col"), ("adding", "id_col")])
def test_errors_name_only_options_of_their_own_command(
    command: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit), exit_on_error(command):
        raise TableError("odd", hint="give {id_col}")
    assert capsys.readouterr().err == f"odd; give {name}\n"


def test_the_options_exist() -> None:
    assert set(OPTIONS.values()) <= known_options("fit") | known_options("adding")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ArgumentError("x"), 2),
        (TableError("x"), 3),
        (FileNotFoundError(2, "no such file", "x"), 3),
        (ModelFileError("x"), 4),
        (TrainingError("x"), 5),
        (MemoryError(), 6),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), 6),
    ],
)
def test_exit_statuses(error: Exception, status: int) -> None:
    with pytest.raises(typer.Exit) as ended, exit_on_error("fit"):
        raise error
    assert ended.value.exit_code == status


def test_a_bug_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError), exit_on_error("fit"):
        raise ZeroDivisionError

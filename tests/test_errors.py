"""Errors carry fields, and their sentences are made from them."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from parallelrnn import errors
from parallelrnn.errors import (
    ArgumentError,
    ArgumentTypeError,
    ParallelRNNError,
    TableError,
    check_choice,
    check_integer,
)


def test_the_sentence_is_made_from_the_fields() -> None:
    error = ArgumentError(argument="level", expected="a percentage below 100", got=120, hint="use 95")
    assert str(error) == "level: expected a percentage below 100, got 120; use 95"
    assert (error.argument, error.got, error.hint) == ("level", 120, "use 95")


def test_the_user_reads_the_names_that_the_user_knows() -> None:
    error = ArgumentError("two rows share a time stamp", hint="keep one, or give {id_col}", code="df.drop_duplicates()")
    assert str(error) == "two rows share a time stamp; keep one, or give id_col=; df.drop_duplicates()"
    assert error.sentence({"id_col": "--id"}.__getitem__) == "two rows share a time stamp; keep one, or give --id"


def test_the_argument_names_what_a_problem_is_about() -> None:
    error = TableError("no column 'b'", argument="futr_df")
    assert str(error) == "futr_df: no column 'b'"
    assert error.sentence({"futr_df": "--future"}.__getitem__) == "--future: no column 'b'"


def test_none_is_a_value_like_any_other() -> None:
    assert str(ArgumentError(argument="cell", expected="a name", got=None)) == "cell: expected a name, got None"


KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, ParallelRNNError)]


@pytest.mark.parametrize("kind", KINDS)
def test_errors_keep_their_fields_across_processes(kind: type[ParallelRNNError]) -> None:
    error = kind("problem", argument="horizon", expected="more", got=[1], hint="give {horizon}", code="x")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert vars(copy) == vars(error)
    assert str(copy) == str(error)


@pytest.mark.parametrize(("value", "kind"), [(0, ArgumentError), (1.0, ArgumentTypeError), (True, ArgumentTypeError)])
def test_integers(value: Any, kind: type[Exception]) -> None:
    assert check_integer("horizon", 3, 1) == 3
    with pytest.raises(kind) as caught:
        check_integer("horizon", value, 1)
    assert type(caught.value) is kind
    assert caught.value.got == value


def test_choices() -> None:
    check_choice("cell", "gru", ("gru", "lstm"))
    with pytest.raises(ArgumentError) as caught:
        check_choice("cell", "gruu", ("gru", "lstm"))
    assert (caught.value.argument, caught.value.got) == ("cell", "gruu")


def test_a_missing_package_names_its_module() -> None:
    error = errors.MissingPackageError("the demo needs statsmodels", name="statsmodels", hint="pip install statsmodels")
    assert error.name == "statsmodels"
    assert str(error) == "the demo needs statsmodels; pip install statsmodels"

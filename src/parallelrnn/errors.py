"""Errors that carry fields, and the one place where their sentences are made.

Whoever raises an error says what was expected, what was given and what to do; the wording follows from that. The
command line asks for the same sentence with its own names for the arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from numbers import Integral, Real
from typing import Any

_MISSING: Any = object()
_MENTION = re.compile(r"\{(\w+)\}")  # an argument that a hint speaks of
# Control characters, surrogates, line separators and marks that change the direction of writing.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_TORCH_OUT_OF_MEMORY = ("can't allocate memory", "out of memory")  # in a RuntimeError, on CPUs and on accelerators


class ParallelRNNError(Exception):
    """An error with fields.

    Parameters
    ----------
    problem
        What is wrong, where that is not simply one argument with a bad value.
    argument
        The argument at fault, by its name in Python; it is put before the problem, or before what was expected.
    expected, got
        What the argument has to be, in words, and the value that came instead.
    hint
        What to do. `{freq}` stands for the argument `freq`, under whatever name the user knows it.
    code
        Python that does it; left out where the user is not writing Python.

    Examples
    --------
    >>> str(ParallelRNNError(argument="horizon", expected="an integer of at least 1", got=0))
    'horizon: expected an integer of at least 1, got 0'
    >>> error = ParallelRNNError("the timestamps are irregular", hint="resample the series, or give {freq}")
    >>> str(error)
    'the timestamps are irregular; resample the series, or give freq='
    >>> error.sentence(lambda argument: f"--{argument}")
    'the timestamps are irregular; resample the series, or give --freq'
    """

    def __init__(
        self,
        problem: str = "",
        *,
        argument: str | None = None,
        expected: str = "",
        got: Any = _MISSING,
        hint: str = "",
        code: str = "",
    ) -> None:
        self.problem, self.argument, self.expected, self.hint, self.code = problem, argument, expected, hint, code
        self.got = None if got is _MISSING else got
        self._has_got = got is not _MISSING
        super().__init__(self.sentence())

    def sentence(self, name_of: Callable[[str], str] | None = None) -> str:
        """Return the message; `name_of` turns the name of an argument into what the user calls it."""
        subject = "" if self.argument is None else f"{name_of(self.argument) if name_of else self.argument}: "
        parts = [self.problem if self.expected else f"{subject}{self.problem}"] if self.problem else []
        if self.expected:
            parts.append(f"{subject}expected {self.expected}" + (f", got {self.got!r}" if self._has_got else ""))
        if self.hint:
            parts.append(_MENTION.sub(lambda match: name_of(match[1]) if name_of else f"{match[1]}=", self.hint))
        if self.code and name_of is None:
            parts.append(self.code)
        return "; ".join(parts)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(kind: type[ParallelRNNError], args: tuple[Any, ...], fields: dict[str, Any]) -> ParallelRNNError:
    """Return an error as it was in another process."""
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(fields)
    return error


class InputError(ParallelRNNError, ValueError):
    """Input that cannot be used."""


class ArgumentError(InputError):
    """An argument with a value that it cannot have."""


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument of the wrong type."""


class TensorError(InputError, RuntimeError):
    """A tensor of the wrong shape, dtype, device or layout: a ValueError or a RuntimeError in torch, so it is both."""


class TableError(InputError):
    """A table that cannot be read."""


class TimestampError(TableError):
    """Timestamps that are missing, duplicate, irregular, or of another frequency."""


class NotFittedError(InputError, AttributeError):
    """An estimator that was used before `fit`."""


class FileError(InputError):
    """A file that is damaged, of another format, or of another version."""


class ModelFileError(FileError):
    """A saved model that cannot be read."""


class CheckpointError(FileError):
    """A checkpoint that cannot be resumed from."""


class TrainingError(ParallelRNNError, RuntimeError):
    """A training that diverged."""


class ProcessError(ParallelRNNError, RuntimeError):
    """Processes that train together and lost each other, or disagree."""


class UnavailableError(ParallelRNNError, RuntimeError):
    """Something that this machine or this installation does not have."""


class MissingPackageError(ParallelRNNError, ModuleNotFoundError):
    """An optional package that is not installed; `name` is that of the module."""

    def __init__(self, problem: str = "", *, name: str | None = None, **fields: Any) -> None:
        super().__init__(problem, **fields)
        self.name = name


class InputWarning(ParallelRNNError, UserWarning):  # noqa: N818 - a warning, raised as an error only by filters
    """A warning about the input, with the same fields; give it to `warnings.warn`."""


def check_integer(argument: str, value: Any, minimum: int) -> int:
    """Return an integer of any kind as an int; raise if it is below the minimum or no integer."""
    expected = f"an integer of at least {minimum}"
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ArgumentTypeError(argument=argument, expected=expected, got=value)
    if value < minimum:
        raise ArgumentError(argument=argument, expected=expected, got=value)
    return int(value)


def check_number(argument: str, value: Any, expected: str, accepts: Callable[[float], bool]) -> float:
    """Return a real number as a float; raise if `accepts` rejects it or it is no number. `expected` says which are."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ArgumentTypeError(argument=argument, expected=expected, got=value)
    if not accepts(float(value)):
        raise ArgumentError(argument=argument, expected=expected, got=value)
    return float(value)


def check_choice(argument: str, value: Any, choices: Collection[Any]) -> None:
    """Raise unless the value is one of the choices."""
    if value not in choices:
        raise ArgumentError(argument=argument, expected=f"one of {', '.join(map(repr, choices))}", got=value)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out: Python, NumPy and the kernels raise MemoryError, torch a RuntimeError."""
    by_torch = isinstance(error, RuntimeError) and any(text in str(error) for text in _TORCH_OUT_OF_MEMORY)
    return by_torch or isinstance(error, MemoryError)


def printable(text: str, keep: str = "") -> str:
    """Escape what a terminal would obey instead of show, except the characters in `keep`."""
    return _CONTROL.sub(lambda match: match[0] if match[0] in keep else ascii(match[0])[1:-1], text)

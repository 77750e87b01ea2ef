"""How a command ends when it cannot do what was asked: a sentence, and a status that says whose fault it is."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console

from parallelrnn.errors import ArgumentError, ModelFileError, TrainingError, is_out_of_memory
from parallelrnn.interpret.display import printable
from parallelrnn.io import sentence
from parallelrnn.lab.benchmarks.kernels import BenchError

# The first that an error is an instance of counts.
STATUS: dict[type[Exception], int] = {
    BenchError: 1,
    ModelFileError: 4,
    TrainingError: 5,
    MemoryError: 6,
    ArgumentError: 2,  # as of options that are not there
    ValueError: 3,  # of these four, what was given is to blame
    TypeError: 3,
    OSError: 3,
    ImportError: 3,
}

_OPTIONS = {  # what Python calls them, and what the command does
    r"parse the column first, by pd\.to_datetime\(\.\.\., format=(.*?)\) say": r"say how times are written, by "
    r"--time-format \1 say",
    r", by df\[time\]\.dt\..*$": "",  # how to do it in Python
    r", df\.drop_duplicates\(.*?\) say": "",
    r"\bid_col=": "--id",
    r"\btime_col=": "--time",
    r"\btarget_col=": "--target",
    r"\bfreq=": "--freq",
    r"\bval_size\b": "--val-size",
    r"\bfutr_df\b=?": "--future",
    r"\bpast_covariates\b": "--past",
    r"\bfuture_covariates\b": "--future",
    r"\bstatic_covariates\b": "--static",
    r"\bmax_time\b": "--max-time",
    r"\blookback=": "--lookback ",
}


@contextmanager
def refusals(kinds: tuple[type[Exception], ...] = tuple(STATUS)) -> Iterator[None]:
    """End with the message of a refusal, which says what to do; errors of other kinds are ours and keep a traceback."""
    try:
        yield
    except Exception as error:
        kind = MemoryError if is_out_of_memory(error) else type(error)
        if not issubclass(kind, (MemoryError, *kinds)):
            raise
        _say(_in_words_of_the_command(error), "red")
        raise typer.Exit(next(status for one, status in STATUS.items() if issubclass(kind, one))) from None


def _in_words_of_the_command(error: Exception) -> str:
    """What an error says, with options where it speaks of arguments, and without the numbers of the system."""
    if is_out_of_memory(error):
        return f"memory was used up ({str(error) or type(error).__name__}); give less at once, or close other programs"
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return sentence(error)
    return _with_options(str(error))


def _with_options(text: str) -> str:
    """Options where it speaks of arguments."""
    for pattern, option in _OPTIONS.items():
        text = re.sub(pattern, option, text)
    return text


@contextmanager
def told_warnings() -> Iterator[None]:
    """Warnings as sentences, each once."""
    caught: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
    finally:
        for text in dict.fromkeys(_with_options(str(one.message)) for one in caught):
            note(text)


def note(text: str) -> None:
    """Something to know, beside what was asked for."""
    _say(f"note: {text}", "yellow")


def _say(text: str, style: str) -> None:
    text = printable(text, keep="\n\t")  # names of columns and of series come from files
    Console(stderr=True, highlight=False).print(text, style=style, markup=False, soft_wrap=True)

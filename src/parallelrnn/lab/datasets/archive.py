"""Readers for the files of the UEA and UCR archive of time series classification: .ts and .arff.

Both say what they hold in a header, then have one line for each series. What does not fit is refused with the number of
its line, as is a number too large for float32. A missing value, `?` or `NaN`, becomes NaN.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Line = tuple[int, str]


def read_ts(path: str | Path) -> tuple[Array, list[str]]:
    """The series (N, T, C) and labels of a .ts file: channels between colons, the label after the last.

    Series of unequal length, with time stamps, or without class labels are refused.
    """
    lines = _lines(path, comment="#%")
    header: dict[str, str] = {}
    for number, line in lines:
        key, *rest = line.split(maxsplit=1)
        if not key.startswith("@"):
            raise _error(path, number, "expected a line of the header, such as '@problemName Worms', or '@data'", line)
        header[key[1:].lower()] = rest[0] if rest else ""
        if key.lower() == "@data":
            break
    if "data" not in header:
        raise ValueError(f"{path}: expected a line '@data' before the series, got none")
    if header.get("timestamps", "false").lower() == "true":
        raise ValueError(f"{path}: its values have time stamps, which are not read; write the values alone")
    kind, *classes = header.get("classlabel", "").split() or ["nothing"]
    if kind.lower() != "true":
        raise ValueError(
            f"{path}: expected '@classLabel true' and the labels in the header, got {kind!r}; the series need labels"
        )
    channels = _declared(path, header, "dimensions", "dimension")
    if channels is None and header.get("univariate", "false").lower() == "true":
        channels = 1
    length = _declared(path, header, "serieslength")
    series = _Series(path, channels, length, classes)
    for number, line in lines:
        *parts, label = line.split(":")
        series.add(number, parts, label.strip())
    return series.result()


def read_arff(path: str | Path) -> tuple[Array, list[str]]:
    r"""The series (N, T, C) and labels of an .arff file of the archive.

    Of one channel: a column for each time and the label in the last. Of several: a relational column, in which a quoted
    text holds the channels, each a row of values, with a literal `\n` between them, and then the label. Sparse rows,
    which leave out zeros, are refused.
    """
    lines = _lines(path, comment="%")
    attributes: list[tuple[int, str]] = []
    relational, found = False, False
    for number, line in lines:
        word = line.split(maxsplit=1)[0].lower()
        if word == "@attribute":
            if line.split()[-1].lower() == "relational":
                relational = True
            else:
                attributes.append((number, line))
        elif word == "@data":
            found = True
            break
        elif word not in ("@relation", "@end"):
            raise _error(path, number, "expected a line of the header, such as '@attribute', or '@data'", line)
    if not found:
        raise ValueError(f"{path}: expected a line '@data' before the series, got none")
    classes = _classes(path, attributes)
    series = _Series(path, None if relational else 1, len(attributes) - 1, classes)
    for number, line in lines:
        if line.lstrip("'\" ").startswith("{"):
            raise _error(path, number, "expected all values of a row; a sparse row is not read, write its zeros", line)
        if relational:
            bag, label = _bag(path, number, line)
            parts = bag.split("\\n")
        else:
            values, _, label = line.rpartition(",")
            parts = [values]
        if parts[-1].strip() == "":  # a line that ends with its last separator
            parts = parts[:-1]
        series.add(number, parts, _unquoted(label))
    return series.result()


class _Series:
    """The series read so far; each has to have the form of the header and of the one before."""

    def __init__(self, path: str | Path, channels: int | None, length: int | None, classes: list[str]) -> None:
        self.path, self.channels, self.length, self.classes = path, channels, length, classes
        self.inputs: list[Array] = []
        self.labels: list[str] = []

    def add(self, number: int, channels: list[str], label: str) -> None:
        if self.classes and label not in self.classes:
            raise _error(self.path, number, f"expected a label at its end, one of {', '.join(self.classes)}", label)
        if self.channels is None:
            self.channels = len(channels)
        if len(channels) != self.channels or not channels:
            raise ValueError(
                f"{self.path}, line {number}: expected {self.channels or 'some'} channels, got {len(channels)}"
            )
        values = [self._values(number, text) for text in channels]
        for place, row in enumerate(values):
            if self.length is None:
                self.length = len(row)
            if len(row) != self.length:
                raise ValueError(
                    f"{self.path}, line {number}: expected {self.length} values in channel {place + 1}, got "
                    f"{len(row)}; series of unequal length are not read, pad or cut them first"
                )
        self.inputs.append(np.stack(values, axis=1).astype(np.float32))  # (T, C)
        self.labels.append(label)

    def _values(self, number: int, text: str) -> NDArray[np.float64]:
        parts = text.split(",")
        if "?" in text:
            parts = ["nan" if part.strip() == "?" else part for part in parts]
        try:
            if "_" in text or not text.isascii():  # float would read 1_0 as 10, and the digits of every script
                wrong = next(part for part in parts if "_" in part or not part.isascii())
                raise ValueError(f"could not convert string to float: {wrong!r}")
            values = np.array([float(part) for part in parts])
        except ValueError as error:  # it quotes what is no number
            raise ValueError(f"{self.path}, line {number}: expected numbers between commas; {error}") from None
        large = np.flatnonzero(np.abs(values) > np.finfo(np.float32).max)
        if len(large):
            expected = "expected finite numbers of float32, and ? for those missing"
            raise _error(self.path, number, expected, parts[large[0]])
        return values

    def result(self) -> tuple[Array, list[str]]:
        if not self.inputs:
            raise ValueError(f"{self.path}: expected series after '@data', got none")
        return np.stack(self.inputs), self.labels


def _lines(path: str | Path, comment: str) -> Iterator[Line]:
    """The lines that say something, with their numbers."""
    # Comments are in whichever encoding; what counts is ASCII.
    with Path(path).open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            text = line.strip().lstrip("\ufeff")
            if text and text[0] not in comment:
                yield number, text


def _declared(path: str | Path, header: dict[str, str], *keys: str) -> int | None:
    """A count that the header gives, or None."""
    for key in keys:
        if key in header:
            if not header[key].isdecimal():
                raise ValueError(f"{path}: expected a number after @{key}, got {header[key]!r}")
            return int(header[key])
    return None


def _classes(path: str | Path, attributes: list[Line]) -> list[str]:
    """The labels that the last column may have; those before have to be numbers."""
    if len(attributes) < 2:
        raise ValueError(
            f"{path}: expected a column of numbers for each time and one of labels, got {len(attributes)} columns"
        )
    for number, line in attributes[:-1]:
        if line.split()[-1].lower() not in ("numeric", "real", "integer"):
            raise _error(path, number, "expected a column of numbers", line)
    number, line = attributes[-1]
    if not line.endswith("}"):
        raise _error(path, number, "expected the last column to list its labels, as in '@attribute target {1,2}'", line)
    return [_unquoted(label) for label in line[line.index("{") + 1 : -1].split(",")]


def _bag(path: str | Path, number: int, line: str) -> tuple[str, str]:
    """The quoted channels of a line, and its label."""
    found = re.fullmatch(r"(['\"])(.*)\1\s*,(.*)", line)
    if found is None:
        raise _error(path, number, "expected channels in quotes, a comma and a label", line)
    return found[2], found[3]


def _unquoted(text: str) -> str:
    text = text.strip()
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def _error(path: str | Path, number: int, expected: str, line: str) -> ValueError:
    got = line if len(line) <= 60 else line[:57] + "..."
    return ValueError(f"{path}, line {number}: {expected}, got {got!r}")

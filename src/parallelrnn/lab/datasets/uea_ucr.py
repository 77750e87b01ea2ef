"""Data sets of the UEA and UCR archive: EigenWorms, which the paper uses, two smaller ones, and readers of their files.

Worms is not EigenWorms: it comes from the same recordings and has the same five classes, but holds only the first
eigenworm, averaged down to 900 steps and standardised. Results on it have to be named so. StandWalkJump is quite
another set, short enough to try things with.

The files, .ts and .arff, have a header and one line for each series. Wrong lines are rejected with their number, as are
numbers too large for float32. A missing value, `?` or `NaN`, becomes NaN.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from parallelrnn.errors import FileError
from parallelrnn.lab.datasets.files import DatasetError, Source, find, locate
from parallelrnn.lab.datasets.splits import Examples, Splits, permutation

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Form:
    """Expected contents of a data set."""

    counts: tuple[int, int]  # series in the files TRAIN and TEST
    length: int
    channels: int
    classes: tuple[str, ...]  # in the order of their numbers


PARTS = ("TRAIN", "TEST")
_WORMS = ("1", "2", "3", "4", "5")
FORMS = {
    "Worms": Form((181, 77), 900, 1, _WORMS),
    "StandWalkJump": Form((12, 15), 2500, 4, ("jumping", "standing", "walking")),
    "EigenWorms": Form((128, 131), 17984, 6, _WORMS),
}
NPZ_SHA256 = {  # of copies as numpy arrays
    "Worms": "13b469c4043b1a7e68cbdcf3a0dc46470979992d5a4ddafd1b5c20aa90e0ad89",
    "StandWalkJump": "457820bc5d020a5b6deb029d64c25f4352f102283947626281f8a3bcf688543d",
}


def load_worms(seed: int = 0) -> Splits:
    """Return Worms: 258 series (N, 900, 1) of five kinds of worms (N,); a stand-in for EigenWorms, not the same set.

    The archive's two parts are joined and split again by the seed, 70 % for training and 15 % each for validation and
    test.
    """
    return _load("Worms", seed)


def load_stand_walk_jump(seed: int = 0) -> Splits:
    """Return StandWalkJump: 27 series (N, 2500, 4) of jumping, standing or walking (N,), split as in `load_worms`."""
    return _load("StandWalkJump", seed)


def load_eigenworms(seed: int = 0) -> Splits:
    """Return EigenWorms: 259 series (N, 17984, 6) of five kinds of worms (N,); 181, 39 and 39, as in `load_worms`.

    Rusch et al. ("Long Expressive Memory for Sequence Modeling", 2022), whom the paper follows, split it like this,
    with other random numbers. Reading the files takes about 15 seconds.
    """
    return _load("EigenWorms", seed)


def sources(name: str, part: str) -> list[Source]:
    """Return the forms in which the archive has a part of a set, TRAIN or TEST; it publishes no checksums."""
    url = f"https://www.timeseriesclassification.com/aeon-toolkit/{name}.zip"
    files = [f"{name}_{part}.{form}" for form in ("ts", "arff")]
    return [Source(path=f"uea_ucr/{file}", url=url, member=file) for file in files]


def _load(name: str, seed: int) -> Splits:
    form = FORMS[name]
    copy = find(Source(path=f"uea_ucr/{name}.npz", sha256=NPZ_SHA256[name])) if name in NPZ_SHA256 else None
    paths = [copy or locate(*sources(name, part)) for part in PARTS]
    parts = [_read(path, name, part) for path, part in zip(paths, PARTS, strict=True)]
    for path, part, (inputs, labels), count in zip(paths, PARTS, parts, form.counts, strict=True):
        expected, hint = (count, form.length, form.channels), f"replace it with a file of {sources(name, part)[0].url}"
        if inputs.shape != expected or len(labels) != count or not set(labels) <= set(form.classes):
            raise DatasetError(
                f"{path} is not the published {name}: expected shape {expected} (series, time, channels) and labels "
                f"{', '.join(form.classes)}, got {inputs.shape} and {', '.join(sorted(set(labels)))}",
                hint=hint,
            )
        gaps = np.argwhere(~np.isfinite(inputs))
        if len(gaps):  # none is in the published sets, and one would make every loss NaN
            value, (row, time, channel) = inputs[tuple(gaps[0])], gaps[0] + 1
            place = f"{value} in {part}, series {row}, channel {channel}, time {time}"
            raise DatasetError(f"{path} is not the published {name}: expected finite numbers, got {place}", hint=hint)
    numbers = np.array([form.classes.index(label) for _, labels in parts for label in labels], dtype=np.int64)
    return split(Examples(np.concatenate([inputs for inputs, _ in parts]), numbers), seed)


def _read(path: Path, name: str, part: str) -> tuple[Array, list[str]]:
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as arrays:
            inputs, labels = (arrays[f"{array}_{part.lower()}"] for array in "Xy")
            return inputs.astype(np.float32), [str(label) for label in labels]
    try:
        return read_arff(path) if path.suffix == ".arff" else read_ts(path)
    except FileError as error:
        raise DatasetError(f"this is not the {name} of the archive: {error}", hint="replace the file") from error


def split(examples: Examples, seed: int) -> Splits:
    """Split at random into 70 % for training and 15 % each for validation and test; remainders go to the test."""
    count = len(examples)
    others = -(-3 * count // 10)
    rows = np.split(permutation(count, seed), [count - others, count - -(-others // 2)])
    return Splits(*(examples.take(part) for part in rows))


def read_ts(path: str | Path) -> tuple[Array, list[str]]:
    """Return the series (N, T, C) and labels of a .ts file: channels between colons, the label after the last.

    Series of unequal length, with time stamps or without labels are rejected.
    """
    lines = _lines(path, comment="#%")
    header: dict[str, str] = {}
    for number, line in lines:
        key, *rest = line.split(maxsplit=1)
        if not key.startswith("@"):
            raise _error(path, number, "expected a line of the header, such as '@problemName Worms', or '@data'", line)
        if key.lower() == "@data":
            break
        header[key[1:].lower()] = rest[0] if rest else ""
    else:
        raise FileError(f"{path}: expected a line '@data' before the series")
    if header.get("timestamps", "false").lower() == "true":
        raise FileError(f"{path} has time stamps, which are not supported", hint="write the values alone")
    kind, *classes = header.get("classlabel", "").split() or ["nothing"]
    if kind.lower() != "true":
        raise FileError(f"{path}: expected '@classLabel true' and the labels in the header, got {kind!r}")
    for key in ("dimensions", "dimension", "serieslength"):
        if not header.get(key, "1").isdecimal():
            raise FileError(f"{path}: expected a number after @{key}, got {header[key]!r}")
    one = "1" if header.get("univariate", "").lower() == "true" else None
    channels, length = header.get("dimensions", header.get("dimension", one)), header.get("serieslength")
    rows = ((number, line.split(":")) for number, line in lines)
    return _parse(
        path,
        ((number, texts, label.strip()) for number, (*texts, label) in rows),
        None if channels is None else int(channels),
        None if length is None else int(length),
        classes,
    )


def read_arff(path: str | Path) -> tuple[Array, list[str]]:
    r"""Return the series (N, T, C) and labels of an .arff file of the archive.

    One channel has a column for each time, and the label in the last. Several are a relational column: a quoted text
    holds the channels, each a row of values, with a literal `\n` between them; then comes the label. Sparse rows, which
    leave out zeros, are rejected.
    """
    lines = _lines(path, comment="%")
    attributes: list[tuple[int, str]] = []
    relational = False
    for number, line in lines:
        word = line.split(maxsplit=1)[0].lower()
        if word == "@data":
            break
        if word == "@attribute" and line.split()[-1].lower() == "relational":
            relational = True
        elif word == "@attribute":
            attributes.append((number, line))
        elif word not in ("@relation", "@end"):
            raise _error(path, number, "expected a line of the header, such as '@attribute', or '@data'", line)
    else:
        raise FileError(f"{path}: expected a line '@data' before the series")
    if len(attributes) < 2:
        raise FileError(f"{path}: expected a column for each time and one of labels, got {len(attributes)} columns")
    for number, line in attributes[:-1]:
        if line.split()[-1].lower() not in ("numeric", "real", "integer"):
            raise _error(path, number, "expected a column of numbers", line)
    number, last = attributes[-1]
    if not last.endswith("}"):
        raise _error(path, number, "expected the last column to list its labels, as in '@attribute target {1,2}'", last)
    classes = [_unquoted(label) for label in last[last.index("{") + 1 : -1].split(",")]

    def rows() -> Iterator[tuple[int, list[str], str]]:
        for number, line in lines:
            if line.lstrip("'\" ").startswith("{"):
                raise _error(path, number, "expected all values, with zeros: sparse rows are not supported", line)
            values, _, label = line.rpartition(",")
            texts = [values]
            if relational:
                match = re.fullmatch(r"(['\"])(.*)\1\s*,(.*)", line)
                if match is None:
                    raise _error(path, number, "expected channels in quotes, a comma and a label", line)
                texts, label = match[2].split("\\n"), match[3]
            if not texts[-1].strip():  # a line that ends with its last separator
                texts.pop()
            yield number, texts, _unquoted(label)

    return _parse(path, rows(), None if relational else 1, len(attributes) - 1, classes)


def _parse(
    path: str | Path,
    rows: Iterable[tuple[int, list[str], str]],  # the number of a line, its channels and its label
    channels: int | None,
    length: int | None,
    classes: list[str],
) -> tuple[Array, list[str]]:
    """Return the series, which all have the shape that the header or the first one says, and their labels."""
    inputs, labels = [], []
    for number, texts, label in rows:
        if classes and label not in classes:
            raise _error(path, number, f"expected a label at its end, one of {', '.join(classes)}", label)
        channels = len(texts) if channels is None else channels
        if len(texts) != channels or not texts:
            raise FileError(f"{path}, line {number}: expected {channels or 'some'} channels, got {len(texts)}")
        series = [_numbers(path, number, text) for text in texts]
        length = len(series[0]) if length is None else length
        for place, values in enumerate(series, 1):
            if len(values) != length:
                problem = f"{path}, line {number}: expected {length} values in channel {place}, got {len(values)}"
                raise FileError(problem, hint="pad or cut series to equal length")
        inputs.append(np.stack(series, axis=1).astype(np.float32))  # (T, C)
        labels.append(label)
    if not inputs:
        raise FileError(f"{path}: expected series after '@data'")
    return np.stack(inputs), labels


def _numbers(path: str | Path, line: int, text: str) -> NDArray[np.float64]:
    parts = text.split(",")
    if "?" in text:
        parts = ["nan" if part.strip() == "?" else part for part in parts]
    try:
        if "_" in text or not text.isascii():  # float would read 1_0 as 10, and the digits of every script
            wrong = next(part for part in parts if "_" in part or not part.isascii())
            raise ValueError(f"could not convert string to float: {wrong!r}")
        values = np.array([float(part) for part in parts])
    except ValueError as error:  # it quotes the text
        raise FileError(f"{path}, line {line}: expected numbers between commas; {error}") from None
    large = np.flatnonzero(np.abs(values) > np.finfo(np.float32).max)
    if len(large):
        raise _error(path, line, "expected finite numbers of float32, and ? for missing values", parts[large[0]])
    return values


def _lines(path: str | Path, comment: str) -> Iterator[tuple[int, str]]:
    """Yield lines that are not blank or comments, with their numbers."""
    # Comments have any encoding; the rest is ASCII.
    with Path(path).open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            text = line.strip().lstrip("\ufeff")
            if text and text[0] not in comment:
                yield number, text


def _unquoted(text: str) -> str:
    text = text.strip()
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def _error(path: str | Path, number: int, expected: str, line: str) -> FileError:
    got = line if len(line) <= 60 else line[:57] + "..."
    return FileError(f"{path}, line {number}: {expected}, got {got!r}")

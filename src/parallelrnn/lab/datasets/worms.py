"""Sets of the UEA and UCR archive: EigenWorms, on which the paper reports, and two smaller ones.

Worms is not EigenWorms: it comes from the same recordings and has the same five classes, but holds only the first
eigenworm, averaged down to 900 steps and standardised. A result on it has to be named so. StandWalkJump is quite
another set, short enough to try things with.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from parallelrnn.lab.datasets.archive import read_arff, read_ts
from parallelrnn.lab.datasets.examples import Examples, Splits, permutation
from parallelrnn.lab.datasets.sources import DatasetError, Source, find, locate

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Form:
    """What a set of the archive has to look like."""

    counts: tuple[int, int]  # series in the files TRAIN and TEST
    length: int
    channels: int
    classes: tuple[str, ...]  # in the order of their numbers
    npz_sha256: str | None = None  # of a copy as numpy arrays, for those who have one


PARTS = ("TRAIN", "TEST")
FORMS = {
    "Worms": Form(
        (181, 77),
        900,
        1,
        ("1", "2", "3", "4", "5"),
        "13b469c4043b1a7e68cbdcf3a0dc46470979992d5a4ddafd1b5c20aa90e0ad89",
    ),
    "StandWalkJump": Form(
        (12, 15),
        2500,
        4,
        ("jumping", "standing", "walking"),
        "457820bc5d020a5b6deb029d64c25f4352f102283947626281f8a3bcf688543d",
    ),
    "EigenWorms": Form((128, 131), 17984, 6, ("1", "2", "3", "4", "5")),
}


def load_worms(seed: int = 0) -> Splits:
    """Worms: 258 series (N, 900, 1), five kinds of worms (N,); a stand-in for EigenWorms, and not the same set.

    The archive's two parts are put together and split anew, at random by the seed, 70 % for training and 15 % each for
    validation and test.
    """
    return _load("Worms", seed)


def load_stand_walk_jump(seed: int = 0) -> Splits:
    """StandWalkJump: 27 series (N, 2500, 4), of people jumping, standing or walking (N,); split as in `load_worms`."""
    return _load("StandWalkJump", seed)


def load_eigenworms(seed: int = 0) -> Splits:
    """EigenWorms: 259 series (N, 17984, 6), five kinds of worms (N,); 181, 39 and 39 of them, as in `load_worms`.

    So was it split by Rusch et al. ("Long Expressive Memory for Sequence Modeling", 2022), whom the paper follows,
    though with other random numbers. Reading the files takes about a quarter of a minute.
    """
    return _load("EigenWorms", seed)


def sources(name: str, part: str) -> tuple[Source, Source]:
    """The forms in which the archive has a part, TRAIN or TEST, of a set; it publishes no checksums."""
    url = f"https://www.timeseriesclassification.com/aeon-toolkit/{name}.zip"
    file = f"{name}_{part}"
    return (
        Source(f"uea_ucr/{file}.ts", None, url, f"{file}.ts"),
        Source(f"uea_ucr/{file}.arff", None, url, f"{file}.arff"),
    )


def _load(name: str, seed: int) -> Splits:
    form = FORMS[name]
    copy = find(Source(f"uea_ucr/{name}.npz", form.npz_sha256, None)) if form.npz_sha256 else None
    paths = [copy or locate(*sources(name, part)) for part in PARTS]
    parts = [_part_of_copy(path, part) if copy else _part(path, name) for path, part in zip(paths, PARTS, strict=True)]
    for path, part, (inputs, labels), count in zip(paths, PARTS, parts, form.counts, strict=True):
        expected = (count, form.length, form.channels)
        if inputs.shape != expected or len(labels) != count or not set(labels) <= set(form.classes):
            raise DatasetError(
                f"expected {name} to have series of shape {expected} (series, time, channels) and the labels "
                f"{', '.join(form.classes)}, got {inputs.shape} and {', '.join(sorted(set(labels)))}; "
                f"replace its files by those of {sources(name, part)[0].url}"
            )
        _check_finite(inputs, name, part, path)
    numbers = np.array([form.classes.index(label) for _, labels in parts for label in labels], dtype=np.int64)
    return split(Examples(np.concatenate([inputs for inputs, _ in parts]), numbers), seed)


def _part(path: Path, name: str) -> tuple[Array, list[str]]:
    try:
        return read_arff(path) if path.suffix == ".arff" else read_ts(path)
    except ValueError as error:
        raise DatasetError(f"this is not the {name} of the archive; replace the file: {error}") from error


def _part_of_copy(path: Path, part: str) -> tuple[Array, list[str]]:
    with np.load(path, allow_pickle=False) as arrays:
        inputs, labels = (arrays[f"{array}_{part.lower()}"] for array in "Xy")
        return inputs.astype(np.float32), [str(label) for label in labels]


def _check_finite(inputs: Array, name: str, part: str, path: Path) -> None:
    """No series of these sets lacks a value; one would make every loss NaN."""
    finite = np.isfinite(inputs)
    if not finite.all():
        series, time, channel = np.argwhere(~finite)[0]
        raise DatasetError(
            f"{path} ({path.suffix}) is not the {name} that was published: expected finite numbers, got "
            f"{inputs[series, time, channel]} in {part}, series {series + 1}, channel {channel + 1}, time {time + 1}; "
            f"replace it by a file of {sources(name, part)[0].url}"
        )


def split(examples: Examples, seed: int) -> Splits:
    """70 % for training and 15 % each for validation and test, in random order by the seed; rests go to the test."""
    count = len(examples)
    others = -(-3 * count // 10)
    test = -(-others // 2)
    order = permutation(count, seed)
    rows = np.split(order, [count - others, count - test])
    return Splits(*(examples.take(part) for part in rows))

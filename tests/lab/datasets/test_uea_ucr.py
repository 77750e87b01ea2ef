from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from sktime.datasets import load_from_arff_to_dataframe, load_from_tsfile

from parallelrnn.errors import FileError
from parallelrnn.lab.datasets import (
    DatasetError,
    load_eigenworms,
    load_stand_walk_jump,
    load_worms,
    read_arff,
    read_ts,
    uea_ucr,
)
from parallelrnn.lab.datasets.splits import Examples
from tests.support import raises

Array = NDArray[np.float64]


def series(count: int, length: int, channels: int) -> tuple[Array, list[str]]:
    random = np.random.default_rng(count)
    return random.normal(size=(count, length, channels)).round(5), [str(1 + row % 3) for row in range(count)]


def ts(values: Array, labels: list[str]) -> str:
    _, length, channels = values.shape
    header = ["# Worms, that crawl.", "@problemName Small", "@timeStamps false", "@missing false"]
    header += [f"@univariate {'true' if channels == 1 else 'false'}"]
    header += [f"@dimensions {channels}"] if channels > 1 else []
    header += ["@equalLength true", f"@seriesLength {length}", "@classLabel true 1 2 3", "@data"]
    lines = [
        ":".join([*(",".join(map(str, row)) for row in case.T), label])
        for case, label in zip(values, labels, strict=True)
    ]
    return "\n".join(header + lines) + "\n"


def arff(values: Array, labels: list[str], quote: str = "'") -> str:
    _, length, channels = values.shape
    times = [f"@attribute att{time} numeric" for time in range(length)]
    target = ["@attribute target {1,2,3}", "@data"]
    if channels == 1:
        header = ["% Worms, that crawl.", "@relation Small", *times, *target]
        lines = [",".join([*map(str, case[:, 0]), label]) for case, label in zip(values, labels, strict=True)]
    else:
        header = ["@relation Small", "@attribute bag relational", *times, "@end bag", *target]
        lines = [
            quote + r"\n".join(",".join(map(str, row)) for row in case.T) + f"{quote},{label}"
            for case, label in zip(values, labels, strict=True)
        ]
    return "\n".join(header + lines) + "\n"


WRITERS = {"ts": ts, "arff": arff}
READERS = {"ts": read_ts, "arff": read_arff}


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("form", ["ts", "arff"])
def test_files_as_sktime_reads_them(form: str, channels: int, tmp_path: Path) -> None:
    values, labels = series(5, 7, channels)
    path = tmp_path / f"small.{form}"
    path.write_text(WRITERS[form](values, labels).replace("% Worms, that crawl.\n", ""))
    inputs, labels_read = READERS[form](path)
    np.testing.assert_array_equal(inputs, values.astype(np.float32))
    assert inputs.dtype == np.float32
    if form == "ts":
        theirs, their_labels = load_from_tsfile(str(path), return_data_type="numpy3d")  # (N, C, T)
        theirs = theirs.transpose(0, 2, 1)
    else:
        frame, their_labels = load_from_arff_to_dataframe(str(path))
        theirs = np.stack([np.stack(list(row), axis=1) for row in frame.to_numpy()])
    np.testing.assert_array_equal(inputs, theirs.astype(np.float32))
    assert labels_read == labels == list(their_labels)


def test_files_that_sktime_ships_are_read_alike() -> None:
    import sktime.datasets

    folder = Path(sktime.datasets.__file__).parent / "data"
    for name in ("BasicMotions/BasicMotions_TRAIN.ts", "GunPoint/GunPoint_TEST.ts"):
        inputs, labels = read_ts(folder / name)
        theirs, their_labels = load_from_tsfile(str(folder / name), return_data_type="numpy3d")
        np.testing.assert_array_equal(inputs, theirs.transpose(0, 2, 1).astype(np.float32))
        assert [label.lower() for label in labels] == list(their_labels)  # sktime writes labels in small letters


def test_comments_blank_lines_and_missing_values(tmp_path: Path) -> None:
    values, labels = series(2, 3, 2)
    first = str(values[0, 0, 0])
    for name, text, read in [("a.ts", ts(values, labels), read_ts), ("a.arff", arff(values, labels, '"'), read_arff)]:
        text = text.replace("@data\n", "\n@DATA\n\n% a comment\n").replace(first + ",", "?, ", 1).replace("\n", "\r\n")
        path = tmp_path / name
        path.write_bytes("\ufeff".encode() + b"% \xe9\r\n" + text.encode())
        inputs, labels_read = read(path)
        assert np.isnan(inputs[0, 0, 0])
        np.testing.assert_array_equal(inputs.ravel()[1:], values.astype(np.float32).ravel()[1:])
        assert labels_read == labels


def test_the_header_of_a_ts_file_may_have_tabs(tmp_path: Path) -> None:
    values, labels = series(3, 4, 2)
    header, _, rows = ts(values, labels).partition("@data")
    path = tmp_path / "small.ts"
    path.write_text(header.replace(" ", " \t") + "@data\t" + rows)
    inputs, labels_read = read_ts(path)
    np.testing.assert_array_equal(inputs, values.astype(np.float32))
    assert labels_read == labels
    path.write_text(header.replace("Length 4", "Length\t5") + "@data" + rows)
    with raises(FileError, "5 values in channel 1", "got 4"):
        read_ts(path)


@pytest.mark.parametrize("quote", ["'", '"'])
@pytest.mark.parametrize("between", [" ,", "\t, ", ","])
@pytest.mark.parametrize("label", ["2", "'2'", '"2" '])
def test_blanks_around_the_comma_after_a_relational_value(quote: str, between: str, label: str, tmp_path: Path) -> None:
    values, labels = series(3, 4, 2)
    path = tmp_path / "small.arff"
    path.write_text(arff(values, labels, quote).replace(f"{quote},2", quote + between + label))
    inputs, labels_read = read_arff(path)
    np.testing.assert_array_equal(inputs, values.astype(np.float32))
    assert labels_read == labels


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("row", ["{0 1, 2 a}", "{ }", r"'{0 1, 2 3}\n{1 4}',2"])
def test_a_sparse_row_is_rejected_by_name(channels: int, row: str, tmp_path: Path) -> None:
    text = arff(*series(3, 4, channels)) + row + "\n"
    path = tmp_path / "small.arff"
    path.write_text(text)
    with raises(FileError, f"{path}, line {text.count(chr(10))}", "sparse", f"got {row!r}"):
        read_arff(path)


TS = [
    ("@data\n", "", "line 9"),
    ("@timeStamps false", "@timeStamps true", "time stamps"),
    ("@classLabel true 1 2 3", "@classLabel false", "@classLabel"),
    ("@classLabel true 1 2 3\n", "", "@classLabel"),
    ("@dimensions 2", "@dimensions 3", "line 10: expected 3"),
    ("@dimensions 2", "@dimensions two", "@dimensions, got 'two'"),
    ("@seriesLength 4", "@seriesLength 5", "line 10: expected 5"),
    (":2\n", ":4\n", "1, 2, 3, got '4'"),
    (":2\n", "\n", "line 11"),
    (":2\n", ",7:2\n", "channel 2, got 5"),
    (":2\n", ":1,2,3,4:2\n", "line 11: expected 2"),
    (":2\n", ",:2\n", "line 11"),
    (":2\n", "x:2\n", "line 11"),
    (":2\n", "_0:2\n", "line 11"),
    (":2\n", "\u0661:2\n", "line 11"),
    (":2\n", ",inf:2\n", "got 'inf'"),
    (":2\n", ",-1e400:2\n", "got '-1e400'"),
    (":2\n", ",1e39:2\n", "got '1e39'"),
]
ARFF = [
    ("@data\n", "", "line 9"),
    ("att2 numeric", "att2 string", "line 5"),
    ("{1,2,3}", "numeric", "line 8"),
    ("@attribute att3 numeric\n", "", "channel 1, got 4"),
    ("',2", "',4", "line 11"),
    ("',2", "", "line 11"),
    ("',2", ",7',2", "channel 2, got 5"),
    ("',2", r"\n1,2,3,4',2", "line 11: expected 2"),
    ("',2", "x',2", "line 11"),
    ("',2", "_0',2", "line 11"),
    ("',2", ",1e400',2", "got '1e400'"),
    ("1\n'", "1\n ", "line 11"),
]


@pytest.mark.parametrize(
    ("form", "channels", "old", "new", "fact"),
    [
        *(("ts", 2, *case) for case in TS),
        *(("arff", 2, *case) for case in ARFF),
        ("arff", 1, ",2\n", ",7,2\n", "line 10: expected 4 values in channel 1, got 5"),
    ],
)
def test_a_wrong_file_is_rejected(form: str, channels: int, old: str, new: str, fact: str, tmp_path: Path) -> None:
    text = WRITERS[form](*series(3, 4, channels)).replace("# Worms, that crawl.\n", "")
    assert old in text
    path = tmp_path / f"small.{form}"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with raises(FileError, path, fact):
        READERS[form](path)


@pytest.mark.parametrize("form", ["ts", "arff"])
def test_files_without_series_are_rejected(form: str, tmp_path: Path) -> None:
    header = WRITERS[form](*series(1, 4, 2)).partition("@data")[0]
    path = tmp_path / f"small.{form}"
    for text, fact in ((header, "@data"), (header + "@data\n", "series")):
        path.write_text(text)
        with raises(FileError, path, fact):
            READERS[form](path)


FORM = uea_ucr.Form((20, 11), 6, 2, ("1", "2", "3"))


def write_set(
    own: Path, form: str, parts: dict[str, tuple[Array, list[str]]], monkeypatch: pytest.MonkeyPatch, name: str
) -> dict[str, Path]:
    """Write a small set in place of a published one; return the file of each part."""
    folder = own / "uea_ucr"
    folder.mkdir()
    paths = {part: folder / f"{name}_{part}.{form}" for part in parts}
    if form == "npz":
        paths = dict.fromkeys(parts, folder / f"{name}.npz")
        (x, y), (x_test, y_test) = parts.values()
        np.savez(paths["TRAIN"], X_train=x, y_train=np.array(y), X_test=x_test, y_test=np.array(y_test))
        monkeypatch.setitem(uea_ucr.NPZ_SHA256, name, hashlib.sha256(paths["TRAIN"].read_bytes()).hexdigest())
    elif form == "zip":
        with zipfile.ZipFile(folder / f"{name}.zip", "w") as archive:
            for part, data in parts.items():
                archive.writestr(f"{name}_{part}.ts", ts(*data))
    else:
        for part, data in parts.items():
            paths[part].write_text(WRITERS[form](*data).replace("nan", "?"))
    monkeypatch.setitem(uea_ucr.FORMS, name, FORM)
    return paths


def make_parts() -> dict[str, tuple[Array, list[str]]]:
    return {part: series(count, 6, 2) for part, count in zip(("TRAIN", "TEST"), FORM.counts, strict=True)}


@pytest.mark.parametrize("form", ["ts", "arff", "zip", "npz"])
def test_a_set_is_put_together_and_split_anew(form: str, own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = make_parts()
    write_set(own, form, parts, monkeypatch, "EigenWorms")
    splits = load_eigenworms(seed=4)
    assert [len(part) for part in (splits.train, splits.validation, splits.test)] == [21, 5, 5]
    values = np.concatenate([data[0] for data in parts.values()]).astype(np.float32)
    labels = np.array([int(label) - 1 for data in parts.values() for label in data[1]])
    known_rows = {case.tobytes(): row for row, case in enumerate(values)}
    every = [splits.train, splits.validation, splits.test]
    rows = [known_rows[case.tobytes()] for part in every for case in part.inputs]
    assert sorted(rows) == list(range(31))  # disjoint and complete
    np.testing.assert_array_equal(np.concatenate([part.targets for part in every]), labels[rows])
    assert all(part.inputs.dtype == np.float32 and part.targets.dtype == np.int64 for part in every)
    same, other = load_eigenworms(seed=4), load_eigenworms(seed=5)
    np.testing.assert_array_equal(splits.test.inputs, same.test.inputs)
    assert not np.array_equal(splits.test.inputs, other.test.inputs)


@pytest.mark.parametrize(("count", "sizes"), [(259, (181, 39, 39)), (258, (180, 39, 39)), (27, (18, 4, 5))])
def test_sizes_are_those_of_scikit_learn(count: int, sizes: tuple[int, int, int]) -> None:
    from sklearn.model_selection import train_test_split

    splits = uea_ucr.split(Examples(np.zeros((count, 1)), np.zeros(count)), 0)
    assert (len(splits.train), len(splits.validation), len(splits.test)) == sizes
    train, others = train_test_split(np.arange(count), test_size=0.3, random_state=0)
    assert (len(train), *map(len, train_test_split(others, test_size=0.5, random_state=0))) == sizes


def test_another_set_is_rejected(own: Path) -> None:
    folder = own / "uea_ucr"
    folder.mkdir()
    for part in ("TRAIN", "TEST"):
        (folder / f"Worms_{part}.ts").write_text(ts(*series(4, 6, 2)))
    with raises(DatasetError, "Worms", (181, 900, 1), (4, 6, 2)):
        load_worms()
    (folder / "Worms_TRAIN.ts").write_text("<html>")
    with raises(DatasetError, "Worms_TRAIN.ts, line 1"):
        load_worms()


@pytest.mark.parametrize(
    ("form", "name", "load", "value"),
    [
        *((form, "EigenWorms", load_eigenworms, np.nan) for form in WRITERS),
        ("npz", "Worms", load_worms, np.nan),
        ("npz", "StandWalkJump", load_stand_walk_jump, -np.inf),
    ],
)
@pytest.mark.parametrize("part", ["TRAIN", "TEST"])
def test_a_series_that_lacks_a_value_is_rejected(
    form: str,
    name: str,
    load: Callable[[], object],
    value: float,
    part: str,
    own: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts = make_parts()
    parts[part][0][2, 3, 1] = value
    path = write_set(own, form, parts, monkeypatch, name)[part]
    with raises(DatasetError, path, f"{value} in {part}, series 3, channel 2, time 4", "https://"):
        load()

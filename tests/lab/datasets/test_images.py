from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import struct
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from parallelrnn.lab.datasets import DatasetError, cifar10, load_cifar10, load_mnist, mnist
from parallelrnn.lab.datasets.splits import Examples, permutation
from tests.support import raises

Bytes = NDArray[np.uint8]


def idx(array: Bytes) -> bytes:
    return gzip.compress(struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes())


@pytest.fixture
def small_mnist(own: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Bytes]:
    random = np.random.default_rng(0)
    monkeypatch.setattr(mnist, "VALIDATION", 5)
    arrays = {}
    (own / "mnist").mkdir()
    for name, source in mnist.SOURCES.items():
        count = 40 if name.startswith("train") else 11
        shape = (count, 28, 28) if "images" in name else (count,)
        arrays[name] = random.integers(0, 256 if "images" in name else 10, shape, dtype=np.uint8)
        monkeypatch.setitem(mnist.SOURCES, name, replace(source, sha256=None))
        (own / source.path).write_bytes(idx(arrays[name]))
    return arrays


def test_mnist_is_read_and_split(small_mnist: dict[str, Bytes]) -> None:
    splits = load_mnist()
    assert [len(part) for part in (splits.train, splits.validation, splits.test)] == [35, 5, 11]
    np.testing.assert_array_equal(splits.test.inputs, small_mnist["t10k-images-idx3-ubyte.gz"])
    np.testing.assert_array_equal(splits.test.targets, small_mnist["t10k-labels-idx1-ubyte.gz"])
    images = {image.tobytes(): row for row, image in enumerate(small_mnist["train-images-idx3-ubyte.gz"])}
    rows = [images[image.tobytes()] for part in (splits.train, splits.validation) for image in part.inputs]
    assert sorted(rows) == list(range(40))  # disjoint and complete
    assert rows != sorted(rows)
    digits = np.concatenate([splits.train.targets, splits.validation.targets])
    np.testing.assert_array_equal(digits, small_mnist["train-labels-idx1-ubyte.gz"][rows])
    for part in (splits.train, splits.validation, splits.test):
        assert part.inputs.dtype == np.uint8
        assert part.targets.dtype == np.int64
        assert part.inputs.flags.writeable


@pytest.mark.parametrize(
    "data",
    [b"", gzip.compress(b"")[:-3], b"<html>", gzip.compress(b"no IDX"), gzip.compress(b"\0\0\x08\x01\0\0\0\x05abcd")],
    ids=["empty", "cut off", "no gzip", "no IDX", "too short"],  # compressed bytes hold the time
)
def test_a_damaged_idx_file_is_rejected(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(data)
    with raises(DatasetError, path):
        mnist.read_idx(path)


def test_a_fixed_order_is_the_same_for_ever() -> None:
    fixed = [3, 2, 1, 6, 0, 7, 4, 5]
    assert permutation(8, 0).tolist() == fixed
    assert permutation(8, 1).tolist() != fixed
    assert sorted(permutation(1000, 3)) == list(range(1000))
    pixels = permutation(784, 0)  # that of permuted MNIST
    assert pixels.dtype == np.int64
    assert hashlib.sha256(pixels.astype("<i8").tobytes()).hexdigest()[:16] == "80af0db09bbbf7a2"


@pytest.mark.parametrize("form", ["bin", "bin.xz", "tar.gz"])
def test_cifar10_is_read_and_split(form: str, own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    monkeypatch.setattr(cifar10, "VALIDATION", 4)
    (own / "cifar10").mkdir()
    images = random.integers(0, 256, (60, 32, 32, 3), dtype=np.uint8)
    labels = np.arange(60, dtype=np.uint8) % 10
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for place, (name, sources) in enumerate(cifar10.SOURCES.items()):
            unchecked = tuple(replace(source, sha256=None, archive_sha256=None) for source in sources)
            monkeypatch.setitem(cifar10.SOURCES, name, unchecked)
            data = b"".join(
                bytes([labels[row]]) + b"".join(images[row, :, :, colour].tobytes() for colour in range(3))
                for row in range(10 * place, 10 * place + 10)
            )
            if form != "tar.gz":
                (own / f"cifar10/{name}.{form}").write_bytes(data if form == "bin" else lzma.compress(data))
            entry = tarfile.TarInfo(f"cifar-10-batches-bin/{name}.bin")
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    if form == "tar.gz":
        (own / "cifar10/cifar-10-binary.tar.gz").write_bytes(buffer.getvalue())
    splits = load_cifar10()
    assert splits.train.inputs.shape == (46, 32, 32, 3)
    np.testing.assert_array_equal(splits.test.inputs, images[50:])
    np.testing.assert_array_equal(splits.test.targets, labels[50:])
    known = {image.tobytes(): row for row, image in enumerate(images[:50])}
    rows = [known[image.tobytes()] for part in (splits.train, splits.validation) for image in part.inputs]
    assert sorted(rows) == list(range(50))
    assert rows != sorted(rows)
    np.testing.assert_array_equal(
        np.concatenate([splits.train.targets, splits.validation.targets]), labels[np.array(rows)]
    )
    for part in (splits.train, splits.validation, splits.test):
        assert part.inputs.dtype == np.uint8
        assert part.targets.dtype == np.int64
        assert part.inputs.flags.c_contiguous
        assert part.inputs.flags.writeable


@pytest.mark.parametrize(
    ("name", "data"),
    [
        *(("a.bin", data) for data in (b"", bytes(3074), b"\x0a" + bytes(3072))),
        ("a.bin.xz", lzma.compress(bytes(3073))[:-8]),
    ],
)
def test_a_damaged_batch_is_rejected(name: str, data: bytes, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with raises(DatasetError, path, "unpacked" if name.endswith("xz") else "CIFAR-10"):
        cifar10._records(path)


def test_examples_belong_together() -> None:
    with raises(ValueError, "2 and 3"):
        Examples(np.zeros((3, 1)), np.zeros(2))

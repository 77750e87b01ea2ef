"""CIFAR-10: 60,000 colour images of ten kinds of things (Krizhevsky, 2009), in its binary version."""

from __future__ import annotations

import lzma
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from parallelrnn.lab.datasets.files import DatasetError, Source, locate
from parallelrnn.lab.datasets.splits import Examples, Splits, permutation

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

# The md5 that the author publishes for the archive, c32a1d4ab5d03f1284b67883e8d87530, is of the same file.
_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
_URL_SHA256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
_SHA256 = {  # of a file, and of the file compressed with xz
    "data_batch_1": (
        "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
        "08cc5ab8a2a5372b1757290d7be341dc4b9c6a64965c6b3eb0c081ffad2006a5",
    ),
    "data_batch_2": (
        "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
        "0d5ae08ffe2dadc00b8c8b4bceb4ad934bd3564e7481002a5b5ba21338c41116",
    ),
    "data_batch_3": (
        "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
        "d75f8f34cdc0a91324f112f563fd89b42971dfe4967399445620dcf15fe1d8b3",
    ),
    "data_batch_4": (
        "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
        "3029f141a690b832d16bf823f681c8815f047884186f7789892d320522015eb8",
    ),
    "data_batch_5": (
        "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
        "7e368491b03b5668c7166bd7f5af981239ebf69ba2b853131d8794264e23a86d",
    ),
    "test_batch": (
        "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
        "b17b76630f3d6046967f244872dd4abc5f1745a3a0b88f08cd367c9c7ebb8d01",
    ),
}
SOURCES = {
    name: (
        Source(path=f"cifar10/{name}.bin", sha256=plain, url=_URL, member=f"{name}.bin", archive_sha256=_URL_SHA256),
        Source(path=f"cifar10/{name}.bin.xz", sha256=packed),
    )
    for name, (plain, packed) in _SHA256.items()
}

VALIDATION = 3_000
SEED = 0
_MAX_MEMORY = 1 << 28  # bytes for unpacking; the strongest setting of xz takes a quarter of it
_RECORD = 1 + 3 * 32 * 32  # a label, then the red, the green and the blue plane, row by row


def load_cifar10() -> Splits:
    """Return images (N, 32, 32, 3) of bytes and classes (N,): 47,000 for training, 3,000 validation and 10,000 test.

    The test set is the published one. The paper does not say which 3,000 of the 50,000 others are for validation; here
    they are the last of a fixed random order, `permutation(50_000, seed=0)`. The files may be plain, each compressed
    with xz, or in the author's `cifar-10-binary.tar.gz`.
    """
    train = _examples(*(f"data_batch_{number}" for number in range(1, 6)))
    order = permutation(len(train), SEED)
    return Splits(train.take(order[:-VALIDATION]), train.take(order[-VALIDATION:]), _examples("test_batch"))


def _examples(*names: str) -> Examples:
    records = np.concatenate([_records(locate(*SOURCES[name])) for name in names])  # (N, 3073)
    images = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return Examples(np.ascontiguousarray(images), records[:, 0].astype(np.int64))


def _records(path: Path) -> NDArray[np.uint8]:
    try:
        data = path.read_bytes()
        if path.suffix == ".xz":
            data = lzma.decompress(data, memlimit=_MAX_MEMORY)
    except lzma.LZMAError as error:
        raise DatasetError(f"{path} cannot be unpacked ({error})", hint="replace it with the published one") from error
    records = np.frombuffer(data, np.uint8)
    if not len(records) or len(records) % _RECORD or records[::_RECORD].max() >= len(CLASSES):
        expected = f"records of {_RECORD} bytes, a label from 0 to 9 and an image"
        problem = f"{path} is not a batch of CIFAR-10: expected {expected}, got {len(records)} bytes"
        raise DatasetError(problem, hint="replace it with the published one")
    return records.reshape(-1, _RECORD)

"""MNIST: 70,000 handwritten digits (LeCun, Cortes and Burges)."""

from __future__ import annotations

import gzip
import zlib
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from parallelrnn.lab.datasets.files import DatasetError, Source, locate
from parallelrnn.lab.datasets.splits import Examples, Splits, permutation

# The authors' own page is closed. This copy is the one that torchvision uses; the files are the original ones.
_ADDRESS = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_SHA256 = {
    "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}
SOURCES = {name: Source(path=f"mnist/{name}", sha256=sha256, url=_ADDRESS + name) for name, sha256 in _SHA256.items()}

_REPLACE = "replace it with the published one"

VALIDATION = 3_000
SEED = 0
_MAX_RANK = 3  # images, rows, columns


def load_mnist() -> Splits:
    """Return images (N, 28, 28) of bytes and digits (N,): 57,000 for training, 3,000 for validation, 10,000 for test.

    The test set is the published one. The paper does not say which 3,000 of the 60,000 others are for validation; here
    they are the last of a fixed random order, `permutation(60_000, seed=0)`.
    """
    train = _examples("train")
    order = permutation(len(train), SEED)
    return Splits(train.take(order[:-VALIDATION]), train.take(order[-VALIDATION:]), _examples("t10k"))


def _examples(part: str) -> Examples:
    images = read_idx(locate(SOURCES[f"{part}-images-idx3-ubyte.gz"]))
    digits = read_idx(locate(SOURCES[f"{part}-labels-idx1-ubyte.gz"]))
    return Examples(images, digits.astype(np.int64))


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Return the array of bytes in a compressed IDX file: a header with rank and shape, then the bytes."""
    try:
        with gzip.open(path) as file:
            data = file.read()
    except (OSError, EOFError, zlib.error) as error:
        raise DatasetError(f"{path} cannot be unpacked ({error})", hint=_REPLACE) from error
    rank = data[3] if data[:3] == b"\0\0\x08" and len(data) > 3 else 0  # 8 stands for bytes
    sizes = data[4 : 4 + 4 * rank]
    shape = tuple(int(size) for size in np.frombuffer(sizes[: len(sizes) // 4 * 4], ">u4"))
    if not 0 < rank == len(shape) <= _MAX_RANK or not 0 < prod(shape) == len(data) - 4 - 4 * rank:
        problem = f"{path} is not an IDX file of bytes: its header says shape {shape}, and it has {len(data)} bytes"
        raise DatasetError(problem, hint=_REPLACE)
    return np.array(np.frombuffer(data, np.uint8, offset=4 + 4 * rank).reshape(shape))  # writable

"""Files of data sets: .ts and .arff of the archive, IDX of MNIST, batches of CIFAR-10, and tables such as ETT's."""

from __future__ import annotations

import gzip
import lzma
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from fuzz_targets.target import Target
from parallelrnn.lab.datasets.cifar10 import _RECORD, _records
from parallelrnn.lab.datasets.ett_wth import read_table
from parallelrnn.lab.datasets.files import DatasetError
from parallelrnn.lab.datasets.mnist import read_idx
from parallelrnn.lab.datasets.uea_ucr import read_arff, read_ts

_TS = b"""#a comment
@problemName Small
@timeStamps false
@univariate false
@dimensions 2
@equalLength true
@seriesLength 3
@classLabel true no yes
@data
1.5,2,-3e1:?,NaN,0:yes
0,0,0:1,2,3:no
"""
_ONE = b"@problemName One\n@univariate true\n@classLabel true 1 2\n@data\n1,2,3:1\n4,5,6:2\n"
_ARFF = b"""%comment
@relation One
@attribute att0 numeric
@attribute att1 real
@attribute target {1,2}
@data
1.5,?,1
2,-3e1,'2'
"""
_RELATIONAL = b"""@relation Several
@attribute relationalAtt relational
@attribute att0 numeric
@attribute att1 numeric
@end relationalAtt
@attribute target {no,yes}
@data
'1,2\\n3,4',no
"5,6\\n7,8",yes
"""
_TABLE = b"date,HUFL,OT\n2016-07-01 00:00:00,5.827,30.5\n1/31/2010 7:00,1e3,-2\n\n# a comment\n"


def _through_file(name: str, read: Callable[[Path], Any], data: bytes, folder: Path) -> None:
    path = folder / name
    path.write_bytes(data)
    read(path)


def _idx(data: bytes, folder: Path) -> None:
    """Compress some inputs after they are mutated: few mutations of compressed bytes can be decompressed."""
    packed = gzip.compress(data[1:], 1) if data[:1] == b"\x00" else data[1:]
    _through_file("images.gz", read_idx, packed, folder)


def _idx_seeds(folder: Path) -> list[bytes]:
    images = b"\0\0\x08\x03\0\0\0\x02\0\0\0\x02\0\0\0\x02" + bytes(range(8))
    labels = b"\0\0\x08\x01\0\0\0\x03\x01\x02\x03"
    return [b"\x00" + images, b"\x00" + labels, b"\x01" + gzip.compress(images)]


def _cifar(data: bytes, folder: Path) -> None:
    name = "batch.bin.xz" if data[:1] == b"\x01" else "batch.bin"
    _through_file(name, _records, data[1:], folder)


def _cifar_seeds(folder: Path) -> list[bytes]:
    record = b"\x03" + bytes(_RECORD - 1)
    return [b"\x00" + record, b"\x01" + lzma.compress(record)]


def _target(
    name: str, seeds: Callable[[Path], list[bytes]], read: Callable[[bytes, Path], None], error: type[Exception]
) -> Target:
    return Target(name=name, seeds=seeds, read=read, errors=(error,))


TARGETS = [
    _target("ts", lambda folder: [_TS, _ONE], partial(_through_file, "a.ts", read_ts), ValueError),
    _target("arff", lambda folder: [_ARFF, _RELATIONAL], partial(_through_file, "a.arff", read_arff), ValueError),
    _target("mnist-idx", _idx_seeds, _idx, DatasetError),
    _target("cifar", _cifar_seeds, _cifar, DatasetError),
    _target("ett-table", lambda folder: [_TABLE], partial(_through_file, "a.csv", read_table), ValueError),
]

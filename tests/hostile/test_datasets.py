"""Files of data sets that are none, and archives that say they are larger than they are."""

from __future__ import annotations

import gzip
import io
import lzma
import tarfile
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest

from parallelrnn.errors import FileError
from parallelrnn.lab.datasets import files
from parallelrnn.lab.datasets.cifar10 import _RECORD, _records
from parallelrnn.lab.datasets.ett_wth import read_table
from parallelrnn.lab.datasets.files import DatasetError
from parallelrnn.lab.datasets.mnist import read_idx
from tests.support import raises

HEAD = b"\0\0\x08"


def number(value: int) -> bytes:
    return value.to_bytes(4, "big")


def test_an_idx_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(HEAD + b"\x02" + number(2) + number(3) + bytes(range(6))))
    np.testing.assert_array_equal(read_idx(path), np.arange(6, dtype=np.uint8).reshape(2, 3))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        HEAD,
        HEAD + b"\x01\0\0",  # cut off in its shape
        HEAD + b"\x02" + number(1) + b"\0\0",
        HEAD + b"\x01" + number(2**32 - 1),
        HEAD + b"\x03" + number(2**32 - 1) * 2 + number(0),  # no bytes, of a shape that no array can have
        HEAD + b"\x41" + number(1) * 0x41 + b"\x07",  # more axes than numpy knows
        HEAD + b"\xff" + number(1) * 0xFF + b"\x07",
    ],
)
def test_other_files_than_idx_are_rejected(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(data))
    with raises(DatasetError, path, "IDX"):
        read_idx(path)


def test_unpacking_takes_no_more_memory_than_a_batch_needs(tmp_path: Path) -> None:
    path = tmp_path / "batch.bin.xz"
    record = b"\x03" + bytes(_RECORD - 1)
    path.write_bytes(lzma.compress(record, preset=9))
    assert _records(path).shape == (1, _RECORD)
    path.write_bytes(_with_dictionary(lzma.compress(record)))
    with raises(DatasetError, path, "Memory"):
        _records(path)


def _with_dictionary(data: bytes) -> bytes:
    """The same xz file, in whose first block's header is said that it takes a dictionary of 3 GB."""
    start = 12  # after the header of the stream
    length = (data[start] + 1) * 4
    block = bytearray(data[start : start + length - 4])
    place = block.index(b"\x21\x01") + 2  # LZMA2, one byte of properties
    block[place] = 39
    return data[:start] + bytes(block) + zlib.crc32(bytes(block)).to_bytes(4, "little") + data[start + length :]


def test_archives_are_not_believed_about_any_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_MAX_UNPACKED", 1000)
    packed = tmp_path / "a.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("folder/long.ts", bytes(1001))
        archive.writestr("folder/short.ts", bytes(1000))
    tape = tmp_path / "a.tar.gz"
    with tarfile.open(tape, "w:gz") as archive:
        for name, length in (("long.ts", 1001), ("short.ts", 1000)):
            entry = tarfile.TarInfo(f"../../{name}")
            entry.size = length
            archive.addfile(entry, io.BytesIO(bytes(length)))
    for path in (packed, tape):
        assert files._read_member(path, "short.ts") == bytes(1000)
        with pytest.raises(ValueError, match=r"long\.ts.*1001"):
            files._read_member(path, "long.ts")


@pytest.mark.parametrize(
    ("data", "fact"),
    [
        (b"date,a\xff\n2016-07-01,\xfe1\n", "a\ufffd in line 2"),
        (b"date,a\n2016-07-\xff1,1\n", "line 2"),
        (b"\xff\xfedate,a\n", "'date,'"),
    ],
)
def test_bytes_that_are_not_text_are_rejected_with_their_line(tmp_path: Path, data: bytes, fact: str) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(data)
    with raises(FileError, fact):
        read_table(path)

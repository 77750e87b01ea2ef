"""Tables that are none: each is rejected with an error that names the file."""

from __future__ import annotations

import gzip
from pathlib import Path

import pandas as pd
import pyarrow.parquet
import pytest

from parallelrnn import Forecaster
from parallelrnn.cli.tables import read_table
from parallelrnn.errors import TableError, TimestampError
from tests.support import raises

CSV = b"ds,y\n2024-01-01,1\n2024-01-02,2\n"
PACKED = gzip.compress(CSV, mtime=0)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("cut.csv.gz", PACKED[:-12]),
        ("short.csv.gz", PACKED[:15]),
        ("broken.csv.gz", PACKED[:12] + b"\xff" * 8 + PACKED[20:]),
        ("plain.csv.gz", CSV),
        ("bytes.csv", b"ds,y\n\xff\xfe,1\n"),
        ("empty.csv", b""),
        ("ragged.csv", b"a,b\n1,2,3,4\n1,2,3,4,5,6\n"),
        ("quotes.csv", b'a,b\n"1,2\n'),
        ("empty.parquet", b""),
        ("marks.parquet", b"PAR1PAR1"),
        ("long.parquet", b"PAR1" + b"\xff" * 64 + b"\xff\xff\xff\x7fPAR1"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_files_that_are_no_tables_are_rejected_by_name(tmp_path: Path, name: str, data: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with raises(TableError, name):
        read_table(path)


def parquet(tmp_path: Path) -> Path:
    path = tmp_path / "table.parquet"
    pd.DataFrame({"ds": ["2024-01-01", "2024-01-02"], "y": [1.0, 2.0]}).to_parquet(path, compression=None)
    return path


def test_invalid_text_in_parquet_is_rejected_when_it_is_read(tmp_path: Path) -> None:
    path = parquet(tmp_path)
    data = path.read_bytes()
    assert b"2024-01-02" in data
    path.write_bytes(data.replace(b"2024-01-02", b"2024-01-\xff\xfe"))
    with raises(TableError, "table.parquet"):
        read_table(path)


@pytest.mark.parametrize("text", ["{}", "[]", "no JSON", '{"columns": [{}], "index_columns": [0]}'])
def test_metadata_of_parquet_may_be_nonsense(tmp_path: Path, text: str) -> None:
    path = parquet(tmp_path)
    table = pyarrow.parquet.read_table(path).replace_schema_metadata({"pandas": text})
    pyarrow.parquet.write_table(table, path)
    with raises(TableError, "table.parquet"):
        read_table(path)


def test_an_outlying_year_is_rejected_without_counting_to_it() -> None:
    table = pd.DataFrame({"ds": ["2020-01-01", "2020-01-02", "2020-01-03", "9020-01-03"], "y": 1.0})
    with raises(TimestampError, "2020-01-01", "9020-01-03", "'B'", "freq="):
        Forecaster(2).read(table, "B")
    assert len(Forecaster(2).read(table.head(3), "B").series[0]) == 3

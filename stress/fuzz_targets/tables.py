"""Tables of the command line: all that `fit` and `forecast` do with a file before training."""

from __future__ import annotations

import gzip
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

from fuzz_targets.target import Target
from parallelrnn import Forecaster
from parallelrnn.cli.tables import infer_layout, read_table, with_times

_KINDS = (".csv", ".tsv", ".csv.gz")


def _frames() -> list[pd.DataFrame]:
    hours = pd.date_range("2024-01-01", periods=8, freq="h")
    long = pd.DataFrame({"unique_id": ["007"] * 8 + ["b"] * 8, "ds": [*hours, *hours], "y": np.arange(16.0)})
    wide = pd.DataFrame({"date": [f"{day}.03.2024" for day in range(14, 22)], "OT": range(8), "HUFL": [0.5] * 8})
    numbers = pd.DataFrame({"time": range(0, 80, 10), "y": [1.5, None, 2.0, 3.0, 4.0, 1.0, 0.0, 2.0]})
    months = pd.DataFrame({"month": pd.date_range("2020-01-31", periods=8, freq="ME"), "y": range(8)})
    zones = pd.DataFrame({"ds": [f"{stamp.isoformat()}+01:00" for stamp in hours], "y": range(8)})
    return [long, wide, numbers, months, zones]


def _csv_seeds(folder: Path) -> list[bytes]:
    texts = [frame.to_csv(index=False).encode() for frame in _frames()]
    more = [b"\x01" + _frames()[1].to_csv(index=False, sep=";", decimal=",").encode()]
    return [b"\x00" + text for text in texts] + more + [b"\x02" + gzip.compress(texts[0])]


def _parquet_seeds(folder: Path) -> list[bytes]:
    return [frame.to_parquet(index=False, compression=None) for frame in _frames()]


def _read_csv(data: bytes, folder: Path) -> None:
    kind = _KINDS[data[0] % len(_KINDS)] if data else ".csv"
    _read(data[1:], folder / f"table{kind}")


def _read(data: bytes, path: Path) -> None:
    path.write_bytes(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the command prints them
        frame = read_table(path)
        layout = infer_layout(frame, None, None, (), ())
        used = [name for name in (layout.id, layout.time, *layout.targets) if name is not None]
        Forecaster(2, 4).read(with_times(frame[used], layout.time, None), **layout.arguments())


TARGETS = [
    Target(name="csv", seeds=_csv_seeds, read=_read_csv),
    Target(name="parquet", seeds=_parquet_seeds, read=lambda data, folder: _read(data, folder / "table.parquet")),
]

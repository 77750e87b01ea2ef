"""ETT and WTH, the tables of the forecasting experiments, with the splits and windows of Informer.

ETT (Electricity Transformer Temperature) has seven columns every hour or 15 minutes over two years, of which 12, 4 and
4 months of 30 days are used. WTH has twelve columns of hourly weather over the 48 months of 2010 to 2013, split into
28, 10 and 10 of them. Both come from Informer (Zhou et al., "Informer: Beyond Efficient Transformer for Long
Sequence Time-Series Forecasting", 2021).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from parallelrnn.errors import ArgumentError, FileError, check_choice, check_integer
from parallelrnn.lab.datasets.files import DatasetError, Source, locate

Times = NDArray[np.datetime64]

PARTS = ("train", "validation", "test")


@dataclass(frozen=True, kw_only=True)
class Table:
    """Several series over the same times, and which rows are for training, validation and test."""

    name: str
    values: NDArray[np.float64]  # (n, C)
    columns: tuple[str, ...]  # C
    times: Times  # (n,), in seconds
    borders: tuple[int, int, int]  # ends of the training, validation and test rows; later rows are not used

    def standardised(self) -> NDArray[np.float32]:
        """Return all values (n, C), standardised by mean and deviation of each column in the training rows.

        The deviation divides by the number of rows, not by one less; a constant column is only centred.
        """
        train = self.values[: self.borders[0]]
        deviation = train.std(axis=0)
        scaled = (self.values - train.mean(axis=0)) / np.where(deviation == 0, 1.0, deviation)
        return np.asarray(scaled, dtype=np.float32)

    def windows(self, part: str, lookback: int, horizon: int) -> NDArray[np.int64]:
        """Return the first rows of all windows of a part: `lookback` known rows, then `horizon` rows to forecast.

        The rows to forecast lie in the part. The known ones may reach back into the part before, as in Informer, so
        that the number of windows does not depend on the look-back. Every window counts, also in an incomplete batch.
        """
        check_choice("part", part, PARTS)
        lookback, horizon = check_integer("lookback", lookback, 1), check_integer("horizon", horizon, 1)
        which = PARTS.index(part)
        end = self.borders[which]
        # No part comes before the training rows, whose first rows serve as look-back.
        begin = lookback if which == 0 else self.borders[which - 1]  # of the rows to forecast
        if lookback > begin:
            expected = f"at most {begin}, the rows of {self.name} before its {part} rows"
            raise ArgumentError(argument="lookback", expected=expected, got=lookback)
        if end - begin < horizon:
            left = f"the {max(0, end - begin)} {part} rows of {self.name} after lookback {lookback}"
            raise ArgumentError(argument="horizon", expected=f"at most {left}", got=horizon)
        return np.arange(begin - lookback, end - horizon - lookback + 1, dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Expected contents of the file of a table."""

    source: Source
    columns: tuple[str, ...]
    first: str
    step: int  # seconds
    rows: int
    borders: tuple[int, int, int]


def _ett(name: str, sha256: str, per_hour: int) -> Layout:
    month = 30 * 24 * per_hour
    url = f"https://raw.githubusercontent.com/zhouhaoyi/ETDataset/main/ETT-small/{name}.csv"
    return Layout(
        source=Source(path=f"ett/{name}.csv", sha256=sha256, url=url, home="https://github.com/zhouhaoyi/ETDataset"),
        columns=("HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT"),
        first="2016-07-01T00:00:00",
        step=3600 // per_hour,
        rows=17420 * per_hour,
        borders=(12 * month, 16 * month, 20 * month),
    )


# ETDataset publishes no checksums. These are those of its files as many public projects have recorded them.
LAYOUTS = {
    "ETTh1": _ett("ETTh1", "f18de3ad269cef59bb07b5438d79bb3042d3be49bdeecf01c1cd6d29695ee066", 1),
    "ETTh2": _ett("ETTh2", "a3dc2c597b9218c7ce1cd55eb77b283fd459a1d09d753063f944967dd6b9218b", 1),
    "ETTm1": _ett("ETTm1", "6ce1759b1a18e3328421d5d75fadcb316c449fcd7cec32820c8dafda71986c9e", 4),
    "ETTm2": _ett("ETTm2", "db973ca252c6410a30d0469b13d696cf919648d0f3fd588c60f03fdbdbadd1fd", 4),
    # Informer links to a file-sharing service and gives no checksum. Copies differ in their bytes, not in their values,
    # so columns, times and the number of rows are checked instead.
    "WTH": Layout(
        source=Source(path="wth/WTH.csv", home="https://github.com/zhouhaoyi/Informer2020 (its README links to it)"),
        columns=(
            "Visibility",
            "DryBulbFarenheit",
            "DryBulbCelsius",
            "WetBulbFarenheit",
            "DewPointFarenheit",
            "DewPointCelsius",
            "RelativeHumidity",
            "WindSpeed",
            "WindDirection",
            "StationPressure",
            "Altimeter",
            "WetBulbCelsius",
        ),
        first="2010-01-01T00:00:00",
        step=3600,
        rows=35064,
        # Calendar months, whose 48 are all of the file: up to May 2012, up to March 2013, up to January 2014.
        borders=(851 * 24, 1155 * 24, 1461 * 24),
    ),
}


def load_table(name: str) -> Table:
    """Return ETTh1, ETTh2, ETTm1, ETTm2 or WTH, downloaded if necessary (WTH cannot be)."""
    check_choice("name", name, LAYOUTS)
    layout = LAYOUTS[name]
    path = locate(layout.source)
    try:
        columns, lines, times, values = read_table(path)
        _check(layout, columns, lines, times)
    except FileError as error:
        raise DatasetError(f"{path} is not the published {name}: {error}", hint="replace it with that one") from error
    return Table(name=name, values=values, columns=columns, times=times, borders=layout.borders)


def read_table(path: Path) -> tuple[tuple[str, ...], list[int], Times, NDArray[np.float64]]:
    """Return the columns of a CSV file, and the line number, time and values of each row.

    The first column holds times, the others finite numbers. Blank lines and comments after `#` are skipped.
    """
    lines, times, values = [], [], []
    with path.open(encoding="utf-8-sig", errors="replace") as file:  # invalid UTF-8 is neither a number nor a time
        header = file.readline().strip().split(",")
        if header[0] != "date" or len(header) < 2:
            raise FileError(f"expected a first line that begins with 'date,', got {','.join(header)[:80]!r}")
        columns = tuple(header[1:])
        for number, line in enumerate(file, 2):
            row = line.partition("#")[0].strip()
            if not row:
                continue
            stamp, *fields = row.split(",")
            if len(fields) != len(columns):
                raise FileError(f"expected {len(columns)} numbers after the time in line {number}, got {len(fields)}")
            lines.append(number)
            times.append(_time(stamp, number))
            values.append([_number(*field, number) for field in zip(fields, columns, strict=True)])
    return columns, lines, np.array(times, dtype="datetime64[s]"), np.array(values).reshape(-1, len(columns))


def _time(text: str, line: int) -> datetime:
    """Return a time that is written as 2010-01-31 07:00:00 (ETT) or as 1/31/2010 7:00 (WTH)."""
    try:
        return datetime.strptime(text, "%m/%d/%Y %H:%M") if "/" in text else datetime.fromisoformat(text)
    except ValueError:
        raise FileError(f"expected a time at the beginning of line {line}, got {text!r}") from None


def _number(text: str, column: str, line: int) -> float:
    try:
        value = math.nan if "_" in text or not text.isascii() else float(text)  # float would read 1_0 as 10
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise FileError(f"expected a finite number for {column} in line {line}, got {text!r}")
    return value


def _check(layout: Layout, columns: tuple[str, ...], lines: list[int], times: Times) -> None:
    if columns != layout.columns:
        raise FileError(f"expected the columns {', '.join(layout.columns)}, got {', '.join(columns)}")
    if len(times) != layout.rows:
        raise FileError(f"expected {layout.rows} rows, got {len(times)}")
    expected = np.datetime64(layout.first, "s") + np.arange(layout.rows) * np.timedelta64(layout.step, "s")
    wrong = np.flatnonzero(times != expected)
    if len(wrong):
        first = wrong[0]
        raise FileError(f"expected the time {expected[first]} in line {lines[first]}, got {times[first]}")

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

from parallelrnn.errors import ArgumentError
from parallelrnn.lab.datasets import DatasetError, Source, Table, load_table
from parallelrnn.lab.datasets.ett_wth import LAYOUTS
from tests.support import raises

ROWS = 50


def table(borders: tuple[int, int, int] = (20, 30, 45)) -> Table:
    values = np.random.default_rng(0).normal(3, 2, (ROWS, 2))
    times = np.datetime64("2016-07-01T00:00:00", "s") + np.arange(ROWS) * np.timedelta64(3600, "s")
    return Table(name="small", values=values, columns=("a", "b"), times=times, borders=borders)


def write(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, np.ndarray]:
    """A file of the form of `name`, with few rows, and the values in it."""
    layout = replace(LAYOUTS[name], rows=ROWS, borders=(20, 30, 45))
    layout = replace(layout, source=Source(path=layout.source.path))
    monkeypatch.setitem(LAYOUTS, name, layout)
    values = np.random.default_rng(1).normal(size=(ROWS, len(layout.columns))).round(6)
    times = np.datetime64(layout.first, "s") + np.arange(ROWS) * np.timedelta64(layout.step, "s")
    stamps = [time.item().strftime("%Y-%m-%d %H:%M:%S") for time in times]
    if name == "WTH":
        stamps = [f"{time.item():%-m/%-d/%Y %-H:%M}" for time in times]
    lines = [",".join(["date", *layout.columns])]
    lines += [",".join([stamp, *map(str, row)]) for stamp, row in zip(stamps, values, strict=True)]
    path = folder / layout.source.path
    path.parent.mkdir(parents=True)
    path.write_text("\n".join(lines) + "\n")
    return path, values


@pytest.mark.parametrize("name", ["ETTh2", "ETTm2", "WTH"])
def test_a_table_is_read(name: str, own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, values = write(own, name, monkeypatch)
    loaded = load_table(name)
    assert loaded.name == name
    assert loaded.columns == LAYOUTS[name].columns
    assert loaded.borders == (20, 30, 45)
    assert loaded.values.dtype == np.float64
    np.testing.assert_array_equal(loaded.values, values)
    assert loaded.times.dtype == "datetime64[s]"
    assert loaded.times[0] == np.datetime64(LAYOUTS[name].first)
    assert (np.diff(loaded.times) == np.timedelta64(900 if name == "ETTm2" else 3600, "s")).all()


@pytest.mark.parametrize(
    ("old", "new", "fact"),
    [
        ("date,", "time,", "'date,'"),
        ("<whole>", "<html>404</html>\n", "<html>404"),
        ("WindSpeed", "Speed", "Speed"),
        ("1/2/2010 3:00", "1/2/2010 5:00", "2010-01-02T03:00:00 in line 29, got 2010-01-02T05"),
        ("1/2/2010 3:00", "yesterday", "line 29, got 'yesterday'"),
        ("1/2/2010 3:00", "", "line 29, got ''"),
        ("1/2/2010 3:00,", "1/2/2010 3:00,x", "Visibility in line 29, got 'x"),
        ("1/2/2010 3:00,", "1/2/2010 3:00,1_0", "Visibility in line 29, got '1_0"),
        ("1/2/2010 3:00,", "\n#\n1/2/2010 3:00,x", "Visibility in line 31, got 'x"),
        ("1/3/2010 1:00,", "1/3/2010 1:00,1,,1,1,1,1,1,1,1,1,1,1#", "DryBulbFarenheit in line 51, got ''"),
        ("1/2/2010 3:00,", "1/2/2010 3:00,nan\n#", "line 29, got 1"),
        ("1/2/2010 3:00,", "1/2/2010 3:00,7,", "line 29, got 13"),
        ("\n1/3/2010 1:00", ",7\n1/3/2010 1:00", "line 50, got 13"),
        ("1/3/2010 1:00,", "1/3/2010 1:00,1,1,1,1,1,1,1,1,1,1,1,inf#", "WetBulbCelsius in line 51, got 'inf'"),
        ("\n1/3/2010 1:00", "\n#", "50 rows, got 49"),
    ],
)
def test_another_table_is_rejected(old: str, new: str, fact: str, own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, _ = write(own, "WTH", monkeypatch)
    text = path.read_text()
    assert old in text or old == "<whole>"
    path.write_text(new if old == "<whole>" else text.replace(old, new, 1))
    with raises(DatasetError, path, fact):
        load_table("WTH")


def test_names_are_checked() -> None:
    with raises(ArgumentError, argument="name", got="ETT"):
        load_table("ETT")


def test_months_of_the_layouts() -> None:
    month = 30 * 24
    for name, layout in LAYOUTS.items():
        times = np.datetime64(layout.first, "s") + np.array([*layout.borders, layout.rows]) * np.timedelta64(
            layout.step, "s"
        )
        if name == "WTH":
            assert [str(time)[:13] for time in times] == ["2012-05-01T00", "2013-03-01T00", *2 * ["2014-01-01T00"]]
        else:
            hours = (times[:3] - np.datetime64("2016-07-01T00")) / np.timedelta64(1, "h")
            assert list(hours) == [12 * month, 16 * month, 20 * month]


@pytest.mark.parametrize("part", ["train", "validation", "test"])
@pytest.mark.parametrize(("lookback", "horizon"), [(1, 1), (7, 3), (19, 1), (3, 10), (10, 10)])
def test_windows_are_all_that_forecast_their_part(part: str, lookback: int, horizon: int) -> None:
    small = table()
    begin, end = {"train": (0, 20), "validation": (20, 30), "test": (30, 45)}[part]
    expected = [
        start
        for start in range(ROWS)
        if all(begin <= row < end for row in range(start + lookback, start + lookback + horizon))
    ]
    windows = small.windows(part, lookback, horizon)
    assert windows.dtype == np.int64
    assert windows.tolist() == expected
    if part != "train":
        assert len(windows) == end - begin - horizon + 1  # whatever the look-back, as in Informer


def test_windows_that_do_not_fit_are_rejected() -> None:
    small = table()
    with raises(ArgumentError, argument="part", got="val"):
        small.windows("val", 1, 1)
    with raises(ArgumentError, argument="lookback", got=0):
        small.windows("train", 0, 1)
    with raises(ArgumentError, argument="horizon", got=-1):
        small.windows("train", 1, -1)
    with raises(TypeError, argument="lookback", got=2.5):
        small.windows("test", 2.5, 1)  # type: ignore[arg-type]
    with raises(TypeError, argument="horizon", got=1.5):
        small.windows("test", 1, 1.5)  # type: ignore[arg-type]
    assert len(small.windows("test", np.int64(2), np.int32(1))) == 15  # type: ignore[arg-type]
    with raises(ArgumentError, 20, argument="lookback", got=21):
        small.windows("validation", 21, 1)
    with raises(ArgumentError, 10, argument="horizon", got=11):
        small.windows("validation", 5, 11)
    with raises(ArgumentError, " 0 ", argument="horizon", got=1):
        small.windows("train", 25, 1)


def test_standardised_as_by_scikit_learn() -> None:
    small = table()
    small.values[:, 1] = 4  # a constant column
    expected = StandardScaler().fit(small.values[:20]).transform(small.values)
    result = small.standardised()
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-7)
    assert not result[:, 1].any()

"""The published files themselves, where PARALLELRNN_DATA names a directory that has them."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest

from parallelrnn.lab.datasets import load_cifar10, load_mnist, load_stand_walk_jump, load_table, load_worms

DATA = os.environ.get("PARALLELRNN_DATA")
pytestmark = pytest.mark.skipif(not DATA, reason="PARALLELRNN_DATA names no directory with the published files")


@pytest.fixture(autouse=True)
def _published(monkeypatch: pytest.MonkeyPatch, cache: object) -> None:
    assert DATA
    monkeypatch.setenv("PARALLELRNN_DATA", DATA)


@pytest.mark.parametrize(
    ("name", "last", "counts"),
    [
        ("ETTh1", "2018-06-26T19:00:00", (8521, 2857, 2857)),  # as Informer's loader prints them
        ("ETTh2", "2018-06-26T19:00:00", (8521, 2857, 2857)),
        ("ETTm1", "2018-06-26T19:45:00", (34441, 11497, 11497)),
        ("WTH", "2013-12-31T23:00:00", (20305, 7273, 7321)),
    ],
)
def test_tables(name: str, last: str, counts: tuple[int, int, int]) -> None:
    began = time.perf_counter()
    table = load_table(name)
    assert time.perf_counter() - began < 2
    assert str(table.times[-1]) == last
    assert tuple(len(table.windows(part, 96, 24)) for part in ("train", "validation", "test")) == counts
    train = table.standardised()[: table.borders[0]].astype(np.float64)
    np.testing.assert_allclose(train.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(train.std(axis=0), 1, atol=1e-5)


def test_mnist() -> None:
    splits = load_mnist()
    assert [len(part) for part in (splits.train, splits.validation, splits.test)] == [57_000, 3_000, 10_000]
    targets = np.concatenate([splits.train.targets, splits.validation.targets])
    assert np.bincount(targets).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    total = splits.train.inputs.sum(dtype=np.int64) + splits.validation.inputs.sum(dtype=np.int64)
    assert round(total / (60_000 * 784 * 255), 4) == 0.1307
    assert round(float(splits.test.inputs.mean()) / 255, 4) == 0.1325


@pytest.mark.slow  # xz takes two seconds for each of six files
def test_cifar10() -> None:
    splits = load_cifar10()
    assert [len(part) for part in (splits.train, splits.validation, splits.test)] == [47_000, 3_000, 10_000]
    assert np.bincount(splits.test.targets).tolist() == [1000] * 10
    targets = np.concatenate([splits.train.targets, splits.validation.targets])
    assert np.bincount(targets).tolist() == [5000] * 10
    means = splits.train.inputs.mean(axis=(0, 1, 2)) / 255
    np.testing.assert_allclose(means, [0.4914, 0.4822, 0.4465], atol=2e-3)  # red, green and blue, as is well known


def test_worms() -> None:
    splits = load_worms()
    parts = [splits.train, splits.validation, splits.test]
    assert [part.inputs.shape for part in parts] == [(180, 900, 1), (39, 900, 1), (39, 900, 1)]
    assert np.bincount(np.concatenate([part.targets for part in parts])).tolist() == [109, 44, 35, 45, 25]


def test_stand_walk_jump() -> None:
    splits = load_stand_walk_jump(seed=1)
    parts = [splits.train, splits.validation, splits.test]
    assert [part.inputs.shape for part in parts] == [(18, 2500, 4), (4, 2500, 4), (5, 2500, 4)]
    assert np.bincount(np.concatenate([part.targets for part in parts])).tolist() == [9, 9, 9]

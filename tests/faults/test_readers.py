"""Models that many processes save and load at once: a reader gets one of them, never a mixture."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.faults.small_models import load, names, save, save_old


def repeat(do: Callable[[int], object], until: threading.Event) -> None:
    number = 0
    while not until.is_set():
        number += 1
        do(number)


def test_a_reader_gets_the_older_or_the_newer_model(tmp_path: Path) -> None:
    save(tmp_path, 0)
    enough = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        saving = pool.submit(repeat, lambda number: save(tmp_path, number), enough)
        try:
            numbers = [load(tmp_path) for _ in range(300)]
            while len(set(numbers)) == 1 and not saving.done():  # however slow the machine is
                numbers.append(load(tmp_path))
        finally:
            enough.set()
        saving.result()
    assert numbers == sorted(numbers), "a model that was replaced does not come back"


def test_concurrent_writers_leave_one_model(tmp_path: Path) -> None:
    save_old(tmp_path, 0)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: save(tmp_path, number), range(1, 40)))
    assert load(tmp_path) in range(1, 40)
    assert names(tmp_path) == {"model.safetensors"}


def test_a_model_of_0_1_0_may_be_replaced_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_old(tmp_path, 1)
    read_bytes = Path.read_bytes

    def read_manifest_then_replace(self: Path) -> bytes:
        data = read_bytes(self)
        monkeypatch.setattr(Path, "read_bytes", read_bytes)
        save(tmp_path, 2)
        return data

    monkeypatch.setattr(Path, "read_bytes", read_manifest_then_replace)
    assert load(tmp_path) == 2

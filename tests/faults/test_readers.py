"""Models that are saved and loaded by many at once: whoever loads has one of them, and never parts of two."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.faults.small_models import load, names, save


def again_and_again(do: Callable[[int], object], until: threading.Event) -> None:
    number = 0
    while not until.is_set():
        number += 1
        do(number)


def test_who_loads_while_another_saves_has_the_older_or_the_newer(tmp_path: Path) -> None:
    save(tmp_path, 0)
    enough = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        saving = pool.submit(again_and_again, lambda number: save(tmp_path, number), enough)
        try:
            found = [load(tmp_path) for _ in range(300)]
            while len(set(found)) == 1 and not saving.done():  # however slow the machine, something is saved meanwhile
                found.append(load(tmp_path))
        finally:
            enough.set()
        saving.result()
    assert found == sorted(found), "a model that was replaced does not come back"


def test_who_saves_at_once_leaves_one_whole_model(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: save(tmp_path, number), range(40)))
    assert load(tmp_path) in range(40)
    assert len(names(tmp_path)) == 2


def test_a_reader_that_comes_between_words_and_weights_reads_again(tmp_path: Path) -> None:
    """In the middle of loading, another model takes the place of the one whose words were read."""
    save(tmp_path, 1)
    before = Path.read_bytes

    def replaced_just_before(self: Path) -> bytes:
        Path.read_bytes = before  # type: ignore[method-assign]
        save(tmp_path, 2)
        return before(self)

    Path.read_bytes = replaced_just_before  # type: ignore[method-assign]
    try:
        assert load(tmp_path) == 2
    finally:
        Path.read_bytes = before  # type: ignore[method-assign]

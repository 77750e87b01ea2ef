from __future__ import annotations

from pathlib import Path

import pytest

from parallelrnn.files import write_text


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = write_text(tmp_path / "page.html", "old")
    assert write_text(path, "new ü") == path
    assert path.read_text(encoding="utf-8") == "new ü"
    assert list(tmp_path.iterdir()) == [path]


def test_what_goes_wrong_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_text(tmp_path / "page.html", "old")

    def fail(self: Path, target: Path) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="no space"):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"cannot write page.html: there is no directory .*nowhere"):
        write_text(tmp_path / "nowhere" / "page.html", "")

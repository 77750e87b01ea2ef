from __future__ import annotations

import errno
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from parallelrnn import io as files
from parallelrnn.errors import ModelFileError
from parallelrnn.io import check_writable, write_text
from tests.support import raises


def names(directory: Path) -> set[str]:
    return {file.name for file in directory.iterdir()}


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = write_text(tmp_path / "page.html", "old")
    assert write_text(path, "new ü") == path
    assert path.read_text(encoding="utf-8") == "new ü"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_text(tmp_path / "page.html", "old")

    def fail(self: Path, target: Path) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="no space"):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with raises(FileNotFoundError, "page.html", tmp_path / "nowhere"):
        write_text(tmp_path / "nowhere" / "page.html", "")


def test_a_file_and_its_name_are_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """First what is in it, then its name, and then the directory that holds the name."""
    done: list[str] = []
    sync, replace = os.fsync, Path.replace

    def noted_sync(handle: int) -> None:
        done.append("directory" if os.path.isdir(f"/proc/self/fd/{handle}") else "file")
        sync(handle)

    def noted_replace(self: Path, target: Path) -> Path:
        done.append("name")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(Path, "replace", noted_replace)
    write_text(tmp_path / "page.html", "text")
    assert done == ["file", "name", "directory"]


def test_only_leftovers_of_killed_processes_are_removed(tmp_path: Path) -> None:
    leftovers = ("page.html.0123456789ab.part", "page.html.ba9876543210.part")
    others = (
        "page.html.part",
        "page.html.1.part",
        "page.0123456789ab.html.part",
        "page.html.xyz.part",
        "pagexhtml.0123456789ab.part",
    )
    for name in leftovers + others:
        (tmp_path / name).touch()
    write_text(tmp_path / "page.html", "text")
    assert names(tmp_path) == {"page.html", *others}


def test_files_being_written_are_left_alone(tmp_path: Path) -> None:
    """Who writes it holds a lock, which goes with it when it is killed."""
    path = tmp_path / "page.html"
    with files._open_temporary(path):
        write_text(path, "mine")
        assert len(names(tmp_path)) == 2
    files.remove_leftovers(tmp_path, re.escape(path.name))
    assert names(tmp_path) == {"page.html"}


def test_many_may_write_the_same_file_at_once(tmp_path: Path) -> None:
    texts = [f"{number} " * 10_000 for number in range(40)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda text: write_text(tmp_path / "page.html", text), texts))
    assert (tmp_path / "page.html").read_text() in texts
    assert names(tmp_path) == {"page.html"}


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    target = write_text(tmp_path / "elsewhere" / "page.html", "old")
    link = tmp_path / "page.html"
    link.symlink_to(target)
    write_text(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert names(tmp_path / "elsewhere") == {"page.html"}


def test_errors_name_the_file_that_was_asked_for(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(IsADirectoryError) as raised:
        write_text(tmp_path / "taken", "text")
    assert raised.value.filename == str(tmp_path / "taken")
    assert names(tmp_path) == {"taken"}


def test_checking_for_write_access_leaves_nothing(tmp_path: Path) -> None:
    check_writable(tmp_path / "a" / "b")
    assert not names(tmp_path / "a" / "b")
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        check_writable(tmp_path / "file" / "c")


def test_a_file_that_others_may_not_read_or_write_stays_so(tmp_path: Path) -> None:
    path = write_text(tmp_path / "page.html", "old")
    path.chmod(0o600)
    write_text(path, "new")
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root may give files away")
def test_a_file_stays_its_owners(tmp_path: Path) -> None:
    path = tmp_path / "of somebody"
    path.touch()
    os.chown(path, 1234, 2345)
    path.chmod(0o640)
    write_text(path, "new")
    status = path.stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (1234, 2345, 0o640)


def test_a_write_protected_file_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_text(tmp_path / "page.html", "old")
    really = Path.open

    def protected(self: Path, mode: str = "r", **options: Any) -> Any:
        """As the system does it for who is not the administrator."""
        if self == path and mode == "r+b":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return really(self, mode, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", protected)
        with pytest.raises(PermissionError):
            write_text(path, "new")
    assert path.read_text() == "old"


@pytest.mark.parametrize("name", ["p" * 255, "ü" * 127, "p" * 200, os.fsdecode(b"\xff\xfe")])
def test_names_may_be_all_that_the_system_allows(tmp_path: Path, name: str) -> None:
    write_text(tmp_path / name, "old")
    write_text(tmp_path / name, "new")
    assert (tmp_path / name).read_text() == "new"
    assert names(tmp_path) == {name}


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with raises(OSError, errno=errno.EINVAL, filename=str(tmp_path / "pipe")):
        files.read_bytes(tmp_path / "pipe")


def test_new_directories_are_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settled: list[Path] = []
    monkeypatch.setattr(files, "sync_directory", settled.append)
    files.make_directory(tmp_path / "a" / "b")
    files.make_directory(tmp_path / "a" / "b")
    assert sorted(settled) == [tmp_path, tmp_path / "a"]


def number_of(path: Path) -> int:
    return files.load_model(path, "model", 2, lambda metadata, tensors: int(metadata["number"]))


@pytest.mark.parametrize("name", ["new/directory", "new/file.safetensors"])
def test_a_model_is_saved_into_a_directory_or_to_a_file(tmp_path: Path, name: str) -> None:
    assert not files.has_model(tmp_path / name)
    path = files.save_model(tmp_path / name, "model", 2, {"number": 3}, {})
    assert path == tmp_path / name
    assert (path.is_file(), (path / files.MODEL_FILE).is_file()) == (".s" in name, ".s" not in name)
    assert files.has_model(path)
    assert number_of(path) == 3


@pytest.mark.parametrize(
    ("kind", "version", "facts"),
    [
        ("other", 2, ["model.safetensors", "'other'", "'model'"]),
        ("model", 3, ["model.safetensors", "version 3", "version 2", "pip install --upgrade"]),
        ("model", 1, ["model.safetensors", "version 1", "version 2", "install the release that wrote it"]),
        ("model", "new", ["model.safetensors", "version 'new'", "version 2"]),
    ],
)
def test_models_of_other_kinds_and_versions_are_rejected(
    tmp_path: Path, kind: str, version: Any, facts: list[str]
) -> None:
    files.save_model(tmp_path, kind, version, {"number": 3}, {})
    with raises(ModelFileError, *facts):
        number_of(tmp_path)


def test_a_directory_without_a_model_is_named(tmp_path: Path) -> None:
    code = "give the directory given to `save`"
    with raises(ModelFileError, tmp_path, code=code):
        number_of(tmp_path)
    (tmp_path / "file").touch()
    with raises(ModelFileError, problem=f"{tmp_path / 'file'} is a file", code=code):
        number_of(tmp_path / "file")


def test_missing_tensors_are_an_error_of_the_file(tmp_path: Path) -> None:
    files.save_model(tmp_path, "model", 2, {}, {})
    with raises(ModelFileError, tmp_path, "KeyError"):
        number_of(tmp_path)


def test_equal_content_gives_equal_bytes() -> None:
    tensors = {name: torch.arange(3.0) for name in "abcde"}
    metadata = {name: [1, None, "ü"] for name in "abcde"}
    assert len({files.encode_tensors(tensors, metadata) for _ in range(10)}) == 1

from __future__ import annotations

import hashlib
import io
import struct
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from parallelrnn.lab.datasets import DatasetError, Source, locate
from parallelrnn.lab.datasets.files import find
from tests.lab.datasets.conftest import Web
from tests.support import raises

DATA = b"date,OT\n2016-07-01 00:00:00,1\n"
SHA256 = hashlib.sha256(DATA).hexdigest()


def source(web: Web, sha256: str | None = SHA256) -> Source:
    return Source(path="ett/small.csv", sha256=sha256, url=f"{web.address}/small.csv")


def put(path: Path, data: bytes = DATA) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def zipped(**files: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in files.items():
            archive.writestr(f"folder/{name}.ts", data)
    return buffer.getvalue()


def marked(data: bytes, flags: int, method: int) -> bytes:
    """A zip whose first file says in both its headers that it is encrypted, say, or compressed by another method."""
    changed = bytearray(data)
    for begin in (data.index(b"PK\3\4") + 6, data.index(b"PK\1\2") + 8):
        changed[begin : begin + 4] = struct.pack("<HH", flags, method)
    return bytes(changed)


def tarred(name: str, data: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        entry = tarfile.TarInfo(name)
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("sha256", [SHA256, None])
def test_a_download_is_kept(web: Web, cache: Path, sha256: str | None) -> None:
    put(web.folder / "small.csv")
    for _ in range(2):
        path = locate(source(web, sha256))
        assert path == cache / "ett/small.csv"
        assert path.read_bytes() == DATA
    assert web.requests == ["/small.csv"]
    assert files(cache) == [path]


@pytest.mark.parametrize(("content", "facts"), [(DATA + b"!", ("http://127", SHA256)), (None, (404,))])
def test_a_wrong_download_is_rejected_and_leaves_nothing(
    web: Web, cache: Path, content: bytes | None, facts: tuple[object, ...]
) -> None:
    if content:
        put(web.folder / "small.csv", content)
    with raises(DatasetError, "small.csv", *facts):
        locate(source(web))
    assert files(cache) == []


def test_a_damaged_download_of_before_is_replaced(web: Web, cache: Path) -> None:
    put(web.folder / "small.csv")
    put(cache / "ett/small.csv", b"half of i")
    assert locate(source(web)).read_bytes() == DATA


@pytest.mark.parametrize("with_own", [False, True])
def test_without_a_network_it_says_what_to_put_where(
    cache: Path, with_own: bool, request: pytest.FixtureRequest
) -> None:
    directory = request.getfixturevalue("own") if with_own else cache
    missing = Source(path="ett/small.csv", sha256=SHA256, url="http://127.0.0.1:9/small.csv")  # nobody listens there
    with raises(DatasetError, "small.csv", f"{missing.url} and put it at {directory / missing.path}") as error:
        locate(missing)
    assert ("PARALLELRNN_DATA" in str(error.value)) == (not with_own)
    assert files(cache) == []


@pytest.mark.parametrize("elsewhere", ["/other.csv", "ftp://127.0.0.1/other.csv"])
def test_an_address_that_leads_to_an_open_way_is_rejected(web: Web, cache: Path, elsewhere: str) -> None:
    put(web.folder / "other.csv")
    web.led["/small.csv"] = elsewhere
    with raises(DatasetError, "/other.csv", "not https"):
        locate(source(web))
    assert web.requests == ["/small.csv"]
    assert files(cache) == []


def test_a_source_without_an_address_names_its_home_page(cache: Path) -> None:
    missing = Source(path="wth/WTH.csv", home="https://example.org/page")
    with raises(DatasetError, "https://example.org/page", cache / "wth/WTH.csv"):
        locate(missing)


def test_without_pooch_it_says_how_to_install_it(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    put(web.folder / "small.csv")
    monkeypatch.setitem(sys.modules, "pooch", None)
    with raises(DatasetError, "pooch", "pip install"):
        locate(source(web))
    assert web.requests == []


def test_ones_own_file_comes_first_and_needs_no_pooch(
    web: Web, own: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pooch", None)
    put(cache / "ett/small.csv")
    assert locate(source(web)) == cache / "ett/small.csv"
    mine = put(own / "ett/small.csv")
    assert locate(source(web)) == mine
    assert web.requests == []


def test_a_damaged_file_of_ones_own_is_named(web: Web, own: Path) -> None:
    put(web.folder / "small.csv")
    mine = put(own / "ett/small.csv", b"half of i")
    with raises(DatasetError, mine, SHA256):
        locate(source(web))
    assert web.requests == []


@pytest.mark.parametrize("name", ["nowhere", "small.csv"])
def test_a_bad_data_directory_is_named(web: Web, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "small.csv")
    monkeypatch.setenv("PARALLELRNN_DATA", str(tmp_path / name))
    with raises(DatasetError, "PARALLELRNN_DATA", tmp_path / name):
        locate(source(web))


@pytest.mark.parametrize("form", ["zip", "tar.gz"])
@pytest.mark.parametrize("place", ["web", "own"])
def test_a_file_is_taken_out_of_its_archive(
    web: Web, cache: Path, form: str, place: str, request: pytest.FixtureRequest
) -> None:
    data = zipped(a=DATA, b=b"other") if form == "zip" else tarred("folder/a.ts", DATA)
    checksums = {"sha256": SHA256, "archive_sha256": hashlib.sha256(data).hexdigest()}
    packed = Source(path="uea/a.ts", url=f"{web.address}/set.{form}", member="a.ts", **checksums)
    if place == "own":
        put(request.getfixturevalue("own") / f"uea/set.{form}", data)
        assert find(packed) == cache / "uea/a.ts"
    put(web.folder / f"set.{form}", data)
    path = locate(packed)
    assert path == cache / "uea/a.ts"
    assert path.read_bytes() == DATA
    assert web.requests == ([f"/set.{form}"] if place == "web" else [])


@pytest.mark.parametrize(
    ("data", "fact"),
    [
        (b"<html>Sorry</html>", "unpacked"),
        (tarred("a.ts", DATA * 1000)[:120], "unpacked"),
        (marked(zipped(a=DATA), 1, zipfile.ZIP_STORED), "encrypted"),
        (marked(zipped(a=DATA), 0, 9), "compression"),  # Deflate64, which Windows writes
        (marked(zipped(a=b"\x09\x04\x05\0\xff" + DATA), 0, zipfile.ZIP_LZMA), "unpacked"),
        (zipped(b=DATA), "no file a.ts"),
        (zipped(a=b"other"), SHA256),
    ],
)
def test_a_bad_archive_is_rejected(web: Web, own: Path, cache: Path, data: bytes, fact: str) -> None:
    put(web.folder / "set.zip", data)
    packed = Source(path="uea/a.ts", sha256=SHA256, url=f"{web.address}/set.zip", member="a.ts")
    with raises(DatasetError, fact, own / "uea/set.zip"):
        locate(packed)
    assert files(cache) == []  # so that the next attempt asks again
    mine = put(own / "uea/set.zip", data)
    with raises(DatasetError, "set.zip", fact, "a.ts", web.address):
        locate(packed)
    assert mine.read_bytes() == data
    put(own / "uea/a.ts")
    assert locate(packed) == own / "uea/a.ts"


def test_of_several_forms_the_first_at_hand_is_taken(web: Web, own: Path, cache: Path) -> None:
    forms = source(web), Source(path="ett/small.csv.xz")
    put(web.folder / "small.csv")
    assert locate(*forms) == cache / "ett/small.csv"  # only one can be downloaded
    packed = put(own / "ett/small.csv.xz")
    assert locate(*forms) == packed
    assert locate(*reversed(forms)) == packed
    mine = put(own / "ett/small.csv")
    assert locate(*forms) == mine

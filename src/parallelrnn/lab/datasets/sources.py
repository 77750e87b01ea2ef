"""Where data files come from: a directory of your own, earlier downloads, or the web.

`PARALLELRNN_DATA` names the directory of your own. Downloads are kept in `$XDG_CACHE_HOME/parallelrnn`, which is
`~/.cache/parallelrnn` unless that is set. A file whose checksum is known is checked each time it is used.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import lzma
import os
import sys
import tarfile
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from parallelrnn.io import write_bytes

_LONGEST = 1 << 31  # bytes of an unpacked file; the longest, of EigenWorms, holds 14 million numbers


class DatasetError(RuntimeError):
    """A data file is missing or is not what it should be; the message says which file to put where."""


@dataclass(frozen=True)
class Source:
    """One file of a data set, and where it comes from."""

    path: str  # under the data directory, such as "ett/ETTh1.csv"
    sha256: str | None  # of the file itself; None where nobody publishes one
    url: str | None  # of the file or, with `member`, of an archive that holds it; None: it cannot be downloaded
    member: str | None = None  # the file's name in the archive
    archive_sha256: str | None = None
    home: str | None = None  # a page for people, where there is no address to download from

    @property
    def name(self) -> str:
        """The file's name, without its folder."""
        return self.path.rpartition("/")[2]

    @property
    def archive(self) -> str | None:
        """Where the archive lies under the data directory: beside the file, by the name it has on the web."""
        if self.member is None or self.url is None:
            return None
        return f"{self.path.rpartition('/')[0]}/{self.url.rpartition('/')[2]}"


def locate(*sources: Source) -> Path:
    """The path of a data file, which is downloaded if need be; of several forms of one file, the first at hand.

    In this order: the directory that `PARALLELRNN_DATA` names, earlier downloads, the web. An archive that holds the
    file will do as well, in either place.
    """
    here = find(*sources)
    if here is not None:
        return here
    reason = "there is no address that it could be downloaded from"
    for source in sources:
        if source.url is not None:
            try:
                return _download(source)
            except (OSError, ValueError) as error:  # those of requests are OSErrors; a wrong checksum is a ValueError
                reason = f"downloading {source.url} failed: {error}"
                break
            except ModuleNotFoundError:
                reason = f"downloading {source.url} needs pooch: pip install 'parallelrnn[datasets]'"
                break
    raise DatasetError(f"{sources[0].name} is not at hand, and {reason}. {_advice(*sources)}")


def find(*sources: Source) -> Path | None:
    """The path of a data file if it is at hand, of several forms of it the first; nothing is downloaded."""
    own, cache = _own(), _cache()
    if own is not None:
        for source in sources:
            path = own / source.path
            if path.is_file():
                if not _is_right(path, source.sha256):
                    raise DatasetError(
                        f"{path} is damaged or another version: expected sha256 {source.sha256}, got {_sha256(path)}; "
                        f"replace it{_from(source)}, or take it away to have another one used"
                    )
                return path
    for source in sources:
        path = cache / source.path
        if path.is_file() and _is_right(path, source.sha256):
            return path
    if own is not None:
        for source in sources:
            if source.archive is not None and (own / source.archive).is_file():
                try:
                    return _extract(own / source.archive, source)
                except ValueError as error:
                    raise DatasetError(
                        f"{error}; put {source.name} itself beside it, replace it{_from(source)}, or take it away"
                    ) from error
    return None


def _own() -> Path | None:
    """The directory of the reader's own files."""
    name = os.environ.get("PARALLELRNN_DATA")
    if not name:
        return None
    path = Path(name).expanduser()
    if not path.is_dir():
        if path.exists():
            raise DatasetError(
                f"PARALLELRNN_DATA is {name}, which is a file; name the directory that the data files lie under, or "
                "unset the variable"
            )
        raise DatasetError(
            f"PARALLELRNN_DATA is {name}, and there is no such directory; make it, or unset the variable"
        )
    return path


def _cache() -> Path:
    # The same on every system, as torch and Hugging Face have it, and pooch need not be there to find it.
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "parallelrnn"


def _download(source: Source) -> Path:
    """Into the cache, whole and right or not at all; out of an archive, where it comes in one."""
    pooch = importlib.import_module("pooch")
    cache = _cache()
    path = source.archive or source.path
    known = source.archive_sha256 if source.archive else source.sha256
    fetcher = pooch.create(cache, base_url="", registry={path: known}, urls={path: source.url})
    # pooch refuses to show progress where tqdm is missing.
    bar = sys.stderr.isatty() and importlib.util.find_spec("tqdm") is not None
    downloader = pooch.HTTPDownloader(progressbar=bar, hooks={"response": _refuse_open_ways})
    found = Path(fetcher.fetch(path, downloader=downloader))
    if source.archive is None:
        return found
    try:
        return _extract(found, source)
    except ValueError:
        found.unlink(missing_ok=True)  # an error page, say; kept, it would be taken for the archive the next time
        raise


def _refuse_open_ways(response: Any, **_: Any) -> None:
    """By https, wherever an address leads: on any other way everybody could send another file."""
    if response.is_redirect:
        target = urljoin(response.url, response.headers["location"])
        if not target.startswith("https:"):
            raise ValueError(f"it leads to {target}, which is not https")


def _extract(archive: Path, source: Source) -> Path:
    """The file out of its archive, into the cache: the reader's own directory may be read-only."""
    assert source.member is not None
    if not _is_right(archive, source.archive_sha256):
        raise ValueError(f"{archive} has sha256 {_sha256(archive)}, expected {source.archive_sha256}")
    try:
        data = _read_member(archive, source.member)
    # A RuntimeError says that it is encrypted, or compressed in a way that Python does not know.
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, lzma.LZMAError, OSError, RuntimeError) as error:
        why = (str(error) or type(error).__name__).splitlines()[0]  # tarfile lists every form it tried
        raise ValueError(f"{archive} cannot be unpacked ({why})") from error
    if data is None:
        raise ValueError(f"{archive} holds no file {source.member}")
    if source.sha256 is not None and hashlib.sha256(data).hexdigest() != source.sha256:
        raise ValueError(f"{source.member} in {archive} has another sha256 than {source.sha256}")
    path = _cache() / source.path
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_bytes(path, data)


def _read_member(archive: Path, member: str) -> bytes | None:
    """A file of an archive, in whichever folder of it; read, never unpacked to a path that the archive chooses."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as opened:
            for name in opened.namelist():
                if name.rpartition("/")[2] == member:
                    _check_length(member, opened.getinfo(name).file_size)
                    return opened.read(name)  # and no more than that
        return None
    with tarfile.open(archive) as tar:
        for entry in tar:
            if entry.isfile() and entry.name.rpartition("/")[2] == member:
                _check_length(member, entry.size)
                file = tar.extractfile(entry)
                return file.read() if file else None
    return None


def _check_length(member: str, length: int) -> None:
    """A few packed bytes can say that they are any number."""
    if length > _LONGEST:
        raise ValueError(f"{member} would have {length} bytes unpacked, and no file of a data set has above {_LONGEST}")


def _is_right(path: Path, sha256: str | None) -> bool:
    return sha256 is None or _sha256(path) == sha256


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def _from(source: Source) -> str:
    address = source.url or source.home
    return f" by that of {address}" if address else ""


def _advice(*sources: Source) -> str:
    """Which file to put where, for whom it was not found."""
    own = _own()
    directory = own or _cache()
    ways = [str(directory / source.path) for source in sources]
    if own:
        archives = dict.fromkeys(source.archive for source in sources if source.archive)
        ways += [f"{directory / archive} (the archive)" for archive in archives]
    address = next((source.url or source.home for source in sources if source.url or source.home), None)
    get = f"Get it from {address} and put it at " if address else "Put it at "
    unset = "" if own else ", or under that name into a directory that PARALLELRNN_DATA names"
    return get + " or ".join(ways) + unset

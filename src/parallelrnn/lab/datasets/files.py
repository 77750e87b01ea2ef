"""Finding data files: in a directory of the user, among earlier downloads, or on the web.

`PARALLELRNN_DATA` names the user's directory. Downloads go to `$XDG_CACHE_HOME/parallelrnn`, by default
`~/.cache/parallelrnn`. A file whose checksum is known is checked each time it is used.
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

from parallelrnn.errors import FileError
from parallelrnn.io import write_bytes

_MAX_UNPACKED = 1 << 31  # bytes; the longest file, of EigenWorms, holds 14 million numbers


class DatasetError(FileError, RuntimeError):
    """A data file that is missing, or is not the published one."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """One file of a data set, and where it comes from."""

    path: str  # under the data directory, such as "ett/ETTh1.csv"
    sha256: str | None = None  # of the file itself; None if none is published
    url: str | None = None  # of the file or, with `member`, of an archive that holds it; None: it cannot be downloaded
    member: str | None = None  # the file's name in the archive
    archive_sha256: str | None = None
    home: str | None = None  # a web page, where there is no address to download from

    @property
    def name(self) -> str:
        """The name of the file without its folder."""
        return self.path.rpartition("/")[2]

    @property
    def archive(self) -> str | None:
        """The path of the archive under the data directory: beside the file, with its name on the web."""
        if self.member is None or self.url is None:
            return None
        return f"{self.path.rpartition('/')[0]}/{self.url.rpartition('/')[2]}"


def locate(*sources: Source) -> Path:
    """Return the path of a data file, downloaded if necessary; of several forms of one file, the first that is there.

    Searched are the directory that `PARALLELRNN_DATA` names, earlier downloads and the web, in this order. An archive
    that holds the file will do as well.
    """
    path = find(*sources)
    if path is not None:
        return path
    reason = "it cannot be downloaded"
    source = next((source for source in sources if source.url is not None), None)
    if source is not None:
        try:
            return _download(source)
        except (OSError, ValueError) as error:  # those of requests are OSErrors; a wrong checksum is a ValueError
            reason = f"downloading {source.url} failed: {error}"
        except ModuleNotFoundError:
            reason = f"downloading {source.url} needs pooch: pip install 'parallelrnn[lab]'"
    raise DatasetError(f"{sources[0].name} is missing: {reason}", hint=_advice(*sources))


def find(*sources: Source) -> Path | None:
    """Return the path of a data file, or None if it would have to be downloaded."""
    own, cache = _own(), _cache()
    if own is not None:
        for source in sources:
            path = own / source.path
            if path.is_file():
                if not _is_right(path, source.sha256):
                    raise DatasetError(
                        f"{path} is damaged or another version: its sha256 is {_sha256(path)}, not {source.sha256}",
                        hint=f"replace it{_from(source)}, or remove it",
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
                    hint = f"put {source.name} itself beside it, replace it{_from(source)}, or remove it"
                    raise DatasetError(str(error), hint=hint) from error
    return None


def _own() -> Path | None:
    """Return the user's directory, or None if there is none."""
    name = os.environ.get("PARALLELRNN_DATA")
    if not name:
        return None
    path = Path(name).expanduser()
    if not path.is_dir():
        problem = "which is a file" if path.exists() else "which does not exist"
        raise DatasetError(f"PARALLELRNN_DATA is {name}, {problem}", hint="name a directory, or unset the variable")
    return path


def _cache() -> Path:
    # The same on every system, as for torch and Hugging Face.
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "parallelrnn"


def _download(source: Source) -> Path:
    """Download a file to the cache, and extract it if it comes in an archive."""
    pooch = importlib.import_module("pooch")
    cache = _cache()
    path = source.archive or source.path
    known = source.archive_sha256 if source.archive else source.sha256
    fetcher = pooch.create(cache, base_url="", registry={path: known}, urls={path: source.url})
    bar = sys.stderr.isatty() and importlib.util.find_spec("tqdm") is not None  # pooch needs it for a bar
    downloader = pooch.HTTPDownloader(progressbar=bar, hooks={"response": _reject_redirects_from_https})
    download = Path(fetcher.fetch(path, downloader=downloader))
    if source.archive is None:
        return download
    try:
        return _extract(download, source)
    except ValueError:
        download.unlink(missing_ok=True)  # an error page, say, which would be taken for the archive the next time
        raise


def _reject_redirects_from_https(response: Any, **_: Any) -> None:
    """Raise if an address leads elsewhere than to https: anyone could send another file."""
    if response.is_redirect:
        target = urljoin(response.url, response.headers["location"])
        if not target.startswith("https:"):
            raise ValueError(f"it redirects to {target}, which is not https")


def _extract(archive: Path, source: Source) -> Path:
    """Extract a file from its archive to the cache: the user's directory may be read-only."""
    assert source.member is not None
    if not _is_right(archive, source.archive_sha256):
        raise ValueError(f"the sha256 of {archive} is {_sha256(archive)}, not {source.archive_sha256}")
    try:
        data = _read_member(archive, source.member)
    # A RuntimeError: it is encrypted, or compressed in a way that Python does not know.
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, lzma.LZMAError, OSError, RuntimeError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]  # tarfile lists every form it tried
        raise ValueError(f"{archive} cannot be unpacked ({reason})") from error
    if data is None:
        raise ValueError(f"{archive} has no file {source.member}")
    if source.sha256 is not None and hashlib.sha256(data).hexdigest() != source.sha256:
        raise ValueError(f"the sha256 of {source.member} in {archive} is not {source.sha256}")
    path = _cache() / source.path
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_bytes(path, data)


def _read_member(archive: Path, member: str) -> bytes | None:
    """Return the bytes of a file in any folder of an archive; nothing is written to paths that the archive chooses."""
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
    """Raise if a file would take too much memory: a few packed bytes can claim any length."""
    if length > _MAX_UNPACKED:
        raise ValueError(f"{member} claims {length} bytes, more than any file of a data set ({_MAX_UNPACKED})")


def _is_right(path: Path, sha256: str | None) -> bool:
    return sha256 is None or _sha256(path) == sha256


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def _from(source: Source) -> str:
    return f" with that of {source.url or source.home}" if source.url or source.home else ""


def _advice(*sources: Source) -> str:
    """Return which file to put where."""
    own = _own()
    directory = own or _cache()
    places = [str(directory / source.path) for source in sources]
    if own:
        archives = dict.fromkeys(source.archive for source in sources if source.archive)
        places += [f"{directory / archive} (the archive)" for archive in archives]
    address = next((source.url or source.home for source in sources if source.url or source.home), None)
    get = f"get it from {address} and put it at " if address else "put it at "
    own_directory = "" if own else ", or under that name into a directory that PARALLELRNN_DATA names"
    return get + " or ".join(places) + own_directory

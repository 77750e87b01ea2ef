"""Files that are whole or not there."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

try:
    import fcntl
except ImportError:  # of Unix; what needs it does without it elsewhere
    fcntl = None  # type: ignore[assignment]

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_PART = r"\.[0-9a-f]{12}\.part"  # what the name of a file that is being written ends in
_LONGEST_NAME = 255 - len(".0123456789ab.part")  # bytes that file systems leave for the beginning


def write_text(path: str | Path, text: str) -> Path:
    """Write a text as `write_bytes` writes."""
    return write_bytes(path, text.encode("utf-8"))


def write_bytes(path: str | Path, data: bytes) -> Path:
    """Write a file beside and rename it: whoever reads it, and whenever this is cut off, finds a whole one.

    Once this returns, it is on the disk. What killed processes left beside it is removed.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path.name}: there is no directory {path.parent}; make it first")
    with named_in_errors(path):
        if path.exists() and not (path.is_file() or path.is_dir()):  # a device or a pipe: nothing to put in its place
            path.write_bytes(data)
        else:
            _replace(Path(os.path.realpath(path)), data)  # a link stays one
    return path


def read_bytes(path: Path) -> bytes:
    """All of a file; a pipe or a device in its place would never end."""
    kind = path.stat().st_mode
    if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):  # of a directory the system says so itself
        raise OSError(errno.EINVAL, "a pipe or a device, and no file", str(path))
    return path.read_bytes()


def make_directory(path: Path) -> None:
    """Make a directory and those above it; once this returns, they are on the disk."""
    missing = [one for one in (path, *path.parents) if not one.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for one in missing:
        settle(one.parent)


def sum_of(words: Any) -> str:
    """A checksum of words, the same before they are written as JSON and after they are read."""
    as_read = json.loads(json.dumps(words))
    return hashlib.sha256(json.dumps(as_read, sort_keys=True).encode()).hexdigest()


@contextmanager
def named_in_errors(path: Path) -> Iterator[None]:
    """Errors of the system name this file: those of a full disk name none, and others the one beside it."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def sentence(error: OSError) -> str:
    """What the system says about a file, and what to do, without the system's numbers."""
    if not error.strerror or error.filename is None:
        return str(error)
    path = error.filename if error.filename2 is None else error.filename2
    to_do = "make room there, or give another path" if error.errno in _FULL else "give another path"
    return f"{path}: {error.strerror.lower()}; {to_do}"


def check_writable(directory: Path) -> None:
    """Make a directory and write into it, to know that one can before hours are spent on what is to be kept there."""
    make_directory(directory)
    with named_in_errors(directory), tempfile.TemporaryFile(dir=directory) as file:  # which has no name to be left
        file.write(b"yes")
        file.flush()


def sweep(directory: Path, names: str) -> None:
    """Remove what killed processes left of writing files with such names, a regular expression.

    Who writes holds a lock on the file, and the system takes it from who is killed.
    """
    if fcntl is None:
        return
    for left in os.listdir(directory):
        if re.fullmatch(names + _PART, left):
            with suppress(OSError), (directory / left).open("r+b") as file:  # it is another's, or gone already
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                (directory / left).unlink()


def settle(directory: Path) -> None:
    """Put the names of files in a directory on the disk: what was renamed is not there for good before that."""
    if os.name == "nt":
        return  # which has no way to ask for it
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that has no such thing
            raise
    finally:
        os.close(handle)


@contextmanager
def one_at_a_time(directory: Path) -> Iterator[None]:
    """For who changes several files of a directory: others that want to wait until the block ends.

    Where the system knows no locks, nobody waits.
    """
    if fcntl is None:
        yield
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        with suppress(OSError):  # a network file system that locks no directories
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_UN)  # closing is not enough if the process was forked meanwhile
        os.close(handle)


def _replace(path: Path, data: bytes) -> None:
    old = path.exists()
    if old:
        path.open("r+b").close()  # an error if it is write-protected, though its directory would let us replace it
    beginning = path.name
    while len(os.fsencode(beginning)) > _LONGEST_NAME:
        beginning = beginning[:-1]
    sweep(path.parent, re.escape(beginning))  # before, since it may make the room that is needed
    file = _open_beside(path.with_name(beginning))
    beside = Path(file.name)
    try:
        with file:
            if old:
                _keep_owner(path, beside)
                shutil.copymode(path, beside)  # who may not read it may not from now on either
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            if os.name == "nt":
                file.close()  # it renames no open file
            beside.replace(path)  # while it is locked, so that nobody sweeps it away
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    settle(path.parent)


def _keep_owner(path: Path, beside: Path) -> None:
    """Whose file it was, as far as the system lets one give files away."""
    if os.name == "nt":
        return
    was = path.stat()
    with suppress(PermissionError):
        os.chown(beside, was.st_uid, was.st_gid)


def _open_beside(path: Path) -> IO[bytes]:
    """A new file with a name that no other process or thread uses, locked while it is open."""
    while True:
        file = path.with_name(f"{path.name}.{uuid.uuid4().hex[:12]}.part").open("xb")
        if fcntl is None:
            return file
        with suppress(OSError):  # a network file system without locks, where nobody sweeps either
            fcntl.flock(file, fcntl.LOCK_EX)
        if os.path.exists(file.name):
            return file
        file.close()  # somebody swept it away before it was locked

"""Results as they come: JSON lines, appended at once, whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from parallelrnn.io import check_writable, json_checksum, make_directory, os_errors_name, read_bytes, sync_directory
from parallelrnn.lab.experiments.experiment import ExperimentError, Job, Workspace

Line = dict[str, Any]
_NEEDED: dict[str, type] = {"key": str, "experiment": str, "config": dict, "seed": int, "metrics": dict}
_SUM = "sha256"  # of all else in a line


class Store:
    """A folder with a file of results for each experiment; several processes may append."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def path(self, experiment: str) -> Path:
        """Where results of an experiment are."""
        return self.folder / f"{experiment}.jsonl"

    def lines(self, experiment: str) -> list[Line]:
        """All results so far; a last line that was cut off does not count, unless only its end is missing."""
        path = self.path(experiment)
        if not path.exists():
            return []
        found = []
        *whole, last = read_bytes(path).split(b"\n")  # not at other ends of lines, which a changed bit can make
        for number, text in enumerate([*whole, _without_end(last)], 1):
            if text.strip():
                found.append(_result(text, f"{path}, line {number}"))
        return found

    def find(self, job: Job) -> Line | None:
        """The result of a job, if there is one."""
        return next((line for line in self.lines(job.experiment) if line["key"] == job.key), None)

    def check(self) -> None:
        """Whether results can be kept here, before hours are spent on them."""
        if self.folder.exists() and not self.folder.is_dir():
            raise ExperimentError(f"{self.folder} is a file; name a folder for results")
        try:
            check_writable(self.folder)
        except OSError as error:
            raise ExperimentError(f"results cannot be kept in {self.folder}: {error.strerror}") from error

    def append(self, line: Line) -> None:
        """Add a result; once this returns, it is on the disk."""
        make_directory(self.folder)
        path = self.path(line["experiment"])
        with os_errors_name(path), path.open("ab+") as file, _locked(file):
            _mend_the_end(file)
            file.write(json.dumps({**line, _SUM: json_checksum(line)}).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
            sync_directory(self.folder)

    def workspace(self, job: Job) -> Path:
        """Where a job keeps what it takes to go on with it."""
        return self.folder / ".checkpoints" / f"{job.experiment}-{job.key}"

    def is_begun(self, job: Job) -> bool:
        """Whether there is something to go on with."""
        checkpoint = Workspace(self.workspace(job)).checkpoint
        return checkpoint is not None and checkpoint.exists()

    @contextmanager
    def claim(self, job: Job) -> Iterator[bool]:
        """Whether a job is ours to run: no other process of this machine is at it. It is until the block ends.

        Its workspace is removed if there is nothing to go on with: it has its result, or came to no checkpoint.
        """
        directory = self.workspace(job)
        file = _lock_of(directory)
        if file is None:
            yield False
            return
        with file, _unlocking(file):
            file.truncate(0)
            file.write(f"{os.getpid()}\n{job}\n".encode())  # for who wonders
            file.flush()
            try:
                yield True
            finally:
                if not self.is_begun(job) or self.find(job) is not None:
                    shutil.rmtree(directory, ignore_errors=True)


def _result(text: bytes, place: str) -> Line:
    try:
        line = json.loads(text)
    except (ValueError, RecursionError) as error:  # of the text, of its letters, or nested too deep
        raise ExperimentError(f"{place}: no result ({error}); mend or remove the line") from error
    missing = [name for name in _NEEDED if not isinstance(line, dict) or name not in line]
    if missing:
        raise ExperimentError(f"{place}: a result without {', '.join(missing)}; mend or remove the line")
    wrong = next((name for name, kind in _NEEDED.items() if not isinstance(line[name], kind)), None)
    if wrong is not None:
        expected = f"expected {wrong} to be of the kind {_NEEDED[wrong].__name__}, got {str(line[wrong])[:60]!r}"
        raise ExperimentError(f"{place}: {expected}; mend or remove the line")
    if line.pop(_SUM, None) != json_checksum(line):
        raise ExperimentError(f"{place}: not what was written, it was changed; remove the line, and it is run again")
    return dict(line)


def _without_end(last: bytes) -> bytes:
    """The result that a last line holds whose end is missing, or another byte; nothing if it was cut off before."""
    for text in (last, last[:-1]):
        with suppress(ExperimentError):
            _result(text, "")
            return text
    return b""


def _mend_the_end(file: IO[bytes]) -> None:
    """A last line without an end gets one if it is whole; else its process was killed as it wrote, and it goes."""
    file.seek(0)
    text = file.read()
    begin = text.rfind(b"\n") + 1
    if begin < len(text):
        kept = _without_end(text[begin:])
        file.truncate(begin + len(kept))
        if kept:
            file.write(b"\n")


@contextmanager
def _locked(file: IO[bytes]) -> Iterator[None]:
    import fcntl  # of Unix; all other commands run without it

    fcntl.flock(file, fcntl.LOCK_EX)
    with _unlocking(file):
        yield


@contextmanager
def _unlocking(file: IO[bytes]) -> Iterator[None]:
    """Give a lock back when the block ends; closing is not enough if the process was forked meanwhile."""
    import fcntl

    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


def _lock_of(directory: Path) -> IO[bytes] | None:
    """The file by which a workspace is claimed, locked; nothing if another process has it."""
    import fcntl

    while True:
        directory.mkdir(parents=True, exist_ok=True)
        try:
            file = (directory / "lock").open("ab")
        except FileNotFoundError:  # who had it has just removed the workspace
            continue
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        if os.fstat(file.fileno()).st_nlink:
            return file
        file.close()  # it was removed before it was locked, and the next one who comes makes another

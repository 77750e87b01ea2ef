"""Runs of experiments and benchmarks: configuration, seed, result and provenance, one JSON file each."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import IO, Any

import parallelrnn
from parallelrnn.errors import FileError
from parallelrnn.io import check_writable, json_checksum, make_directory, read_bytes, write_text
from parallelrnn.lab.experiments.experiment import Job, Workspace, run_key

try:
    import fcntl
except ImportError:  # not Unix; there, commands that run at once do not see each other's locks
    fcntl = None  # type: ignore[assignment]

_FIELDS: dict[str, type] = {"experiment": str, "config": dict, "seed": int, "result": dict, "provenance": dict}
_DELETE = "delete the file, and the run is made again"


@dataclass(frozen=True, kw_only=True)
class Run:
    """One finished run of an experiment or benchmark. All of it is JSON."""

    experiment: str
    config: dict[str, Any]
    seed: int
    result: dict[str, Any]
    provenance: dict[str, Any]

    @property
    def key(self) -> str:
        """The run's identity: a hash of experiment, configuration and seed."""
        return run_key(self.experiment, self.config, self.seed)


class RunStore:
    """A folder of runs: `<experiment>/<key>.json`. Several processes may save at once."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def save(self, run: Run) -> Path:
        """Write a run beside its place and rename it; once this returns, it is on the disk."""
        content = {"key": run.key, **asdict(run)}
        content["checksum"] = json_checksum(content)
        lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in content.items())
        make_directory(self.folder / run.experiment)
        return write_text(self.folder / run.experiment / f"{run.key}.json", f"{{\n{lines}\n}}\n")

    def find(self, key: str) -> Run | None:
        """Return the run with this key, or None."""
        return next((_read_run(path) for path in self.folder.glob(f"*/{key}.json")), None)

    def load(self, experiment: str) -> list[Run]:
        """Return all runs of an experiment, ordered by key."""
        return [_read_run(path) for path in sorted((self.folder / experiment).glob("*.json"))]

    def check_writable(self) -> None:
        """Raise unless runs can be saved here, before hours are spent on them."""
        hint = "name a folder for {results}"
        if self.folder.exists() and not self.folder.is_dir():
            raise FileError(f"{self.folder} is a file", hint=hint)
        try:
            check_writable(self.folder)
        except OSError as error:
            raise FileError(f"runs cannot be saved in {self.folder}: {error.strerror}", hint=hint) from error

    def workspace(self, job: Job) -> Path:
        """Return the folder of a job's checkpoint and lock."""
        return self.folder / ".checkpoints" / f"{job.experiment}-{job.key}"

    def is_begun(self, job: Job) -> bool:
        """Return whether the job has a checkpoint to resume from."""
        checkpoint = Workspace(self.workspace(job)).checkpoint
        return checkpoint is not None and checkpoint.exists()

    @contextmanager
    def lock(self, job: Job) -> Iterator[bool]:
        """Hold the job's lock, if no other process of this machine does; yields whether it is held.

        On leaving, the workspace is removed if there is nothing to resume: the run was saved, or has no checkpoint.
        """
        directory = self.workspace(job)
        file = _lock_file(directory)
        if file is None:
            yield False
            return
        with file:
            file.truncate(0)
            file.write(f"{os.getpid()}\n{job}\n".encode())  # for `status`
            file.flush()
            try:
                yield True
            finally:
                if not self.is_begun(job) or self.find(job.key) is not None:
                    shutil.rmtree(directory, ignore_errors=True)
                if fcntl is not None:  # closing is not enough if the process was forked meanwhile
                    fcntl.flock(file, fcntl.LOCK_UN)


def _read_run(path: Path) -> Run:
    """Return the run in a file; raise if it is not what `RunStore.save` wrote."""
    try:
        content = json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path} is not JSON ({error})", hint=_DELETE) from error
    if not isinstance(content, dict) or content.pop("checksum", None) != json_checksum(content):
        raise FileError(f"{path} was changed after it was written: wrong checksum", hint=_DELETE)
    wrong = [name for name, kind in _FIELDS.items() if not isinstance(content.get(name), kind)]
    if not wrong:
        run = Run(**{name: content[name] for name in _FIELDS})
        if (run.key, run.experiment) == (path.stem, path.parent.name):
            return run
    raise FileError(f"{path} does not hold a run: wrong {', '.join(wrong) or 'file name'}", hint=_DELETE)


def _lock_file(directory: Path) -> IO[bytes] | None:
    """Return the workspace's lock file, locked, or None if another process holds it."""
    while True:
        directory.mkdir(parents=True, exist_ok=True)
        try:
            file = (directory / "lock").open("ab")
        except FileNotFoundError:  # its holder has just removed the workspace
            continue
        if fcntl is None:
            return file
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        if os.fstat(file.fileno()).st_nlink:
            return file
        file.close()  # it was removed before it was locked: lock the next one


def _current_commit() -> str:
    """Return the commit of the package's source, with a plus if it was modified, or its version if not in git."""

    def git(*arguments: str) -> str:
        command = ["git", *arguments]
        folder = Path(parallelrnn.__file__).parent
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")  # an installed copy may lie inside another repository
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return f"version {installed_version('parallelrnn')}"


def installed_version(package: str) -> str:
    """Return the version of a package, or "not installed"."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


COMMIT = _current_commit()  # when the process starts: what is checked out later is not what runs


def machine(threads: int) -> dict[str, Any]:
    """Return the processor, the versions and the number of threads of this process."""
    from parallelrnn.kernels.library import INSTRUCTIONS

    return {
        "processor": processor(),
        "cores": cores(),
        "threads": threads,
        "instruction_set": "none" if INSTRUCTIONS is None else INSTRUCTIONS.name,
        **{package: installed_version(package) for package in ("parallelrnn", "torch", "numpy")},
        "python": platform.python_version(),
        "system": platform.platform(),
    }


def processor() -> str:
    """Return the processor's name, as far as the system knows it."""
    cpuinfo = Path("/proc/cpuinfo")
    names = re.findall(r"^model name\s*:\s*(.*)$", cpuinfo.read_text(), re.MULTILINE) if cpuinfo.exists() else []
    return names[0] if names else platform.processor() or platform.machine() or "unknown"


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def commits(directory: Path | None) -> list[str]:
    """Return the commits of all processes that worked on a run; they are kept beside its checkpoint."""
    if directory is None:
        return [COMMIT]
    file = directory / "commits"
    earlier = file.read_text(encoding="utf-8").split("\n") if file.exists() else []
    if not earlier or earlier[-1] != COMMIT:
        directory.mkdir(parents=True, exist_ok=True)
        earlier.append(COMMIT)
        write_text(file, "\n".join(earlier))
    return earlier

"""What a result was made by: the source, and the machine."""

from __future__ import annotations

import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

import parallelrnn
from parallelrnn.io import write_text
from parallelrnn.lab.benchmarks.kernels import conditions

_SOURCE = Path(parallelrnn.__file__).parent


def _commit() -> str:
    """Of the package's source, with a plus if it was changed since; its version if it is in no repository."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=_SOURCE, capture_output=True, text=True, check=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")  # installed beside somebody's project, it is not of that
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return f"version {conditions.versions()['parallelrnn']}"


COMMIT = _commit()  # as this process began: what is checked out later is not what runs


def commits(directory: Path | None) -> list[str]:
    """Of all processes that were at a run, from the first to this one; remembered beside its checkpoint."""
    if directory is None:
        return [COMMIT]
    file = directory / "commits"
    before = file.read_text(encoding="utf-8").split("\n") if file.exists() else []
    if not before or before[-1] != COMMIT:
        directory.mkdir(parents=True, exist_ok=True)
        before.append(COMMIT)
        write_text(file, "\n".join(before))
    return before


def machine(threads: int) -> dict[str, Any]:
    """What it ran on."""
    found = asdict(conditions.current(threads))
    for name in ("other_load", "huge_pages", "dtype"):
        del found[name]  # these matter for times, and the speed experiment tells of other load itself
    return found

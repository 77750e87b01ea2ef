"""The release: a complete source archive, and a wheel that runs where it is installed."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import parallelrnn

ROOT = Path(__file__).parents[1]
NOT_SOURCE = ("*.so", "*.egg-info", "__pycache__", ".*", "build", "dist", "site")
SMOKE = "import torch, parallelrnn as p; print(p.__file__, p.ParaLSTM(3, 8)(torch.ones(5, 2, 3))[0].shape)"


def test_the_version_is_the_same_everywhere() -> None:
    version = importlib.metadata.version("parallelrnn")
    heading = rf"^## {re.escape(version)} - \d{{4}}-\d\d-\d\d$"
    assert re.search(heading, (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert f"version: {version}" in (ROOT / "CITATION.cff").read_text()
    assert parallelrnn.__version__ == version


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the source archive, and the wheel from it."""
    source = tmp_path_factory.mktemp("release") / "source"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(*NOT_SOURCE))
    subprocess.run([sys.executable, "-m", "build", "--no-isolation", source], check=True, capture_output=True)
    return source / "dist"


@pytest.mark.slow
def test_both_archives_are_complete(dist: Path) -> None:
    (archive,), (wheel,) = dist.glob("*.tar.gz"), dist.glob("*.whl")
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", archive, wheel], check=True)
    with tarfile.open(archive) as opened:
        shipped = {Path(*Path(name).parts[1:]).as_posix() for name in opened.getnames()}
    listing = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    tracked = {name for name in listing.splitlines() if not name.startswith((".", "results/"))}
    assert tracked <= shipped
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
    assert {"parallelrnn/py.typed", "parallelrnn/interpret/report/page.html"} <= set(names)
    assert any(name.endswith("csrc/recurrence.so") for name in names)
    assert all(name.startswith("parallelrnn") for name in names)


@pytest.mark.slow
def test_the_wheel_runs_where_it_is_installed(dist: Path, tmp_path: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    target = tmp_path / "installed"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--target", target, wheel], check=True)
    environment = {**os.environ, "PYTHONPATH": str(target), "PYTHONWARNINGS": "error"}
    command = [sys.executable, "-c", SMOKE]
    smoke = subprocess.run(command, check=True, env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert smoke.stdout == f"{target / 'parallelrnn/__init__.py'} torch.Size([5, 2, 8])\n"

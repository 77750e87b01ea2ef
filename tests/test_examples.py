"""The examples run as they are."""

from __future__ import annotations

import runpy
import sys
import tempfile
from pathlib import Path

import pytest
import torch


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parents[1] / "examples").glob("*.py")), ids=lambda path: path.stem
)
def test_examples_run(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [path.name])
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with torch.random.fork_rng():
        runpy.run_path(str(path), run_name="__main__")
    assert len(capsys.readouterr().out.splitlines()) >= 3

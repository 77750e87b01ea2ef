"""The shared library that is missing, broken or from elsewhere; and installing where there is no compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from parallelrnn import ParaGRU
from parallelrnn.kernels import cpu, dispatch, library
from tests.support import warns

ROOT = Path(__file__).parents[2]


def test_the_library_is_here_and_the_best_instructions_come_first() -> None:
    """Tests of the kernels would otherwise have nothing to test."""
    assert library.LIBRARY.problem == ""
    names = [instructions.name for instructions in library.LIBRARY.instruction_sets]
    assert names[-1] in ("baseline", "neon")
    widths = [instructions.lanes[torch.float32] for instructions in library.LIBRARY.instruction_sets]
    assert widths == sorted(widths, reverse=True)


def test_says_why_it_cannot_be_loaded(tmp_path: Path) -> None:
    assert "recurrence.so does not exist" in library.load(tmp_path / "recurrence.so").problem
    (tmp_path / "broken.so").write_text("not a library")
    assert "could not be loaded" in library.load(tmp_path / "broken.so").problem


def test_instructions_can_be_chosen_by_name() -> None:
    assert library.only(library.BUILT, None) is library.BUILT
    for instructions in library.BUILT.instruction_sets:
        assert library.only(library.BUILT, instructions.name).instruction_sets == (instructions,)
    other = library.only(library.BUILT, "mmx")
    assert other.instruction_sets == ()
    assert "PARALLELRNN_INSTRUCTIONS=mmx" in other.problem
    assert library.BUILT.instruction_sets[0].name in other.advice
    missing = library.Library(path=Path("nowhere"), problem="missing")
    assert library.only(missing, "avx2") is missing


def test_without_kernels_the_reference_runs_and_one_warning_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = ParaGRU(3, 8), torch.randn(5, 4, 3)
    expected, _ = layer(x)
    monkeypatch.setattr(cpu, "INSTRUCTIONS", None)
    monkeypatch.setattr(dispatch, "INSTRUCTIONS", None)
    missing = library.Library(path=Path("nowhere"), problem="not built")
    monkeypatch.setattr(dispatch, "LIBRARY", missing)
    dispatch._warn_slow.cache_clear()
    with warns(UserWarning, missing.problem, missing.advice):
        output, _ = layer(x)
    layer(x)  # a second warning would be an error
    torch.testing.assert_close(output, expected)
    dispatch._warn_slow.cache_clear()


@pytest.mark.skipif(os.name == "nt", reason="uses a shell's false as the compiler")
def test_installs_where_there_is_no_compiler(tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, source)
    target = tmp_path / "installed"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    environment = {**os.environ, "CC": "false", "CXX": "false"}
    subprocess.run([*pip, "--no-build-isolation", "--target", target, source], check=True, env=environment)
    assert not list(target.rglob("*.so"))
    script = "import torch, parallelrnn as p; print(p.__file__, p.ParaLSTM(3, 8)(torch.ones(5, 2, 3))[0].shape)"
    environment = {**os.environ, "PYTHONPATH": str(target), "PYTHONWARNINGS": "default"}
    result = subprocess.run(
        [sys.executable, "-c", script], check=True, env=environment, capture_output=True, text=True, cwd=tmp_path
    )
    assert str(target) in result.stdout
    assert "torch.Size([5, 2, 8])" in result.stdout
    assert result.stderr.count("the C kernels were not built") == 1
    assert "install a C compiler" in result.stderr

"""The fuzzer's seeds are valid: otherwise it would mutate only rejected files, or not run at all."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

STRESS = Path(__file__).parents[2] / "stress"

FITS = pytest.param("models", marks=pytest.mark.slow)  # its seeds are fitted models


@pytest.mark.parametrize("module", ["tables", FITS, "checkpoints", "datasets", "results"])
def test_seeds_are_read(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(STRESS)
    names = importlib.import_module("fuzz").MODULES
    assert sum(map(len, names.values())) == 13, "all modules are tested here"
    finding = importlib.import_module("fuzz_targets.target").finding
    targets = importlib.import_module(f"fuzz_targets.{module}").TARGETS
    assert {target.name for target in targets} == set(names[module])
    for target in targets:
        made, scratch = (tmp_path / f"{target.name}-{kind}" for kind in ("made", "scratch"))
        made.mkdir()
        scratch.mkdir()
        seeds = target.seeds(made)
        assert seeds
        assert [finding(target, seed, scratch) for seed in seeds] == [None] * len(seeds)

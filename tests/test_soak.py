"""The long soak of stress/soak.py, cut short: that it finds what grows, and that training and cells do not."""

from __future__ import annotations

import importlib.util
import mmap
from pathlib import Path
from types import ModuleType

import pytest
import torch

SCRIPT = Path(__file__).parents[1] / "stress" / "soak.py"
pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="looks at what Linux says is resident")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("soak", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_growth_is_from_the_first_quarter_to_the_last_after_warm_up(script: ModuleType) -> None:
    assert script.growth([50] * script.WARM_UP + [100] * 54) == 0
    assert script.growth([50] * script.WARM_UP + [*range(1000, 1054)]) == pytest.approx(41 / 1006, abs=1e-5)


def test_memory_that_is_kept_shows(script: ModuleType) -> None:
    kept = []

    def keep() -> None:
        kept.append(mmap.mmap(-1, 4 << 20))  # not of the heap, which may have room left by what ran before
        kept[-1].write(b"x" * (4 << 20))

    assert script.soak(keep, script.SAMPLES)["growth"] > script.MOST_GROWTH
    for one in kept:
        one.close()


@pytest.mark.slow
def test_training_and_cells_stay_flat(script: ModuleType) -> None:
    step = script.training_step(script.ParaGRU(3, 16), torch.randn(16, 8, 3))
    assert script.soak(step, 6000)["growth"] <= script.MOST_GROWTH
    for name in script.CELLS:
        for backward in (False, True):
            assert script.run_cell(name, backward, 0.006)["growth"] <= script.MOST_GROWTH

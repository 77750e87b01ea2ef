"""The long soak of stress/soak.py, cut short: it detects memory that grows, and training and cells stay flat."""

from __future__ import annotations

import importlib.util
import mmap
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[1] / "stress" / "soak.py"
pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")


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


def test_a_leak_is_detected(script: ModuleType) -> None:
    maps = []

    def leak() -> None:
        maps.append(mmap.mmap(-1, 4 << 20))  # not on the heap, which may have free room
        maps[-1].write(b"x" * (4 << 20))

    assert script.soak(leak, script.SAMPLES)[1] > script.MAX_GROWTH
    for map_ in maps:
        map_.close()


@pytest.mark.slow
def test_training_and_cells_stay_flat(script: ModuleType) -> None:
    assert script.soak_training(0.055)[1] <= script.MAX_GROWTH
    for name in script.CELLS:
        for backward in (False, True):
            assert script.soak_cell(name, backward, 0.006)[1] <= script.MAX_GROWTH

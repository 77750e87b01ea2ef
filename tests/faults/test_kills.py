"""A kill at any moment loses nothing: what is there is whole, and going on gives what would have been without it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def kills(out: Path, count: int, *victims: str) -> dict[str, Any]:
    """What `stress/kills.py` survived; it ends with an error at the first loss."""
    words = ["--kills", str(count), "--of", *victims, "--out", str(out / "kills.json")]
    subprocess.run([sys.executable, str(ROOT / "stress" / "kills.py"), *words], check=True, capture_output=True)
    found: dict[str, Any] = json.loads((out / "kills.json").read_text())
    return found


@pytest.mark.slow
def test_a_training_survives_kills(tmp_path: Path) -> None:
    found = kills(tmp_path, 3, "sequences")
    assert found["kills"] == 3
    assert found["survived"]["sequences"]["ends"] >= 1, "and it came to the same weights"


@pytest.mark.slow
def test_everything_survives_kills(tmp_path: Path) -> None:
    found = kills(tmp_path, 33, "fit", "sequences", "reproduce", "save", "workers")
    assert found["kills"] >= 33
    assert all(one["kills"] for one in found["survived"].values())


@pytest.mark.parametrize("older", [[], ["0.1.0"]])
def test_a_model_is_saved_over_another_and_killed_at_every_operation(tmp_path: Path, older: list[str]) -> None:
    program = [sys.executable, "-m", "tests.faults.killed_at_every_operation", str(tmp_path / "model"), *older]
    done = subprocess.run(program, cwd=ROOT, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)
    # At least: the file is opened, synced (before and after) and renamed, and its directory opened and synced.
    assert found["operations"] >= 7
    assert found["older"] >= 4, "until the newer one is in place, the older one is there"
    assert found["newer"] >= 2
    assert found["older"] + found["newer"] == found["operations"] + 1

"""A kill at any moment loses nothing: files are intact, and resuming gives the same result as without the kill."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def kills(count: int, *victims: str) -> dict[str, list[int]]:
    """Return the rows that `stress/kills.py` prints; it ends with an error at the first loss."""
    command = [sys.executable, str(ROOT / "stress" / "kills.py"), "--kills", str(count), "--only", *victims]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows = [line.strip("| ").split(" | ") for line in printed.splitlines() if line.startswith("|")][2:]
    return {name: [int(number) for number in numbers] for name, *numbers in rows}


@pytest.mark.slow
def test_everything_survives_kills() -> None:
    survived = kills(33, "fit", "sequences", "reproduce", "save", "workers")
    assert survived["in all"][0] >= 33
    assert all(numbers[0] for numbers in survived.values())
    assert survived["sequences"][2] >= 1, "it produced the same weights"


@pytest.mark.parametrize("older", [[], ["0.1.0"]])
def test_a_model_is_saved_over_another_and_killed_at_every_operation(tmp_path: Path, older: list[str]) -> None:
    program = [sys.executable, "-m", "tests.faults.killed_at_every_operation", str(tmp_path / "model"), *older]
    done = subprocess.run(program, cwd=ROOT, check=True, capture_output=True, text=True)
    counts = json.loads(done.stdout)
    # At least: the file is opened, synced (before and after) and renamed, and its directory opened and synced.
    assert counts["operations"] >= 7
    assert counts["older"] >= 4, "until the newer one is in place, the older one is there"
    assert counts["newer"] >= 2
    assert counts["older"] + counts["newer"] == counts["operations"] + 1

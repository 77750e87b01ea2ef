"""Two processes train as one would that sees both halves of every batch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from parallelrnn.errors import ArgumentError
from parallelrnn.training import distributed
from parallelrnn.training.trainer import make_fabric
from tests.support import raises
from tests.training import fits
from tests.training.launching import ENVIRONMENT, LONG, TORCHRUN, run

FITS = str(Path(fits.__file__))
# The two halves of a gradient are added up in another order than by one process: a relative error of some ten
# roundings, 6e-7. Adam divides by the size of the gradient, so that a step is wrong by as much of the learning rate.
# That makes 120 * 0.02 * 6e-7 = 1.4e-6 of a weight after all steps, if errors add up, and some times as much since one
# step leads to the next. Halves that counted alike, though their weights differ, are off by 1e-3 and more.
TOLERANCE = 2e-5


@pytest.mark.filterwarnings("ignore:.*values missing in 2 series:UserWarning")
def test_two_processes_find_what_one_finds_and_resume_when_one_was_killed(tmp_path: Path) -> None:
    run([sys.executable, FITS, "everything", str(tmp_path)], tmp_path)
    first, second = (load_file(tmp_path / f"numbers-{rank}.safetensors") for rank in (0, 1))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first), "both have the same to the bit"
    check_numbers(first)
    check_files(tmp_path)
    for rank in (0, 1):
        check_messages(json.loads((tmp_path / f"results-{rank}.json").read_text()))
    lost = (tmp_path / "killed.txt").read_text()
    assert "process 1 was ended by signal 9" in lost
    assert "resume=True" in lost
    run([*TORCHRUN, "--standalone", "--nproc-per-node", "2", FITS, "resume", str(tmp_path / "killed")], tmp_path)
    resumed = load_file(tmp_path / "killed" / "numbers-1.safetensors")
    assert len(resumed["resumable history"]) == 4
    assert resumed.keys() == {name for name in first if name.startswith("resumable ")}
    assert all(torch.equal(first[name], resumed[name]) for name in resumed), "as if nobody had been killed"
    assert (tmp_path / "killed" / "model-0" / "model.safetensors").exists(), (
        "saved by the first, though the group had ended"
    )
    assert not (tmp_path / "killed" / "model-1").exists()


def check_numbers(numbers: dict[str, torch.Tensor]) -> None:
    """Two processes give the same weights, history, forecasts and intervals as one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        alone = {f"{name} {key}": tensor for name, fit in fits.FITS.items() for key, tensor in fit(1).items()}
    finally:
        torch.set_num_threads(before)
    assert alone.keys() == {name for name in numbers if not name.startswith("resumable ")}
    for name, expected in alone.items():
        # Forecasts are in the units of the series: up to 50.
        relative = TOLERANCE if "forecasts" in name or "history" in name else 0
        torch.testing.assert_close(numbers[name], expected, rtol=relative, atol=TOLERANCE, msg=lambda m, n=name: n + m)
    history = alone["forecaster history"][:, 1]
    assert 1 < len(history) < 6, "early stopping has decided"


def check_files(folder: Path) -> None:
    """The first process alone has written any, but for what the script itself writes."""
    assert (folder / "model-0" / "model.safetensors").exists()
    assert not (folder / "model-1").exists()
    for name in ("uninterrupted", "killed"):
        assert len(list((folder / name / "checkpoint-0").iterdir())) == 1
        assert not (folder / name / "checkpoint-1").exists()


def check_messages(results: dict[str, dict[str, str]]) -> None:
    """All processes report the same, instead of one waiting for another."""
    errors = results["errors"]
    for name in ("other data", "other steps", "other seeds", "exchanged", "other ending"):
        assert "different data" in errors[name]
    assert "a batch of 1 cannot be shared by 2 processes" in errors["small batch"]
    assert "2 processes" in errors["three"]
    assert "got 3" in errors["three"]
    assert results["epochs"] == 1, "time that is up in one is up in all"
    assert "File exists" in results["no directory"], "all report what the first meets"


@pytest.mark.parametrize("interactive", [False, True])
def test_nothing_is_run_again_where_there_is_no_script(interactive: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by python -c, or in a notebook."""
    if interactive:
        monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    else:
        monkeypatch.setitem(sys.modules, "__main__", types.ModuleType("__main__"))
    with raises(ArgumentError, "devices=2", "devices=1"):
        make_fabric(devices=2)
    assert "LOCAL_RANK" not in os.environ, "nothing is left that a later fit would take for another's"


def test_devices_are_the_processes_that_torchrun_has_started(monkeypatch: pytest.MonkeyPatch) -> None:
    torchrun = {"TORCHELASTIC_RUN_ID": "none", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "WORLD_SIZE": "6"}
    for name, value in torchrun.items():
        monkeypatch.setenv(name, value)
    assert distributed.count_nodes(2) == 3
    with raises(ArgumentError, "2 processes", argument="devices", expected="2", got=1):
        make_fabric()


def test_a_single_process_writes() -> None:
    assert distributed.is_first()


ENDS_AT_ONCE = """
import os, sys
from parallelrnn import Forecaster
from tests.training.samples import hourly, quick
if "LOCAL_RANK" in os.environ:
    sys.exit(3)
quick(devices=2).fit(hourly())
"""


@pytest.mark.slow
def test_who_never_comes_is_not_waited_for(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(ENDS_AT_ONCE)
    result = subprocess.run([sys.executable, script], env=ENVIRONMENT, capture_output=True, text=True, timeout=LONG)
    assert result.returncode == 1
    assert "ProcessError: process 1 ended with status 3 before training began" in result.stderr

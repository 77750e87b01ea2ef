"""The script of docs/scaling-out.md, by torchrun and on two machines, finds what one process finds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from parallelrnn import Forecaster
from tests.training.launching import ROOT, TORCHRUN, begin, end, free_port, run
from tests.training.test_data_parallel import TOLERANCE

GUIDE = (ROOT / "docs" / "scaling-out.md").read_text()
SCRIPT = re.search(r"^```py\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)
KILLED = """
import os, signal
from parallelrnn.training.trainer import Trainer
validate = Trainer.validate

def killed_once(self):
    if os.environ["LOCAL_RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and self.progress.epoch == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return validate(self)

Trainer.validate = killed_once
"""


def commands(option: str) -> list[list[str]]:
    """Return the commands of the guide that have an option, run by this Python's torchrun."""
    lines = re.findall(rf"^torchrun (.*{option}.*)$", GUIDE, re.MULTILINE)
    return [[*TORCHRUN, *line.split()] for line in lines]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    assert SCRIPT is not None
    (tmp_path / "fit_together.py").write_text(SCRIPT[1])
    return tmp_path


def assert_as_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model in a folder is that of one process."""
    together = Forecaster.load(folder / "model")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    (folder / "alone").mkdir()
    with monkeypatch.context() as patched:
        patched.chdir(folder / "alone")
        patched.setenv("LOCAL_WORLD_SIZE", "1")
        exec((folder / "fit_together.py").read_text(), {})
        alone = Forecaster.load("model")
    torch.set_num_threads(before)
    assert together._state is not None
    assert alone._state is not None
    ours, theirs = (model._state.network.state_dict() for model in (together, alone))
    assert ours.keys() == theirs.keys()
    for name in theirs:
        torch.testing.assert_close(ours[name], theirs[name], rtol=0, atol=TOLERANCE)
    for epoch, other in zip(together._state.history, alone._state.history, strict=True):
        assert epoch == pytest.approx(other, rel=TOLERANCE)


def two_machines(folder: Path, addresses: tuple[str, str], port: int) -> list[tuple[list[str], Path]]:
    """The two commands of the guide, each with an address and a folder of its own."""
    machines = []
    for index, command in enumerate(commands("--nnodes")):
        assert command[command.index("--node-rank") + 1] == str(index)
        own = folder / f"machine-{index}"
        own.mkdir()
        (own / "fit_together.py").write_text((folder / "fit_together.py").read_text())
        command[command.index("--master-addr") + 1] = addresses[0]
        command[command.index("--master-port") + 1] = str(port)
        machines.append(([*command[:-1], "--local-addr", addresses[index], command[-1]], own))
    assert len(machines) == 2
    return machines


def check_machines(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first has checkpoint and model, the second nothing."""
    assert {file.name for file in (folder / "machine-1").iterdir()} == {"fit_together.py"}
    assert (folder / "machine-0" / "training").is_dir()
    assert_as_alone(folder / "machine-0", monkeypatch)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "darwin", reason="its loopback device has one address only")
def test_two_machines_with_addresses_of_their_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machines = two_machines(folder, ("127.0.0.1", "127.0.0.2"), free_port())
    for status, output in end(*(begin(command, own) for command, own in machines)):
        assert status == 0, output
    check_machines(folder, monkeypatch)


@pytest.mark.slow
def test_the_script_by_itself(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run([sys.executable, "fit_together.py"], folder)
    assert_as_alone(folder, monkeypatch)


@pytest.mark.slow
def test_torchrun_starts_again_where_one_was_killed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = folder / "fit_together.py"
    text = script.read_text()
    script.write_text(KILLED + text)
    (command,) = commands("--max-restarts")
    output = run(command, folder)
    assert "exitcode: -9" in output
    script.write_text(text)
    assert_as_alone(folder, monkeypatch)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@pytest.fixture
def networks() -> Iterator[tuple[str, str]]:
    """Two namespaces, as two machines with a cable between them."""
    names = tuple(f"parallelrnn-{os.getpid()}-{index}" for index in (0, 1))
    try:
        for name in names:
            _ip("netns", "add", name)
        ends = [f"pr{os.getpid()}{letter}" for letter in "ab"]
        _ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        for index, (name, cable_end) in enumerate(zip(names, ends, strict=True)):
            _ip("link", "set", cable_end, "netns", name)
            _ip("-n", name, "link", "set", cable_end, "name", "cable")
            _ip("-n", name, "addr", "add", f"10.77.0.{index + 1}/24", "dev", "cable")
            _ip("-n", name, "link", "set", "cable", "up")
            _ip("-n", name, "link", "set", "lo", "up")
    except (OSError, subprocess.CalledProcessError) as error:
        _remove(names)
        pytest.skip(f"network namespaces cannot be made here: {error}")
    yield names[0], names[1]
    _remove(names)


def _remove(names: tuple[str, ...]) -> None:
    for name in names:
        subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/ns/net").exists(), reason="there are no network namespaces")
def test_two_machines_with_a_cable_between_them(
    folder: Path, networks: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They share no address, so that all goes over the cable."""
    running = []
    for name, (command, own) in zip(networks, two_machines(folder, ("10.77.0.1", "10.77.0.2"), 29500), strict=True):
        running.append(begin(["ip", "netns", "exec", name, "env", "GLOO_SOCKET_IFNAME=cable", *command], own))
    for status, output in end(*running):
        assert status == 0, output
    check_machines(folder, monkeypatch)

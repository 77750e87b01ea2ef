"""Scripts in processes of their own, as users start them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
LONG = 900  # seconds, after which something hangs: three times the wait of one process for another

# One thread each, so that numbers can be the same to the bit; two of torchrun's processes find each other by the
# loopback device.
PYTHONPATH = os.pathsep.join(map(str, (ROOT, ROOT / "src")))
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": PYTHONPATH, "GLOO_SOCKET_IFNAME": "lo"}


def begin(command: Sequence[str], folder: Path) -> subprocess.Popen[str]:
    """Start a command in a folder, in a session of its own."""
    return subprocess.Popen(
        command,
        cwd=folder,
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def end(*running: subprocess.Popen[str]) -> list[tuple[int, str]]:
    """Wait for commands: how each ended, and what it said."""
    try:
        return [(process.communicate(timeout=LONG)[1], process.returncode)[::-1] for process in running]
    finally:
        for process in running:
            if process.poll() is None:
                os.killpg(process.pid, 9)


def run(command: Sequence[str], folder: Path) -> str:
    """What a command said that ended well."""
    (status, output) = end(begin(command, folder))[0]
    assert status == 0, output
    return output


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])

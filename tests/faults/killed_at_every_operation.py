"""Save a model over an older one, killed before the first operation on files, before the second, and so on to the last.

    python -m tests.faults.killed_at_every_operation DIRECTORY [0.1.0]

The older one is of this release or of version 0.1.0. Prints how many operations there are, and how often the older
model and the newer one was there after the kill.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path

from tests.faults.small_models import load, names, save, save_old

OPERATIONS = ("open", "os.rename", "os.remove", "os.mkdir", "os.listdir")


def save_until(operation: int, path: Path) -> bool:
    """Save in another process that is killed before this operation; return whether it finished."""
    process = os.fork()
    if process:
        return os.waitpid(process, 0)[1] == 0
    count = 0

    def step() -> None:
        nonlocal count
        count += 1
        if count == operation:
            os.kill(os.getpid(), signal.SIGKILL)

    def fsync(handle: int) -> None:
        step()
        real_fsync(handle)
        step()

    real_fsync, os.fsync = os.fsync, fsync
    sys.addaudithook(lambda event, arguments: step() if event in OPERATIONS else None)
    save(path, 2)
    os._exit(0)


def main() -> None:
    """Kill at every operation."""
    path, loaded = Path(sys.argv[1]), {1: 0, 2: 0}
    operation, ended = 1, False
    while not ended:
        if sys.argv[2:]:
            shutil.rmtree(path, ignore_errors=True)
            save_old(path, 1)
        else:
            save(path, 1)
            assert names(path) == {"model.safetensors"}, f"files are left forever: {names(path)}"
        ended = save_until(operation, path)
        loaded[load(path)] += 1
        save(path, 2)
        assert names(path) == {"model.safetensors"}, f"files are left forever: {names(path)}"
        operation += 1
    print(json.dumps({"operations": operation - 2, "older": loaded[1], "newer": loaded[2]}))


if __name__ == "__main__":
    main()

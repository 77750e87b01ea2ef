"""Save a model over an older one, killed before the first operation on files, before the second, and so on to the last.

    python -m tests.faults.killed_at_every_operation DIRECTORY

Prints how many there are, and how often the older model and the newer one was there after the kill.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from tests.faults.small_models import load, names, save

OPERATIONS = ("open", "os.rename", "os.remove", "os.mkdir", "os.listdir")


def save_until(operation: int, path: Path) -> bool:
    """Save in another process that is killed before so many operations; whether it came to its end."""
    process = os.fork()
    if process:
        return os.waitpid(process, 0)[1] == 0
    count = 0

    def step() -> None:
        nonlocal count
        count += 1
        if count == operation:
            os.kill(os.getpid(), signal.SIGKILL)

    def sync(handle: int) -> None:
        step()
        really_sync(handle)
        step()

    really_sync, os.fsync = os.fsync, sync
    sys.addaudithook(lambda event, words: step() if event in OPERATIONS else None)
    save(path, 2)
    os._exit(0)


def main() -> None:
    """All of them."""
    path, found = Path(sys.argv[1]), {1: 0, 2: 0}
    operation, ended = 1, False
    while not ended:
        save(path, 1)
        assert len(names(path)) == 2, f"something is left for ever: {names(path)}"
        ended = save_until(operation, path)
        found[load(path)] += 1
        operation += 1
    print(json.dumps({"operations": operation - 2, "older": found[1], "newer": found[2]}))


if __name__ == "__main__":
    main()

"""Work in a place that is full, then in one that cannot be written, of a file system of its own; for `test_disks.py`.

    unshare --map-root-user --mount python -m tests.faults.places DIRECTORY

Only this process sees what it mounts. Prints what went wrong, in sentences.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from parallelrnn.io import load_tensors, os_error_sentence, save_tensors
from parallelrnn.lab.runs import RunStore
from tests.faults.small_models import load, names, save
from tests.lab.samples import make_run

ROOM = 512 << 10  # bytes


def problem(do: Callable[[], object]) -> str:
    """What the system says about something that cannot be done."""
    try:
        do()
    except OSError as error:
        return os_error_sentence(error)
    return "none"


def main() -> None:
    """Fill a place that holds a model, a checkpoint and a result; what is there stays as it was."""
    place = Path(sys.argv[1])
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "none", str(place)], check=True)
    model, checkpoint, store = place / "model", place / "training.safetensors", RunStore(place / "results")
    large = {"numbers": torch.zeros(ROOM)}
    run = make_run("adding", {"mse": 0.1}, model="GRU")

    def is_as_it_was() -> bool:
        intact = load(model) == 1 and load_tensors(checkpoint)[0] == {"number": 1} and store.load("adding") == [run]
        return intact and len(names(model)) == 1 and not list(place.rglob("*.part"))

    save(model, 1)
    save_tensors(checkpoint, {"numbers": torch.zeros(10)}, {"number": 1})
    store.save(run)
    messages = {"model, full": problem(lambda: save(model, 2, size=ROOM))}
    messages["checkpoint, full"] = problem(lambda: save_tensors(checkpoint, large, {"number": 2}))
    messages["result, full"] = problem(
        lambda: store.save(make_run("adding", {}, model="GRU", details={"long": "x" * ROOM}))
    )
    messages["as it was, full"] = str(is_as_it_was())
    second = store.save(make_run("adding", {}, 1, model="GRU"))  # there is room again
    messages["results"] = str(len(store.load("adding")))
    second.unlink()

    subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
    messages["model, read-only"] = problem(lambda: save(model, 2))
    messages["checkpoint, read-only"] = problem(lambda: save_tensors(checkpoint, large, {"number": 2}))
    messages["result, read-only"] = problem(lambda: store.save(run))
    messages["as it was, read-only"] = str(is_as_it_was())
    print(json.dumps(messages))


if __name__ == "__main__":
    main()

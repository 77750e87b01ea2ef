"""Is anything lost when a process is killed? Trainings, experiments and saving are, wherever they happen to be.

    python stress/kills.py --kills 200 --out stress/results/kills.json

What is killed, by SIGKILL, as by a machine that has no memory left:

    fit         `parallelrnn fit --resume`, as typed
    sequences   `SequenceRegressor.fit(checkpoint=..., resume=True)` and `save`
    reproduce   `parallelrnn reproduce` with `--engine here`, as typed
    save        `Forecaster.save` over an older model, again and again
    workers     `parallelrnn reproduce --workers 2` in processes of its own: all of them, the first, or one worker

Half of the moments are at random after the start, and half are when a file is being written. After every kill all
files that are there have to be whole, and at most one unfinished one may lie beside each; a model that was there before
has to load. After some kills the same command runs to its end, which has to give the same weights or the same results,
to the bit, as without a kill, and leave no unfinished file. One thread, one seed. The first four are forks of this
process, so that a kill costs no import.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import shutil
import signal
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from victims import VICTIMS, LostError, Victim

from parallelrnn.io import MODEL_FILE, write_text
from parallelrnn.lab.running.provenance import COMMIT, machine
from parallelrnn.training.checkpoint import FILE as CHECKPOINT

IN_A_ROW = 10  # kills at most before something may come to its end
PATIENCE = 600  # seconds that something may take


@dataclass
class Tally:
    """What was survived."""

    kills: int = 0
    ends: int = 0  # how often it came to its end, compared with one that was never killed
    moments: Counter[str] = field(default_factory=Counter)
    phases: Counter[str] = field(default_factory=Counter)


def endure(victim: Victim, kills: int, room: Path) -> Tally:
    """Kill something so often, and let it come to its end from time to time."""
    found = Tally()
    folder = _fresh(victim, room)
    seconds = 0.5
    if victim.has_end:
        began = time.monotonic()
        _finish(victim, folder)
        seconds, expected = time.monotonic() - began, victim.result(folder)
    while found.kills < kills:
        folder, ended = _fresh(victim, room), False
        for _ in range(min(random.randint(1, IN_A_ROW), kills - found.kills)):
            before = _unfinished(folder)
            moment = random.choice(("at random", "while a file is written"))
            ended = not strike(victim, folder, moment, seconds)
            if ended:
                break
            victim.check(folder)
            left = _unfinished(folder)
            if max(Counter(_written(file) for file in left).values(), default=0) > 1:
                raise LostError(f"unfinished files pile up in {folder}: {sorted(left)}")
            found.kills += 1
            found.moments[moment] += 1
            found.phases[phase(folder, left - before)] += 1
        if victim.has_end:
            if not ended or victim.try_again:
                _finish(victim, folder)
            if victim.result(folder) != expected:
                raise LostError(f"{folder} did not come to the same as without a kill")
            if _unfinished(folder):
                raise LostError(f"unfinished files are left in {folder}: {sorted(_unfinished(folder))}")
            found.ends += 1
    return found


def strike(victim: Victim, folder: Path, moment: str, seconds: float) -> bool:
    """Begin or go on, and kill; whether it was still there to be killed."""
    process = victim.start(folder)
    before, until = _unfinished(folder), time.monotonic() + random.uniform(0, seconds / 2)  # it goes on
    while time.monotonic() < until or moment != "at random":
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return _was_killed(victim, status, folder)
        if moment != "at random" and time.monotonic() > until and _unfinished(folder) - before:
            break
        time.sleep(0.0005)
    whom = victim.choose(process)
    with suppress(ProcessLookupError):  # it ended by itself just now
        os.killpg(-whom, signal.SIGKILL) if whom < 0 else os.kill(whom, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    return whom != process or _was_killed(victim, status, folder)


def phase(folder: Path, left: set[str]) -> str:
    """What was going on, by what is left of it."""
    if left:
        return f"writing {_kind(min(_written(file) for file in left))}"
    if list(folder.rglob(MODEL_FILE)) or any(file.stat().st_size for file in folder.glob("*.jsonl")):
        return "after a model or a result"
    return "between checkpoints" if list(folder.rglob(CHECKPOINT)) else "before the first checkpoint"


def _fresh(victim: Victim, room: Path) -> Path:
    folder = room / "folder"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    victim.prepare(folder)
    return folder


def _finish(victim: Victim, folder: Path) -> None:
    """Run to the end, again while workers of a killed command are still about."""
    until = time.monotonic() + PATIENCE
    while (status := os.waitstatus_to_exitcode(os.waitpid(victim.start(folder), 0)[1])) in victim.try_again:
        if time.monotonic() > until:
            break
        time.sleep(0.2)
    if status:
        raise LostError(f"going on ended with status {status}: {(folder.parent / 'said').read_text()[-2000:]}")


def _was_killed(victim: Victim, status: int, folder: Path) -> bool:
    found = os.waitstatus_to_exitcode(status)
    if found not in (0, -signal.SIGKILL, *victim.try_again):
        raise LostError(f"it ended with status {found}: {(folder.parent / 'said').read_text()[-2000:]}")
    return found == -signal.SIGKILL


def _unfinished(folder: Path) -> set[str]:
    return {str(file.relative_to(folder)) for file in folder.rglob("*.part")}


def _written(part: str) -> str:
    """The file that an unfinished one was to become."""
    return re.sub(r"\.[0-9a-f]{12}\.part$", "", part)


def _kind(name: str) -> str:
    return {CHECKPOINT: "a checkpoint", MODEL_FILE: "a model", "commits": "the commits of a run"}[Path(name).name]


def main() -> None:
    """Kill each so often in turn, and write what was survived."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="of all together")
    parser.add_argument("--of", nargs="+", choices=VICTIMS, default=list(VICTIMS), help="what to kill")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "kills.json")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    random.seed(asked.seed)
    began, found = time.monotonic(), dict[str, Tally]()
    shares = sum(VICTIMS[name].share for name in asked.of)
    for name in asked.of:
        kills = math.ceil(asked.kills * VICTIMS[name].share / shares)
        with tempfile.TemporaryDirectory() as room:
            found[name] = endure(VICTIMS[name], kills, Path(room))
        print(name, found[name], flush=True)
        write_text(asked.out, json.dumps(_told(found, asked.seed, time.monotonic() - began), indent=1) + "\n")


def _told(found: dict[str, Tally], seed: int, seconds: float) -> dict[str, Any]:
    return {
        "conditions": {"commit": COMMIT, **machine(1)},
        "seed": seed,
        "seconds": round(seconds),
        "kills": sum(one.kills for one in found.values()),
        "survived": {name: vars(one) for name, one in found.items()},
    }


if __name__ == "__main__":
    main()

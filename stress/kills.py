"""Is anything lost when a process is killed? Kills training, experiments and saving at random moments.

    python stress/kills.py --kills 200

Processes are killed by SIGKILL, as by a system that is out of memory:

    fit         `parallelrnn fit --resume`, as typed
    sequences   `SequenceRegressor.fit(checkpoint=..., resume=True)` and `save`
    reproduce   `parallelrnn reproduce --engine here`, as typed
    save        `Forecaster.save` over an older model, again and again
    workers     `parallelrnn reproduce --workers 2` in its own processes: all of them, the first, or one worker

Half of the kills are at a random time after the start, half while a file is being written. After every kill all files
have to be intact, with at most one unfinished file beside each, and a model that was there before has to load. After
some kills the same command runs to its end; it has to produce the same weights or results to the bit as without a kill,
and leave no unfinished file. One thread, one seed. The first four are forks of this process, so that a kill costs no
import. The table that is printed stands in docs/reliability.md.
"""

from __future__ import annotations

import argparse
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
from pathlib import Path

import torch
from victims import VICTIMS, LostError, Victim

from parallelrnn.lab.benchmarks.measuring import provenance
from parallelrnn.lab.tables import Table

MAX_IN_A_ROW = 10  # kills before a command may run to its end
TIMEOUT = 600  # seconds until a command has to end


def endure(victim: Victim, kills: int, room: Path) -> list[int]:
    """Kill a victim so many times, and let it run to its end now and then.

    Returns the kills, those of them while a file was written, and how often its result at the end was compared.
    """
    survived = writing = ends = 0
    folder = _fresh(victim, room)
    seconds = 0.5
    if victim.has_end:
        began = time.monotonic()
        _finish(victim, folder)
        seconds, expected = time.monotonic() - began, victim.result(folder)
    while survived < kills:
        folder, ended = _fresh(victim, room), False
        for _ in range(min(random.randint(1, MAX_IN_A_ROW), kills - survived)):
            while_writing = random.random() < 0.5
            ended = not strike(victim, folder, while_writing, seconds)
            if ended:
                break
            victim.check(folder)
            counts = Counter(re.sub(r"\.[0-9a-f]{12}\.part$", "", file) for file in _unfinished(folder))
            if max(counts.values(), default=0) > 1:
                raise LostError(f"unfinished files pile up in {folder}: {counts}")
            survived += 1
            writing += while_writing
        if victim.has_end:
            if not ended or victim.retry_statuses:
                _finish(victim, folder)
            if victim.result(folder) != expected:
                raise LostError(f"the result in {folder} differs from that without a kill")
            if _unfinished(folder):
                raise LostError(f"unfinished files are left in {folder}: {sorted(_unfinished(folder))}")
            ends += 1
    return [survived, writing, ends]


def strike(victim: Victim, folder: Path, while_writing: bool, seconds: float) -> bool:
    """Start or resume, and kill; return whether the process was still there to be killed."""
    process = victim.start(folder)
    before, until = _unfinished(folder), time.monotonic() + random.uniform(0, seconds / 2)
    while time.monotonic() < until or while_writing:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return _was_killed(victim, status, folder)
        if while_writing and time.monotonic() > until and _unfinished(folder) - before:
            break
        time.sleep(0.0005)
    target = victim.choose(process)
    with suppress(ProcessLookupError):  # it has just ended by itself
        os.killpg(-target, signal.SIGKILL) if target < 0 else os.kill(target, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    return target != process or _was_killed(victim, status, folder)


def _fresh(victim: Victim, room: Path) -> Path:
    folder = room / "folder"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    victim.prepare(folder)
    return folder


def _finish(victim: Victim, folder: Path) -> None:
    """Run to the end, again while workers of a killed command are still there."""
    until = time.monotonic() + TIMEOUT
    while (status := os.waitstatus_to_exitcode(os.waitpid(victim.start(folder), 0)[1])) in victim.retry_statuses:
        if time.monotonic() > until:
            break
        time.sleep(0.2)
    if status:
        raise LostError(f"resuming ended with status {status}: {(folder.parent / 'output').read_text()[-2000:]}")


def _was_killed(victim: Victim, status: int, folder: Path) -> bool:
    code = os.waitstatus_to_exitcode(status)
    if code not in (0, -signal.SIGKILL, *victim.retry_statuses):
        raise LostError(f"it ended with status {code}: {(folder.parent / 'output').read_text()[-2000:]}")
    return code == -signal.SIGKILL


def _unfinished(folder: Path) -> set[str]:
    return {str(file.relative_to(folder)) for file in folder.rglob("*.part")}


def main() -> None:
    """Kill each victim in turn, and print what was survived; anything lost is an error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="of all together")
    parser.add_argument("--only", nargs="+", choices=VICTIMS, default=list(VICTIMS), help="some victims")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    random.seed(arguments.seed)
    shares = sum(VICTIMS[name].share for name in arguments.only)
    rows: dict[str, list[int]] = {}
    for name in arguments.only:
        with tempfile.TemporaryDirectory() as room:
            kills = math.ceil(arguments.kills * VICTIMS[name].share / shares)
            rows[name] = endure(VICTIMS[name], kills, Path(room))
        print(name, *rows[name], flush=True)
    rows["in all"] = [sum(numbers) for numbers in zip(*rows.values(), strict=True)]
    columns = ["what", "kills survived", "of them while a file was written", "ends compared"]
    table = Table(columns, [[name, *map(str, numbers)] for name, numbers in rows.items()])
    print(table.markdown(), provenance(1), sep="\n\n")


if __name__ == "__main__":
    main()

"""Kill training, experiments and saving at random moments, and check that nothing is lost.

    python stress/kills.py --kills 200

Processes are killed by SIGKILL, as by the out-of-memory killer:

    fit         `parallelrnn fit --resume`
    sequences   `SequenceRegressor.fit(checkpoint=..., resume=True)` and `save`
    reproduce   `parallelrnn reproduce --engine here`
    save        `Forecaster.save` over an older model, again and again
    workers     `parallelrnn reproduce --workers 2`: the whole process group, the first process, or one worker

Half of the kills come at a random time after the start, half while a file is being written. After every kill all files
have to be intact, with at most one unfinished file beside each. After one to ten kills the same command runs to its
end: it has to produce the same weights or results, to the bit, as without a kill, and leave no unfinished file. One
thread, one seed. The first four are forks of this process, so that a kill costs no import. The table that is printed is
in docs/reliability.md.
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
from victims import VICTIMS, DataLossError, Victim, check_checkpoints

from parallelrnn.lab.benchmarks.measuring import provenance
from parallelrnn.lab.tables import Table

MAX_KILLS_IN_A_ROW = 10  # before a command may run to its end
TIMEOUT = 600  # seconds until a command has to end
UNENDING_SECONDS = 0.5  # that a victim without an end is given, in place of its duration


def kill_repeatedly(victim: Victim, kills: int, workspace: Path) -> list[int]:
    """Kill a victim `kills` times, and let it run to its end now and then.

    Returns the number of kills, of kills while a file was written, and of results compared with that without a kill.
    """
    survived = while_writing = compared = 0
    duration, expected = UNENDING_SECONDS, None
    if victim.result is not None:
        folder, start = _new_folder(victim, workspace), time.monotonic()
        _run_to_end(victim, folder)
        duration, expected = time.monotonic() - start, victim.result(folder)
    while survived < kills:
        folder, was_killed = _new_folder(victim, workspace), True
        for _ in range(min(random.randint(1, MAX_KILLS_IN_A_ROW), kills - survived)):
            wait_for_write = random.random() < 0.5
            was_killed = start_and_kill(victim, folder, wait_for_write, duration)
            if not was_killed:
                break
            check_checkpoints(folder)
            victim.check(folder)
            counts = Counter(re.sub(r"\.[0-9a-f]{12}\.part$", "", file) for file in _unfinished_files(folder))
            if max(counts.values(), default=0) > 1:
                raise DataLossError(f"unfinished files pile up in {folder}: {counts}")
            survived += 1
            while_writing += wait_for_write
        if victim.result is not None:
            if was_killed or victim.retry_statuses:
                _run_to_end(victim, folder)
            if victim.result(folder) != expected:
                raise DataLossError(f"the result in {folder} differs from that without a kill")
            if _unfinished_files(folder):
                raise DataLossError(f"unfinished files are left in {folder}: {sorted(_unfinished_files(folder))}")
            compared += 1
    return [survived, while_writing, compared]


def start_and_kill(victim: Victim, folder: Path, wait_for_write: bool, duration: float) -> bool:
    """Start or resume a victim, and kill it; return False if it ended before."""
    process = victim.start(folder)
    earlier_files, earliest = _unfinished_files(folder), time.monotonic() + random.uniform(0, duration / 2)
    while time.monotonic() < earliest or wait_for_write:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return _was_killed(victim, status, folder)
        if wait_for_write and time.monotonic() > earliest and _unfinished_files(folder) - earlier_files:
            break
        time.sleep(0.0005)
    target = victim.choose_process(process)
    with suppress(ProcessLookupError):  # it has just ended by itself
        os.killpg(-target, signal.SIGKILL) if target < 0 else os.kill(target, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    return target != process or _was_killed(victim, status, folder)


def _new_folder(victim: Victim, workspace: Path) -> Path:
    folder = workspace / "folder"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    victim.prepare(folder)
    return folder


def _run_to_end(victim: Victim, folder: Path) -> None:
    """Start or resume a victim until it succeeds, again while workers of a killed command are still there."""
    deadline = time.monotonic() + TIMEOUT
    while (status := os.waitstatus_to_exitcode(os.waitpid(victim.start(folder), 0)[1])) in victim.retry_statuses:
        if time.monotonic() > deadline:
            break
        time.sleep(0.2)
    if status:
        raise DataLossError(f"resuming ended with status {status}: {(folder.parent / 'output').read_text()[-2000:]}")


def _was_killed(victim: Victim, status: int, folder: Path) -> bool:
    code = os.waitstatus_to_exitcode(status)
    if code not in (0, -signal.SIGKILL, *victim.retry_statuses):
        raise DataLossError(f"it ended with status {code}: {(folder.parent / 'output').read_text()[-2000:]}")
    return code == -signal.SIGKILL


def _unfinished_files(folder: Path) -> set[str]:
    return {str(file.relative_to(folder)) for file in folder.rglob("*.part")}


def main() -> None:
    """Kill each victim in turn, and print the table; any loss is an error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="number of kills of all victims together (200)")
    parser.add_argument("--only", nargs="+", choices=VICTIMS, default=list(VICTIMS), help="victims to kill (all)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the moments of kills (0)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    random.seed(arguments.seed)
    total_weight = sum(VICTIMS[name].weight for name in arguments.only)
    rows: dict[str, list[int]] = {}
    for name in arguments.only:
        with tempfile.TemporaryDirectory() as workspace:
            kills = math.ceil(arguments.kills * VICTIMS[name].weight / total_weight)
            rows[name] = kill_repeatedly(VICTIMS[name], kills, Path(workspace))
        print(name, *rows[name], flush=True)
    rows["in all"] = [sum(counts) for counts in zip(*rows.values(), strict=True)]
    columns = ["what", "kills survived", "while a file was written", "results compared"]
    table = Table(columns, [[name, *map(str, counts)] for name, counts in rows.items()])
    print(table.markdown(), provenance(1), sep="\n\n")


if __name__ == "__main__":
    main()

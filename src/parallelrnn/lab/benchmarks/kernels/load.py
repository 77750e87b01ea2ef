"""How much of the machine other processes use, from the kernel's count of busy time."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

STAT = Path("/proc/stat")


@dataclass(frozen=True)
class Reading:
    """Clocks, all in seconds and read together."""

    wall: float
    busy: float | None  # of all processors together; None where the system does not tell
    own: float  # processor time of this process, all its threads


def read() -> Reading:
    """The clocks as they are now."""
    return Reading(time.perf_counter(), busy_seconds(), time.process_time())


def busy_seconds(stat: Path = STAT) -> float | None:
    """Time that all processors have been busy for since the machine was started; None where there is no such file."""
    try:
        fields = stat.read_text().split("\n", 1)[0].split()  # cpu user nice system idle iowait irq softirq steal ...
    except OSError:
        return None
    user, nice, system, _, _, irq, softirq, steal = map(int, fields[1:9])
    return (user + nice + system + irq + softirq + steal) / float(os.sysconf("SC_CLK_TCK"))


def foreign(before: Reading, after: Reading) -> float | None:
    """Processors that others used between two readings, on average: 0.5 is half of one. None where it is not known.

    The kernel counts in ticks, of 10 ms on Linux, on each processor. Over a window of 200 ms on two processors the
    answer is right to about 0.05, and may be below zero.
    """
    if before.busy is None or after.busy is None:
        return None
    return (after.busy - before.busy - (after.own - before.own)) / (after.wall - before.wall)

"""The peak memory of one training step, each contender in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from parallelrnn.lab.benchmarks.kernels.cases import Case
from parallelrnn.lab.benchmarks.kernels.contenders import make_input, make_layer, make_step

CONTENDERS = ("torch", "blocks", "aggregated")
STATUS = Path("/proc/self/status")
RESET = Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class Memory:
    """Bytes that a training step took on top of the layer, its input and a gradient of its output."""

    contender: str
    cell: str
    case: Case
    peak: int | None
    reason: str = ""  # for no peak


def measure(contender: str, cell: str, case: Case, threads: int) -> Memory:
    """Start a fresh Python that takes one step."""
    task = json.dumps({"contender": contender, "cell": cell, "case": asdict(case), "threads": threads})
    done = subprocess.run([sys.executable, "-m", __name__, task], capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1]
        return Memory(contender, cell, case, None, reason=f"the process that takes the step failed: {last}")
    return Memory(contender, cell, case, int(done.stdout))


def _take_step(contender: str, cell: str, case: Case, threads: int) -> int:
    torch.set_num_threads(threads)
    layer = make_layer(contender, cell, case)
    x, grad = make_input(case)
    # What only the first step of a process takes (threads, code that is loaded late) is not the step's.
    short = make_step(layer, "training", x[:2], grad[:2])
    short.run()
    step = make_step(layer, "training", x, grad)
    step.prepare()
    if STATUS.exists():
        RESET.write_text("5")  # forget the peak so far, which may lie in what was loaded before
    before = resident()
    step.run()
    return peak() - before


def resident() -> int:
    """What is resident now; where only the peak so far is known, that."""
    return _status("VmRSS") if STATUS.exists() else peak()


def peak() -> int:
    """The largest resident size so far.

    Not ru_maxrss where the kernel has better: on Linux that starts with the peak of the process that started this one.
    """
    if STATUS.exists():
        return _status("VmHWM")
    import resource  # not on Windows

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _status(name: str) -> int:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    print(_take_step(arguments["contender"], arguments["cell"], Case(**arguments["case"]), arguments["threads"]))

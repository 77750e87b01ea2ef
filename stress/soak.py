"""Does memory stay flat over many steps? Resident memory, sampled while the same small work is done over and over.

    python stress/soak.py            # all parts, one after the other, each in a process of its own
    python stress/soak.py training   # one part

Parts: `training`, as many training steps as an hour of one processor has of the case S1 of `parallelrnn bench` (GRU,
aggregated), on a small model; `RNN`, `LSTM` and `GRU` followed by `cell`, single steps of a cell under no_grad, or by
`cell backward`, each step with its gradients; and `fits`, whole fits of a Forecaster on a short series. The first tenth
of each part is warm-up. Growth is from the median of the first quarter of the samples after it to that of the last. A
part is flat if it grows by no more than 1 %. Results are added to stress/results/soak.json as they come.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from parallelrnn import Forecaster, ParaGRU, ParaGRUCell, ParaLSTMCell, ParaRNNCell
from parallelrnn.io import write_text
from parallelrnn.lab.benchmarks.kernels.cases import CASES
from parallelrnn.lab.running.provenance import COMMIT, machine

RESULTS = Path(__file__).parent / "results" / "soak.json"
SAMPLES = 60
WARM_UP = 6  # samples
MOST_GROWTH = 0.01
CELLS = {"RNN": ParaRNNCell, "LSTM": ParaLSTMCell, "GRU": ParaGRUCell}
CALLS = 1_000_000
FITS = 200
HOUR = 3600  # seconds


def resident() -> int:
    """Bytes of this process that are in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def soak(work: Callable[[], object], count: int) -> dict[str, Any]:
    """Do the work `count` times, and say how memory went."""
    samples, begin = [], time.perf_counter()
    for sample in range(SAMPLES):
        for _ in range(count * sample // SAMPLES, count * (sample + 1) // SAMPLES):
            work()
        samples.append((round(time.perf_counter() - begin, 1), resident()))
    return {"count": count, "growth": growth([size for _, size in samples]), "seconds_and_bytes": samples}


def growth(sizes: list[int]) -> float:
    """After warm-up, from the first quarter of samples to the last, as a share of the former."""
    after = sizes[WARM_UP:]
    quarter = len(after) // 4
    first, last = statistics.median(after[:quarter]), statistics.median(after[-quarter:])
    return round((last - first) / first, 5)


def training_step(model: ParaGRU, x: torch.Tensor) -> Callable[[], object]:
    """One step of Adam on a fixed target."""
    target = torch.randn(x.shape[0], x.shape[1], model.hidden_size)
    optimizer = torch.optim.Adam(model.parameters())

    def step() -> None:
        loss = torch.nn.functional.mse_loss(model(x)[0], target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def steps_of_an_hour() -> int:
    """How many training steps of the case S1 an hour of one processor has: by its clock, from the fastest of 40."""
    case = CASES["S1"]
    step = training_step(
        ParaGRU(case.input_size, case.hidden_size), torch.randn(case.length, case.batch, case.input_size)
    )
    times = []
    for _ in range(40):
        begin = time.process_time()  # one thread, and others may be at work here
        step()
        times.append(time.process_time() - begin)
    return int(HOUR / min(times))


def run_training(scale: float) -> dict[str, Any]:
    """An hour's number of steps on a model of 16 units and sequences of 16 steps."""
    count = steps_of_an_hour()
    found = soak(training_step(ParaGRU(3, 16), torch.randn(16, 8, 3)), int(count * scale))
    return {"steps_in_an_hour_of_S1": count, **found}


def run_cell(name: str, backward: bool, scale: float) -> dict[str, Any]:
    """Single steps of a cell, each from the state before."""
    cell, x = CELLS[name](3, 8), torch.randn(4, 3)
    state = None

    def forward() -> None:
        nonlocal state
        with torch.no_grad():
            state = cell(x, state)

    def forward_and_backward() -> None:
        output = cell(x)
        (output if isinstance(output, torch.Tensor) else output[0]).sum().backward()

    return soak(forward_and_backward if backward else forward, int(CALLS * scale))


def run_fits(scale: float) -> dict[str, Any]:
    """Fits of 60 days, two short epochs each."""
    import numpy as np
    import pandas as pd

    days = pd.date_range("2020-01-01", periods=60, freq="D")
    table = pd.DataFrame({"unique_id": "a", "ds": days, "y": np.sin(np.arange(60) / 3)})

    def fit() -> None:
        Forecaster(horizon=4, hidden_size=8, max_epochs=2, epoch_steps=(4, 4), progress=False).fit(table)

    return soak(fit, max(SAMPLES, int(FITS * scale)))


PARTS: dict[str, Callable[[float], dict[str, Any]]] = {
    "training": run_training,
    "fits": run_fits,
    **{f"{name} cell": lambda scale, name=name: run_cell(name, False, scale) for name in CELLS},
    **{f"{name} cell backward": lambda scale, name=name: run_cell(name, True, scale) for name in CELLS},
}


def run_part(part: str, scale: float, path: Path) -> None:
    """Do one part in this process, and put its result into the file."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    begin = time.perf_counter()
    found = PARTS[part](scale)
    found = {"seconds": round(time.perf_counter() - begin), "flat": found["growth"] <= MOST_GROWTH, **found}
    made_under = {"commit": COMMIT, **machine(1)}
    results = json.loads(path.read_text()) if path.exists() else {}
    results[part] = {"conditions": made_under, "scale": scale, **found}
    write_text(path, json.dumps(results, indent=1) + "\n")
    print(f"{part}: {found['count']} times, memory grew by {100 * found['growth']:.2f} %", flush=True)


def main() -> None:
    """Each part in a process of its own, so that none inherits what another has left."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="*", help=f"one or more of: {', '.join(PARTS)} (default: all)")
    parser.add_argument("--scale", type=float, default=1.0, help="a share of the usual counts (default: 1)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where results go")
    arguments = parser.parse_args()
    unknown = [part for part in arguments.part if part not in PARTS]
    if unknown:
        parser.error(f"{', '.join(unknown)}: expected parts among {', '.join(PARTS)}")
    parts = arguments.part or list(PARTS)
    if len(parts) == 1:
        run_part(parts[0], arguments.scale, arguments.out)
    else:
        options = ["--scale", str(arguments.scale), "--out", str(arguments.out)]
        for part in parts:
            subprocess.run([sys.executable, __file__, part, *options], check=True)
    found = json.loads(arguments.out.read_text())
    raise SystemExit(0 if all(found[part]["flat"] for part in parts) else 1)


if __name__ == "__main__":
    main()

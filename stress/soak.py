"""Repeat the same small work many times, and check that resident memory stays flat.

    python stress/soak.py                    # everything, each part in a process of its own
    python stress/soak.py --only training    # one part

`training` trains a small GRU. `fits` fits a Forecaster to a short series again and again. `RNN cell` and so on take
single steps of a cell under no_grad, `RNN cell with backward` and so on with gradients. The first tenth of the samples
is warm-up; growth is from the median of the first quarter after it to that of the last. A part is flat if it grows by
at most 1%. The table that is printed is in docs/reliability.md.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from functools import partial

import torch

from parallelrnn import Forecaster, ParaGRU, ParaGRUCell, ParaLSTMCell, ParaRNNCell
from parallelrnn.lab.benchmarks.measuring import provenance
from parallelrnn.lab.benchmarks.memory import in_fresh_process, resident
from parallelrnn.lab.tables import Table

SAMPLES = 60
WARM_UP = 6  # samples
MAX_GROWTH = 0.01
CELLS = {"RNN": ParaRNNCell, "LSTM": ParaLSTMCell, "GRU": ParaGRUCell}
TRAINING_STEPS = 110_000
CELL_STEPS = 1_000_000
FITS = 200


def soak(work: Callable[[], object], count: int) -> tuple[int, float]:
    """Repeat the work; return how often, and by how much resident memory grew."""
    sizes = []
    for sample in range(SAMPLES):
        for _ in range(count * sample // SAMPLES, count * (sample + 1) // SAMPLES):
            work()
        sizes.append(resident())
    return count, growth(sizes)


def growth(sizes: list[int]) -> float:
    """Return the growth after warm-up, from the first quarter of the samples to the last, relative to the first."""
    quarter = (len(sizes) - WARM_UP) // 4
    first, last = statistics.median(sizes[WARM_UP:][:quarter]), statistics.median(sizes[-quarter:])
    return round((last - first) / first, 5)


def soak_training(scale: float) -> tuple[int, float]:
    """Train a model of 16 units on sequences of 16 steps."""
    model, x, target = ParaGRU(3, 16), torch.randn(16, 8, 3), torch.randn(16, 8, 16)
    optimizer = torch.optim.Adam(model.parameters())

    def step() -> None:
        loss = torch.nn.functional.mse_loss(model(x)[0], target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return soak(step, int(TRAINING_STEPS * scale))


def soak_cell(name: str, backward: bool, scale: float) -> tuple[int, float]:
    """Take single steps of a cell, each from the state before."""
    cell, x = CELLS[name](3, 8), torch.randn(4, 3)
    state = None

    def forward() -> None:
        nonlocal state
        with torch.no_grad():
            state = cell(x, state)

    def forward_and_backward() -> None:
        output = cell(x)
        (output if isinstance(output, torch.Tensor) else output[0]).sum().backward()

    return soak(forward_and_backward if backward else forward, int(CELL_STEPS * scale))


def soak_fits(scale: float) -> tuple[int, float]:
    """Fit 60 days in two short epochs."""
    import numpy as np
    import pandas as pd

    days = pd.date_range("2020-01-01", periods=60, freq="D")
    table = pd.DataFrame({"unique_id": "a", "ds": days, "y": np.sin(np.arange(60) / 3)})

    def fit() -> None:
        Forecaster(horizon=4, hidden_size=8, max_epochs=2, epoch_steps=(4, 4), progress=False).fit(table)

    return soak(fit, max(SAMPLES, int(FITS * scale)))


PARTS: dict[str, tuple[str, Callable[[float], tuple[int, float]]]] = {
    "training": ("training steps of a small `ParaGRU`", soak_training),
    "fits": ("fits of a `Forecaster`", soak_fits),
    **{
        f"{name} cell{suffix}": (f"steps of `Para{name}Cell`{suffix}", partial(soak_cell, name, bool(suffix)))
        for suffix in ("", " with backward")
        for name in CELLS
    },
}


def run(part: str, scale: float) -> tuple[int, float]:
    """Run one part in this process."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return PARTS[part][1](scale)


def main() -> None:
    """Run parts in a process each, so that none inherits memory; exit with 1 if one grows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="parts to run (all)")
    parser.add_argument("--scale", type=float, default=1.0, help="factor of the usual counts (1)")
    arguments = parser.parse_args()
    rows, flat = [], True
    for part in arguments.only:
        count, increase = in_fresh_process(run, part, arguments.scale)
        rows.append([PARTS[part][0], f"{count:,}", f"{increase:.3%}"])
        flat &= increase <= MAX_GROWTH
        print(*rows[-1], sep=", ", flush=True)
    print(Table(["work", "repetitions", "growth of resident memory"], rows).markdown(), provenance(1), sep="\n\n")
    raise SystemExit(0 if flat else 1)


if __name__ == "__main__":
    main()

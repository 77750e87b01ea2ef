"""The cost of Lightning Fabric: fits of a SequenceRegressor with it beside the same fits in plain torch.

    pip install 'parallelrnn[cli,sequences]'
    python -m parallelrnn.lab.benchmarks.fabric

Sequences have the shape S3 (336 steps, 7 channels, width 128, 2 layers, batches of 32), or are small ones (14 steps,
width 64, 1 layer). Both kinds of fits take turns in one process, and have to give the same predictions to the bit.
"""

from __future__ import annotations

import statistics
from itertools import product
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn

from parallelrnn import SequenceRegressor
from parallelrnn.lab.benchmarks.measuring import provenance
from parallelrnn.lab.benchmarks.timing import seconds_of, take_turns
from parallelrnn.lab.tables import Table

STEPS = 20  # of a fit
SHAPES: dict[str, tuple[tuple[int, int], dict[str, int]]] = {  # steps and channels, and the layers
    "S3": ((336, 7), {"hidden_size": 128, "num_layers": 2, "batch_size": 32}),
    "small": ((14, 1), {"hidden_size": 64, "num_layers": 1, "batch_size": 32}),
}


class Bare:
    """The part of Fabric's interface that a trainer uses, in plain torch on one CPU."""

    device, world_size, global_rank = torch.device("cpu"), 1, 0

    def launch(self) -> None:
        """Start no processes."""

    def setup(self, network: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[nn.Module, torch.optim.Optimizer]:
        """Return them unchanged."""
        return network, optimizer

    def backward(self, loss: Tensor) -> None:
        """Compute gradients."""
        loss.backward()

    def clip_gradients(self, network: nn.Module, optimizer: torch.optim.Optimizer, **options: Any) -> None:
        """Clip to a norm."""
        nn.utils.clip_grad_norm_(network.parameters(), **options)


def compare(cell: str, shape: tuple[int, int], options: dict[str, Any], rounds: int) -> dict[str, list[float]]:
    """Return the seconds of a training step with and without Fabric, one for each round."""
    x = np.random.default_rng(0).normal(size=(STEPS * options["batch_size"], *shape))
    regressors = {
        kind: SequenceRegressor(
            cell=cell, max_epochs=1, epoch_steps=(STEPS, STEPS), random_state=0, progress=False, **options
        )
        for kind in ("with", "without")
    }

    def fit_without() -> None:
        with mock.patch("lightning_fabric.Fabric", return_value=Bare()):
            regressors["without"].fit(x, x.sum((1, 2)))

    fits = {"with": lambda: regressors["with"].fit(x, x.sum((1, 2))), "without": fit_without}
    taken, _ = take_turns({kind: seconds_of(fit) for kind, fit in fits.items()}, rounds)
    if not np.array_equal(regressors["with"].predict(x), regressors["without"].predict(x)):
        raise SystemExit(f"{cell}: predictions with and without Fabric differ")
    return {kind: [seconds[kind] / STEPS for seconds in taken] for kind in fits}


def run(rounds: int = 15, threads: int = 2) -> None:
    """Print a table in Markdown, and its conditions."""
    torch.set_num_threads(threads)
    rows = []
    for (name, (shape, options)), cell in product(SHAPES.items(), ("linear", "gru", "lstm")):
        times = compare(cell, shape, options, rounds)
        medians = {kind: statistics.median(seconds) for kind, seconds in times.items()}
        spreads = [
            f"{1e3 * medians[kind]:.2f} ({1e3 * min(seconds):.2f} to {1e3 * max(seconds):.2f})"
            for kind, seconds in times.items()
        ]
        rows.append([name, cell, *spreads, f"{medians['with'] / medians['without'] - 1:+.1%}"])
    print(Table(["shape", "cell", "ms per step with Fabric", "without", "cost"], rows).markdown())
    print(f"\n{provenance(threads)}")


if __name__ == "__main__":
    import typer

    typer.run(run)

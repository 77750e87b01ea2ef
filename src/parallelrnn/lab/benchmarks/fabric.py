"""What Lightning Fabric costs: training epochs with it beside the same epochs without it.

    python -m parallelrnn.lab.benchmarks.fabric

The network of a Forecaster at the shape S3 (look-back 336, 7 channels, width 128, 2 layers, batches of 32 windows), and
one as small as the defaults make them. Epochs of both kinds take turns in one process, and have to end with the same
weights to the bit.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from parallelrnn.forecast.data import Series
from parallelrnn.forecast.model import Network, NetworkConfig
from parallelrnn.forecast.windows import CovariateScaler, SeriesScaler, WindowDataset
from parallelrnn.lab.benchmarks.kernels import conditions
from parallelrnn.training.losses import pointwise
from parallelrnn.training.trainer import Trainer, TrainerConfig, make_fabric

STEPS = 20  # of an epoch
LOOKBACK, HORIZON = 336, 96
SHAPES: dict[str, dict[str, Any]] = {
    "S3": {"channels": 7, "hidden_size": 128, "num_layers": 2, "segment": 1, "batch_size": 32},
    "small": {"channels": 1, "hidden_size": 64, "num_layers": 1, "segment": 24, "batch_size": 32},
}


class Bare:
    """The part of Fabric's interface that a Trainer uses, by torch alone, on one CPU."""

    device, world_size, global_rank = torch.device("cpu"), 1, 0

    def setup(self, network: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[nn.Module, torch.optim.Optimizer]:
        """As they are."""
        return network, optimizer

    def backward(self, loss: Tensor) -> None:
        """Gradients."""
        loss.backward()

    def clip_gradients(self, network: nn.Module, optimizer: torch.optim.Optimizer, **options: Any) -> None:
        """To a norm."""
        nn.utils.clip_grad_norm_(network.parameters(), **options)


def trainer_of(fabric: Any, cell: str, shape: dict[str, Any]) -> Trainer[Network]:
    """On noise; the same for all."""
    channels = shape["channels"]
    steps = LOOKBACK + HORIZON + 2000
    values, none = np.random.default_rng(0).normal(size=(steps, channels)), np.zeros((steps, 0))
    observed = np.ones((steps, channels), bool)
    noise = Series(
        name="noise", position=0, values=values, observed=observed, past=none, future=none, static=np.zeros(0)
    )
    scaler = SeriesScaler(np.zeros(channels), np.ones(channels), (), np.zeros(channels))
    dataset = WindowDataset([noise], [scaler], CovariateScaler.fit([noise], [steps]), LOOKBACK, HORIZON)
    torch.manual_seed(0)
    network = Network(
        NetworkConfig(
            lookback=LOOKBACK,
            horizon=HORIZON,
            cell=cell,
            decoder="waves",
            block_size=2,
            hidden_size=shape["hidden_size"],
            num_layers=shape["num_layers"],
            num_waves=8,
            num_decays=4,
            normalize="mean",
            segment=shape["segment"],
            gate=True,
            dropout=0.0,
            channels=channels,
        )
    )
    windows = dataset.windows_of(0, LOOKBACK, steps - HORIZON)
    config = TrainerConfig(batch_size=shape["batch_size"], epoch_steps=(STEPS, STEPS))
    return Trainer(network, dataset, windows, windows[:32], pointwise("mae"), config, 0, fabric)


def compare(cell: str, shape: dict[str, Any], rounds: int) -> dict[str, list[float]]:
    """Seconds of each step, with and without."""
    trainers = {
        "with": trainer_of(make_fabric("cpu", 1, "32-true"), cell, shape),
        "without": trainer_of(Bare(), cell, shape),
    }
    seconds: dict[str, list[float]] = {name: [] for name in trainers}
    for turn in range(rounds + 1):
        for name in sorted(trainers, reverse=turn % 2 == 1):
            began = time.perf_counter()
            for _ in range(STEPS):
                trainers[name]._step()
            trainers[name].progress.epoch, trainers[name].progress.step = turn + 1, 0
            if turn:  # the first pays for what only the first does
                seconds[name].append((time.perf_counter() - began) / STEPS)
    weights = [trainer.network.state_dict() for trainer in trainers.values()]
    if not all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0]):
        raise SystemExit(f"{cell}: with Fabric and without it, weights differ")
    return seconds


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    made_under = asdict(conditions.current(chosen.threads))
    del made_under["other_load"]  # nobody looks here
    print("; ".join(f"{name} {value}" for name, value in made_under.items()))
    print("\n| shape | cell | ms a step with Fabric | without | costs |\n| --- | --- | --- | --- | --- |")
    for name, shape in SHAPES.items():
        for cell in ("linear", "gru", "lstm"):
            found = compare(cell, shape, chosen.rounds)
            middle = {kind: statistics.median(times) for kind, times in found.items()}
            spread = {kind: f"{1e3 * min(times):.2f} to {1e3 * max(times):.2f}" for kind, times in found.items()}
            cells = [f"{1e3 * middle[kind]:.2f} ({spread[kind]})" for kind in ("with", "without")]
            print(
                f"| {name} | {cell} | {' | '.join(cells)} | {middle['with'] / middle['without'] - 1:+.1%} |", flush=True
            )


if __name__ == "__main__":
    main()

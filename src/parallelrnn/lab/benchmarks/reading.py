"""How long it takes to read all recurrence features of layers of width 128: python -m parallelrnn.lab.benchmarks.reading"""

from __future__ import annotations

import time

import torch
from torch import nn

from parallelrnn import ParaGRU, ParaLSTM, ParaRNN, recurrence_features

WIDTH, INPUTS, STEPS, ROUNDS = 128, 8, 200, 15


def milliseconds(layer: nn.Module, x: torch.Tensor | None) -> str:
    """Median, and the range between the quartiles."""
    recurrence_features(layer, x)
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        recurrence_features(layer, x)
        times.append(1e3 * (time.perf_counter() - began))
    times.sort()
    return f"{times[ROUNDS // 2]:.1f} ({times[ROUNDS // 4]:.1f} to {times[3 * ROUNDS // 4]:.1f})"


def main() -> None:
    """A table in Markdown."""
    x = torch.randn(STEPS, INPUTS)
    print(f"Milliseconds for all features at width {WIDTH}; medians of {ROUNDS} and quartiles\n")
    print(f"| layer | features | with shares, {STEPS} steps of data |\n| --- | --- | --- |")
    for cls in (ParaRNN, ParaLSTM, ParaGRU, nn.RNN, nn.LSTM, nn.GRU):
        torch.manual_seed(0)
        layer = cls(INPUTS, WIDTH)
        print(f"| {cls.__name__ if cls.__module__.startswith('parallelrnn') else 'nn.' + cls.__name__} | ", end="")
        print(f"{milliseconds(layer, None)} | {milliseconds(layer, x)} |", flush=True)


if __name__ == "__main__":
    main()

"""The layers that are compared: torch.nn, ours without and with an aggregate, and the plain loop over time."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from parallelrnn.lab.benchmarks.cases import Case
from parallelrnn.lab.benchmarks.timing import Step
from parallelrnn.nn import ParaGRU, ParaLSTM, ParaRNN

Blocks = ParaRNN | ParaLSTM | ParaGRU
Layer = Blocks | nn.RNNBase

# Called as nn.RNN is; the type of their base class has another signature.
THEIRS: dict[str, Callable[..., nn.RNNBase]] = {"RNN": nn.RNN, "LSTM": nn.LSTM, "GRU": nn.GRU}
OURS: dict[str, type[Blocks]] = {"RNN": ParaRNN, "LSTM": ParaLSTM, "GRU": ParaGRU}
LONGEST_LOOP = 4096  # steps that the plain loop is trained on


def make_layer(contender: str, cell: str, case: Case) -> Layer:
    """Return the contender's layers, with random weights."""
    if contender == "torch":
        return THEIRS[cell](case.input_size, case.hidden_size, case.num_layers)
    return OURS[cell](
        case.input_size,
        case.hidden_size,
        case.num_layers,
        block_size=case.block_size,
        aggregate="linear" if contender == "aggregated" else None,
        backend="reference" if contender == "loop" else "auto",
    )


def make_input(case: Case) -> tuple[Tensor, Tensor]:
    """Return a batch of sequences, and a gradient of the output."""
    x = torch.randn(case.length, case.batch, case.input_size)
    return x, torch.randn(case.length, case.batch, case.hidden_size)


def make_step(layer: Layer, kind: str, x: Tensor, grad: Tensor) -> Step:
    """Return inference, or forward and backward; freeing what a step allocated is part of it for all contenders."""
    layer.train(kind == "training")

    def forward() -> None:
        with torch.no_grad():
            layer(x)

    def train() -> None:
        output, _ = layer(x)
        output.backward(grad)

    if kind == "forward":
        return Step(lambda: None, forward)
    return Step(lambda: layer.zero_grad(set_to_none=True), train)


def skip_reason(contender: str, case: Case, kind: str) -> str:
    """Return why a contender is not measured; empty if it is."""
    if contender == "loop" and kind == "training" and case.length > LONGEST_LOOP:
        return f"training a Python loop over {case.length} steps takes too long to repeat"
    return ""

"""Who is measured: torch.nn, ours without and with aggregation, and the plain loop over time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from parallelrnn.lab.benchmarks.kernels.cases import Case
from parallelrnn.nn import ParaGRU, ParaLSTM, ParaRNN

Blocks = ParaRNN | ParaLSTM | ParaGRU
Layer = Blocks | nn.RNNBase

# Called as nn.RNN is; the type of their base class has another signature.
THEIRS: dict[str, Callable[..., nn.RNNBase]] = {"RNN": nn.RNN, "LSTM": nn.LSTM, "GRU": nn.GRU}
OURS: dict[str, type[Blocks]] = {"RNN": ParaRNN, "LSTM": ParaLSTM, "GRU": ParaGRU}

# The order of a round, and what each is called in tables.
CONTENDERS = {"torch": "torch.nn", "blocks": "ours", "aggregated": "ours, linear", "loop": "plain loop"}


@dataclass(frozen=True)
class Step:
    """One contender's work: what comes before the clock is started, and what is timed."""

    prepare: Callable[[], None]
    run: Callable[[], None]


def make_layer(contender: str, cell: str, case: Case) -> Layer:
    """The contender's layers, with fresh random weights."""
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
    """A batch of sequences, and a gradient of the output."""
    x = torch.randn(case.length, case.batch, case.input_size)
    return x, torch.randn(case.length, case.batch, case.hidden_size)


def make_step(layer: Layer, kind: str, x: Tensor, grad: Tensor) -> Step:
    """Inference, or a forward and a backward; freeing what the step made is part of it, for all alike."""
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


def why_skipped(contender: str, case: Case, kind: str) -> str:
    """Why a contender sits out; empty if it does not."""
    if contender == "loop" and kind == "training" and case.length > 4096:
        return f"a loop in Python over {case.length} steps, with gradients, takes too long to be repeated"
    return ""

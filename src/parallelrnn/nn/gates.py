"""How the states of a Block-Recurrent Transformer take up what is new.

The fixed and the LSTM gate of Hutchins et al. (2022), and one between them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class BiasGate(nn.Module):
    """s' = g * s + (1 - g) * (W_z h + b_z), with g = sigmoid(b_g) the same at all times: a moving average, learned.

    At the start g is sigmoid(1), about 0.73.
    """

    def __init__(self, size: int, **options: Any) -> None:
        super().__init__()
        self.new = nn.Linear(size, size, **options)
        self.keep = nn.Parameter(torch.ones(size, **options))

    def forward(self, states: Tensor, found: Tensor) -> Tensor:
        """States (..., size) after h was found."""
        kept = torch.sigmoid(self.keep)
        after: Tensor = kept * states + (1 - kept) * self.new(found)
        return after


class FullGate(nn.Module):
    """s' = g * s + (1 - g) * (W_z h + b_z), with g = sigmoid(W_g h + b_g), which depends on what was found."""

    def __init__(self, size: int, **options: Any) -> None:
        super().__init__()
        self.new = nn.Linear(size, size, **options)
        self.keep = nn.Linear(size, size, **options)
        nn.init.ones_(self.keep.bias)

    def forward(self, states: Tensor, found: Tensor) -> Tensor:
        """States (..., size) after h was found."""
        kept = torch.sigmoid(self.keep(found))
        after: Tensor = kept * states + (1 - kept) * self.new(found)
        return after


class LSTMGate(nn.Module):
    """s' = f * s + i * tanh(W_z h + b_z), with f = sigmoid(W_f h + b_f + 1) and i = sigmoid(W_i h + b_i - 1).

    So at the start states are mostly kept.
    """

    def __init__(self, size: int, **options: Any) -> None:
        super().__init__()
        self.new = nn.Linear(size, size, **options)
        self.forget = nn.Linear(size, size, **options)
        self.input = nn.Linear(size, size, **options)

    def forward(self, states: Tensor, found: Tensor) -> Tensor:
        """States (..., size) after h was found."""
        kept, taken = torch.sigmoid(self.forget(found) + 1), torch.sigmoid(self.input(found) - 1)
        after: Tensor = kept * states + taken * torch.tanh(self.new(found))
        return after


_KINDS = {"bias": BiasGate, "full": FullGate, "lstm": LSTMGate}
GATES = tuple(_KINDS)


def make_gate(kind: str, size: int, **options: Any) -> nn.Module:
    """A gate by its name."""
    return _KINDS[kind](size, **options)

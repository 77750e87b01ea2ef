"""The position-wise map over the concatenated blocks, once after the last layer (Algorithm 1, arXiv 2605.02692)."""

from __future__ import annotations

from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn import functional

from parallelrnn.errors import ArgumentError

AGGREGATES = ("linear", "fc", "ffn")


class LinearAggregate(nn.Linear):
    """W_f h + b, the "linear" aggregation. It starts as the identity, and so does no harm where it is put."""

    def reset_parameters(self) -> None:
        """Set the identity."""
        nn.init.eye_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)


class FullyConnected(LinearAggregate):
    """tanh(W_f h + b): the "FC" aggregation. For another activation, pass your own module as `aggregate`."""

    def forward(self, input: Tensor) -> Tensor:
        """Map (..., width) to (..., width)."""
        return torch.tanh(super().forward(input))


class FeedForward(nn.Module):
    """W_2 relu(W_1 h + b_1) + b_2, four times as wide inside: the feed-forward layer of Transformers."""

    def __init__(self, width: int, bias: bool = True, device: Any = None, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.expand = nn.Linear(width, 4 * width, bias=bias, device=device, dtype=dtype)
        self.contract = nn.Linear(4 * width, width, bias=bias, device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Draw both maps anew."""
        self.expand.reset_parameters()
        self.contract.reset_parameters()

    def forward(self, input: Tensor) -> Tensor:
        """Map (..., width) to (..., width)."""
        output: Tensor = self.contract(functional.relu(self.expand(input)))
        return output


def is_linear_map(aggregate: nn.Module | None) -> TypeGuard[nn.Linear]:
    """Return whether an aggregate is W_f h + b and nothing else."""
    return type(aggregate) in (nn.Linear, LinearAggregate)


def make_aggregate(
    aggregate: str | nn.Module | None, width: int, bias: bool, device: Any, dtype: torch.dtype | None
) -> nn.Module | None:
    """Return the module that a layer's `aggregate` argument names; a module is used as it is."""
    if isinstance(aggregate, nn.Linear) and aggregate.in_features != width:
        expected = f"in_features {width}, the units of all blocks and directions"
        hint = f"use nn.Linear({width}, {aggregate.out_features})"
        raise ArgumentError(argument="aggregate", expected=expected, got=aggregate.in_features, hint=hint)
    if aggregate is None or isinstance(aggregate, nn.Module):
        return aggregate
    if aggregate == "linear":
        return LinearAggregate(width, width, bias=bias, device=device, dtype=dtype)
    if aggregate == "fc":
        return FullyConnected(width, width, bias=bias, device=device, dtype=dtype)
    if aggregate == "ffn":
        return FeedForward(width, bias=bias, device=device, dtype=dtype)
    expected = f"one of {', '.join(map(repr, AGGREGATES))}, None or an nn.Module"
    raise ArgumentError(argument="aggregate", expected=expected, got=aggregate)

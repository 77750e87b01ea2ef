"""The layers that can be read, and the axes of what they take."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from parallelrnn.nn import ParaGRU, ParaLSTM, ParaRNN, from_torch

Layer = ParaRNN | ParaLSTM | ParaGRU


def as_blocks(layer: Any) -> Any:
    """A layer of blocks: what it is, or one block if it is a layer of `torch.nn`."""
    if isinstance(layer, nn.RNNBase):
        return from_torch(layer)
    if not isinstance(layer, Layer):
        raise TypeError(
            f"expected ParaRNN, ParaLSTM, ParaGRU, nn.RNN, nn.LSTM or nn.GRU, got {type(layer).__name__}; give the "
            "layer of the model that is to be read, and what it gets as data"
        )
    return layer


def exact(module: nn.Module) -> Any:
    """A copy in double precision that neither drops out nor learns; the caller's own keeps its precision."""
    if not all(parameter.isfinite().all() for parameter in module.parameters()):
        raise ValueError(f"weights of this {type(module).__name__} are not finite; it seems that its training diverged")
    return copy.deepcopy(module).double().eval().requires_grad_(False)


def linear_map(layer: Layer) -> tuple[Tensor, Tensor]:
    """Weight and bias of a linear aggregate; what leaves the states as they are where the aggregate is another."""
    if isinstance(layer.aggregate, nn.Linear):
        weight, bias = layer.aggregate.weight.detach(), layer.aggregate.bias
        return weight, weight.new_zeros(len(weight)) if bias is None else bias.detach()
    width = sum(layer.block_sizes)
    like = next(layer.parameters())
    return torch.eye(width).to(like), torch.zeros(width).to(like)


def fold_in(layer: Layer, readout: nn.Linear) -> Any:
    """A copy of a layer whose linear aggregate is followed at once by a linear readout."""
    weight, bias = linear_map(layer)
    folded = copy.deepcopy(layer)
    folded.aggregate = nn.Linear(weight.shape[1], readout.out_features, dtype=weight.dtype, device=weight.device)
    with torch.no_grad():
        folded.aggregate.weight.copy_(readout.weight @ weight)
        folded.aggregate.bias.copy_(readout(bias))
    return folded


def time_first(layer: Any, x: Tensor) -> Tensor:
    """(T, B, C) from what the layer takes: (T, B, C), (B, T, C) if it is batch_first, or one sequence (T, C)."""
    if x.dim() == 2:
        return x[:, None]
    return x.transpose(0, 1) if layer.batch_first else x


def as_taken(layer: Any, series: Tensor) -> Tensor:
    """The way back: what the layer takes from a batch (T, B, C)."""
    return series.transpose(0, 1) if layer.batch_first else series

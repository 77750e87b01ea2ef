"""The layers that can be read, and the axes of their inputs."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from parallelrnn.errors import ArgumentError, ArgumentTypeError, InputError
from parallelrnn.nn import ParaGRU, ParaLSTM, ParaRNN, from_torch
from parallelrnn.nn.aggregate import is_linear_map

Layer = ParaRNN | ParaLSTM | ParaGRU


def as_blocks(layer: Any) -> Any:
    """Return a layer of blocks: the layer itself, or a layer of `torch.nn` as one block."""
    if isinstance(layer, nn.RNNBase):
        with torch.random.fork_rng(devices=[]):  # reading a model during training leaves the random numbers alone
            return from_torch(layer)
    if not isinstance(layer, Layer):
        raise ArgumentTypeError(
            expected="ParaRNN, ParaLSTM, ParaGRU, nn.RNN, nn.LSTM or nn.GRU",
            got=type(layer).__name__,
            hint="pass the recurrent layer of the model, with that layer's input as data",
        )
    return layer


def as_input(layer: Any, x: Any) -> Tensor:
    """Return data in the layer's precision and on its device: (T, C), or a batch in the layer's layout."""
    if isinstance(x, PackedSequence):
        hint = "pass the sequences one by one, or padded"
        raise ArgumentTypeError(argument="x", expected="a tensor or an array", got="PackedSequence", hint=hint)
    if not isinstance(x, Tensor):
        x = torch.from_numpy(np.array(x, dtype=float))
    if x.dim() == 1 and layer.input_size == 1:
        x = x[:, None]
    if x.dim() not in (2, 3) or x.shape[-1] != layer.input_size or not x.numel():
        expected = f"shape (T, {layer.input_size}), or a batch of such sequences in the layer's layout"
        raise ArgumentError(argument="x", expected=expected, got=tuple(x.shape))
    if not x.isfinite().all():
        raise InputError("the data contain values that are not finite", hint="fill or drop them first")
    data: Tensor = x.detach().to(next(layer.parameters()))
    return data


def exact(module: nn.Module) -> Any:
    """Return a frozen copy in evaluation mode, in double precision on the CPU."""
    if not all(parameter.isfinite().all() for parameter in module.parameters()):
        problem = f"the weights of this {type(module).__name__} are not finite"
        raise InputError(problem, hint="check whether training diverged")
    return copy.deepcopy(module).cpu().double().eval().requires_grad_(False)


def precision(*modules: nn.Module) -> float:
    """Return the machine epsilon of the least precise weights."""
    dtypes = {parameter.dtype for module in modules for parameter in module.parameters()}
    return max(
        (torch.finfo(dtype).eps for dtype in dtypes if dtype.is_floating_point), default=torch.finfo(torch.float64).eps
    )


def evaluating(layer: Any) -> Any:
    """Return the layer, or a copy without dropout if it is in training mode."""
    return copy.deepcopy(layer).eval() if layer.training else layer


def linear_map(layer: Layer) -> tuple[Tensor, Tensor]:
    """Return weight and bias of a linear aggregate; for any other aggregate, the identity and zeros."""
    if isinstance(layer.aggregate, nn.Linear):
        weight, bias = layer.aggregate.weight.detach(), layer.aggregate.bias
        return weight, weight.new_zeros(len(weight)) if bias is None else bias.detach()
    width = sum(layer.block_sizes)
    like = next(layer.parameters())
    return torch.eye(width).to(like), torch.zeros(width).to(like)


def is_linear(layer: Any, readout: nn.Module | None) -> bool:
    """Return whether the output of a layer and its readout is an affine function of the input."""
    if getattr(layer, "nonlinearity", None) != "linear":
        return False
    maps = [module for module in (layer.aggregate, readout) if module is not None]
    return all(map(is_linear_map, maps)) or _is_affine(maps, sum(layer.block_sizes))


@torch.no_grad()
def _is_affine(maps: list[nn.Module], width: int) -> bool:
    """Test numerically, at several scales, that doubling or negating a displacement doubles or negates the change."""
    module = exact(nn.Sequential(*maps))
    random = torch.Generator().manual_seed(0)
    origin = module(torch.zeros(1, width, dtype=torch.float64))
    for scale in (1.0, 1e3, 1e6):
        way = scale * torch.randn(8, width, dtype=torch.float64, generator=random)
        once, twice, back = module(way) - origin, module(2 * way) - origin, module(-way) - origin
        allowed = 1e-9 * (abs(once).max() + abs(origin).max())
        if abs(twice - 2 * once).max() > allowed or abs(once + back).max() > allowed:
            return False
    return True


def can_fold(layer: Layer, readout: nn.Module | None) -> bool:
    """Return whether a readout is linear and nothing that is not stands between it and the blocks."""
    return type(readout) is nn.Linear and (layer.aggregate is None or is_linear_map(layer.aggregate))


def fold_in(layer: Any, readout: nn.Linear) -> Any:
    """Return a copy of a layer whose aggregate includes the linear readout that follows it.

    Contributions, responses and shares of the copy then refer to the output of the readout. A layer of `torch.nn`
    becomes a layer of one block.
    """
    layer = as_blocks(layer)
    if not can_fold(layer, readout):
        raise ArgumentTypeError(
            argument="readout",
            expected="an nn.Linear after a linear aggregate or none",
            got=f"{type(readout).__name__} after {type(layer.aggregate).__name__}",
        )
    weight, bias = linear_map(layer)
    folded = copy.deepcopy(layer)
    with torch.random.fork_rng(devices=[]):
        folded.aggregate = nn.Linear(weight.shape[1], readout.out_features, dtype=weight.dtype, device=weight.device)
    with torch.no_grad():
        folded.aggregate.weight.copy_(readout.weight @ weight)
        folded.aggregate.bias.copy_(readout(bias))
    return folded


def time_first(layer: Any, x: Tensor) -> Tensor:
    """Return (T, B, C) from the layer's layout: (T, B, C), (B, T, C) with `batch_first`, or one sequence (T, C)."""
    if x.dim() == 2:
        return x[:, None]
    return x.transpose(0, 1) if layer.batch_first else x


def as_taken(layer: Any, series: Tensor) -> Tensor:
    """Return a batch (T, B, C) in the layer's layout."""
    return series.transpose(0, 1) if layer.batch_first else series

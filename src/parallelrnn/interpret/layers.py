"""The layers that can be read, and the axes of what they take."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from parallelrnn.nn import ParaGRU, ParaLSTM, ParaRNN, from_torch

Layer = ParaRNN | ParaLSTM | ParaGRU


def as_blocks(layer: Any) -> Any:
    """A layer of blocks: what it is, or one block if it is a layer of `torch.nn`."""
    if isinstance(layer, nn.RNNBase):
        with torch.random.fork_rng(devices=[]):  # reading a model in its training leaves the random numbers alone
            return from_torch(layer)
    if not isinstance(layer, Layer):
        raise TypeError(
            f"expected ParaRNN, ParaLSTM, ParaGRU, nn.RNN, nn.LSTM or nn.GRU, got {type(layer).__name__}; give the "
            "layer of the model that is to be read, and what it gets as data"
        )
    return layer


def as_input(layer: Any, x: Any) -> Tensor:
    """Data as a layer takes them, of its precision and on its device: (T, C), or a batch in its layout."""
    if isinstance(x, PackedSequence):
        raise TypeError("packed sequences are not read; read them one by one, or pad them")
    if not isinstance(x, Tensor):
        x = torch.from_numpy(np.array(x, dtype=float))
    if x.dim() == 1 and layer.input_size == 1:
        x = x[:, None]
    if x.dim() not in (2, 3) or x.shape[-1] != layer.input_size or not x.numel():
        raise ValueError(
            f"expected data (T, {layer.input_size}), or a batch of such sequences in the layout that the layer takes, "
            f"got {tuple(x.shape)}"
        )
    if not x.isfinite().all():
        raise ValueError("the data hold values that are not finite; fill or drop them first")
    taken: Tensor = x.detach().to(next(layer.parameters()))
    return taken


def exact(module: nn.Module) -> Any:
    """A copy in double precision on the CPU that neither drops out nor learns; the caller's own stays as it is."""
    if not all(parameter.isfinite().all() for parameter in module.parameters()):
        raise ValueError(f"weights of this {type(module).__name__} are not finite; it seems that its training diverged")
    return copy.deepcopy(module).cpu().double().eval().requires_grad_(False)


def precision(*modules: nn.Module) -> float:
    """The unit of rounding of the coarsest weights: what is smaller was not learned."""
    kinds = {parameter.dtype for module in modules for parameter in module.parameters()}
    return max(
        (torch.finfo(kind).eps for kind in kinds if kind.is_floating_point), default=torch.finfo(torch.float64).eps
    )


def evaluating(layer: Any) -> Any:
    """The layer itself, or a copy that drops nothing out where it is being trained."""
    return copy.deepcopy(layer).eval() if layer.training else layer


def linear_map(layer: Layer) -> tuple[Tensor, Tensor]:
    """Weight and bias of a linear aggregate; what leaves the states as they are where the aggregate is another."""
    if isinstance(layer.aggregate, nn.Linear):
        weight, bias = layer.aggregate.weight.detach(), layer.aggregate.bias
        return weight, weight.new_zeros(len(weight)) if bias is None else bias.detach()
    width = sum(layer.block_sizes)
    like = next(layer.parameters())
    return torch.eye(width).to(like), torch.zeros(width).to(like)


def is_linear(layer: Any, readout: nn.Module | None) -> bool:
    """Whether what a layer and its readout put out is linear in the input, but for constants."""
    if getattr(layer, "nonlinearity", None) != "linear":
        return False
    maps = [module for module in (layer.aggregate, readout) if module is not None]
    return all(type(module) is nn.Linear for module in maps) or _is_affine(maps, sum(layer.block_sizes))


@torch.no_grad()
def _is_affine(maps: list[nn.Module], width: int) -> bool:
    """By values: twice the way is twice the change, and the way back its opposite, close by and far away."""
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


def fold_in(layer: Any, readout: nn.Linear) -> Any:
    """A copy of a layer, with the linear readout that follows it taken into its aggregate.

    Contributions, responses and shares of that copy are about what the readout puts out. A layer of `torch.nn` becomes
    one of blocks, of one block.
    """
    layer = as_blocks(layer)
    if type(readout) is not nn.Linear or type(layer.aggregate) not in (nn.Linear, type(None)):
        raise TypeError(
            "only a linear readout after a linear aggregate can be folded in, got "
            f"{type(readout).__name__} after {type(layer.aggregate).__name__}"
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
    """(T, B, C) from what the layer takes: (T, B, C), (B, T, C) if it is batch_first, or one sequence (T, C)."""
    if x.dim() == 2:
        return x[:, None]
    return x.transpose(0, 1) if layer.batch_first else x


def as_taken(layer: Any, series: Tensor) -> Tensor:
    """The way back: what the layer takes from a batch (T, B, C)."""
    return series.transpose(0, 1) if layer.batch_first else series

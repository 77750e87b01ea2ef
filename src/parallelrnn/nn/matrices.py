"""The recurrent matrices of a module, of ours or of `torch.nn`, read one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from parallelrnn.kernels import GATES

UNBOUNDED = ("RNN_LINEAR", "RNN_RELU")  # recurrences whose states no activation bounds
_LARGEST = 0.99  # modulus with which these begin: a half-life of 69 steps


class RecurrentBlock(NamedTuple):
    """One recurrent matrix: how a block's previous state enters one of its gates."""

    layer: int
    direction: str  # "forward" or "reverse"
    gate: str  # "hidden"; "input", "forget", "cell", "output"; or "reset", "update", "new"
    block: int
    matrix: Tensor  # (D, D), part of the autograd graph


def recurrent_blocks(module: nn.Module) -> Iterator[RecurrentBlock]:
    """The recurrent matrices by layer, direction, gate and block, of a layer or cell of ours or of `torch.nn`.

    A vanilla `nn.RNN`, `nn.LSTM` or `nn.GRU` is one block per layer, direction and gate. Where an LSTM projects its
    output (`proj_size`), the matrix is W_hh W_hr, by which the unprojected state re-enters the gate. Of a model that
    holds several of these modules, the layers are numbered through.
    """
    found = list(_recurrent_modules(module))
    if not found:
        raise TypeError(
            f"{type(module).__name__} has no recurrent blocks; expected ParaRNN, ParaLSTM, ParaGRU, "
            "nn.RNN, nn.LSTM, nn.GRU, one of their cells, or a model that holds some of them"
        )
    return _numbered_through(found)


def _recurrent_modules(module: nn.Module) -> Iterator[Callable[[], Iterator[RecurrentBlock]]]:
    """What gives the blocks of each recurrent module, outermost first."""
    own: Callable[[], Iterator[RecurrentBlock]] | None = getattr(module, "recurrent_blocks", None)
    if isinstance(module, nn.RNNBase | nn.RNNCellBase):
        yield partial(_torch_blocks, module)
    elif own is not None:
        yield own
    else:
        for child in module.children():
            yield from _recurrent_modules(child)


def _numbered_through(modules: list[Callable[[], Iterator[RecurrentBlock]]]) -> Iterator[RecurrentBlock]:
    first = last = 0
    for blocks in modules:
        for block in blocks():
            last = first + block.layer
            yield block._replace(layer=last)
        first = last + 1


def _torch_blocks(module: nn.RNNBase | nn.RNNCellBase) -> Iterator[RecurrentBlock]:
    for layer, direction, suffix in weight_suffixes(module):
        stacked = getattr(module, f"weight_hh{suffix}")  # (G * d, d)
        projection = getattr(module, f"weight_hr{suffix}", None)
        gates = GATES[torch_mode(module)]
        for gate, matrix in zip(gates, stacked.chunk(len(gates)), strict=True):
            yield RecurrentBlock(layer, direction, gate, 0, matrix if projection is None else matrix @ projection)


def weight_suffixes(module: nn.Module) -> list[tuple[int, str, str]]:
    """Layer, direction and the suffix of their weights' names, in the order in which `torch.nn` stacks states."""
    num_layers = getattr(module, "num_layers", None)
    if num_layers is None:  # a cell
        return [(0, "forward", "")]
    directions = (("forward", ""), ("reverse", "_reverse"))[: 2 if module.bidirectional else 1]
    return [(layer, direction, f"_l{layer}{ending}") for layer in range(num_layers) for direction, ending in directions]


def torch_mode(module: nn.RNNBase | nn.RNNCellBase) -> str:
    """Which recurrence a module of `torch.nn` computes, in the words of the kernels."""
    if isinstance(module, nn.RNN | nn.RNNCell):
        return f"RNN_{module.nonlinearity.upper()}"
    if isinstance(module, nn.LSTM | nn.LSTMCell):
        return "LSTM"
    if isinstance(module, nn.GRU | nn.GRUCell):
        return "GRU"
    raise TypeError(f"{type(module).__name__} is not an RNN, LSTM or GRU of torch.nn")


def without_growth(matrices: Tensor) -> Tensor:
    """Square matrices (..., d, d), their eigenvalues scaled down to a modulus of 0.99 where they are larger.

    Below 1: at 1, a bias or inputs with a mean would add up for ever.
    """
    exact = matrices.to(torch.promote_types(matrices.dtype, torch.float32))  # eigenvalues have no half precision
    largest = torch.linalg.eigvals(exact).abs().amax(-1)
    scaled: Tensor = matrices * (_LARGEST / largest).clamp(max=1).to(matrices.dtype)[..., None, None]
    return scaled

"""Blocks: their sizes and their recurrent matrices, and the checks of arguments that all modules share."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate, groupby
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from parallelrnn.errors import ArgumentError, ArgumentTypeError, TensorError, check_integer
from parallelrnn.kernels import GATES, autocast_enabled

BlockSize = int | Sequence[int]
_MANY_SIZES = 4  # of blocks: more are not written one by one
UNBOUNDED = ("RNN_LINEAR", "RNN_RELU")  # recurrences whose states no activation bounds
_LARGEST_MODULUS = 0.99  # with which unbounded recurrences start: a half-life of 69 steps
_ADDRESSABLE = 1 << 48  # bytes, by a processor of today


@dataclass(frozen=True)
class Blocks:
    """The sizes of a layer's blocks, in the order in which their states are concatenated."""

    sizes: tuple[int, ...]

    @cached_property
    def groups(self) -> dict[int, tuple[int, ...]]:
        """The blocks of each size, which run together."""
        return {
            size: tuple(block for block, other in enumerate(self.sizes) if other == size)
            for size in dict.fromkeys(self.sizes)
        }

    @cached_property
    def grouped(self) -> tuple[int, ...]:
        """All blocks, group by group."""
        return tuple(block for blocks in self.groups.values() for block in blocks)

    @cached_property
    def restored(self) -> tuple[int, ...]:
        """Where each block stands in `grouped`."""
        return tuple(sorted(range(len(self.sizes)), key=self.grouped.__getitem__))

    @cached_property
    def equal(self) -> bool:
        """Whether all blocks have the same size, so that they run as one group."""
        return len(self.groups) == 1


def parse_block_size(hidden_size: int, block_size: BlockSize) -> Blocks:
    """Cut `hidden_size` units into blocks: equal ones for an int, ones of the given sizes for a list.

    Examples
    --------
    >>> parse_block_size(6, 2).sizes
    (2, 2, 2)
    >>> parse_block_size(7, [2, 2, 3]).sizes
    (2, 2, 3)
    """
    if not isinstance(block_size, Sequence) or isinstance(block_size, str | bytes):
        size = check_size("block_size", block_size)
        if hidden_size % size:
            expected, hint = f"a divisor of hidden_size {hidden_size}", _suggest_sizes(hidden_size, size)
            raise ArgumentError(argument="block_size", expected=expected, got=size, hint=hint)
        return Blocks((size,) * (hidden_size // size))
    for size in block_size:
        check_size("block_size", size)
    if sum(block_size) != hidden_size:
        expected = f"sizes that add up to hidden_size {hidden_size}"
        hint = f"use hidden_size={sum(block_size)}, or other blocks" if block_size else ""
        raise ArgumentError(argument="block_size", expected=expected, got=list(block_size), hint=hint)
    return Blocks(tuple(block_size))


def _suggest_sizes(hidden_size: int, block_size: int) -> str:
    quotient, rest = divmod(hidden_size, block_size)
    if quotient == 0:
        return f"use at most {hidden_size}"
    # A remainder of one unit joins a block, since a block of size 1 cannot oscillate.
    count, last = (quotient - 1, block_size + 1) if rest == 1 else (quotient, rest)
    unequal = format_block_size([block_size] * count + [last])
    return f"use hidden_size={quotient * block_size} or {(quotient + 1) * block_size}, or block_size={unequal}"


def format_block_size(block_size: BlockSize) -> str:
    """Return Python for a block size, short also if there are many blocks."""
    if isinstance(block_size, int) or len(block_size) <= _MANY_SIZES:
        return str(block_size)
    runs = [(size, len(list(run))) for size, run in groupby(block_size)]
    return " + ".join(f"[{size}] * {count}" if count > 1 else f"[{size}]" for size, count in runs)


def select_blocks(tensor: Tensor, sizes: Sequence[int], blocks: Sequence[int], dim: int = -1) -> Tensor:
    """Return the parts of `tensor` that belong to `blocks`; along `dim` it concatenates blocks of these `sizes`."""
    starts = [0, *accumulate(sizes)]
    slices: list[tuple[int, int]] = []  # neighbours are one slice, since cutting them apart takes time at every call
    for block in blocks:
        start, end = starts[block], starts[block + 1]
        if slices and slices[-1][1] == start:
            start, _ = slices.pop()
        slices.append((start, end))
    parts = [tensor.narrow(dim, start, end - start) for start, end in slices]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)


class RecurrentBlock(NamedTuple):
    """One recurrent matrix: how a block's previous state enters one of its gates."""

    layer: int
    direction: str  # "forward" or "reverse"
    gate: str  # "hidden"; "input", "forget", "cell", "output"; or "reset", "update", "new"
    block: int
    matrix: Tensor  # (D, D), part of the autograd graph


def recurrent_blocks(module: nn.Module) -> Iterator[RecurrentBlock]:
    """Iterate over the recurrent matrices of a module of ours or of `torch.nn`, by layer, direction, gate and block.

    A vanilla `nn.RNN`, `nn.LSTM` or `nn.GRU` has one block per layer, direction and gate. Where an LSTM projects its
    output (`proj_size`), the matrix is W_hh W_hr, through which the unprojected state re-enters the gate. If a model
    holds several recurrent modules, their layers are numbered consecutively.
    """
    modules = list(_recurrent_modules(module))
    if not modules:
        expected = "a recurrent layer or cell of parallelrnn or torch.nn, or a model that holds one"
        raise ArgumentTypeError(argument="module", expected=expected, got=type(module))
    return _numbered_consecutively(modules)


def _recurrent_modules(module: nn.Module) -> Iterator[Callable[[], Iterator[RecurrentBlock]]]:
    """Iterate over functions that return the blocks of each recurrent module, outermost first."""
    own: Callable[[], Iterator[RecurrentBlock]] | None = getattr(module, "recurrent_blocks", None)
    if isinstance(module, nn.RNNBase | nn.RNNCellBase):
        yield partial(_torch_blocks, module)
    elif own is not None:
        yield own
    else:
        for child in module.children():
            yield from _recurrent_modules(child)


def _numbered_consecutively(modules: list[Callable[[], Iterator[RecurrentBlock]]]) -> Iterator[RecurrentBlock]:
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
    """Return each layer and direction with the suffix of its weights, in the order of `torch.nn`'s states."""
    num_layers = getattr(module, "num_layers", None)
    if num_layers is None:  # a cell
        return [(0, "forward", "")]
    directions = (("forward", ""), ("reverse", "_reverse"))[: 2 if module.bidirectional else 1]
    return [(layer, direction, f"_l{layer}{ending}") for layer in range(num_layers) for direction, ending in directions]


def torch_mode(module: nn.RNNBase | nn.RNNCellBase) -> str:
    """Return the kernels' name for the recurrence that a module of `torch.nn` computes."""
    if isinstance(module, nn.RNN | nn.RNNCell):
        return f"RNN_{module.nonlinearity.upper()}"
    if isinstance(module, nn.LSTM | nn.LSTMCell):
        return "LSTM"
    if isinstance(module, nn.GRU | nn.GRUCell):
        return "GRU"
    raise ArgumentTypeError(argument="module", expected="an RNN, LSTM or GRU of torch.nn", got=type(module))


def limit_spectral_radius(matrices: Tensor) -> Tensor:
    """Return square matrices (..., d, d), scaled down to a spectral radius of 0.99 where it is larger.

    Below 1, because at 1 a bias, or inputs with a mean, would add up forever.
    """
    exact = matrices.to(torch.promote_types(matrices.dtype, torch.float32))  # eigvals has no half precision
    radius = torch.linalg.eigvals(exact).abs().amax(-1)
    limited: Tensor = matrices * (_LARGEST_MODULUS / radius).clamp(max=1).to(matrices.dtype)[..., None, None]
    return limited


# Polar form: blocks of size 2 as damped rotations, C(modulus, angle) = modulus * [[cos, sin], [-sin, cos]]. Both
# parameters are unconstrained: the angle, and log_rate, the logarithm of the decay rate, with
# modulus = exp(-exp(log_rate)) and half-life = ln 2 / exp(log_rate) steps. So the modulus stays below one whatever the
# optimiser does.


def rotations(modulus: Tensor, angle: Tensor) -> Tensor:
    """Return the matrices C(modulus, angle), (...) -> (..., 2, 2)."""
    cos, sin = modulus * torch.cos(angle), modulus * torch.sin(angle)
    return torch.stack([torch.stack([cos, sin], -1), torch.stack([-sin, cos], -1)], -2)


def log_modulus(log_rate: Tensor) -> Tensor:
    """Return the logarithm of the modulus, which is never above zero."""
    # At 4 the modulus is 2e-24, zero for all purposes; far beyond, the gradient would be infinity times zero.
    return -torch.exp(log_rate.clamp(max=4))


def polar_blocks(log_rate: Tensor, angle: Tensor) -> Tensor:
    """Return blocks (..., 2, 2) from their unconstrained parameters."""
    # exp(-exp(x)) rounds to one for very slow decays; four units of rounding less, the matrix stays a contraction.
    largest = 1 - 4 * torch.finfo(log_rate.dtype).eps
    return rotations(largest * torch.exp(log_modulus(log_rate)), angle)


def modulus_to_log_rate(modulus: Tensor) -> Tensor:
    """Return the inverse of modulus = exp(-exp(log_rate)), for 0 < modulus < 1."""
    return torch.log(-torch.log(modulus))


def reset_polar(log_rate: Tensor, angle: Tensor) -> None:
    """Draw eigenvalues uniformly from the upper half of the unit disc."""
    tiny = torch.finfo(log_rate.dtype).eps
    modulus = torch.rand_like(log_rate).clamp(tiny, 1 - tiny).sqrt()
    log_rate.copy_(modulus_to_log_rate(modulus))
    angle.uniform_(0, math.pi)


def check_bool(name: str, value: object) -> None:
    """Raise unless the value is True or False."""
    if not isinstance(value, bool):
        raise ArgumentTypeError(argument=name, expected="True or False", got=value)


def check_size(name: str, value: object) -> int:
    """Return a positive int; raise if it is not one, or larger than any memory."""
    size = check_integer(name, value, 1)
    if size > _ADDRESSABLE:
        raise ArgumentError(argument=name, expected="an integer of at most 2**48", got=value)
    return size


def check_memory(count: int, device: Any, dtype: torch.dtype | None) -> None:
    """Raise before weights are made that cannot be trained, or that do not fit into this machine's memory."""
    like = torch.empty(0, device=device, dtype=dtype)
    if not like.is_floating_point() and not like.is_complex():
        raise ArgumentError(argument="dtype", expected="a floating-point dtype", got=dtype)
    size, memory = count * like.itemsize, _memory()
    if like.device.type == "cpu" and size > memory:
        problem = f"{count} weights of {like.dtype} take {size} bytes, and this machine has {memory}"
        raise ArgumentError(problem, hint="use smaller sizes")


def check_steps(name: str, values: Sequence[float], count: int, above: float) -> None:
    """Raise unless there is a finite number of time steps, larger than `above`, for each of `count` waves."""
    expected = f"{count} finite numbers of time steps above {above}"
    if not isinstance(values, Sequence | np.ndarray | Tensor):
        raise ArgumentTypeError(argument=name, expected=expected, got=values)
    if len(values) != count or not all(math.isfinite(value) and value > above for value in values):
        raise ArgumentError(argument=name, expected=expected, got=list(values))


def check_tensor(name: str, value: object, weight: Tensor | None = None) -> Tensor:
    """Return a tensor; raise if it is not one, or not of the weight's dtype and autocast does not convert it."""
    if not isinstance(value, Tensor):
        hint = "torch.as_tensor(...) converts arrays and lists" if isinstance(value, list | np.ndarray) else ""
        raise ArgumentTypeError(argument=name, expected="a torch.Tensor", got=type(value), hint=hint)
    if weight is None or value.dtype == weight.dtype:
        return value
    floating = value.is_floating_point()
    if floating and autocast_enabled(value.device.type) and torch.float64 not in (value.dtype, weight.dtype):
        return value
    hint = f"convert it with .to({weight.dtype})" + (f", or the module with .to({value.dtype})" if floating else "")
    raise TensorError(argument=name, expected=f"{weight.dtype} like the weights", got=value.dtype, hint=hint)


def _memory() -> int:
    """Return the bytes of this machine's memory, or as many as can be addressed where that is unknown."""
    if "SC_PHYS_PAGES" not in getattr(os, "sysconf_names", ()):
        return _ADDRESSABLE
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

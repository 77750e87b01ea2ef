"""A linear map over every step of a long sequence, chunk by chunk, into memory that is reused.

It computes what `torch.nn.functional.linear` computes, without the cost of fresh memory (see memory.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from parallelrnn.kernels.contexts import is_plain, needs_gradient
from parallelrnn.kernels.memory import LARGE, empty

_CHUNK_ROWS = 2048


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return x W' + b over the last dimension of x."""
    size = x.numel() // max(1, x.shape[-1]) * weight.shape[0] * x.element_size()
    if size < LARGE or x.device.type != "cpu" or not is_plain(x, weight, bias):
        return functional.linear(x, weight, bias)
    if needs_gradient(x, weight, bias):
        result: Tensor = _Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
        return result
    return _map(x, weight, bias)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _map(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        rows, grad_rows = x.reshape(-1, x.shape[-1]), grad.reshape(-1, grad.shape[-1])
        if torch.is_grad_enabled():  # to be differentiated again, so by differentiable operations
            return (
                grad @ weight if needs_x else None,
                grad_rows.t() @ rows if needs_weight else None,
                grad_rows.sum(0) if needs_bias else None,
            )
        grad_x = empty(*rows.shape, dtype=x.dtype) if needs_x else None
        grad_weight = torch.zeros_like(weight) if needs_weight else None
        grad_bias = weight.new_zeros(weight.shape[0]) if needs_bias else None
        for begin, end in _chunks(len(rows)):
            part = grad_rows[begin:end]
            if grad_x is not None:
                torch.mm(part, weight, out=grad_x[begin:end])
            if grad_weight is not None:
                grad_weight.addmm_(part.t(), rows[begin:end])
            if grad_bias is not None:
                grad_bias += part.sum(0)
        return None if grad_x is None else grad_x.view(x.shape), grad_weight, grad_bias


def _map(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    rows = x.reshape(-1, x.shape[-1])
    result = empty(len(rows), weight.shape[0], dtype=x.dtype)
    with torch.no_grad():
        for begin, end in _chunks(len(rows)):
            part = torch.mm(rows[begin:end], weight.t(), out=result[begin:end])
            if bias is not None:
                part += bias
    return result.view(*x.shape[:-1], weight.shape[0])


def _chunks(rows: int) -> Iterator[tuple[int, int]]:
    for begin in range(0, rows, _CHUNK_ROWS):
        yield begin, min(begin + _CHUNK_ROWS, rows)

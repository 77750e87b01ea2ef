"""Attention with many narrow heads: the plain form, which is the law, and the C kernel for heads of up to four numbers.

At a width of two, a head's scores are two multiply-adds for each pair of positions. As batched products of tiny
matrices, with a matrix of scores for every head in memory, they take many times as long.
"""

from __future__ import annotations

import ctypes
import math
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor

from parallelrnn.errors import TensorError
from parallelrnn.kernels.contexts import (
    autocast_enabled,
    is_plain,
    needs_gradient,
    needs_plain_operations,
    without_autocast,
)
from parallelrnn.kernels.library import INSTRUCTIONS, AttentionCall
from parallelrnn.kernels.memory import empty

MAX_WIDTH = 4  # of a head in the kernel: MAX_WIDTH in recurrence.h


def attention(
    q: Tensor,  # (B, N, heads * D)
    k: Tensor,  # (B, M, heads * D)
    v: Tensor,  # (B, M, heads * D)
    num_heads: int,
    ignored: Tensor | None = None,  # (B, M), true where nothing may attend
) -> Tensor:  # (B, N, heads * D)
    """Return softmax(q k' / sqrt(D)) v of each head, and zeros where there is nothing to attend to.

    Under autocast it runs in the precision of q, or in float32 if that is higher. Compilers, exporters and transforms
    of torch.func see the plain form.
    """
    if autocast_enabled(q.device.type):
        dtype = torch.promote_types(q.dtype, torch.float32)
        with without_autocast(q.device.type):
            return attention(q.to(dtype), k.to(dtype), v.to(dtype), num_heads, ignored)
    width = q.shape[-1] // max(1, num_heads)
    has_kernel = INSTRUCTIONS is not None and q.dtype in INSTRUCTIONS.attention and q.device.type == "cpu"
    if not has_kernel or width > MAX_WIDTH or needs_plain_operations() or not is_plain(q, k, v, ignored):
        return reference_attention(q, k, v, num_heads, ignored)
    q, k, v = (tensor.to(q.dtype).resolve_neg().contiguous() for tensor in (q, k, v))
    ignored = None if ignored is None else ignored.to(torch.bool).contiguous()
    if needs_gradient(q, k, v):
        result: Tensor = _Attention.apply(q, k, v, num_heads, ignored)  # type: ignore[no-untyped-call]
        return result
    return _forward(q, k, v, num_heads, ignored, training=False)[0]


def reference_attention(q: Tensor, k: Tensor, v: Tensor, num_heads: int, ignored: Tensor | None = None) -> Tensor:
    """Return the same by plain operations: the definition of correct."""
    if ignored is not None:  # zero times infinity would not be zero
        k, v = (tensor.masked_fill(ignored[..., None], 0.0) for tensor in (k, v))
    q, k, v = (tensor.unflatten(-1, (num_heads, -1)).transpose(1, 2) for tensor in (q, k, v))  # (B, heads, N, D)
    scores = q @ k.mT / math.sqrt(q.shape[-1])  # (B, heads, N, M)
    if ignored is not None:
        scores = scores.masked_fill(ignored[:, None, None], -math.inf)
        all_ignored = ignored.all(-1)[:, None, None, None]
        scores = scores.masked_fill(all_ignored, 0.0)  # or its softmax, and all gradients through it, would be NaN
        weights = scores.softmax(-1).masked_fill(all_ignored, 0.0)
    else:
        weights = scores.softmax(-1)
    return (weights @ v).transpose(1, 2).flatten(2)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, num_heads: int, ignored: Tensor | None) -> Tensor:
        output, top, inverse = _forward(q, k, v, num_heads, ignored, training=True)
        ctx.save_for_backward(q, k, v, ignored, output, top, inverse)
        ctx.num_heads = num_heads
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, ignored, output, top, inverse = ctx.saved_tensors
        create_graph = torch.is_grad_enabled()  # to be differentiated again
        if create_graph or is_legacy_batchedtensor(grad) or not is_plain(grad):
            needed = ctx.needs_input_grad[:3]
            with torch.enable_grad():
                leaves = [tensor.view_as(tensor) for tensor in (q, k, v)]
                plain = reference_attention(leaves[0], leaves[1], leaves[2], ctx.num_heads, ignored)
                inputs = [leaf for leaf, is_needed in zip(leaves, needed, strict=True) if is_needed]
            gradients = iter(torch.autograd.grad(plain, inputs, grad, create_graph=create_graph))
            return (*(next(gradients) if is_needed else None for is_needed in needed), None, None)
        call = _call(q, k, v, ctx.num_heads, ignored)
        grad = grad.resolve_neg().contiguous()
        grads = [torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)]
        call.output, call.top, call.inverse = (tensor.data_ptr() for tensor in (output, top, inverse))
        call.grad_output = grad.data_ptr()
        call.grad_q, call.grad_k, call.grad_v = (tensor.data_ptr() for tensor in grads)
        _run(call, q.dtype)
        return (*grads, None, None)


def _forward(
    q: Tensor, k: Tensor, v: Tensor, num_heads: int, ignored: Tensor | None, training: bool
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return the output, and for training the largest score and one over the sum of weights, (B, N, heads) each."""
    call = _call(q, k, v, num_heads, ignored)
    output = empty(*q.shape, dtype=q.dtype)
    call.output = output.data_ptr()
    top, inverse = (empty(*q.shape[:2], num_heads, dtype=q.dtype) if training else None for _ in range(2))
    if top is not None and inverse is not None:
        call.top, call.inverse = top.data_ptr(), inverse.data_ptr()
    _run(call, q.dtype)
    return output, top, inverse


def _call(q: Tensor, k: Tensor, v: Tensor, num_heads: int, ignored: Tensor | None) -> AttentionCall:
    for name, tensor in (("q", q), ("k", k)):
        if tensor.dim() != 3:
            raise TensorError(argument=name, expected="a tensor (batch, length, heads * D)", got=tuple(tensor.shape))
    batch, queries, size = q.shape
    keys = k.shape[1]
    if num_heads < 1 or size % num_heads or not 1 <= size // num_heads <= MAX_WIDTH:
        expected = f"{num_heads} heads of 1 to {MAX_WIDTH} numbers along the last dimension"
        raise TensorError(argument="q", expected=expected, got=tuple(q.shape))
    _check("q", q, (batch, queries, size))
    _check("k", k, (batch, keys, size))
    _check("v", v, (batch, keys, size))
    if ignored is not None:
        _check("ignored", ignored, (batch, keys))
    call = AttentionCall(batch, queries, keys, num_heads, size // num_heads, torch.get_num_threads())
    call.factor = 1 / math.sqrt(call.width)
    call.q, call.k, call.v = (tensor.data_ptr() for tensor in (q, k, v))
    call.ignored = None if ignored is None else ignored.data_ptr()
    return call


def _check(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    """Raise unless the kernel, which trusts its arguments, can take the tensor."""
    if tensor.device.type != "cpu" or tensor.shape != shape or not tensor.is_contiguous():
        expected = f"a contiguous tensor {shape} on the CPU, like q"
        raise TensorError(argument=name, expected=expected, got=(tuple(tensor.shape), tensor.device))


def _run(call: AttentionCall, dtype: torch.dtype) -> None:
    assert INSTRUCTIONS is not None, "attention() asks first"
    if INSTRUCTIONS.attention[dtype](ctypes.byref(call)):
        raise MemoryError("not enough memory for the keys and values of an attention")

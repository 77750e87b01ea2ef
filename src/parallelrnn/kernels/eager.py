"""Calls at little cost: one check of all that comes in, then the backend, without the dispatcher of torch.

Where compilers, tracers, transforms, autocast or tensor subclasses have to see an operator, and where anything does not
fit, callers go on to operators.py, which works for all of them and says what is wrong. Nothing is kept between calls.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.profiler import record_function

from parallelrnn.kernels import cpu, operators
from parallelrnn.kernels.contexts import is_eager
from parallelrnn.kernels.validation import fits
from parallelrnn.kernels.weights import Arguments, State, Stored, Weights, in_blocks


def recurrence(
    mode: str, x: Tensor, weights: Weights, state: State, lengths: Tensor | None, reverse: bool, backend: str
) -> tuple[Tensor, State] | None:
    """Run the recurrence if it can be run this way; `dispatch.recurrence` documents the arguments.

    For the C kernels, recurrent weights may also come as modules store them, (G * K * D, D), states as (1, B, K * D).
    """
    arguments = Arguments(mode, x, weights, state, lengths, reverse)
    chosen = _choose(backend, arguments)
    if not chosen or x.dim() != 3:
        return None
    output, *final = _run(chosen, arguments)
    return output, tuple(final)


def step(mode: str, x: Tensor, weights: Weights, state: State, backend: str) -> State | None:
    """Run one step over x (B, input_size) with the C kernels, likewise."""
    arguments = Arguments(mode, x, weights, state, None, False)
    if x.dim() != 2 or any(s.dim() != 2 for s in state) or _choose(backend, arguments) != "cpu":
        return None
    return _run("cpu", arguments)


def _choose(backend: str, arguments: Arguments) -> str:
    """Return the backend that can run these tensors, or an empty string."""
    _, x, weights, state, _, _ = arguments
    if not is_eager(x.device.type):
        return ""
    recurrent = weights.recurrent
    on_cpu, dtype = recurrent.is_cpu, recurrent.dtype
    if backend == "auto":
        backend = "cpu" if on_cpu else "triton" if recurrent.is_cuda else "reference"
    if backend != "cpu" and (recurrent.dim() != 4 or state[0].dim() != 2):
        return ""
    module = operators.BACKENDS.get(backend)
    if module is None or module.unsupported_reason(weights):
        return ""
    for tensor in (x, *weights, *state):
        if tensor is not None and (
            (type(tensor) is not Tensor and type(tensor) is not Parameter)
            or tensor.dtype is not dtype
            or tensor.layout is not torch.strided
            or tensor.is_cpu is not on_cpu
            or not (on_cpu or tensor.device == recurrent.device)
        ):
            return ""
    return backend if fits(arguments) else ""


def _run(backend: str, arguments: Arguments) -> tuple[Tensor, ...]:
    """Return the output, unless there is one step only, and the state."""
    if torch._C._autograd._profiler_enabled():
        with record_function(f"parallelrnn::{operators.NAMES[arguments.mode]}"):
            return _run_unnamed(backend, arguments)
    return _run_unnamed(backend, arguments)


def _run_unnamed(backend: str, arguments: Arguments) -> tuple[Tensor, ...]:
    mode, x, weights, state, lengths, reverse = arguments
    tensors = (x, *weights[:4], state[0], state[1] if len(state) > 1 else None)
    if torch.is_grad_enabled():
        for tensor in tensors:
            if tensor is not None and tensor.requires_grad:
                return _Recurrence.apply(*tensors, lengths, mode, reverse, backend)  # type: ignore[no-any-return, no-untyped-call]
    return _forward(backend, arguments, False)[0]


def _forward(backend: str, arguments: Arguments, training: bool) -> tuple[tuple[Tensor, ...], Stored]:
    if arguments.x.dim() == 2:
        return cpu.step(arguments, training)
    final, stored = operators.BACKENDS[backend].forward(arguments, training)
    return (stored.output, *final), stored


class _Recurrence(torch.autograd.Function):
    """The operators without the dispatcher."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> tuple[Tensor, ...]:
        arguments, backend = operators.unpack(args)
        results, stored = _forward(backend, arguments, True)
        ctx.save_for_backward(*args[:8], *stored)
        ctx.settings = args[8:]
        ctx.set_materialize_grads(False)  # a loss on the last state needs no gradient of zeros for every step
        return results

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        x, weight_ih, weight_hh, bias_ih, bias_hh, h_0, c_0, lengths, *stored = inputs = ctx.saved_tensors
        if x.dim() == 2:
            x, stored, grads = x.unsqueeze(0), [s if s is None else s.unsqueeze(0) for s in stored], (None, *grads)
        grad_output, *grad_state = grads
        shape = (x.shape[1], h_0.shape[-1])
        h_0, c_0, *grad_state = [s if s is None else s.reshape(shape) for s in (h_0, c_0, *grad_state)]
        saved = (x, weight_ih, in_blocks(ctx.settings[0], weight_hh), bias_ih, bias_hh, h_0, c_0, lengths, *stored)
        grads = (grad_output, *grad_state)
        results = operators.differentiate(saved, ctx.settings, ctx.needs_input_grad, grads)
        pairs = zip(results, inputs, strict=False)
        return *(None if grad is None else grad.reshape(like.shape) for grad, like in pairs), *(None,) * 4

"""The single entry to every recurrence: it picks a backend and states the rules that every backend keeps."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from parallelrnn.errors import UnavailableError, check_choice
from parallelrnn.kernels import eager, onnx, operators, reference
from parallelrnn.kernels.contexts import needs_gradient, needs_plain_operations
from parallelrnn.kernels.library import INSTRUCTIONS, LIBRARY
from parallelrnn.kernels.weights import Arguments, State, Weights

BACKENDS = ("auto", "cpu", "triton", "reference")


def check_backend(backend: str) -> str:
    """Return the name of a backend; raise if there is none of this name."""
    check_choice("backend", backend, BACKENDS)
    return backend


def recurrence(
    mode: str,
    x: Tensor,  # (T, B, input_size), T >= 1
    weights: Weights,
    state: State,  # (B, K * P), for the LSTM also (B, K * D)
    lengths: Tensor | None = None,  # (B,), on the device of x: how many steps of each sequence are real
    reverse: bool = False,  # from each sequence's last real step to its first
    backend: str = "auto",
) -> tuple[Tensor, State]:  # (T, B, K * P) and the state after the last step
    """Project the inputs of all steps and run K equal blocks over them.

    The rules: steps that are not real leave a sequence's state alone and have output zero; x must be finite there.
    The recurrence runs, and output and state come out, in the dtype of the recurrent weights: autocast may round the
    projection, but not a state that is fed back at every step. "auto" picks the fastest backend that supports the
    weights, and ONNX's operators during torch.onnx.export. A backend given by name is used, or raises.
    """
    result = eager.recurrence(mode, x, weights, state, lengths, reverse, backend)
    if result is not None:
        return result
    state = tuple(s.to(weights.recurrent.dtype) for s in state)
    chosen = choose(backend, weights)
    if chosen == "reference":
        return reference.recurrence(mode, x, weights, state, lengths, reverse)
    if chosen == "onnx":
        run = onnx.recurrence if onnx.supports(weights, lengths) else reference.recurrence
        return run(mode, x, weights, state, lengths, reverse)
    x = x.to(weights.recurrent.dtype)
    return operators.recurrence(chosen, Arguments(mode, x, weights, state, lengths, reverse))


def can_stream(backend: str, x: Tensor, layers: Sequence[Weights], state: State, *others: Tensor | None) -> bool:
    """Return whether `stream` can run these layers: in inference, on the CPU backend."""
    if choose(backend, layers[0]) != "cpu":
        return False
    return not needs_gradient(x, *state, *others, *(w for weights in layers for w in weights))


def stream(
    mode: str,
    x: Tensor,  # (T, B, input_size)
    layers: Sequence[Weights],
    state: State,  # (num_layers, B, K * D) each
    lengths: Tensor | None = None,
    aggregate: tuple[Tensor, Tensor | None] | None = None,  # weight and bias of a linear map over the last layer
) -> tuple[Tensor, State]:
    """Run all layers, in one direction, over a few steps at a time. Only where `can_stream` allows it."""
    dtype = layers[0].recurrent.dtype
    return operators.stream(mode, x.to(dtype), layers, tuple(s.to(dtype) for s in state), lengths, aggregate)


def choose(backend: str, weights: Weights) -> str:
    """Return the backend that will run these weights: the one that is named, or the fastest that supports them."""
    check_backend(backend)
    if backend == "reference":
        return "reference"
    if backend != "auto":
        reason = operators.BACKENDS[backend].unsupported_reason(weights)
        if needs_plain_operations():
            reason = "it has no forward-mode derivatives, and none within torch.func.grad"
        if reason:
            install = f", or {LIBRARY.advice}" if backend == "cpu" and INSTRUCTIONS is None else ""
            problem = f"{backend!r} cannot run this: {reason}"
            raise UnavailableError(problem, argument="backend", got=backend, hint=f"use backend='auto'{install}")
        return backend
    if torch.onnx.is_in_onnx_export():
        return "onnx"
    if not needs_plain_operations():
        for name, device in (("cpu", "cpu"), ("triton", "cuda")):
            on_device = weights.recurrent.device.type == device
            if on_device and not operators.BACKENDS[name].unsupported_reason(weights):
                return name
    if INSTRUCTIONS is None and not torch.compiler.is_compiling():
        _warn_slow()
    return "reference"


@cache
def _warn_slow() -> None:
    """Warn once that the C kernels are missing."""
    warnings.warn(
        f"{LIBRARY.problem}. Recurrences run as a loop in Python, many times slower. To change that, {LIBRARY.advice}.",
        stacklevel=2,
    )

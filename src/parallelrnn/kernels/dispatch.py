"""One entry for every recurrence, whatever computes it, and the rules that every backend keeps."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from parallelrnn.kernels import onnx, operators, reference
from parallelrnn.kernels.library import INSTRUCTIONS, LIBRARY
from parallelrnn.kernels.transforms import needs_plain_operations
from parallelrnn.kernels.weights import Arguments, State, Weights

BACKENDS = ("auto", "cpu", "triton", "reference")


def check_backend(backend: str) -> str:
    """Return the name of a backend, or say which ones there are."""
    if backend not in BACKENDS:
        raise ValueError(f"backend {backend!r} is not known; use one of {', '.join(map(repr, BACKENDS))}")
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

    The rules. Steps that are not real leave a sequence's state alone and have output zero; x has to be finite there.
    The recurrence runs, and output and state come out, in the dtype of the recurrent weights: under autocast the
    projection may round, but not a state that is fed back at every step. "auto" picks the fastest backend that can do
    it, and ONNX's operators while torch.onnx.export is at work; a named backend is used, or raises.
    """
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
    """Whether a stack of layers can be run by `stream`: in inference, by the CPU backend."""
    if choose(backend, layers[0]) != "cpu":
        return False
    return not operators.needs_gradient(x, *state, *others, *(w for weights in layers for w in weights))


def stream(
    mode: str,
    x: Tensor,  # (T, B, input_size)
    layers: Sequence[Weights],
    state: State,  # (num_layers, B, K * D) each
    lengths: Tensor | None = None,
    aggregate: tuple[Tensor, Tensor | None] | None = None,  # weight and bias of a linear map over the last layer
) -> tuple[Tensor, State]:
    """Run all layers of a stack, in one direction, over a few steps at a time; where `can_stream` says so."""
    dtype = layers[0].recurrent.dtype
    return operators.stream(mode, x.to(dtype), layers, tuple(s.to(dtype) for s in state), lengths, aggregate)


def choose(backend: str, weights: Weights) -> str:
    """The backend that will run these weights: the one that was named, or the fastest that can."""
    check_backend(backend)
    if backend == "reference":
        return "reference"
    if backend != "auto":
        problem = operators.BACKENDS[backend].problem(weights)
        if needs_plain_operations():
            problem = "it has no forward-mode derivatives, and none within torch.func.grad"
        if problem:
            raise RuntimeError(f"backend {backend!r} cannot run this: {problem}; use backend='auto'{_advice(backend)}")
        return backend
    if torch.onnx.is_in_onnx_export():
        return "onnx"
    if not needs_plain_operations():
        for name in ("cpu", "triton"):
            if _is_for(name, weights) and not operators.BACKENDS[name].problem(weights):
                return name
    if INSTRUCTIONS is None and not torch.compiler.is_compiling():
        _warn_once()
    return "reference"


def _is_for(backend: str, weights: Weights) -> bool:
    return weights.recurrent.device.type == {"cpu": "cpu", "triton": "cuda"}[backend]


def _advice(backend: str) -> str:
    return f", or {LIBRARY.advice}" if backend == "cpu" and INSTRUCTIONS is None else ""


@cache
def _warn_once() -> None:
    warnings.warn(
        f"{LIBRARY.problem}. Recurrences run as a loop in Python, many times slower. To change that, {LIBRARY.advice}; "
        "`parallelrnn doctor` tells more.",
        stacklevel=2,
    )

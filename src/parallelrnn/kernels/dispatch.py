"""One entry for every recurrence, whatever computes it, and the rules that every backend keeps."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from parallelrnn.kernels import onnx, reference
from parallelrnn.kernels.weights import State, Weights

Recurrence = Callable[[str, Tensor, Weights, State, "Tensor | None", bool], tuple[Tensor, State]]
_COMPUTED_BY: dict[str, Recurrence] = {"reference": reference.recurrence}
BACKENDS = ("auto", *_COMPUTED_BY)


def check_backend(backend: str) -> str:
    """Return the name of a backend that is there, or say which ones are."""
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
    check_backend(backend)
    state = tuple(s.to(weights.recurrent.dtype) for s in state)
    if backend == "auto" and torch.onnx.is_in_onnx_export() and onnx.supports(weights, lengths):
        return onnx.recurrence(mode, x, weights, state, lengths, reverse)
    chosen = "reference" if backend == "auto" else backend
    return _COMPUTED_BY[chosen](mode, x, weights, state, lengths, reverse)

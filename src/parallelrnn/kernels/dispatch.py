"""One entry for every recurrence, whatever computes it."""

from __future__ import annotations

import torch
from torch import Tensor

from parallelrnn.kernels import onnx, reference
from parallelrnn.kernels.weights import Weights

BACKENDS = ("auto", "reference")


def check_backend(backend: str) -> str:
    """Return the name of a backend that is there, or say which ones are."""
    if backend not in BACKENDS:
        raise ValueError(f"backend {backend!r} is not known; use one of {', '.join(map(repr, BACKENDS))}")
    return backend


def recurrence(
    mode: str,
    x: Tensor,
    weights: Weights,
    state: tuple[Tensor, ...],
    lengths: Tensor | None = None,
    reverse: bool = False,
    backend: str = "auto",
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Project the inputs of all steps and run K equal blocks over them; `reference.recurrence` says what that means."""
    if torch.onnx.is_in_onnx_export() and onnx.supports(weights, lengths):
        return onnx.recurrence(mode, x, weights, state, lengths, reverse)
    return reference.recurrence(mode, x, weights, state, lengths, reverse)

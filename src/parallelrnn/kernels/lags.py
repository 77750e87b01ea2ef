"""The last state of a linear recurrence as one matrix product.

h(T) = sum over lags l of W^l (U x(T - l) + b): where only the last state is wanted, no loop over time is needed. The
matrices W^l U of all lags are found by doubling, the first n of them times W^n being the next n.
"""

from __future__ import annotations

import torch
from torch import Tensor

from parallelrnn.kernels.weights import Weights


def last_linear_state(x: Tensor, weights: Weights) -> Tensor:
    """From zero, over x (B, T, C): (B, d)."""
    steps, inputs = x.shape[1:]
    entering = weights.input  # (d, C)
    if weights.input_bias is not None and weights.recurrent_bias is not None:
        bias = weights.input_bias + weights.recurrent_bias
        entering = torch.cat([entering, bias[:, None]], -1)
    left = _what_lags_leave(weights.recurrent[0], entering, steps)  # (T, d, C or C + 1), the latest first
    by_time = left[..., :inputs].flip(0).transpose(1, 2).reshape(steps * inputs, -1)  # (T C, d)
    state = x.reshape(len(x), -1) @ by_time
    return state if left.shape[-1] == inputs else state + left[..., -1].sum(0)


def _what_lags_leave(blocks: Tensor, entering: Tensor, steps: int) -> Tensor:
    """W^0 U, W^1 U, ..., (T, d, C), for blocks (K, D, D) and U (d, C)."""
    left: Tensor = entering.unflatten(0, blocks.shape[:2])[None]  # (1, K, D, C)
    power = blocks
    while len(left) < steps:
        if len(left) > 1:
            power = power @ power
        left = torch.cat([left, power @ left])
    return left[:steps].flatten(1, 2)

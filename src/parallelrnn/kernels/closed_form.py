"""The last state of a linear recurrence as one matrix product.

h(T) = sum over lags l of W^l (U x(T - l) + b). Where only the last state is needed, no loop over time is. The matrices
W^l U of all lags come from doubling: the first n of them times W^n are the next n.
"""

from __future__ import annotations

import torch
from torch import Tensor

from parallelrnn.kernels.weights import Weights


def last_linear_state(x: Tensor, weights: Weights) -> Tensor:
    """Return the state (B, d) after x (B, T, C), starting from zero."""
    steps, inputs = x.shape[1:]
    input_map = weights.input  # (d, C)
    if weights.input_bias is not None and weights.recurrent_bias is not None:
        bias = weights.input_bias + weights.recurrent_bias
        input_map = torch.cat([input_map, bias[:, None]], -1)
    responses = _impulse_responses(weights.recurrent[0], input_map, steps)  # (T, d, C or C + 1), the latest first
    by_time = responses[..., :inputs].flip(0).transpose(1, 2).reshape(steps * inputs, -1)  # (T C, d)
    state = x.reshape(x.shape[0], -1) @ by_time
    return state if responses.shape[-1] == inputs else state + responses[..., -1].sum(0)


def _impulse_responses(blocks: Tensor, input_map: Tensor, steps: int) -> Tensor:
    """Return W^0 U, W^1 U, ..., (T, d, C), for blocks (K, D, D) and U (d, C)."""
    responses: Tensor = input_map.unflatten(0, blocks.shape[:2])[None]  # (1, K, D, C)
    power = blocks
    while len(responses) < steps:
        if len(responses) > 1:
            power = power @ power
        responses = torch.cat([responses, power @ responses])
    return responses[:steps].flatten(1, 2)

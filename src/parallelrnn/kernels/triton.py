"""The Triton backend: one matrix product projects all steps, the programs of `triton_programs` run the recurrence.

Letters in comments: T steps, B batch, G gates, K blocks, D units in a block, d = K * D.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from parallelrnn.kernels import triton_programs
from parallelrnn.kernels.weights import GATES, Arguments, State, Stored, Weights

_BLOCK_SIZES = (1, 2, 4, 8, 16, 32)
# Lanes that backward keeps busy, at most: enough to fill a large GPU. This bounds the memory that partial sums take. It
# is the same on every device, and so is the order of summation.
_MAX_LANES = 2**17


def is_available() -> bool:
    """Return whether Triton is installed."""
    return importlib.util.find_spec("triton") is not None


def is_interpreted() -> bool:
    """Return whether Triton interprets kernels on the CPU instead of compiling them."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def unsupported_reason(weights: Weights) -> str:
    """Return why this backend cannot run these weights, or an empty string."""
    if not is_available():
        return "Triton is not installed: pip install triton"
    if weights.recurrent.device.type != "cuda" and not is_interpreted():
        return f"it is for the GPU, and the weights are on {weights.recurrent.device}"
    if weights.projection is not None:
        return "it has no projections (proj_size)"
    # Not bfloat16 or float16: a state that is fed back at every step would be rounded at every step.
    size, dtype = weights.recurrent.shape[2], weights.recurrent.dtype
    if size not in _BLOCK_SIZES or dtype not in (torch.float32, torch.float64):
        return f"it is for block sizes 1, 2, 4, 8, 16 and 32 in float32 and float64, not for {size} in {dtype}"
    return ""


def stores_gates(mode: str, weights: Weights) -> bool:
    """Return whether training stores the gates, in the memory of the projected input."""
    return len(GATES[mode]) > 1


def forward(arguments: Arguments, training: bool) -> tuple[State, Stored]:
    """Return the final state and the output, and for training what backward needs."""
    mode, x, weights, state, lengths, reverse = arguments
    projected = functional.linear(x, weights.input, weights.input_bias).contiguous()
    output, final, saved = run_forward(
        mode, projected, weights.recurrent, weights.recurrent_bias, state, lengths, reverse, training
    )
    cells, gates = (None, None, *saved)[-2:]
    return final, Stored(output, cells, gates)


def backward(
    arguments: Arguments, stored: Stored, grad_output: Tensor | None, grad_state: Sequence[Tensor | None], needs_x: bool
) -> tuple[Tensor | None, Weights, State]:
    """Return the gradients of x (if needed), of the weights and of the initial state."""
    mode, x, weights, state, lengths, reverse = arguments
    saved = tuple(tensor for tensor in stored[1:] if tensor is not None)
    recurrent = (weights.recurrent, weights.recurrent_bias)
    grad_projected, grad_recurrent, grad_recurrent_bias, grad_initial = run_backward(
        mode, grad_output, tuple(grad_state), stored.output, saved, *recurrent, state, lengths, reverse
    )
    rows = grad_projected.flatten(0, 1)  # (T * B, G * d)
    grad_input = rows.t() @ x.reshape(len(rows), -1)
    grad_bias = None if weights.input_bias is None else rows.sum(0)
    grad_x = (rows @ weights.input).view(x.shape) if needs_x else None
    return grad_x, Weights(grad_input, grad_recurrent, grad_bias, grad_recurrent_bias), grad_initial


def run_forward(
    mode: str,
    u: Tensor,  # (T, B, G * d) contiguous: the projected input, its bias included
    recurrent: Tensor,  # (G, K, D, D)
    recurrent_bias: Tensor | None,  # (G * d,)
    state: State,  # (B, d) each
    lengths: Tensor | None,  # (B,) int64
    reverse: bool,
    training: bool,
) -> tuple[Tensor, State, tuple[Tensor, ...]]:  # output (T, B, d), the state after the last step, and what is saved
    """Run K blocks over a batch of sequences, by the rules of `dispatch.recurrence`.

    In training, the LSTM saves its cells (T, B, d) and gates (T, B, 4 * d) for the backward, the GRU its gates
    (T, B, 3 * d): activated, at real steps, in the memory of u. Nothing else is saved.
    """
    triton_programs.compile_functions()
    u = u.contiguous()
    steps, batch, _ = u.shape
    gates, num_blocks, block_size, _ = recurrent.shape
    output = u.new_empty(steps, batch, num_blocks * block_size)
    cells = torch.empty_like(output) if training and mode == "LSTM" else None
    final = tuple(torch.empty_like(s, memory_format=torch.contiguous_format) for s in state)
    tensors = (u, recurrent.mT, recurrent_bias, *_h_and_c(state), lengths, output, cells, *_h_and_c(final))
    arguments = (*map(_contiguous, tensors), steps, batch, num_blocks)
    constants = {"mode": mode, "reverse": reverse, "training": training}
    _launch(triton_programs.forward_kernel, batch, recurrent, gates, *arguments, **constants)
    if not training or gates == 1:
        return output, final, ()
    return output, final, (u,) if cells is None else (cells, u)


def run_backward(
    mode: str,
    grad_output: Tensor | None,  # (T, B, d), any strides
    grad_final: tuple[Tensor | None, ...],  # (B, d) each
    output: Tensor,  # (T, B, d)
    saved: tuple[Tensor, ...],
    recurrent: Tensor,  # (G, K, D, D)
    recurrent_bias: Tensor | None,  # (G * d,)
    state: State,  # (B, d) each
    lengths: Tensor | None,  # (B,) int64
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor | None, State]:  # for u, recurrent, recurrent_bias and state
    """Return the gradients of what `run_forward` computed; every call gives the same bits."""
    triton_programs.compile_functions()
    steps, batch, hidden_size = output.shape
    gates, num_blocks, _, _ = recurrent.shape
    # A program keeps the sums for one block in a slot. S rows of K slots share the batch: each row takes every S-th
    # sequence, one after the other.
    rounds = max(1, -(-batch * hidden_size // _MAX_LANES))
    row_slots = -(-batch // rounds)
    grad_u = output.new_empty(steps, batch, gates * hidden_size)
    weight_sums = output.new_empty(row_slots, *recurrent.shape)
    bias_sums = None if recurrent_bias is None else output.new_empty(row_slots, gates * hidden_size)
    grad_state = tuple(torch.empty_like(s, memory_format=torch.contiguous_format) for s in state)
    cells, activated = saved if mode == "LSTM" else (None, *saved) if mode == "GRU" else (None, None)
    transposed = recurrent.mT if mode == "GRU" else None
    inputs = (*_h_and_c(grad_final), output, cells, activated, recurrent, transposed, recurrent_bias)
    tensors = (*inputs, *_h_and_c(state), lengths, grad_u, weight_sums, bias_sums, *_h_and_c(grad_state))
    strides = (0, 0, 0) if grad_output is None else grad_output.stride()
    arguments = (grad_output, *map(_contiguous, tensors), *strides, steps, batch, num_blocks, row_slots)
    lane_rows = 2 * gates + (mode == "GRU")
    _launch(triton_programs.backward_kernel, row_slots, recurrent, lane_rows, *arguments, mode=mode, reverse=reverse)
    return grad_u, weight_sums.sum(0), None if bias_sums is None else bias_sums.sum(0), grad_state


def _h_and_c(state: tuple[Tensor | None, ...]) -> tuple[Tensor | None, Tensor | None]:
    return (state[0], state[1]) if len(state) == 2 else (state[0], None)


def _contiguous(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.contiguous()


def _launch(kernel: Any, rows: int, recurrent: Tensor, lane_rows: int, *arguments: object, **constants: object) -> None:
    """Start a warp for every 32 units of `rows` rows, where each lane holds `lane_rows` rows of D weights or sums."""
    gates, num_blocks, block_size, _ = recurrent.shape
    # All programs lie on the first axis of the grid, the only one that may be longer than 65535.
    grid = (-(-rows * num_blocks * block_size // 32),)
    # Where weights and sums would take more than half of a lane's 255 registers, 2, 4, ... warps share the tiles.
    registers = lane_rows * block_size * recurrent.itemsize // 4
    num_warps = 2 ** ((registers - 1) // 128).bit_length()
    constants.update(gates=gates, block_size=block_size, num_warps=num_warps, enable_fp_fusion=True)
    with torch.cuda.device_of(recurrent):
        kernel[grid](*arguments, **constants)

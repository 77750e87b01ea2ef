"""The recurrence on a GPU: memory for the programs of `triton_programs`, and their launch.

Letters in comments: T steps, B batch, G gates, K blocks, D units in a block, d = K * D.
"""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import torch
from torch import Tensor

from parallelrnn.kernels import triton_programs
from parallelrnn.kernels.weights import State

# Lanes that backward keeps at work, at most: enough to fill a large GPU. This bounds the memory that partial sums take,
# and is the same on every device, so that the order of summation is.
_MAX_LANES = 2**17


def supports(recurrent: Tensor) -> bool:
    """Whether the kernels can run blocks with these recurrent weights (G, K, D, D).

    Not in bfloat16 or float16: a state that is fed back at every step would be rounded at every step.
    """
    fits = recurrent.shape[-2] == recurrent.shape[-1] and recurrent.shape[-1] in (1, 2, 4, 8, 16, 32)
    return fits and recurrent.dtype in (torch.float32, torch.float64)


def is_available() -> bool:
    """Whether Triton is installed."""
    return importlib.util.find_spec("triton") is not None


def is_interpreted() -> bool:
    """Whether Triton is told to interpret kernels, on the CPU, rather than to compile them."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def forward(
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

    When training, the LSTM saves its cells (T, B, d) and gates (T, B, 4 * d) for `backward`, the GRU its gates
    (T, B, 3 * d): activated, at real steps, in the memory of u. Nothing else is saved.
    """
    triton_programs.hand_over()
    u = u.contiguous()
    steps, batch, _ = u.shape
    gates, num_blocks, block_size, _ = recurrent.shape
    output = u.new_empty(steps, batch, num_blocks * block_size)
    cells = torch.empty_like(output) if training and mode == "LSTM" else None
    final = tuple(torch.empty_like(s, memory_format=torch.contiguous_format) for s in state)
    tensors = (u, recurrent.mT, recurrent_bias, *_h_and_c(state), lengths, output, cells, *_h_and_c(final))
    arguments = (*map(_contiguous, tensors), steps, batch, num_blocks)
    _launch(
        triton_programs.forward_kernel,
        batch,
        recurrent,
        gates,
        *arguments,
        mode=mode,
        reverse=reverse,
        training=training,
    )
    if not training or gates == 1:
        return output, final, ()
    return output, final, (u,) if cells is None else (cells, u)


def backward(
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
    """The gradients of what `forward` computed; every call gives the same bits."""
    triton_programs.hand_over()
    steps, batch, hidden_size = output.shape
    gates, num_blocks, _, _ = recurrent.shape
    # A slot is where a program keeps sums for one block. S rows of K slots share the batch: each row takes every S-th
    # sequence, one after the other.
    rounds = max(1, -(-batch * hidden_size // _MAX_LANES))
    row_slots = -(-batch // rounds)
    grad_u = output.new_empty(steps, batch, gates * hidden_size)
    weight_sums = output.new_empty(row_slots, *recurrent.shape)
    bias_sums = None if recurrent_bias is None else output.new_empty(row_slots, gates * hidden_size)
    grad_state = tuple(torch.empty_like(s, memory_format=torch.contiguous_format) for s in state)
    cells, activated = saved if mode == "LSTM" else (None, *saved) if mode == "GRU" else (None, None)
    transposed = recurrent.mT if mode == "GRU" else None
    given = (*_h_and_c(grad_final), output, cells, activated, recurrent, transposed, recurrent_bias)
    tensors = (*given, *_h_and_c(state), lengths, grad_u, weight_sums, bias_sums, *_h_and_c(grad_state))
    strides = (0, 0, 0) if grad_output is None else grad_output.stride()
    arguments = (grad_output, *map(_contiguous, tensors), *strides, steps, batch, num_blocks, row_slots)
    kept = 2 * gates + (mode == "GRU")
    _launch(triton_programs.backward_kernel, row_slots, recurrent, kept, *arguments, mode=mode, reverse=reverse)
    return grad_u, weight_sums.sum(0), None if bias_sums is None else bias_sums.sum(0), grad_state


def _h_and_c(state: tuple[Tensor | None, ...]) -> tuple[Tensor | None, Tensor | None]:
    return (state[0], state[1]) if len(state) == 2 else (state[0], None)


def _contiguous(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.contiguous()


def _launch(kernel: Any, rows: int, recurrent: Tensor, kept: int, *arguments: object, **constants: object) -> None:
    """Start a warp for every 32 units of `rows` rows, in which each lane keeps `kept` rows of D weights or sums."""
    gates, num_blocks, block_size, _ = recurrent.shape
    # All programs on the first axis of the grid, which alone may be longer than 65535.
    grid = (-(-rows * num_blocks * block_size // 32),)
    # Where what is kept would take more than half of a lane's 255 registers, 2, 4, ... warps share a program's tiles.
    registers = kept * block_size * recurrent.itemsize // 4
    num_warps = 2 ** ((registers - 1) // 128).bit_length()
    constants.update(gates=gates, block_size=block_size, num_warps=num_warps, enable_fp_fusion=True)
    with torch.cuda.device_of(recurrent):
        kernel[grid](*arguments, **constants)

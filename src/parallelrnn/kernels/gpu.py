"""The recurrence on a GPU: the projection of all steps by one matrix product, the recurrence by the Triton kernels."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torch.nn import functional

from parallelrnn.kernels import triton
from parallelrnn.kernels.weights import GATES, Arguments, State, Stored, Weights


def problem(weights: Weights) -> str:
    """Why these weights cannot be run here; empty if they can."""
    if not triton.is_available():
        return "Triton is not installed: pip install triton"
    if weights.recurrent.device.type != "cuda" and not triton.is_interpreted():
        return f"it is for the GPU, and the weights are on {weights.recurrent.device}"
    if weights.projection is not None:
        return "it has no projections (proj_size)"
    if not triton.supports(weights.recurrent):
        size, dtype = weights.recurrent.shape[2], weights.recurrent.dtype
        return f"it is for block sizes 1, 2, 4, 8, 16 and 32 in float32 and float64, not for {size} in {dtype}"
    return ""


def stores_gates(mode: str, weights: Weights) -> bool:
    """Training keeps the gates, in the memory of the projected input."""
    return len(GATES[mode]) > 1


def forward(arguments: Arguments, training: bool) -> tuple[State, Stored]:
    """The final state and the output, and for training what backward needs."""
    mode, x, weights, state, lengths, reverse = arguments
    projected = functional.linear(x, weights.input, weights.input_bias).contiguous()
    output, final, saved = triton.forward(
        mode, projected, weights.recurrent, weights.recurrent_bias, state, lengths, reverse, training
    )
    cells, gates = (None, None, *saved)[-2:]
    return final, Stored(output, cells, gates)


def backward(
    arguments: Arguments,
    stored: Stored,
    grad_output: Tensor | None,
    grad_state: Sequence[Tensor | None],
    needs_x: bool,
) -> tuple[Tensor | None, Weights, State]:
    """The gradients of x (if needed), of the weights and of the initial state."""
    mode, x, weights, state, lengths, reverse = arguments
    saved = tuple(tensor for tensor in stored[1:] if tensor is not None)
    grad_projected, grad_recurrent, grad_recurrent_bias, grad_initial = triton.backward(
        mode,
        grad_output,
        tuple(grad_state),
        stored.output,
        saved,
        weights.recurrent,
        weights.recurrent_bias,
        state,
        lengths,
        reverse,
    )
    rows = grad_projected.flatten(0, 1)  # (T * B, G * d)
    grad_input = rows.t() @ x.reshape(len(rows), -1)
    grad_bias = None if weights.input_bias is None else rows.sum(0)
    grad_x = (rows @ weights.input).view(x.shape) if needs_x else None
    return grad_x, Weights(grad_input, grad_recurrent, grad_bias, grad_recurrent_bias), grad_initial

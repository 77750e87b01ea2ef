"""The recurrence as two Triton kernels, one for values and one for gradients, both with the loop over time inside.

A lane is one unit of one block of one sequence. A program is a warp of 32 lanes: P = 32 / D pairs of a sequence and a
block, in tiles (P, D), whose states and weights stay in registers through all steps. A unit reads the other units of
its block as a transposed tile that crosses lanes, never through global memory, so the compiler orders it: one shuffle
for D = 2, and for larger D a trip through shared memory with its barriers (Triton 3.9; more shuffles in older ones).
Sums over a block run inside a lane. Blocks do not see each other, so programs need not either.

The equations of the gates are `_lstm_step` and `_gru_step`, with `_lstm_gradients` and `_gru_gradients`.

Letters in comments: T steps, B batch, G gates, K blocks, D units in a block, d = K * D.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from parallelrnn.errors import MissingPackageError

if TYPE_CHECKING:
    import triton.language as tl  # type: ignore[import-untyped, import-not-found, unused-ignore]

_TRITON_FUNCTIONS: list[Callable[..., Any]] = []


def _triton(function: Callable[..., Any]) -> Any:
    """Mark a function for Triton, which compiles it at the first call: importing this file must not import Triton."""
    _TRITON_FUNCTIONS.append(function)
    return function


@cache
def compile_functions() -> None:
    """Hand all marked functions to Triton, once."""
    try:
        triton = importlib.import_module("triton")
    except ModuleNotFoundError as error:
        raise MissingPackageError("backend 'triton' needs the package triton", hint="pip install triton") from error
    globals()["tl"] = triton.language
    for function in _TRITON_FUNCTIONS:
        # Without specialisation by size, one compiled kernel serves batches and sequences of all sizes.
        sizes = [name for name, annotation in function.__annotations__.items() if annotation == "tl.int64"]
        globals()[function.__name__] = triton.jit(function, do_not_specialize=sizes)


# Triton reads the code from here on. T * B * G * d exceeds 2^31 in practice, so sizes and strides are always 64-bit,
# and a program's number becomes 64-bit before anything is computed from it. Literals have to be exact in float32, to
# which Triton rounds them even next to float64.


@_triton
def forward_kernel(
    u: tl.tensor,  # (T, B, G, K, D)
    transposed: tl.tensor,  # (G, K, D, D), the unit that is computed on the last axis
    bias: tl.tensor,  # (G, K, D)
    h_0: tl.tensor,  # (B, K, D), as every state
    c_0: tl.tensor,
    lengths: tl.tensor,  # (B,)
    output: tl.tensor,  # (T, B, K, D)
    cells: tl.tensor,  # (T, B, K, D)
    h_n: tl.tensor,
    c_n: tl.tensor,
    steps: tl.int64,
    batch: tl.int64,
    num_blocks: tl.int64,
    mode: tl.constexpr,
    gates: tl.constexpr,
    block_size: tl.constexpr,
    reverse: tl.constexpr,
    training: tl.constexpr,
) -> None:
    """Compute outputs at all steps, and what backward needs."""
    pairs: tl.constexpr = 32 // block_size
    pair = tl.program_id(0).to(tl.int64) * pairs + tl.arange(0, pairs)[:, None]  # (P, 1)
    row, block = pair // num_blocks, pair % num_blocks
    inside = row < batch
    length = _length(lengths, row, steps, inside)

    width = num_blocks * block_size
    in_gate = block * block_size + tl.arange(0, block_size)[None, :]  # a unit's place in (K, D)
    in_step = row * width + in_gate  # and in (B, K, D)
    in_weights, gate_size = _in_weights(block, block_size), width * block_size
    w_0 = tl.load(transposed + in_weights)
    b_0 = 0 if bias is None else tl.load(bias + in_gate)
    if gates > 1:
        w_1 = tl.load(transposed + in_weights + gate_size)
        w_2 = tl.load(transposed + in_weights + 2 * gate_size)
        b_1 = 0 if bias is None else tl.load(bias + in_gate + width)
        b_2 = 0 if bias is None else tl.load(bias + in_gate + 2 * width)
    if mode == "LSTM":
        w_3 = tl.load(transposed + in_weights + 3 * gate_size)
        b_3 = 0 if bias is None else tl.load(bias + in_gate + 3 * width)
        c = tl.load(c_0 + in_step, mask=inside, other=0)
    h = tl.load(h_0 + in_step, mask=inside, other=0)

    for step in tl.range(0, steps, num_stages=3):  # while one step is computed, the next two are being loaded
        t = steps - 1 - step if reverse else step
        real = t < length
        in_u = (t * batch + row) * gates * width + in_gate  # (T, B, G, K, D) at the first gate
        u_0, r_0 = tl.load(u + in_u, mask=real, other=0), _product(w_0, h) + b_0
        if gates > 1:
            u_1, r_1 = tl.load(u + in_u + width, mask=real, other=0), _product(w_1, h) + b_1
            u_2, r_2 = tl.load(u + in_u + 2 * width, mask=real, other=0), _product(w_2, h) + b_2
        if mode == "LSTM":
            u_3, r_3 = tl.load(u + in_u + 3 * width, mask=real, other=0), _product(w_3, h) + b_3

        if mode == "LSTM":
            a_0, a_1, a_2, a_3, h_new, c_new = _lstm_step(u_0 + r_0, u_1 + r_1, u_2 + r_2, u_3 + r_3, c)
            c = tl.where(real, c_new, c)
        elif mode == "GRU":
            a_0, a_1, a_2, h_new = _gru_step(u_0 + r_0, u_1 + r_1, u_2, r_2, h)
        else:
            h_new = _activation(u_0 + r_0, mode)
        h = tl.where(real, h_new, h)

        tl.store(output + t * batch * width + in_step, tl.where(real, h_new, 0), mask=inside)
        if training and gates > 1:
            tl.store(u + in_u, a_0, mask=real)
            tl.store(u + in_u + width, a_1, mask=real)
            tl.store(u + in_u + 2 * width, a_2, mask=real)
        if training and mode == "LSTM":
            tl.store(u + in_u + 3 * width, a_3, mask=real)
            tl.store(cells + t * batch * width + in_step, c, mask=inside)

    tl.store(h_n + in_step, h, mask=inside)
    if mode == "LSTM":
        tl.store(c_n + in_step, c, mask=inside)


@_triton
def backward_kernel(
    grad_output: tl.tensor,  # (T, B, K * D), its strides below
    grad_h_n: tl.tensor,
    grad_c_n: tl.tensor,
    output: tl.tensor,  # (T, B, K, D)
    cells: tl.tensor,  # (T, B, K, D)
    activated: tl.tensor,  # (T, B, G, K, D)
    recurrent: tl.tensor,  # (G, K, D, D), the unit that is read on the last axis
    transposed: tl.tensor,
    bias: tl.tensor,  # (G, K, D)
    h_0: tl.tensor,
    c_0: tl.tensor,
    lengths: tl.tensor,  # (B,)
    grad_u: tl.tensor,  # (T, B, G, K, D)
    weight_sums: tl.tensor,  # (S, G, K, D, D)
    bias_sums: tl.tensor,  # (S, G, K, D)
    grad_h_0: tl.tensor,
    grad_c_0: tl.tensor,
    stride_step: tl.int64,
    stride_row: tl.int64,
    stride_column: tl.int64,
    steps: tl.int64,
    batch: tl.int64,
    num_blocks: tl.int64,
    row_slots: tl.int64,  # S
    mode: tl.constexpr,
    gates: tl.constexpr,
    block_size: tl.constexpr,
    reverse: tl.constexpr,
) -> None:
    """Compute the gradients of the inputs, the weights and the initial state."""
    pairs: tl.constexpr = 32 // block_size
    slot = tl.program_id(0).to(tl.int64) * pairs + tl.arange(0, pairs)[:, None]  # (P, 1)
    row_slot, block = slot // num_blocks, slot % num_blocks
    width = num_blocks * block_size
    in_gate = block * block_size + tl.arange(0, block_size)[None, :]  # a unit's place in (K, D)

    in_weights, gate_size = _in_weights(block, block_size), width * block_size
    w_0 = tl.load(recurrent + in_weights)
    dw_0, db_0 = tl.zeros_like(w_0), tl.zeros((pairs, block_size), w_0.dtype)
    if gates > 1:
        w_1 = tl.load(recurrent + in_weights + gate_size)
        w_2 = tl.load(recurrent + in_weights + 2 * gate_size)
        dw_1, db_1, dw_2, db_2 = dw_0, db_0, dw_0, db_0
    if mode == "LSTM":
        w_3 = tl.load(recurrent + in_weights + 3 * gate_size)
        dw_3, db_3 = dw_0, db_0
    if mode == "GRU":
        w_new = tl.load(transposed + in_weights + 2 * gate_size)
        b_new = 0 if bias is None else tl.load(bias + in_gate + 2 * width)

    for first_row in range(0, batch, row_slots):
        row = first_row + row_slot
        inside = (row_slot < row_slots) & (row < batch)
        length = _length(lengths, row, steps, inside)
        in_step = row * width + in_gate  # a unit's place in (B, K, D)
        h_start = tl.load(h_0 + in_step, mask=inside, other=0)
        dh = tl.zeros_like(h_start)
        if grad_h_n is not None:
            dh += tl.load(grad_h_n + in_step, mask=inside, other=0)
        if mode == "LSTM":
            c_start = tl.load(c_0 + in_step, mask=inside, other=0)
            dc = tl.zeros_like(c_start)
            if grad_c_n is not None:
                dc += tl.load(grad_c_n + in_step, mask=inside, other=0)

        for step in tl.range(0, steps, num_stages=3):
            t = step if reverse else steps - 1 - step
            before = t + 1 if reverse else t - 1
            real = t < length
            # False at the first step. Zeros are a tile: the interpreter does not broadcast a scalar comparison.
            follows = real & (before >= tl.zeros_like(length)) & (before < length)
            h = tl.load(output + before * batch * width + in_step, mask=follows, other=0)
            h = tl.where(follows, h, h_start)
            if grad_output is not None:
                at = t * stride_step + row * stride_row + in_gate * stride_column
                dh += tl.load(grad_output + at, mask=real, other=0)
            dh_t = tl.where(real, dh, 0)  # zero at steps that are not real, and so is all that follows from it

            in_u = (t * batch + row) * gates * width + in_gate  # (T, B, G, K, D) at the first gate
            if gates > 1:
                a_0 = tl.load(activated + in_u, mask=real, other=0)
                a_1 = tl.load(activated + in_u + width, mask=real, other=0)
                a_2 = tl.load(activated + in_u + 2 * width, mask=real, other=0)
            if mode == "LSTM":
                a_3 = tl.load(activated + in_u + 3 * width, mask=real, other=0)
                c = tl.load(cells + before * batch * width + in_step, mask=follows, other=0)
                c = tl.where(follows, c, c_start)
                d_0, d_1, d_2, d_3, dc_new = _lstm_gradients(dh_t, tl.where(real, dc, 0), a_0, a_1, a_2, a_3, c)
                dc = tl.where(real, dc_new, dc)
                du_2 = d_2
                dh_new = _product(w_3, d_3)
            elif mode == "GRU":
                d_0, d_1, du_2, d_2, dh_new = _gru_gradients(dh_t, a_0, a_1, a_2, _product(w_new, h) + b_new, h)
            else:
                h_t = tl.load(output + t * batch * width + in_step, mask=real, other=0)
                d_0, dh_new = dh_t * _activation_slope(h_t, mode), tl.zeros_like(dh)
            dh_new += _product(w_0, d_0)
            if gates > 1:
                dh_new += _product(w_1, d_1) + _product(w_2, d_2)
            dh = tl.where(real, dh_new, dh)

            tl.store(grad_u + in_u, d_0, mask=inside)
            dw_0, db_0 = dw_0 + _outer(d_0, h), db_0 + d_0
            if gates > 1:
                tl.store(grad_u + in_u + width, d_1, mask=inside)
                tl.store(grad_u + in_u + 2 * width, du_2, mask=inside)
                dw_1, db_1 = dw_1 + _outer(d_1, h), db_1 + d_1
                dw_2, db_2 = dw_2 + _outer(d_2, h), db_2 + d_2
            if mode == "LSTM":
                tl.store(grad_u + in_u + 3 * width, d_3, mask=inside)
                dw_3, db_3 = dw_3 + _outer(d_3, h), db_3 + d_3

        tl.store(grad_h_0 + in_step, dh, mask=inside)
        if mode == "LSTM":
            tl.store(grad_c_0 + in_step, dc, mask=inside)

    in_batch = row_slot < row_slots
    in_bias = row_slot * gates * width + in_gate
    in_weights = _in_weights(row_slot * gates * num_blocks + block, block_size)
    tl.store(weight_sums + in_weights, dw_0, mask=in_batch[None, :, :])
    if gates > 1:
        tl.store(weight_sums + in_weights + gate_size, dw_1, mask=in_batch[None, :, :])
        tl.store(weight_sums + in_weights + 2 * gate_size, dw_2, mask=in_batch[None, :, :])
    if mode == "LSTM":
        tl.store(weight_sums + in_weights + 3 * gate_size, dw_3, mask=in_batch[None, :, :])
    if bias_sums is not None:
        tl.store(bias_sums + in_bias, db_0, mask=in_batch)
        if gates > 1:
            tl.store(bias_sums + in_bias + width, db_1, mask=in_batch)
            tl.store(bias_sums + in_bias + 2 * width, db_2, mask=in_batch)
        if mode == "LSTM":
            tl.store(bias_sums + in_bias + 3 * width, db_3, mask=in_batch)


@_triton
def _lstm_step(i: tl.tensor, f: tl.tensor, g: tl.tensor, o: tl.tensor, c: tl.tensor) -> tuple[tl.tensor, ...]:
    """Return the gates, h and c, from the pre-activations and the previous c."""
    i, f, g, o = _sigmoid(i), _sigmoid(f), _tanh(g), _sigmoid(o)
    c = f * c + i * g
    return i, f, g, o, o * _tanh(c), c


@_triton
def _lstm_gradients(
    dh: tl.tensor, dc: tl.tensor, i: tl.tensor, f: tl.tensor, g: tl.tensor, o: tl.tensor, c: tl.tensor
) -> tuple[tl.tensor, ...]:
    """Return the gradients of the four pre-activations and of the previous c, from those of h and c."""
    tanh_c = _tanh(f * c + i * g)
    dc += dh * o * (1 - tanh_c * tanh_c)
    return dc * g * i * (1 - i), dc * c * f * (1 - f), dc * i * (1 - g * g), dh * tanh_c * o * (1 - o), dc * f


@_triton
def _gru_step(r: tl.tensor, z: tl.tensor, u_n: tl.tensor, r_n: tl.tensor, h: tl.tensor) -> tuple[tl.tensor, ...]:
    """Return the gates and h, from the pre-activations (that of n in two parts, u_n and r_n) and the previous h."""
    r, z = _sigmoid(r), _sigmoid(z)  # r is the reset gate, z the update gate
    n = _tanh(u_n + r * r_n)
    return r, z, n, (1 - z) * n + z * h


@_triton
def _gru_gradients(
    dh: tl.tensor, r: tl.tensor, z: tl.tensor, n: tl.tensor, r_n: tl.tensor, h: tl.tensor
) -> tuple[tl.tensor, ...]:
    """Return the gradients of the pre-activations of r and z, of u_n and r_n, and of the previous h through z only."""
    du_n = dh * (1 - z) * (1 - n * n)
    return du_n * r_n * r * (1 - r), dh * (h - n) * z * (1 - z), du_n, du_n * r, dh * z


@_triton
def _activation(x: tl.tensor, mode: tl.constexpr) -> tl.tensor:
    if mode == "RNN_TANH":
        x = _tanh(x)
    elif mode == "RNN_SIGMOID":
        x = _sigmoid(x)
    elif mode == "RNN_RELU":
        x = tl.where(x < 0, 0, x)  # keeps NaN, as torch does
    return x


@_triton
def _activation_slope(h: tl.tensor, mode: tl.constexpr) -> tl.tensor:
    """Return the derivative of an activation, from its value."""
    slope = tl.full(h.shape, 1, h.dtype)
    if mode == "RNN_TANH":
        slope = 1 - h * h
    elif mode == "RNN_SIGMOID":
        slope = h * (1 - h)
    elif mode == "RNN_RELU":
        slope = tl.where(h <= 0, 0, slope)
    return slope


@_triton
def _sigmoid(x: tl.tensor) -> tl.tensor:
    e = tl.exp(-tl.abs(x))  # at most one, so nothing overflows
    return tl.where(x < 0, e, 1) / (1 + e)


@_triton
def _tanh(x: tl.tensor) -> tl.tensor:
    """Return tanh to a few units in the last place, which (1 - e) / (1 + e) alone does not reach near zero.

    The polynomials are Lambert's continued fraction x / (1 + x^2 / (3 + x^2 / (5 + ...))), cut after 13. Below 1/2 that
    leaves a relative error of x^14 / (13!!^2 * 15), at most 2e-16.
    """
    small = tl.minimum(tl.abs(x), 0.5)
    s = small * small
    e = tl.exp(-2 * tl.abs(x))
    above = tl.where(small < 0.5, small * (135135 + s * (17325 + s * (378 + s))), 1 - e)
    below = tl.where(small < 0.5, 135135 + s * (62370 + s * (3150 + s * 28)), 1 + e)
    return tl.where(x < 0, -above, above) / below


@_triton
def _length(lengths: tl.tensor, row: tl.tensor, steps: tl.tensor, inside: tl.tensor) -> tl.tensor:
    """Return how many steps are real, zero for rows outside the batch: a tile (P, 1) even where all are equal."""
    return tl.where(inside, steps, 0) if lengths is None else tl.load(lengths + row, mask=inside, other=0)


@_triton
def _product(w: tl.tensor, h: tl.tensor) -> tl.tensor:
    """Return W h of each block, for w (D, P, D) with the summed axis first, which lies inside a lane."""
    return tl.sum(w * tl.trans(h)[:, :, None], axis=0)


@_triton
def _outer(d: tl.tensor, h: tl.tensor) -> tl.tensor:  # (D, P, D)
    return tl.trans(d)[:, :, None] * h[None, :, :]


@_triton
def _in_weights(matrix: tl.tensor, block_size: tl.constexpr) -> tl.tensor:  # (P, 1) -> (D, P, D)
    """Return the offsets of the weights of P blocks, given the blocks' numbers in a stack of (D, D)."""
    unit = tl.arange(0, block_size)
    return (matrix[None, :, :] * block_size + unit[:, None, None]) * block_size + unit[None, None, :]

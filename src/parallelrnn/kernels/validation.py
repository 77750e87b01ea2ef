"""Validation of what reaches a kernel: tensors by number, shape, dtype, device and layout.

Anybody can call an operator with any tensors, and a kernel trusts the shapes that it is given: with wrong ones it would
read and write memory that is not its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from parallelrnn.errors import TensorError, check_choice
from parallelrnn.kernels.weights import GATES, NUM_STATES, Arguments, State, Stored, Weights


def check_arguments(arguments: Arguments) -> None:
    """Raise unless the tensors make up a recurrence."""
    mode, x, weights, state, lengths, _ = arguments
    width = _check_weights(mode, weights)
    _check_input(x, weights)
    _check_state(mode, state, (x.shape[1], width), weights)
    _check_lengths(lengths, x)


def fits(arguments: Arguments) -> bool:
    """Return whether plain tensors of one dtype and device make up a recurrence, in less time than `check_arguments`.

    The recurrent weights may also come as modules store them, (G * K * D, D), and states as (1, B, K * D).
    """
    mode, x, (weight_ih, recurrent, bias_ih, bias_hh, _), state, lengths, _ = arguments
    if mode not in GATES or weight_ih.dim() != 2 or recurrent.dim() < 2 or x.dim() < 2:
        return False
    gates, size, rows = len(GATES[mode]), recurrent.shape[-1], weight_ih.shape[0]
    *_, batch, inputs = x.shape
    if size == 0 or rows == 0 or rows % (gates * size) or len(state) != NUM_STATES[mode]:
        return False
    width = rows // gates
    if recurrent.shape != (rows, size) and recurrent.shape != (gates, width // size, size, size):
        return False
    if weight_ih.shape[1] != inputs:
        return False
    for bias in (bias_ih, bias_hh):
        if bias is not None and bias.shape != (rows,):
            return False
    for s in state:
        if s.shape != (batch, width) and s.shape != (1, batch, width):
            return False
    return lengths is None or (
        lengths.shape == (batch,)
        and lengths.dtype == torch.int64
        and lengths.device == x.device
        and lengths.layout == torch.strided
    )


def check_stack(
    mode: str,
    x: Tensor,
    layers: Sequence[Weights],
    state: State,
    lengths: Tensor | None,
    aggregate: tuple[Tensor, Tensor | None] | None,
) -> None:
    """Raise unless the tensors make up layers of which each takes the output of the one before."""
    if not layers:
        raise TensorError(argument="layers", expected="the weights of at least one layer", got=[])
    width = _check_weights(mode, layers[0])
    for weights in layers[1:]:
        _check_weights(mode, weights)
        check_tensor("recurrent", weights.recurrent, layers[0].recurrent.shape, layers[0].recurrent)
        check_tensor("input", weights.input, (weights.input.shape[0], width), layers[0].recurrent)
    _check_input(x, layers[0])
    _check_state(mode, state, (len(layers), x.shape[1], width), layers[0])
    _check_lengths(lengths, x)
    if aggregate is not None:
        weight, bias = aggregate
        _check_rank("aggregate weight", weight, "(features, K * D)", 2)
        check_tensor("aggregate weight", weight, (weight.shape[0], width), layers[0].recurrent)
        if bias is not None:
            check_tensor("aggregate bias", bias, (weight.shape[0],), layers[0].recurrent)


def check_stored(
    arguments: Arguments, stored: Stored, grad_output: Tensor | None, grad_state: Sequence[Tensor | None]
) -> None:
    """Raise unless forward can have stored these tensors, and the gradients are those of its results."""
    _, x, weights, state, _, _ = arguments
    gates, num_blocks, block_size, _ = weights.recurrent.shape
    width = num_blocks * block_size
    by_step = {"output": (stored.output, width), "cells": (stored.cells, width), "gates": (stored.gates, gates * width)}
    for name, (tensor, columns) in {**by_step, "grad_output": (grad_output, width)}.items():
        if tensor is not None:
            check_tensor(name, tensor, (*x.shape[:2], columns), weights.recurrent)
    for grad, s in zip(grad_state, state, strict=True):
        if grad is not None:
            check_tensor("grad_state", grad, s.shape, s)


def check_tensor(
    name: str, tensor: Tensor, shape: Sequence[int], like: Tensor, dtype: torch.dtype | None = None
) -> None:
    """Raise unless the tensor is dense, of this shape, and has the dtype and the device of `like`."""
    expected = (dtype or like.dtype, tuple(shape), like.device, torch.strided)
    got = (tensor.dtype, tuple(tensor.shape), tensor.device, tensor.layout)
    if got != expected:
        raise TensorError(argument=name, expected=str(expected), got=got)


def _check_weights(mode: str, weights: Weights) -> int:
    """Return the width K * D of a layer whose weights fit each other."""
    check_choice("mode", mode, GATES)
    gates, recurrent = len(GATES[mode]), weights.recurrent
    _check_rank("recurrent", recurrent, "(G, K, D, D)", 4)
    _check_rank("input", weights.input, "(G * K * D, input_size)", 2)
    _, num_blocks, block_size, _ = recurrent.shape
    if num_blocks * block_size == 0:
        expected = "(G, K, D, D) with at least one block of at least one unit"
        raise TensorError(argument="recurrent", expected=expected, got=tuple(recurrent.shape))
    rows = gates * num_blocks * block_size
    check_tensor("recurrent", recurrent, (gates, num_blocks, block_size, block_size), recurrent)
    check_tensor("input", weights.input, (rows, weights.input.shape[1]), recurrent)
    for name, bias in (("input_bias", weights.input_bias), ("recurrent_bias", weights.recurrent_bias)):
        if bias is not None:
            check_tensor(name, bias, (rows,), recurrent)
    return num_blocks * block_size


def _check_input(x: Tensor, weights: Weights) -> None:
    _check_rank("x", x, "(T, B, input_size)", 3)
    check_tensor("x", x, (*x.shape[:2], weights.input.shape[1]), weights.recurrent)


def _check_state(mode: str, state: State, shape: tuple[int, ...], weights: Weights) -> None:
    if len(state) != NUM_STATES[mode]:
        raise TensorError(argument="state", expected=f"{NUM_STATES[mode]} tensors for {mode}", got=len(state))
    for s in state:
        check_tensor("state", s, shape, weights.recurrent)


def _check_lengths(lengths: Tensor | None, x: Tensor) -> None:
    if lengths is not None:
        check_tensor("lengths", lengths, (x.shape[1],), x, torch.int64)


def _check_rank(name: str, tensor: Tensor, shape: str, rank: int) -> None:
    if tensor.dim() != rank:
        raise TensorError(argument=name, expected=f"a tensor {shape}", got=tuple(tensor.shape))

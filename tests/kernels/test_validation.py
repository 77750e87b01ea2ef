"""Operators called directly with any tensors: they compute the right result or raise, and touch no foreign memory.

`stress/sanitizers.py` runs these tests with a library that watches every memory access.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from parallelrnn import ParaGRU
from parallelrnn.errors import ArgumentError, TensorError, UnavailableError
from parallelrnn.kernels import GATES, Weights, recurrence, stream
from parallelrnn.kernels.attention import attention, reference_attention
from parallelrnn.kernels.library import INSTRUCTIONS
from tests.kernels.cases import Case
from tests.support import raises

MODES = list(GATES)
TENSORS = ("x", "weight_ih", "weight_hh", "bias_ih", "bias_hh", "h_0", "c_0", "lengths")
pytestmark = pytest.mark.skipif(INSTRUCTIONS is None, reason="there are no C kernels")


def operator(mode: str, suffix: str = "") -> Any:
    return getattr(torch.ops.parallelrnn, mode.split("_")[0].lower() + suffix)


def arguments(mode: str, block_size: int = 2, inputs: int = 3, dtype: torch.dtype = torch.float64) -> dict[str, Any]:
    """Those of an operator, by name: 7 steps of 5 sequences, 3 blocks."""
    case = Case(mode=mode, block_size=block_size, dtype=dtype, inputs=inputs, packed=True)
    x, weights, state, lengths = case.tensors()
    tensors = (x, *weights[:4], state[0], state[1] if len(state) > 1 else None, lengths)
    named = {name: None if t is None else t.detach() for name, t in zip(TENSORS, tensors, strict=True)}
    return {**named, "mode": mode, "reverse": False, "backend": "cpu"}


def forward(args: dict[str, Any]) -> tuple[Tensor, ...]:
    results: tuple[Tensor, ...] = operator(args["mode"])(*args.values(), True)
    return results


def backward_arguments(args: dict[str, Any]) -> dict[str, Any]:
    output, h_n, c_n, cells, gates = forward(args)
    grads = {"grad_output": output, "grad_h_n": h_n, "grad_c_n": c_n if c_n.numel() else None}
    return {**grads, **args, "output": output, "cells": cells, "gates": gates}


def backward(args: dict[str, Any]) -> tuple[Tensor, ...]:
    results: tuple[Tensor, ...] = operator(args["mode"], "_backward")(*args.values(), True)
    return results


def stream_arguments(args: dict[str, Any]) -> dict[str, Any]:
    """One layer with an aggregate of four features."""
    lists = {name: [args[name]] for name in TENSORS[1:5]}
    states = {name: None if args[name] is None else args[name][None] for name in ("h_0", "c_0")}
    width = args["h_0"].shape[1]
    aggregate = {"aggregate_weight": torch.randn(4, width).double(), "aggregate_bias": torch.randn(4).double()}
    return {"x": args["x"], **lists, **states, "lengths": args["lengths"], **aggregate, "mode": args["mode"]}


def run_stream(args: dict[str, Any]) -> tuple[Tensor, ...]:
    results: tuple[Tensor, ...] = torch.ops.parallelrnn.stream(*args.values())
    return results


def wrong(name: str, tensor: Tensor) -> list[Tensor]:
    """The tensor as it must not be: longer, shorter or empty along a dimension, of another rank, dtype or layout."""
    changed = []
    for dim in range(tensor.dim()):
        if (name, dim) not in (("x", 0), ("aggregate_weight", 0)):  # any number of steps, of features
            sizes = ((1, tensor.shape[dim] - 1), (0, 0))
            changed += [torch.cat([tensor, tensor], dim), *(tensor.narrow(dim, *size) for size in sizes)]
    changed += [tensor[None], tensor[..., None], tensor.sum()]
    changed += [tensor.to(dtype) for dtype in (torch.float32, torch.bfloat16, torch.int32, torch.complex128)]
    return [*changed, tensor.to_sparse()]


@pytest.mark.parametrize("mode", ["RNN_TANH", "LSTM", "GRU"])
@pytest.mark.parametrize(("block_size", "inputs"), [(2, 3), (2, 12), (20, 3)])
@pytest.mark.parametrize(
    ("prepare", "run"),
    [(dict, forward), (backward_arguments, backward), (stream_arguments, run_stream)],
    ids=["forward", "backward", "stream"],
)
def test_no_tensor_that_does_not_fit_is_taken(
    mode: str, block_size: int, inputs: int, prepare: Callable[..., Any], run: Callable[..., Any]
) -> None:
    args = prepare(arguments(mode, block_size, inputs))
    run(args)  # as it is, it fits
    for name, value in args.items():
        in_list = isinstance(value, list)
        tensor = value[0] if in_list else value
        if not isinstance(tensor, Tensor) or not tensor.numel():
            continue
        for other in wrong(name, tensor):
            with pytest.raises((TensorError, UnavailableError)):
                run({**args, name: [other] if in_list else other})


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("block_size", "inputs"), [(2, 3), (3, 12), (20, 3)])
def test_how_tensors_lie_in_memory_changes_nothing(mode: str, block_size: int, inputs: int) -> None:
    """Every argument with gaps, turned around, or with its sign to be turned on reading."""

    def lies(tensor: Tensor, how: str) -> Tensor:
        if how == "negated":
            return torch._neg_view(-tensor)
        if how == "turned":
            return tensor.permute(*reversed(range(tensor.dim()))).contiguous().permute(*reversed(range(tensor.dim())))
        return torch.stack([tensor, tensor], -1)[..., 0]

    args = arguments(mode, block_size, inputs)
    for prepare, run in ((dict, forward), (backward_arguments, backward), (stream_arguments, run_stream)):
        plain = prepare(args)
        expected = run(plain)
        for how in ("gaps", "turned", "negated"):
            laid = {
                name: lies(value, how)
                if isinstance(value, Tensor)
                else [lies(part, how) for part in value]
                if isinstance(value, list)
                else value
                for name, value in plain.items()
            }
            for ours, theirs in zip(run(laid), expected, strict=True):
                torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-13)  # products of another memory order


def test_missing_and_additional_tensors_are_rejected() -> None:
    lstm, gru = arguments("LSTM"), arguments("GRU")
    for argument, got, call in (
        ("state", 1, lambda: forward({**lstm, "c_0": None})),
        ("state", 2, lambda: forward({**gru, "c_0": gru["h_0"]})),
        ("layers", [2, 1, 2, 2], lambda: run_stream({**_layers(gru), "weight_hh": [gru["weight_hh"]]})),
        ("layers", [], lambda: run_stream({**_layers(gru), **{name: [] for name in TENSORS[1:5]}})),
    ):
        with raises(TensorError, argument=argument, got=got):
            call()
    with raises(TensorError, "(4, 3, 2, 2)", "(3, 3, 2, 2)", argument="recurrent"):
        forward({**lstm, "weight_hh": gru["weight_hh"]})
    with raises(TensorError, argument="input"):
        run_stream({**_layers(gru), "weight_ih": [gru["weight_ih"]] * 2})
    with raises(UnavailableError, torch.bfloat16, argument="backend", got="cpu"):
        forward(arguments("GRU", dtype=torch.bfloat16))
    for name, value in (("mode", "ELMAN"), ("backend", "reference")):
        with raises(ArgumentError, argument=name, got=value):
            torch.ops.parallelrnn.gru(*{**gru, name: value}.values(), True)


def test_plain_calls_are_validated_too() -> None:
    x, weights, state, lengths = Case(mode="GRU", dtype=torch.float32, packed=True).tensors()
    double = torch.ones(18).double()
    for argument, call in (
        ("x", lambda: recurrence("GRU", x[..., :2], weights, state)),
        ("x", lambda: ParaGRU(3, 8)(torch.empty(5, 2, 3, device="meta"))),
        ("state", lambda: recurrence("GRU", x, weights, (state[0][:3],))),
        ("lengths", lambda: recurrence("GRU", x, weights, state, lengths.int())),
        ("input_bias", lambda: recurrence("GRU", x, weights._replace(input_bias=x[0, 0]), state)),
        ("recurrent_bias", lambda: recurrence("GRU", x, weights._replace(recurrent_bias=double), state)),
    ):
        for training in (True, False):
            with torch.set_grad_enabled(training), raises(TensorError, argument=argument):
                call()


def _layers(args: dict[str, Any]) -> dict[str, Any]:
    """A stack of two layers."""
    layer = stream_arguments(args)
    width = args["h_0"].shape[1]
    second = torch.randn(args["weight_ih"].shape[0], width).double()
    doubled = {name: layer[name] * 2 for name in TENSORS[1:5]} | {"h_0": layer["h_0"].expand(2, -1, -1)}
    return {**layer, **doubled, "weight_ih": [args["weight_ih"], second]}


@pytest.mark.parametrize("empty", ["num_blocks", "block_size"])
@pytest.mark.parametrize("mode", MODES)
def test_no_block_and_no_unit_are_rejected(mode: str, empty: str) -> None:
    """A division by zero in C ends the process."""
    args = arguments(mode)
    shape = (len(GATES[mode]), 0, 2, 2) if empty == "num_blocks" else (len(GATES[mode]), 3, 0, 0)
    nothing = {"weight_hh": torch.zeros(shape).double(), "bias_ih": None, "bias_hh": None}
    with raises(TensorError, argument="recurrent", got=shape):
        forward({**args, **nothing, "weight_ih": args["weight_ih"][:0], "h_0": args["h_0"][:, :0]})


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("block_size", [2, 20])
def test_no_inputs_at_all(mode: str, block_size: int) -> None:
    """Blocks that run by themselves."""
    x, weights, state, _ = Case(mode=mode, block_size=block_size, inputs=0).tensors()
    results = []
    for backend in ("cpu", "reference"):
        output, _ = recurrence(mode, x, weights, state, backend=backend)
        results.append([output, *torch.autograd.grad(output.square().sum(), (weights.recurrent, *state))])
    for ours, theirs in zip(*results, strict=True):  # 7 steps, each of which passes on the error of sums of 20 products
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12 * max(1.0, theirs.abs().max().item()))


@pytest.mark.parametrize("mode", MODES)
def test_no_steps_and_no_sequences(mode: str) -> None:
    args = arguments(mode)
    output, h_n, *_ = forward({**args, "x": args["x"][:0]})
    assert output.shape == (0, 5, 6)
    torch.testing.assert_close(h_n, args["h_0"], rtol=0, atol=0)
    nobody = {"x": args["x"][:1, :0].expand(1 << 50, 0, 3), "lengths": None}  # as many chunks would fill the memory
    nobody |= {name: None if args[name] is None else args[name][:0] for name in ("h_0", "c_0")}
    assert forward({**args, **nobody})[0].shape == (1 << 50, 0, 6)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("inputs", [3, 12])
def test_lengths_that_no_sequence_has(mode: str, inputs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below zero is none, beyond the end is all: as in the reference, whose mask they make."""
    monkeypatch.setattr("parallelrnn.kernels.cpu.chunk_rows", lambda columns, dtype: 10)  # chunks of two steps
    args = arguments(mode, inputs=inputs)
    least, most = torch.iinfo(torch.int64).min, torch.iinfo(torch.int64).max
    outside, inside = torch.tensor([least, -1, 3, 8, most]), torch.tensor([0, 0, 3, 7, 7])
    for reverse in (False, True):
        options = {"reverse": reverse}
        for ours, theirs in zip(
            backward(backward_arguments({**args, **options, "lengths": outside})),
            backward(backward_arguments({**args, **options, "lengths": inside})),
            strict=True,
        ):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def test_sizes_that_no_memory_has() -> None:
    """One number, expanded: its products pass what 64 bits hold."""
    args = arguments("GRU", dtype=torch.float32)
    number, state = args["x"][:1, :1], args["h_0"][:1]
    for steps, batch in ((1 << 46, 1), (1 << 40, 1 << 20)):
        huge = {"x": number.expand(steps, batch, 3), "h_0": state.expand(batch, 6), "lengths": None}
        with pytest.raises(MemoryError, match=r"\d+ bytes"):
            forward({**args, **huge})


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("value", [float("inf"), float("nan")])
@pytest.mark.parametrize("where", ["recurrent", "input", "state"])
def test_non_finite_weights_and_states_spread_as_in_the_reference(mode: str, value: float, where: str) -> None:
    x, weights, state, _ = Case(mode=mode, block_size=3).tensors()
    weights, state = Weights(*(None if w is None else w.detach() for w in weights)), tuple(s.detach() for s in state)
    {"recurrent": weights.recurrent, "input": weights.input, "state": state[0]}[where].view(-1)[1] = value
    ours, theirs = (recurrence(mode, x, weights, state, backend=name)[0] for name in ("cpu", "reference"))
    torch.testing.assert_close(ours.isfinite(), theirs.isfinite())


def test_layers_of_another_width_are_not_streamed() -> None:
    """The output has the width of the state; a wider layer would write beyond it."""
    x, weights, state, _ = Case(mode="GRU", num_blocks=30).tensors()
    with torch.no_grad(), raises(TensorError, "(1, 5, 60)", "(1, 5, 4)", argument="state"):
        stream("GRU", x, [weights], (state[0][None, :, :4],))


def test_attention_of_tensors_that_are_not_alike() -> None:
    q, k = torch.randn(2, 3, 4), torch.randn(2, 5, 4)
    ignored = torch.zeros(2, 5, dtype=torch.bool)
    for argument, call in (
        ("k", lambda: attention(q, k.to("meta"), k, 2)),
        ("v", lambda: attention(q, k, k.to("meta"), 2)),
        ("v", lambda: attention(q, k, q, 2)),
        ("ignored", lambda: attention(q, k, k, 2, ignored.to("meta"))),
        ("ignored", lambda: attention(q, k, k, 2, ignored[:, 1:])),
        ("k", lambda: attention(q, k[:1], k, 2)),
        ("q", lambda: attention(q[0], k, k, 2)),
        ("q", lambda: attention(q, k, k, 0)),
        ("q", lambda: attention(q[..., :3], k[..., :3], k[..., :3], 2)),
        ("q", lambda: attention(q[..., :0], k[..., :0], k[..., :0], 2)),
    ):
        with raises(TensorError, argument=argument):
            call()


@pytest.mark.parametrize("width", [1, 2, 4])
def test_attention_reads_signs(width: int) -> None:
    q, k, v = (torch.randn(2, count, 4, dtype=torch.float64, requires_grad=True) for count in (3, 5, 5))
    negated = [torch._neg_view(tensor) for tensor in (q, k, v)]
    grad = torch._neg_view(torch.randn(2, 3, 4, dtype=torch.float64))
    results = []
    for function in (attention, reference_attention):
        output = function(*negated, 4 // width)
        results.append([output, *torch.autograd.grad(output, (q, k, v), grad)])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-13)  # weights add up to one, numbers are around one

"""The Triton kernels against the reference loop: on a GPU where there is one, else in Triton's interpreter."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_sequence

from parallelrnn import ParaGRU, ParaLSTM, ParaRNN
from parallelrnn.errors import MissingPackageError, UnavailableError
from parallelrnn.kernels import GATES, NUM_STATES, Weights, reference, triton, triton_programs
from tests.support import as_tuple, raises

pytestmark = [
    pytest.mark.skipif(not triton.is_available(), reason="Triton is not installed: pip install triton"),
    pytest.mark.usefixtures("fresh_memory_is_nan"),
]

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BLOCK_SIZES = (1, 2, 4, 8, 16, 32)
CELLS = ("RNN_TANH", "LSTM", "GRU")

# The largest error of a value, and of a gradient in parts of the largest gradient, against the reference in float64.
# States here are around one and their maps contract, so round-off does not pile up over 63 steps: a few eps for values,
# and for gradients, which are sums over steps and sequences, more.
TOL = {torch.float32: (1e-6, 1e-5), torch.float64: (1e-14, 1e-13)}


@dataclass(kw_only=True)
class Problem:
    """The arguments of a recurrence, and the gradients that come back to it."""

    mode: str
    u: Tensor
    recurrent: Tensor
    recurrent_bias: Tensor | None
    state: tuple[Tensor, ...]
    lengths: Tensor | None
    reverse: bool
    grad_output: Tensor | None
    grad_final: tuple[Tensor | None, ...]

    def forward(self, training: bool = True) -> tuple[Tensor, tuple[Tensor, ...], tuple[Tensor, ...]]:
        given = (self.recurrent, self.recurrent_bias, self.state, self.lengths, self.reverse)
        return triton.run_forward(self.mode, self.u.clone(), *given, training)

    def backward(self, output: Tensor, saved: tuple[Tensor, ...]) -> tuple[Any, ...]:
        given = (self.recurrent, self.recurrent_bias, self.state, self.lengths, self.reverse)
        return triton.run_backward(self.mode, self.grad_output, self.grad_final, output, saved, *given)

    def reference(self) -> tuple[list[Tensor], list[Tensor | None]]:
        """Output and final state; and the gradients for u, weights, bias and state, all in float64."""
        leaves = [
            None if x is None else x.to("cpu", torch.float64).requires_grad_()
            for x in (self.u, self.recurrent, self.recurrent_bias, *self.state)
        ]
        u, recurrent, bias, *state = leaves
        weights = Weights(torch.eye(u.shape[-1], dtype=torch.float64), recurrent, None, bias)
        lengths = None if self.lengths is None else self.lengths.cpu()
        output, final = reference.recurrence(self.mode, u, weights, tuple(state), lengths, self.reverse)
        values = [output, *final]
        grads = [
            torch.zeros_like(x) if g is None else g.to("cpu", torch.float64)
            for x, g in zip(values, (self.grad_output, *self.grad_final), strict=True)
        ]
        gradients = iter(torch.autograd.grad(values, [x for x in leaves if x is not None], grads))
        return values, [None if x is None else next(gradients) for x in leaves]


def problem(
    mode: str,
    steps: int = 3,
    batch: int = 3,
    num_blocks: int = 3,
    block_size: int = 2,
    dtype: torch.dtype = torch.float64,
    bias: bool = True,
    lengths: bool = False,
    reverse: bool = False,
) -> Problem:
    def random(*shape: int, scale: float = 1.0) -> Tensor:
        return (scale * torch.randn(*shape)).to(DEVICE, dtype)

    gates, hidden_size = len(GATES[mode]), num_blocks * block_size
    # From a full sequence down to an empty one, and over again.
    real = torch.tensor([max(0, steps - 2 * (row % 3)) for row in range(batch)], device=DEVICE)
    return Problem(
        mode=mode,
        u=random(steps, batch, gates * hidden_size),
        recurrent=random(gates, num_blocks, block_size, block_size, scale=0.7 / block_size**0.5),
        recurrent_bias=random(gates * hidden_size) if bias else None,
        state=tuple(random(batch, hidden_size) for _ in range(NUM_STATES[mode])),
        lengths=real if lengths else None,
        reverse=reverse,
        grad_output=random(steps, batch, hidden_size),
        grad_final=tuple(random(batch, hidden_size) for _ in range(NUM_STATES[mode])),
    )


def check(case: Problem) -> None:
    """Values, final states and every gradient, and exact zeros where a step is not real."""
    value_tol, gradient_tol = TOL[case.u.dtype]
    expected, expected_gradients = case.reference()
    output, final, saved = case.forward()
    grad_u, grad_recurrent, grad_bias, grad_state = case.backward(output, saved)

    for value, wanted in zip((output, *final), expected, strict=True):
        assert value.dtype == case.u.dtype
        torch.testing.assert_close(value.to("cpu", torch.float64), wanted, rtol=0, atol=value_tol)
    for gradient, wanted in zip((grad_u, grad_recurrent, grad_bias, *grad_state), expected_gradients, strict=True):
        if wanted is None:
            assert gradient is None
            continue
        assert gradient.dtype == case.u.dtype
        atol = gradient_tol * max(1.0, wanted.abs().max().item())
        torch.testing.assert_close(gradient.to("cpu", torch.float64), wanted, rtol=0, atol=atol)
    if case.lengths is not None:
        beyond = torch.arange(len(output), device=DEVICE)[:, None] >= case.lengths
        assert (output[beyond] == 0).all()
        assert (grad_u[beyond] == 0).all()


@pytest.mark.parametrize("block_size", BLOCK_SIZES)
@pytest.mark.parametrize("mode", GATES)
def test_every_mode_and_block_size(mode: str, block_size: int) -> None:
    check(problem(mode, num_blocks=2, block_size=block_size, lengths=True, reverse=block_size in (2, 8, 32)))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("mode", GATES)
def test_every_option_in_float32(mode: str, bias: bool, lengths: bool, reverse: bool) -> None:
    check(problem(mode, batch=5, dtype=torch.float32, bias=bias, lengths=lengths, reverse=reverse))


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize("mode", CELLS)
def test_few_steps_and_odd_batches(mode: str, batch: int, steps: int) -> None:
    check(problem(mode, steps, batch, dtype=torch.float32, lengths=batch > 1))


@pytest.mark.parametrize(
    ("mode", "dtype"), [("RNN_TANH", torch.float32), ("LSTM", torch.float32), ("GRU", torch.float64)]
)
def test_many_steps(mode: str, dtype: torch.dtype) -> None:
    check(problem(mode, 63, num_blocks=2, dtype=dtype, lengths=True, reverse=mode != "GRU"))


@pytest.mark.parametrize(("num_blocks", "block_size"), [(7, 1), (23, 2), (3, 8)])
@pytest.mark.parametrize("mode", CELLS)
def test_blocks_and_sequences_that_fill_several_programs_and_not_the_last(
    mode: str, num_blocks: int, block_size: int
) -> None:
    check(problem(mode, 2, 5, num_blocks, block_size, torch.float32))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("mode", CELLS)
def test_programs_that_run_more_than_one_round_of_sequences(
    mode: str, reverse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = problem(mode, batch=5, lengths=True, reverse=reverse)
    monkeypatch.setattr(triton, "_MAX_LANES", 2 * 6)  # two of the five sequences at a time
    check(case)


@pytest.mark.parametrize("mode", CELLS)
def test_gradients_that_are_none_count_as_zero(mode: str) -> None:
    case = problem(mode, lengths=True)
    tensors = (case.grad_output, *case.grad_final)
    for present in range(len(tensors)):
        case.grad_output, *final = [g if index == present else None for index, g in enumerate(tensors)]
        case.grad_final = tuple(final)
        check(case)


@pytest.mark.parametrize(
    "view",
    [
        lambda g: g.sum().expand_as(g),
        lambda g: g[:, :1].expand_as(g),
        lambda g: g.permute(2, 1, 0).contiguous().permute(2, 1, 0),
        lambda g: torch.stack([g, g], -1)[..., 0],
    ],
    ids=["one number", "one sequence", "transposed", "every other"],
)
def test_strides_of_the_gradient(view: Callable[[Tensor], Tensor]) -> None:
    case = problem("LSTM")
    assert case.grad_output is not None
    case.grad_output = view(case.grad_output)
    assert not case.grad_output.is_contiguous()
    check(case)


@pytest.mark.parametrize("mode", CELLS)
def test_strides_of_everything_else(mode: str) -> None:
    case = problem(mode, lengths=True)
    case.recurrent = case.recurrent.mT.contiguous().mT
    case.state = tuple(s[:1].expand_as(s) for s in case.state)
    case.grad_final = tuple(None if g is None else g.mT.contiguous().mT for g in case.grad_final)
    assert case.lengths is not None
    case.lengths = torch.stack([case.lengths, case.lengths], -1)[:, 0]
    check(case)


@pytest.mark.parametrize("mode", GATES)
def test_backward_twice_gives_the_same_bits_and_leaves_what_it_was_given_alone(mode: str) -> None:
    case = problem(mode, batch=5, dtype=torch.float32, lengths=True)
    output, _, saved = case.forward()
    copies = [x.clone() for x in (output, *saved)]
    first, again = case.backward(output, saved), case.backward(output, saved)
    for before, after in zip((*first[:3], *first[3]), (*again[:3], *again[3]), strict=True):
        assert torch.equal(before, after)
    assert all(map(torch.equal, (output, *saved), copies))


@pytest.mark.parametrize("mode", GATES)
def test_what_is_saved(mode: str) -> None:
    case = problem(mode, lengths=True)
    u = case.u.clone()
    tensors = (case.recurrent, case.recurrent_bias, case.state, case.lengths, case.reverse)
    output, final, nothing = triton.run_forward(mode, u, *tensors, False)
    assert nothing == ()
    assert torch.equal(u, case.u)

    trained, trained_final, saved = triton.run_forward(mode, u, *tensors, True)
    assert all(map(torch.equal, (trained, *trained_final), (output, *final)))
    if not mode.startswith("RNN"):
        assert saved[-1].data_ptr() == u.data_ptr()
        real = torch.arange(len(u), device=DEVICE)[:, None] < case.lengths
        assert (saved[-1][real].abs() < 1).all()
    assert [x.shape for x in saved] == {"LSTM": [output.shape, u.shape], "GRU": [u.shape]}.get(mode, [])


@pytest.mark.parametrize("mode", CELLS)
def test_an_empty_batch(mode: str) -> None:
    check(problem(mode, batch=1))
    case = problem(mode, batch=0)
    output, final, saved = case.forward()
    grad_u, grad_recurrent, grad_bias, _ = case.backward(output, saved)
    assert output.shape == (3, 0, 6)
    assert [s.shape for s in final] == [(0, 6)] * NUM_STATES[mode]
    assert grad_u.shape == case.u.shape
    assert (grad_recurrent == 0).all()
    assert (grad_bias == 0).all()


@pytest.mark.parametrize("dtype", TOL)
@pytest.mark.parametrize(("mode", "function"), [("RNN_TANH", torch.tanh), ("RNN_SIGMOID", torch.sigmoid)])
def test_activations_to_the_last_places(mode: str, function: Callable[[Tensor], Tensor], dtype: torch.dtype) -> None:
    """Relative to the value itself, from where it is nearly zero to where an exponential would overflow.

    The bound grows with |x| because a GPU computes exp(x) as a power of two, and rounds x / ln 2 for that.
    """
    x = torch.logspace(-30, 4, 500, dtype=torch.float64)
    x = torch.cat([-x, torch.linspace(-2, 2, 500, dtype=torch.float64), x]).to(DEVICE, dtype)
    weight, state = x.new_zeros(1, 1, 1, 1), (x.new_zeros(len(x), 1),)
    output, _, _ = triton.run_forward(mode, x.view(1, -1, 1), weight, None, state, None, False, False)
    expected = function(x.double())
    visible = expected.abs() > torch.finfo(dtype).tiny
    error = (output.view(-1).double() - expected).abs() / expected.abs()
    assert (error < (4 + x.abs()) * torch.finfo(dtype).eps)[visible].all()


def test_nan_propagates() -> None:
    for mode in GATES:
        case = problem(mode, 1, 1)
        case.u[0, 0, 0] = torch.nan
        output, _, _ = case.forward(training=False)
        assert output[0, 0, 0].isnan()
        assert not output[0, 0, 2:].isnan().any()  # the other blocks do not see it


@pytest.mark.parametrize("mode", CELLS)
def test_a_gradient_that_is_not_a_number_stays_with_a_sequence_of_no_steps(mode: str) -> None:
    case = problem(mode, 2, lengths=True)
    assert case.lengths is not None
    assert case.lengths.tolist() == [2, 0, 0]
    for gradient in case.grad_final:
        gradient[1:] = torch.nan
    output, _, saved = case.forward()
    grad_u, grad_recurrent, grad_bias, grad_state = case.backward(output, saved)
    assert all(x.isfinite().all() for x in (grad_u, grad_recurrent, grad_bias))
    assert all(x[0].isfinite().all() and x[1:].isnan().all() for x in grad_state)


@pytest.mark.parametrize("cls", [ParaRNN, ParaLSTM, ParaGRU])
@pytest.mark.parametrize("options", [{}, {"block_size": [2, 4, 2], "bias": False}, {"form": "polar"}], ids=str)
@pytest.mark.parametrize("packed", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_layer_gives_the_reference_its_due(cls: Any, options: dict[str, Any], packed: bool) -> None:
    kind = {"dtype": torch.float64, "device": DEVICE}
    ours = cls(3, 8, num_layers=2, bidirectional=True, backend="triton", **options, **kind)
    theirs = cls(3, 8, num_layers=2, bidirectional=True, backend="reference", **options, **kind)
    theirs.load_state_dict(ours.state_dict())
    sequences = [torch.randn(length, 3, **kind, requires_grad=True) for length in (5, 5 - 3 * packed, 5 - packed)]
    results = []
    for layer in (ours, theirs):
        layer.zero_grad()
        x = pack_sequence(sequences, enforce_sorted=False) if packed else torch.stack(sequences, 1)
        output, final = layer(x)
        values = [output.data if packed else output, *as_tuple(final)]
        sum((value.square() * (index + 1)).sum() for index, value in enumerate(values)).backward()
        grads = [parameter.grad for parameter in layer.parameters()]
        results.append([*values, *grads, *(sequence.grad.clone() for sequence in sequences)])
        for sequence in sequences:
            sequence.grad = None
        with torch.no_grad():
            output, _ = layer(x)
            results[-1].append(output.data if packed else output)
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


def test_what_is_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    def reason(size: int, dtype: torch.dtype = torch.float32, projection: Tensor | None = None) -> str:
        recurrent = torch.empty(1, 2, size, size, dtype=dtype, device=DEVICE)
        return triton.unsupported_reason(Weights(recurrent, recurrent, projection=projection))

    assert not any(reason(size, dtype) for size in BLOCK_SIZES for dtype in TOL)
    assert all(str(size) in reason(size) for size in (3, 64))
    assert all(str(dtype) in reason(2, dtype) for dtype in (torch.bfloat16, torch.float16))
    assert "proj_size" in reason(2, projection=torch.empty(2, 1, 2))
    with raises(UnavailableError, "float32", argument="backend", got="triton"):
        ParaGRU(3, 6, block_size=3, backend="triton", device=DEVICE)(torch.randn(5, 2, 3, device=DEVICE))
    monkeypatch.setattr(triton, "is_interpreted", lambda: False)
    with raises(UnavailableError, "cpu", argument="backend", got="triton"):
        ParaGRU(3, 8, backend="triton")(torch.randn(5, 2, 3))
    monkeypatch.setattr(triton, "is_available", lambda: False)
    with raises(UnavailableError, "pip install triton", argument="backend", got="triton"):
        ParaGRU(3, 8, backend="triton")(torch.randn(5, 2, 3))


@pytest.mark.parametrize("mode", GATES)
def test_launches_fit_the_hardware(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One axis of programs of 32 units, and warps by powers of two; for every block size and dtype."""
    launched: list[tuple[tuple[int, ...], int]] = []

    class Kernel:
        def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
            return lambda *arguments, num_warps, **constants: launched.append((grid, num_warps))

    triton_programs.compile_functions()
    monkeypatch.setattr(triton_programs, "forward_kernel", Kernel())
    monkeypatch.setattr(triton_programs, "backward_kernel", Kernel())
    for dtype in TOL:
        for block_size in BLOCK_SIZES:
            case = problem(mode, 1, 5, 7, block_size, dtype)
            output, _, saved = case.forward()
            case.backward(output, saved)
            for grid, num_warps in launched[-2:]:
                assert grid == (-(-5 * 7 * block_size // 32),)
                assert num_warps in (1, 2, 4)
                assert num_warps == 1 or block_size >= 16
    assert len(launched) == 4 * len(BLOCK_SIZES)


def test_importing_does_not_import_triton() -> None:
    code = "import sys, parallelrnn.kernels.triton as t; t.is_available(); assert 'triton' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_interpreter_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    assert triton.is_interpreted() == (DEVICE == "cpu")
    monkeypatch.delenv("TRITON_INTERPRET")
    assert not triton.is_interpreted()


def test_a_missing_triton_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    with raises(MissingPackageError, hint="pip install triton"):
        triton_programs.compile_functions.__wrapped__()


def compile_for_a_gpu(mode: str, dtype: str, block_size: int, all_given: bool) -> list[str]:
    """The intermediate code of both kernels, which are compiled all the way to machine code; that needs no GPU."""
    import triton as compiler
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    triton_programs.compile_functions()
    absent = set() if mode == "LSTM" else {"c_0", "c_n", "grad_c_n", "grad_c_0", "cells"}
    if not all_given:
        absent |= {"bias", "bias_sums", "lengths", "grad_output", "grad_h_n", "grad_c_n"}
    fixed = {"mode": mode, "gates": len(GATES[mode]), "block_size": block_size, "reverse": all_given}
    code = []
    for kernel in (triton_programs.forward_kernel, triton_programs.backward_kernel):
        constants: dict[str, Any] = {}
        signature = {}
        for parameter in kernel.params:
            name, integer = parameter.name, parameter.annotation_type
            assert parameter.do_not_specialize == (integer == "i64")  # no size recompiles
            if name in absent or parameter.is_constexpr:
                constants[name] = {**fixed, "training": True}.get(name)
            pointer = "*i64" if name == "lengths" else f"*{dtype}"
            signature[name] = "constexpr" if name in constants else integer or pointer
        source = ASTSource(kernel, signature, constants)
        options = {"num_warps": 1, "enable_fp_fusion": True}
        code.append(compiler.compile(source, target=GPUTarget("cuda", 80, 32), options=options).asm["ttir"])
    return code


def test_the_kernels_compile_and_compute_no_place_in_32_bits(tmp_path: Path) -> None:
    """The compiler takes less than the interpreter, and only its code shows the width of integers.

    T * B * G * d passes 2^31, so no integer that leads to a place in memory may be added or multiplied in 32 bits.
    """
    cases = [
        (mode, dtype, block_size, all_given)
        for mode, dtype, block_size in [("RNN_RELU", "fp32", 4), ("LSTM", "fp32", 2), ("GRU", "fp64", 8)]
        for all_given in (False, True)
    ]
    run = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import json; from {__name__} import *; print(json.dumps([compile_for_a_gpu(*case) for case in {cases}]))",
        ],
        env={**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)},
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        check=True,
    )
    code = [text for pair in json.loads(run.stdout) for text in pair]
    assert len(code) == 2 * len(cases)
    for text in code:
        lines = [re.sub(r" loc\(.*", "", line) for line in text.splitlines()]
        integers = [line for line in lines if re.search(r"arith\.(addi|subi|muli|divsi|remsi)|tt\.addptr", line)]
        assert len(integers) > 20
        assert [line for line in integers if not re.search(r"\bi64$|xi64>$", line)] == []

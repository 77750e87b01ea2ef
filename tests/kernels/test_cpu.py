"""The C kernels against the reference loop: values, every gradient, final states."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from parallelrnn import ParaGRU, ParaLSTM, ParaRNN
from parallelrnn.errors import ArgumentError, UnavailableError
from parallelrnn.kernels import GATES, Weights, can_stream, cpu, dispatch, library, recurrence, stream
from tests.kernels.cases import Case, results
from tests.support import as_tuple, dense_twin, raises

INSTRUCTION_SETS = [instructions.name for instructions in library.BUILT.instruction_sets]
MODES = list(GATES)

# Relative to the largest entry. Sums of at most 60 products of numbers around one, and T <= 7 steps that each pass on
# their error: a few dozen roundings. The float32 kernels' tanh is within 3.2e-7, five roundings, of the true one.
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-13}


def assert_like_reference(case: Case) -> None:
    arguments = case.tensors()
    expected = results("reference", case, *arguments)
    for name, actual in results("cpu", case, *arguments).items():
        atol = TOLERANCE[case.dtype] * max(1.0, expected[name].abs().max().item())
        torch.testing.assert_close(
            actual, expected[name], rtol=0, atol=atol, msg=lambda text, name=name: f"{name}: {text}"
        )
    # In inference nothing is stored for backward, and numbers are the same.
    with torch.no_grad():
        x, weights, state, lengths = arguments
        output, final = recurrence(case.mode, x, weights, state, lengths, case.reverse, "cpu")
    for name, actual in {"output": output, **{f"final {index}": s for index, s in enumerate(final)}}.items():
        torch.testing.assert_close(actual, expected[name], rtol=0, atol=TOLERANCE[case.dtype] * 10)


@pytest.fixture(params=INSTRUCTION_SETS)
def instructions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each instruction set that the processor has."""
    monkeypatch.setattr(cpu, "INSTRUCTIONS", library.only(library.BUILT, request.param).instruction_sets[0])


@pytest.fixture
def threads() -> Iterator[Any]:
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("block_size", [1, 2, 3, 4, 7, 8, 9, 16, 20])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.usefixtures("instructions", "fresh_memory_is_nan")
def test_every_cell_and_block_size(
    mode: str, block_size: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    few, many = cpu.FEW_INPUTS - 5, cpu.FEW_INPUTS + 4  # projected by the kernel, and by a matrix product
    shape = {"mode": mode, "block_size": block_size, "dtype": dtype}
    assert_like_reference(Case(**shape, inputs=few))
    assert_like_reference(Case(**shape, inputs=few, packed=True, reverse=True, num_blocks=5))
    assert_like_reference(Case(**shape, inputs=many, bias=False, num_blocks=17))
    assert_like_reference(Case(**shape, inputs=1, steps=1, batch=1, num_blocks=1))
    monkeypatch.setattr(cpu, "chunk_rows", lambda columns, dtype: 10)  # chunks of two steps
    assert_like_reference(Case(**shape, inputs=many, packed=True))
    assert_like_reference(Case(**shape, inputs=many, packed=True, reverse=True))
    assert_like_reference(Case(**shape, inputs=few, reverse=True, bias=False))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize(("batch", "num_blocks"), [(1, 40), (2, 1), (70, 3), (3, 5)])
@pytest.mark.usefixtures("fresh_memory_is_nan")
def test_any_division_among_threads(mode: str, count: int, batch: int, num_blocks: int, threads: Any) -> None:
    threads(count)
    for block_size, packed in [(2, False), (2, True), (3, False), (3, True), (12, False), (12, True)]:
        assert_like_reference(Case(mode=mode, block_size=block_size, batch=batch, num_blocks=num_blocks, packed=packed))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("inputs", [3, 12])
def test_input_and_gradient_batch_first_or_expanded(mode: str, inputs: int) -> None:
    """Other layouts in memory are in test_validation."""
    x, weights, state, _ = Case(mode=mode, steps=6, inputs=inputs).tensors()
    for strided in (x.transpose(0, 1).contiguous().transpose(0, 1), x[:1].expand(6, -1, -1)):
        outputs = [recurrence(mode, strided, weights, state, backend=name)[0] for name in ("cpu", "reference")]
        torch.testing.assert_close(*outputs, rtol=0, atol=1e-13)
        grad = torch.randn_like(outputs[0])
        for strided_grad in (grad.transpose(0, 1).contiguous().transpose(0, 1), grad[:1, :1, :1].expand_as(grad)):
            leaves = (x, weights.recurrent)
            grads = (torch.autograd.grad(output, leaves, strided_grad, retain_graph=True) for output in outputs)
            for ours, theirs in zip(*grads, strict=True):
                torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("inputs", [3, 12])
@pytest.mark.parametrize("block_size", [2, 20])
def test_a_graph_can_be_used_twice_and_gives_the_same_bits(mode: str, inputs: int, block_size: int) -> None:
    case = Case(mode=mode, block_size=block_size, dtype=torch.float32, inputs=inputs)
    x, weights, state, _ = case.tensors()
    leaves = (x, weights.input, weights.recurrent, *state)
    output, final = recurrence(mode, x, weights, state, backend="cpu")
    loss = output.square().sum() + final[-1].sum()
    first = torch.autograd.grad(loss, leaves, retain_graph=True)
    for a, b in zip(first, torch.autograd.grad(loss, leaves, retain_graph=True), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
    repeated, _ = recurrence(mode, x, weights, state, backend="cpu")
    torch.testing.assert_close(repeated, output, rtol=0, atol=0)
    doubled = torch.autograd.grad(2 * loss, leaves)
    for a, b in zip(first, doubled, strict=True):
        torch.testing.assert_close(2 * a, b)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("inputs", [1, 40])
def test_same_threads_same_bits(mode: str, inputs: int, threads: Any) -> None:
    """For a long batch, where each thread sums its own part of the gradients."""
    threads(2)
    case = Case(mode=mode, dtype=torch.float32, steps=50, batch=64, num_blocks=16, inputs=inputs)
    x, weights, state, _ = case.tensors()

    def run() -> list[Tensor]:
        output, _ = recurrence(mode, x, weights, state, backend="cpu")
        return [output, *torch.autograd.grad(output.square().sum(), (weights.input, weights.recurrent))]

    first = run()
    for _ in range(3):
        for a, b in zip(first, run(), strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=0)


@pytest.mark.parametrize("mode", MODES)
def test_outputs_of_few_inputs_do_not_depend_on_the_number_of_threads(mode: str, threads: Any) -> None:
    case = Case(mode=mode, dtype=torch.float32, steps=20, batch=9, num_blocks=9, packed=True)
    x, weights, state, lengths = case.tensors()
    outputs = []
    for count in (1, 2):
        threads(count)
        outputs.append(recurrence(mode, x, weights, state, lengths, backend="cpu")[0])
    torch.testing.assert_close(*outputs, rtol=0, atol=0)


@pytest.mark.parametrize("mode", MODES)
def test_only_the_last_state_has_a_gradient(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    backward = cpu.backward

    def watch(arguments: Any, stored: Any, grad_output: Tensor | None, *rest: Any) -> Any:
        seen.append(grad_output)
        return backward(arguments, stored, grad_output, *rest)

    monkeypatch.setattr(cpu, "backward", watch)
    x, weights, state, _ = Case(mode=mode).tensors()
    leaves = (x, weights.recurrent, *state)
    grads = []
    for backend in ("cpu", "reference"):
        _, final = recurrence(mode, x, weights, state, backend=backend)
        grads.append(torch.autograd.grad(final[0].sum(), leaves))
    assert seen == [None]
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-13)


@pytest.mark.parametrize("cls", [ParaRNN, ParaLSTM, ParaGRU])
@pytest.mark.parametrize("inputs", [1, 16])
def test_accuracy_over_a_thousand_steps(cls: Any, inputs: int) -> None:
    """float32 against the reference in float64, and against the error that torch.nn makes in float32."""
    layer = cls(inputs, 32, aggregate=None)
    with torch.no_grad():  # recurrent weights that remember: uniform weights of this width hardly do
        layer.weight_hh_l0.uniform_(-0.6, 0.6)
    twin = dense_twin(layer)
    exact = cls(inputs, 32, aggregate=None, dtype=torch.float64, backend="reference")
    exact.load_state_dict(layer.state_dict())
    x = torch.randn(1000, 4, inputs)
    weight = torch.randn(1000, 4, 32)

    def errors(module: nn.Module) -> tuple[float, list[float]]:
        output, _ = module(x)
        (output * weight).sum().backward()
        output_error = (output - expected).abs().max().item()
        relative = []
        for name, parameter in exact.named_parameters():
            theirs = getattr(module, name).grad
            if theirs.shape != parameter.shape:  # the dense twin's recurrent weights: its blocks
                gates = len(layer.gates)
                blocks = theirs.view(gates, 16, 2, 16, 2).diagonal(dim1=1, dim2=3)  # (G, 2, 2, K)
                theirs = blocks.permute(0, 3, 1, 2).reshape(parameter.shape)
            relative.append(((theirs - parameter.grad).norm() / parameter.grad.norm()).item())
        return output_error, relative

    expected, _ = exact(x.double())
    (expected * weight).sum().backward()
    expected = expected.detach()
    ours, our_gradients = errors(layer)
    torch_nn, their_gradients = errors(twin)
    assert ours < 1e-6
    assert ours <= 2 * torch_nn
    assert max(our_gradients) < 1e-5
    assert max(our_gradients) <= 2 * max(their_gradients)


@pytest.mark.parametrize("name", INSTRUCTION_SETS)
@pytest.mark.parametrize(("dtype", "largest"), [(torch.float32, 4e-7), (torch.float64, 1e-15)], ids=str)
def test_activations_over_their_whole_range(
    name: str, dtype: torch.dtype, largest: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One step without recurrence is the activation of the input alone."""
    monkeypatch.setattr(cpu, "INSTRUCTIONS", library.only(library.BUILT, name).instruction_sets[0])
    values = torch.cat([torch.linspace(-30, 30, 40001), torch.logspace(-30, 3, 2000), -torch.logspace(-30, 3, 2000)])
    special = torch.tensor([0.0, float("inf"), -float("inf"), 1e30, -1e30, float("nan")])
    x = torch.cat([values, special]).to(dtype)[None, :, None]
    weights = Weights(torch.ones(1, 1, dtype=dtype), torch.zeros(1, 1, 1, 1, dtype=dtype))
    state = (torch.zeros(x.shape[1], 1, dtype=dtype),)
    for mode, function in (("RNN_TANH", torch.tanh), ("RNN_SIGMOID", torch.sigmoid), ("RNN_RELU", torch.relu)):
        output, _ = recurrence(mode, x, weights, state, backend="cpu")
        expected = function(x.double()).to(dtype)
        torch.testing.assert_close(output, expected, rtol=0, atol=largest, equal_nan=True)
        if mode != "RNN_RELU":
            assert output[~output.isnan()].abs().max() <= 1
    near_zero = torch.logspace(-30, -3, 1000, dtype=dtype)[None, :, None]
    output, _ = recurrence("RNN_TANH", near_zero, weights, (torch.zeros(1000, 1, dtype=dtype),), backend="cpu")
    torch.testing.assert_close(output, torch.tanh(near_zero), rtol=4 * torch.finfo(dtype).eps, atol=0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.usefixtures("fresh_memory_is_nan")
def test_a_stack_streamed_is_its_layers_one_after_the_other(
    mode: str, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "chunk_rows", lambda columns, dtype: 20)  # chunks of four steps, the last of two
    case = Case(mode=mode, steps=10, packed=packed, num_blocks=4)
    x, first, state, lengths = case.tensors()
    _, second, other_state, _ = Case(mode=mode, inputs=8, num_blocks=4).tensors()
    weight, bias = torch.randn(5, 8, dtype=torch.float64), torch.randn(5, dtype=torch.float64)
    states = tuple(torch.stack(parts) for parts in zip(state, other_state, strict=True))
    with torch.no_grad():
        middle, final = recurrence(mode, x, first, state, lengths, backend="reference")
        expected, other_final = recurrence(mode, middle, second, other_state, lengths, backend="reference")
        assert can_stream("auto", x, [first, second], states)
        output, finals = stream(mode, x, [first, second], states, lengths)
        aggregated, _ = stream(mode, x, [first, second], states, lengths, (weight, bias))
        torch.testing.assert_close(output, expected, rtol=0, atol=1e-13)
        torch.testing.assert_close(aggregated, expected @ weight.t() + bias, rtol=0, atol=1e-12)
        for ours, parts in zip(finals, zip(final, other_final, strict=True), strict=True):
            torch.testing.assert_close(ours, torch.stack(parts), rtol=0, atol=1e-13)
    assert not can_stream("auto", x, [first, second], states)


def test_a_chunk_has_a_fixed_size_and_never_few_rows() -> None:
    assert cpu.chunk_rows(512, torch.float32) * 512 * 4 == cpu.CHUNK_BYTES
    assert cpu.chunk_rows(512, torch.float64) * 512 * 8 == cpu.CHUNK_BYTES
    assert cpu.chunk_rows(1 << 20, torch.float32) == cpu.FEWEST_ROWS


def test_an_empty_batch() -> None:
    for cls in (ParaRNN, ParaLSTM, ParaGRU):
        for inputs in (3, 12):
            layer = cls(inputs, 8)
            output, final = layer(torch.randn(5, 0, inputs))
            assert output.shape == (5, 0, 8)
            assert all(s.shape == (1, 0, 8) for s in as_tuple(final))
            output.sum().backward()
            assert all((p.grad == 0).all() for p in layer.parameters())


def test_numbers_too_small_for_normal_floats_stay() -> None:
    """A library linked with -ffast-math would flush them to zero in the whole process."""
    recurrence("RNN_TANH", *Case(mode="RNN_TANH", dtype=torch.float32).tensors()[:3], backend="cpu")
    tiny = torch.full((4,), 1e-40)
    assert (tiny * 0.5 != 0).all()
    assert ctypes.c_float(1e-40).value != 0


def test_a_named_backend_is_used_or_says_why_not(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weights, state, _ = Case(mode="LSTM", dtype=torch.float32).tensors()
    with raises(ArgumentError, argument="backend", got="cuda"):
        recurrence("LSTM", x, weights, state, backend="cuda")
    for fact, layer in (
        ("proj_size", ParaLSTM(3, 8, proj_size=4, backend="cpu")),
        ("bfloat16", ParaLSTM(3, 8, backend="cpu", dtype=torch.bfloat16)),
    ):
        with raises(UnavailableError, fact, argument="backend", got="cpu"):
            layer(x.to(layer.weight_ih_l0.dtype))
    monkeypatch.setattr(cpu, "INSTRUCTIONS", None)
    monkeypatch.setattr(dispatch, "INSTRUCTIONS", None)
    with raises(UnavailableError, "apt install gcc", argument="backend", got="cpu"):
        recurrence("LSTM", x, weights, state, backend="cpu")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("block_size", [2, 3, 6, 20])
@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_non_finite_values_spread_as_in_the_reference(mode: str, block_size: int, value: float) -> None:
    case = Case(mode=mode, block_size=block_size, num_blocks=3)
    x, weights, state, _ = case.tensors()
    with torch.no_grad():
        x[3, 1, 1] = value
    ours, theirs = (results(backend, case, x, weights, state, None) for backend in ("cpu", "reference"))
    for name in theirs:
        torch.testing.assert_close(ours[name].isfinite(), theirs[name].isfinite(), msg=name)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="looks at what Linux says is loaded")
def test_there_is_one_openmp_runtime() -> None:
    """A second one would have threads of its own, and the two would wait for each other's processors."""
    run = "import torch, parallelrnn; parallelrnn.ParaGRU(3, 8)(torch.ones(5, 2, 3))"
    script = f"{run}; print(open('/proc/self/maps').read())"
    maps = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    runtimes = {line.split()[-1] for line in maps.splitlines() if re.search(r"lib(gomp|iomp5|omp)\b.*\.so", line)}
    assert len(runtimes) == 1, runtimes

"""The duties of an operator of torch: compilers, exporters, tracers, transforms, and derivatives of every kind."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
import torch
from torch import Tensor

from parallelrnn import ParaGRU, ParaLSTM, ParaRNN
from parallelrnn.errors import UnavailableError
from parallelrnn.kernels import GATES, Weights, recurrence
from tests.kernels.cases import Case
from tests.support import as_tuple, raises

MODES = list(GATES)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("inputs", [3, pytest.param(12, marks=pytest.mark.slow)])
def test_derivatives_against_differences(mode: str, inputs: int) -> None:
    x, weights, state, lengths = Case(mode=mode, steps=3, batch=2, num_blocks=2, inputs=inputs, packed=True).tensors()

    def run(x: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        output, final = recurrence(mode, x, Weights(w_ih, w_hh, b_ih, b_hh), state, lengths, backend="cpu")
        return output, *final

    arguments = (x, *weights[:4], *state)
    assert torch.autograd.gradcheck(run, arguments)  # type: ignore[arg-type]
    if mode != "RNN_RELU":
        assert torch.autograd.gradgradcheck(run, arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("inputs", [3, 12])
def test_operators_keep_the_rules_of_torch(mode: str, inputs: int) -> None:
    x, weights, state, lengths = Case(mode=mode, inputs=inputs, packed=True).tensors()
    c_0 = state[1] if len(state) > 1 else None
    operator = getattr(torch.ops.parallelrnn, mode.split("_")[0].lower()).default
    arguments = (x, *weights[:4], state[0], c_0, lengths, mode, False, "cpu")
    torch.library.opcheck(operator, (*arguments, True))
    with torch.no_grad():
        detached = tuple(a.detach() if isinstance(a, Tensor) else a for a in arguments)
        torch.library.opcheck(operator, (*detached, False))
        output, h_n, c_n, cells, gates = operator(*detached, True)
    grads = (torch.randn_like(output), torch.randn_like(h_n), torch.randn_like(c_n) if c_n.numel() else None)
    backward = getattr(torch.ops.parallelrnn, mode.split("_")[0].lower() + "_backward").default
    torch.library.opcheck(backward, (*grads, *detached, output, cells, gates, True))
    weights = Weights(*(w if w is None else w.detach() for w in weights))
    torch.library.opcheck(
        torch.ops.parallelrnn.stream.default,
        (
            x.detach(),
            *([w] for w in weights[:4]),
            state[0].detach()[None],
            None if c_0 is None else c_0.detach()[None],
            lengths,
            torch.randn(4, 6, dtype=torch.float64),
            None,
            mode,
        ),
    )


@pytest.mark.parametrize("cls", [ParaRNN, ParaLSTM, ParaGRU])
def test_one_node_of_a_graph_whatever_the_length(cls: Any) -> None:
    layer = cls(3, 8, num_layers=2, bidirectional=True)
    length, batch = torch.export.Dim("length", min=2, max=4096), torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(layer, (torch.randn(6, 4, 3),), dynamic_shapes={"input": {0: length, 1: batch}})
    nodes = [node for node in program.graph.nodes if node.op == "call_function" and "parallelrnn" in str(node.target)]
    assert len(nodes) == 4  # one for each layer and direction
    x = torch.randn(501, 3, 3)
    for ours, theirs in zip(_flat(program.module()(x)), _flat(layer(x)), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("cls", [ParaRNN, ParaLSTM, ParaGRU])
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch.func.jvp uses it
def test_transforms_of_torch_func(cls: Any) -> None:
    layer = cls(3, 8, aggregate=None, dtype=torch.float64)
    parameters = {name: p.detach() for name, p in layer.named_parameters()}
    x = torch.randn(2, 5, 4, 3, dtype=torch.float64)

    def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        return torch.func.functional_call(layer, parameters, (x,))[0].square().sum()

    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, x)
    for name in parameters:
        for index in range(2):
            expected = torch.func.grad(loss)(parameters, x[index])[name]
            torch.testing.assert_close(each[name][index], expected, rtol=0, atol=1e-12)
    # Forward-mode derivatives, through the reference, against a difference quotient.
    direction = torch.randn_like(x[0])
    _, slope = torch.func.jvp(lambda x: loss(parameters, x), (x[0],), (direction,))
    step = 1e-6
    quotient = (loss(parameters, x[0] + step * direction) - loss(parameters, x[0] - step * direction)) / (2 * step)
    torch.testing.assert_close(slope, quotient, rtol=1e-6, atol=1e-8)


# Raised inside inductor, which still uses what torch has marked as deprecated.
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")
@pytest.mark.skipif(shutil.which("c++") is None, reason="inductor builds its kernels with a C++ compiler")
@pytest.mark.parametrize(
    "cls", [ParaLSTM, pytest.param(ParaRNN, marks=pytest.mark.slow), pytest.param(ParaGRU, marks=pytest.mark.slow)]
)
def test_inductor_compiles_inference_and_training(cls: Any) -> None:
    torch.compiler.reset()
    layer = cls(3, 8, num_layers=2)
    compiled = torch.compile(layer, fullgraph=True)
    x = torch.randn(9, 4, 3)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x)[0], layer(x)[0])
    torch.testing.assert_close(compiled(x)[0], layer(x)[0])


@pytest.mark.parametrize("cls", [ParaRNN, ParaLSTM, ParaGRU])
@pytest.mark.parametrize("aggregate", [None, "linear"])
def test_a_program_exported_for_inference_has_gradients(cls: Any, aggregate: str | None) -> None:
    layer = cls(3, 8, num_layers=2, aggregate=aggregate, dtype=torch.float64)
    x, other = torch.randn(7, 4, 3, dtype=torch.float64), torch.randn(7, 4, 3, dtype=torch.float64)
    with torch.no_grad():
        program = torch.export.export(layer, (x,)).module()
    results = []
    for module in (program, layer):
        output, final = module(other)
        loss = output.square().sum() + sum(s.sum() for s in as_tuple(final))
        parameters = dict(module.named_parameters())
        grads = torch.autograd.grad(loss, [parameters[name] for name, _ in layer.named_parameters()])
        results.append([output, *grads])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("cls", [ParaRNN, ParaLSTM, ParaGRU])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch.jit is deprecated
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_is_traced_alike_with_and_without_gradients(cls: Any) -> None:
    layer = cls(3, 8, num_layers=2)
    traced = torch.jit.trace(layer, (torch.randn(4, 7, 3),))  # traces once more without gradients, and compares
    x = torch.randn(9, 5, 3)
    for ours, theirs in zip(_flat(traced(x)), _flat(layer(x)), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("mode", MODES)
def test_many_gradients_at_once(mode: str) -> None:
    """torch.autograd.grad with is_grads_batched, which jacobian(vectorize=True) uses."""
    x, weights, state, _ = Case(mode=mode, steps=3).tensors()
    leaves = (x, weights.recurrent, *state)
    output, _ = recurrence(mode, x, weights, state, backend="cpu")
    grads = torch.randn(4, *output.shape, dtype=torch.float64)
    together = torch.autograd.grad(output, leaves, grads, is_grads_batched=True, retain_graph=True)
    for index in range(4):
        alone = torch.autograd.grad(output, leaves, grads[index], retain_graph=True)
        for a, b in zip(together, alone, strict=True):
            torch.testing.assert_close(a[index], b, rtol=0, atol=1e-12)


def test_a_named_backend_does_not_lose_forward_derivatives() -> None:
    layer = ParaRNN(3, 8, backend="cpu")
    x = torch.randn(5, 2, 3)
    for transform in (
        lambda: torch.func.jvp(lambda x: layer(x)[0], (x,), (x,)),
        lambda: torch.func.grad(lambda x: layer(x)[0].sum())(x),
    ):
        with raises(UnavailableError, argument="backend", got="cpu"):
            transform()


def _flat(result: tuple[Tensor, Any]) -> list[Tensor]:
    output, final = result
    return [output, *as_tuple(final)]

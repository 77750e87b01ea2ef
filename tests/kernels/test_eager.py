"""Calls without the dispatcher: held to the reference, to the checks of operators, to the weights of the moment."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from parallelrnn import ParaGRU, ParaGRUCell, ParaLSTM, ParaLSTMCell, ParaRNN, ParaRNNCell
from parallelrnn.kernels import eager, operators
from parallelrnn.kernels.weights import GATES
from tests.kernels.cases import Case
from tests.support import as_tuple

LAYERS = [ParaRNN, ParaLSTM, ParaGRU]
CELLS = [ParaRNNCell, ParaLSTMCell, ParaGRUCell]


@pytest.fixture
def no_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let calls fail that would go through torch's dispatcher."""

    def fail(*_: Any) -> Any:
        raise AssertionError("went through the dispatcher")

    monkeypatch.setattr(operators, "recurrence", fail)


@pytest.mark.usefixtures("no_operators")
@pytest.mark.parametrize("block_size", [1, 2, 3, 10, 30])
@pytest.mark.parametrize("inputs", [3, 12])
@pytest.mark.parametrize("cls", LAYERS + CELLS)
def test_agrees_with_the_reference(cls: Any, inputs: int, block_size: int) -> None:
    """In values, states and every gradient; from a given state, contiguous or not."""
    ours = cls(inputs, 30, block_size=block_size, dtype=torch.float64)
    theirs = cls(inputs, 30, block_size=block_size, dtype=torch.float64, backend="reference")
    theirs.load_state_dict(ours.state_dict())
    shape = (4, inputs) if cls in CELLS else (1, 4, inputs)
    state_shape = (4, 30) if cls in CELLS else (1, 4, 30)
    results = []
    for module in (ours, theirs):
        torch.manual_seed(0)
        x = torch.randn(*shape[:-1], 2 * inputs, dtype=torch.float64)[..., ::2].requires_grad_()
        state = tuple(torch.randn(state_shape, dtype=torch.float64, requires_grad=True) for _ in range(ours.num_states))
        outputs = _flat(module(x, state if len(state) > 1 else state[0]))
        grads = [torch.randn(y.shape, dtype=y.dtype) for y in outputs]
        leaves = (x, *state, *module.parameters())
        with torch.no_grad():
            inferred = _flat(module(x, state if len(state) > 1 else state[0]))
        results.append([*inferred, *outputs, *torch.autograd.grad(outputs, leaves, grads)])
    for own, reference in zip(*results, strict=True):
        torch.testing.assert_close(own, reference)


@pytest.mark.parametrize("cls", CELLS)
def test_a_step_has_two_derivatives(cls: Any) -> None:
    cell = cls(3, 4, dtype=torch.float64)
    names = [name for name, _ in cell.named_parameters()]

    def run(x: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        count = len(names)
        state = tensors[count:]
        parameters = dict(zip(names, tensors[:count], strict=True))
        return _flat(torch.func.functional_call(cell, parameters, (x, state if len(state) > 1 else state[0])))

    x = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    state = [torch.randn(2, 4, dtype=torch.float64, requires_grad=True) for _ in range(cell.num_states)]
    arguments = (x, *(p.detach().requires_grad_() for p in cell.parameters()), *state)
    assert torch.autograd.gradcheck(run, arguments)
    assert torch.autograd.gradgradcheck(run, arguments)


@pytest.mark.parametrize("cls", CELLS)
def test_the_caller_may_change_a_new_state(cls: Any) -> None:
    """As with the cells of torch.nn: nothing that backward needs lies in what a step returns."""
    cell = cls(3, 4)
    x, state = torch.randn(2, 3), torch.randn(2, 4)
    hx = (state, state) if cls is ParaLSTMCell else state
    expected = torch.autograd.grad(sum(s.sum() for s in _flat(cell(x, hx))), cell.weight_hh)
    results = _flat(cell(x, hx))
    for s in results:
        s.detach().zero_()  # unseen by autograd, so that no error could save the gradient
    grads = torch.autograd.grad(sum(s.sum() for s in results), cell.weight_hh)
    torch.testing.assert_close(grads, expected)
    results = _flat(cell(x, hx))
    torch.autograd.grad(sum((s.mul_(2)).sum() for s in results), cell.weight_hh)


def _set_data(layer: nn.Module) -> None:
    for p in layer.parameters():
        p.data = p.data * 3


def _copy_data(layer: nn.Module) -> None:
    for p in layer.parameters():
        p.data.copy_(p.data * 3)


def _optimise(layer: nn.Module) -> None:
    for p in layer.parameters():
        p.grad = torch.ones_like(p)
    torch.optim.SGD(layer.parameters(), 0.1).step()


def _load(layer: nn.Module) -> None:
    layer.load_state_dict({name: value * 3 for name, value in layer.state_dict().items()})


def _transpose_data(layer: nn.Module) -> None:
    for p in layer.parameters():
        if p.dim() == 2:
            p.data = (p.data * 3).t().contiguous().t()


class _Double(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return 2 * weight


def _parametrize(layer: nn.Module) -> None:
    for name in ("weight_hh_l0", "weight_ih_l0"):
        parametrize.register_parametrization(layer, name, _Double())


CHANGES: list[Callable[[Any], None]] = [
    _set_data,
    _copy_data,
    _optimise,
    _load,
    _transpose_data,
    _parametrize,
    lambda layer: layer.to(torch.float64) and None,
    lambda layer: layer.share_memory() and None,
]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("cls", LAYERS)
def test_uses_the_weights_of_the_moment(cls: Any, change: Callable[[Any], None]) -> None:
    layer = cls(12, 8)
    layer(torch.randn(3, 2, 12))
    change(layer)
    clone = copy.deepcopy(layer)
    x = torch.randn(3, 2, 12, dtype=next(layer.parameters()).dtype)
    output, _ = layer(x)
    torch.testing.assert_close(clone(x)[0], output)
    layer.backend = "reference"
    torch.testing.assert_close(layer(x)[0], output)


@pytest.mark.parametrize("mode", list(GATES))
def test_declines_what_does_not_fit(mode: str) -> None:
    """Every tensor too short by one, of another dtype or of another rank."""
    x, weights, state, lengths = Case(mode=mode, dtype=torch.float32, packed=True).tensors()
    assert eager.recurrence(mode, x, weights, state, lengths, False, "auto") is not None
    for change in (lambda t: t[..., :-1], lambda t: t.double(), lambda t: t[None], lambda t: t.to("meta")):
        wrong = [(change(x), weights, state, lengths), (x, weights, state, change(lengths))]
        wrong += [
            (x, weights._replace(**{name: change(getattr(weights, name))}), state, lengths)
            for name in ("input", "recurrent", "input_bias", "recurrent_bias")
        ]
        wrong += [(x, weights, (*state[:-1], change(change(state[-1]))), lengths)]
        for arguments in wrong:
            assert eager.recurrence(mode, *arguments, False, "auto") is None


def _flat(result: Any) -> tuple[Tensor, ...]:
    return tuple(t for part in as_tuple(result) for t in as_tuple(part))

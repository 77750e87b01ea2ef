from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from parallelrnn import ParaGRU
from parallelrnn.kernels import linear
from parallelrnn.kernels.memory import LARGE

# Sums of 64 products around one, in another order than torch's: a few roundings of the largest partial sum.
TOLERANCE = {"rtol": 1e-5, "atol": 1e-4}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("layout", ["contiguous", "batch first", "columns apart"])
@pytest.mark.usefixtures("fresh_memory_is_nan")
def test_is_torchs_linear_in_values_and_gradients(bias: bool, layout: str) -> None:
    x = torch.randn(150, 67, 64)
    if layout == "batch first":
        x = torch.randn(67, 150, 64).transpose(0, 1)
    elif layout == "columns apart":
        x = torch.randn(150, 64, 67).transpose(1, 2)
    x.requires_grad_()
    weight = torch.randn(80, 64, requires_grad=True)
    b = torch.randn(80, requires_grad=True) if bias else None
    assert LARGE <= 150 * 67 * 80 * 4
    leaves = [leaf for leaf in (x, weight, b) if leaf is not None]
    ours, theirs = linear(x, weight, b), functional.linear(x, weight, b)
    torch.testing.assert_close(ours, theirs, **TOLERANCE)
    assert "Linear" in type(ours.grad_fn).__name__
    grad = torch.randn(150, 80, 67).transpose(1, 2)
    results = [torch.autograd.grad(y, leaves, grad, retain_graph=True) for y in (ours, theirs, ours)]
    for a, b, again in zip(*results, strict=True):
        torch.testing.assert_close(a / b.abs().max(), b / b.abs().max(), rtol=0, atol=1e-5)
        torch.testing.assert_close(a, again, rtol=0, atol=0)
    with torch.no_grad():
        torch.testing.assert_close(linear(x, weight, leaves[2] if bias else None), theirs, **TOLERANCE)


def test_can_be_differentiated_twice() -> None:
    x, weight = torch.randn(9000, 64, requires_grad=True), torch.randn(64, 64, requires_grad=True)
    penalties = []
    for function in (linear, functional.linear):
        (grad,) = torch.autograd.grad(function(x, weight, None).square().sum(), x, create_graph=True)
        penalties.append(torch.autograd.grad(grad.square().mean(), weight)[0])
    torch.testing.assert_close(penalties[0] / penalties[1].norm(), penalties[1] / penalties[1].norm(), **TOLERANCE)


def test_tensors_that_need_no_gradient_get_none() -> None:
    x, weight = torch.randn(9000, 64), torch.randn(64, 64, requires_grad=True)
    linear(x, weight, None).sum().backward()
    assert x.grad is None
    assert weight.grad is not None


def test_listeners_of_an_aggregate_are_heard() -> None:
    layer = ParaGRU(3, 8, aggregate="linear")
    x = torch.randn(5, 4, 3)
    expected = layer(x)[0].detach()
    heard = []
    assert isinstance(layer.aggregate, nn.Linear)
    handle = layer.aggregate.register_forward_hook(lambda module, args, output: heard.append(output))
    with torch.no_grad():
        output, _ = layer(x)
    handle.remove()
    assert len(heard) == 1
    torch.testing.assert_close(heard[0], output, rtol=0, atol=0)
    torch.testing.assert_close(output, expected)
    handle = layer.aggregate.register_full_backward_hook(lambda *arguments: heard.append(arguments))
    layer(x)[0].sum().backward()
    handle.remove()
    assert len(heard) == 2
    handle = nn.modules.module.register_module_forward_hook(lambda module, *arguments: heard.append(module))
    layer(x)
    handle.remove()
    assert heard[2:] == [layer.aggregate, layer]
    layer.aggregate.forward = torch.zeros_like
    assert (layer(x)[0] == 0).all()


def test_an_aggregate_that_is_more_than_linear_is_called() -> None:
    layer = ParaGRU(3, 8, aggregate=nn.Linear(8, 8))
    nn.utils.parametrizations.weight_norm(layer.aggregate)
    x = torch.randn(5, 4, 3)
    with torch.no_grad():
        layer.aggregate.parametrizations.weight.original0.mul_(2)
        output, _ = layer(x)
        states = ParaGRU(3, 8)
        states.load_state_dict({k: v for k, v in layer.state_dict().items() if not k.startswith("aggregate.")})
        torch.testing.assert_close(output, layer.aggregate(states(x)[0]))

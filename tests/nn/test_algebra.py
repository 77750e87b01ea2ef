"""What a layer of blocks is, stated as equations between layers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from parallelrnn import ParaGRU, ParaLSTM, ParaRNN
from tests.support import CELLS, as_tuple, dense_twin, random_state

LAYERS = [ParaRNN, ParaLSTM, ParaGRU]
# Round-off in float64 over at most 16 steps and 3 layers, of sums of at most 20 products of numbers around one.
TOLERANCE = {"rtol": 1e-11, "atol": 1e-12}


@st.composite
def layers(draw: st.DrawFn) -> Any:
    torch.manual_seed(draw(st.integers(0, 2**31)))
    sizes = draw(st.one_of(st.integers(1, 5), st.lists(st.integers(1, 4), min_size=1, max_size=5)))
    hidden_size = sizes * draw(st.integers(1, 4)) if isinstance(sizes, int) else sum(sizes)
    options: dict[str, Any] = {}
    cls = draw(st.sampled_from(LAYERS))
    if cls is ParaRNN:
        options["nonlinearity"] = draw(st.sampled_from(["tanh", "relu"]))
    smallest, count = (sizes, hidden_size // sizes) if isinstance(sizes, int) else (min(sizes), len(sizes))
    if cls is ParaLSTM and smallest > 1 and draw(st.booleans()):
        options["proj_size"] = count * draw(st.integers(1, smallest - 1))
    return cls(
        draw(st.integers(1, 4)),
        hidden_size,
        num_layers=draw(st.integers(1, 3)),
        bias=draw(st.booleans()),
        batch_first=draw(st.booleans()),
        bidirectional=draw(st.booleans()),
        block_size=sizes,
        aggregate=None,
        dtype=torch.float64,
        **options,
    )


@settings(max_examples=120, deadline=None)
@given(layer=layers(), length=st.integers(1, 16), batch=st.integers(1, 5))
def test_blocks_equal_one_dense_layer_with_block_diagonal_weights(layer: Any, length: int, batch: int) -> None:
    dense = dense_twin(layer)
    shape = (batch, length) if layer.batch_first else (length, batch)
    x = torch.randn(*shape, layer.input_size, dtype=torch.float64, requires_grad=True)
    state = random_state(layer, batch)
    for leaf in as_tuple(state):
        leaf.requires_grad_()

    results, gradients = [], []
    for module in (layer, dense):
        output, final = module(x, state)
        values = [output, *as_tuple(final)]
        loss = sum((value * torch.linspace(-1, 1, value.numel()).view_as(value)).sum() for value in values)
        results.append(values)
        weights = [p for name, p in module.named_parameters() if name.startswith(("weight_ih", "bias"))]
        gradients.append(torch.autograd.grad(loss, [x, *as_tuple(state), *weights]))
    for ours, theirs in zip(results[0] + list(gradients[0]), results[1] + list(gradients[1]), strict=True):
        torch.testing.assert_close(ours, theirs, **TOLERANCE)


@pytest.mark.parametrize("cls", LAYERS)
@pytest.mark.parametrize("block_size", [2, [1, 3, 2, 2]])
def test_the_gradient_of_recurrent_weights_is_the_block_diagonal_of_the_dense_one(cls: Any, block_size: Any) -> None:
    layer = cls(3, 8, num_layers=2, bidirectional=True, block_size=block_size, aggregate=None, dtype=torch.float64)
    dense = dense_twin(layer)
    x = torch.randn(6, 4, 3, dtype=torch.float64)
    for module in (layer, dense):
        module(x)[0].square().sum().backward()
    twin_of_gradients = cls(3, 8, 2, bidirectional=True, block_size=block_size, aggregate=None, dtype=torch.float64)
    with torch.no_grad():
        for name, parameter in twin_of_gradients.named_parameters():
            parameter.copy_(getattr(layer, name).grad)
    gradient = dense_twin(twin_of_gradients)
    with torch.no_grad():
        for parameter in twin_of_gradients.parameters():
            parameter.fill_(1)
    inside = dict(dense_twin(twin_of_gradients).named_parameters())  # one in every block, zero off the diagonal
    for name, parameter in gradient.named_parameters():
        expected = getattr(dense, name).grad * inside[name]
        assert expected.abs().max() > 1e-6
        torch.testing.assert_close(parameter, expected, **TOLERANCE)


@pytest.mark.parametrize("cls", LAYERS)
def test_permuting_blocks_permutes_states(cls: Any) -> None:
    layer = cls(3, 8, aggregate=None, dtype=torch.float64)
    order = torch.tensor([2, 0, 3, 1])
    units = (2 * order[:, None] + torch.arange(2)).flatten()
    permuted = cls(3, 8, aggregate=None, dtype=torch.float64)
    with torch.no_grad():
        for name, parameter in permuted.named_parameters():
            parameter.copy_(getattr(layer, name).unflatten(0, (len(layer.gates), 8))[:, units].flatten(0, 1))
    x = torch.randn(7, 4, 3, dtype=torch.float64)
    output, final = layer(x)
    other_output, other_final = permuted(x)
    torch.testing.assert_close(other_output, output[..., units], **TOLERANCE)
    for ours, theirs in zip(as_tuple(other_final), as_tuple(final), strict=True):
        torch.testing.assert_close(ours, theirs[..., units], **TOLERANCE)


@pytest.mark.parametrize("cls", LAYERS)
def test_blocks_do_not_see_each_other(cls: Any) -> None:
    layer = cls(3, 8, aggregate=None)
    x = torch.randn(7, 4, 3)
    h_0 = torch.zeros(1, 4, 8, requires_grad=True)
    state = h_0 if layer.num_states == 1 else (h_0, torch.zeros(1, 4, 8))
    (gradient,) = torch.autograd.grad(layer(x, state)[0][-1, :, 2:4].sum(), h_0)
    assert (gradient[..., 2:4] != 0).all()
    assert (gradient[..., :2] == 0).all()
    assert (gradient[..., 4:] == 0).all()


@pytest.mark.parametrize("cls", LAYERS)
@pytest.mark.parametrize("aggregate", ["linear", "fc", "ffn", nn.Linear])
def test_aggregation_happens_once_after_the_last_layer(cls: Any, aggregate: Any) -> None:
    own = aggregate if isinstance(aggregate, str) else aggregate(16, 5)
    layer = cls(3, 8, num_layers=2, bidirectional=True, aggregate=own)
    plain = cls(3, 8, num_layers=2, bidirectional=True, aggregate=None)
    plain.load_state_dict({k: v for k, v in layer.state_dict().items() if not k.startswith("aggregate.")})
    x = torch.randn(5, 4, 3)
    output, final = layer(x)
    states, plain_final = plain(x)
    torch.testing.assert_close(output, layer.aggregate(states), rtol=0, atol=0)
    for ours, theirs in zip(as_tuple(final), as_tuple(plain_final), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def test_the_three_aggregates_are_what_they_are_called() -> None:
    h = torch.randn(5, 4, 8)
    linear, fc, ffn = (ParaRNN(3, 8, aggregate=name).aggregate for name in ("linear", "fc", "ffn"))
    torch.testing.assert_close(linear(h), h @ linear.weight.T + linear.bias)
    torch.testing.assert_close(fc(h), torch.tanh(h @ fc.weight.T + fc.bias))
    inner = torch.relu(h @ ffn.expand.weight.T + ffn.expand.bias)
    assert inner.shape[-1] == 32
    torch.testing.assert_close(ffn(h), inner @ ffn.contract.weight.T + ffn.contract.bias)
    for name in ("linear", "fc", "ffn"):
        assert not [key for key in ParaRNN(3, 8, bias=False, aggregate=name).state_dict() if "bias" in key]


@pytest.mark.parametrize("cls", LAYERS)
@pytest.mark.parametrize("block_size", [2, [1, 2, 3]])
def test_steps_and_chunks_give_the_numbers_of_one_call(cls: Any, block_size: Any) -> None:
    layer = cls(3, 6, num_layers=2, block_size=block_size, dtype=torch.float64)
    x = torch.randn(11, 4, 3, dtype=torch.float64)
    expected, final = layer(x)
    state, outputs = None, []
    for chunk in x.split([1, 4, 1, 1, 4]):
        output, state = layer(chunk, state)
        outputs.append(output)
    torch.testing.assert_close(torch.cat(outputs), expected, **TOLERANCE)
    for ours, theirs in zip(as_tuple(state), as_tuple(final), strict=True):
        torch.testing.assert_close(ours, theirs, **TOLERANCE)


@pytest.mark.parametrize("cls", LAYERS)
@pytest.mark.parametrize("block_size", [2, [1, 2, 3]])
def test_a_cell_takes_the_steps_of_a_layer(cls: Any, block_size: Any) -> None:
    layer = cls(3, 6, block_size=block_size, aggregate=None, dtype=torch.float64)
    cell = CELLS[cls](3, 6, block_size=block_size, dtype=torch.float64)
    cell.load_state_dict({name.replace("_l0", ""): value for name, value in layer.state_dict().items()})
    x = torch.randn(9, 4, 3, dtype=torch.float64)
    state = None
    outputs = []
    for step in x:
        state = cell(step, state)
        outputs.append(as_tuple(state)[0])
    output, final = layer(x)
    torch.testing.assert_close(torch.stack(outputs), output, **TOLERANCE)
    for ours, theirs in zip(as_tuple(state), as_tuple(final), strict=True):
        torch.testing.assert_close(ours, theirs[0], **TOLERANCE)


@pytest.mark.parametrize("cls", LAYERS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param({"bidirectional": True, "num_layers": 2}, marks=pytest.mark.slow),
        {"block_size": [2, 1, 3]},
        {"form": "polar"},
        {"bias": False},
    ],
    ids=str,
)
def test_gradients_pass_gradcheck(cls: Any, options: dict[str, Any]) -> None:
    layer = cls(2, 6, dtype=torch.float64, **options)
    names = [name for name, _ in layer.named_parameters()]
    x = torch.randn(3, 2, 2, dtype=torch.float64, requires_grad=True)
    state = random_state(layer, 2)
    for leaf in as_tuple(state):
        leaf.requires_grad_()

    def call(x: torch.Tensor, *rest: torch.Tensor) -> tuple[torch.Tensor, ...]:
        states, weights = rest[: layer.num_states], dict(zip(names, rest[layer.num_states :], strict=True))
        output, final = torch.func.functional_call(layer, weights, (x, states if len(states) == 2 else states[0]))
        return output, *as_tuple(final)

    assert torch.autograd.gradcheck(call, (x, *as_tuple(state), *layer.parameters()))

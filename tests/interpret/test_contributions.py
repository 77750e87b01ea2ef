from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import pack_sequence

from parallelrnn import ParaGRU, ParaLSTM, ParaRNN
from parallelrnn.errors import ArgumentError, ArgumentTypeError, InputError
from parallelrnn.interpret import (
    BlockName,
    contributions,
    fold_in,
    impulse_response,
    leave_one_out,
    recurrence_features,
)
from parallelrnn.interpret.contributions import NoVariationError
from tests.interpret import models
from tests.support import raises

LAYERS = [ParaRNN, ParaLSTM, ParaGRU]
CLOSE = {"rtol": 0, "atol": 1e-12}  # float64 sums of a few dozen numbers below one
make, data = partial(models.make, inputs=3, units=8), partial(models.data, inputs=3)


@pytest.mark.parametrize("aggregate", [None, "linear", nn.Linear(8, 1, dtype=torch.float64), "fc", "ffn"])
@pytest.mark.parametrize("cls", LAYERS)
def test_parts_sum_to_the_output_or_to_what_enters_the_aggregate(cls: Any, aggregate: Any) -> None:
    layer = make(cls, aggregate=aggregate, num_layers=2)
    x = data(15, 4)
    result = contributions(layer, x)
    output, _ = layer(x)
    torch.testing.assert_close(result.parts.sum(-2) + result.bias, result.total, **CLOSE)
    if aggregate == "fc":
        assert result.of == "input of the aggregate's tanh"
        torch.testing.assert_close(result.total.tanh(), output, **CLOSE)
    elif aggregate == "ffn":
        assert result.of == "input of the aggregate"
        torch.testing.assert_close(layer.aggregate(result.total), output, **CLOSE)
    else:
        assert result.of == "output"
        torch.testing.assert_close(result.total, output, **CLOSE)
    assert result.shares().sum().item() == pytest.approx(1)
    torch.testing.assert_close(result.shares(by_output=True).sum(0), torch.ones_like(result.bias), **CLOSE)
    assert not result.parts.requires_grad
    assert not result.bias.requires_grad


@pytest.mark.parametrize("block_size", [2, [1, 2, 3, 2]])
@pytest.mark.parametrize("cls", LAYERS)
def test_without_a_block_the_output_lacks_its_contribution(cls: Any, block_size: Any) -> None:
    aggregate = nn.Linear(16, 3, dtype=torch.float64)
    layer = make(cls, block_size=block_size, bidirectional=True, aggregate=aggregate)
    x = data(15, 4)
    result = contributions(layer, x)
    assert result.blocks[0] == BlockName("forward", 0)
    assert result.blocks[-1] == BlockName("reverse", 3)
    torch.testing.assert_close(leave_one_out(layer, x), result.parts, **CLOSE)
    # The same in another way: a model from whose aggregate the block's columns are gone.
    before, _ = layer(x)
    start = sum(layer.block_sizes[:5])
    with torch.no_grad():
        layer.aggregate.weight[:, start : start + layer.block_sizes[5]] = 0
    torch.testing.assert_close(before - layer(x)[0], result.parts[:, :, 5], **CLOSE)


def test_where_the_aggregate_is_not_linear_effects_do_not_add_up() -> None:
    layer = make(ParaGRU, aggregate="ffn")
    effects = leave_one_out(layer, data(15, 4))
    output, _ = layer(data(15, 4))
    without = layer.block_states(data(15, 4)).clone()
    without[..., 2:4] = 0
    torch.testing.assert_close(effects[:, :, 1], output - layer.aggregate(without), **CLOSE)
    assert (effects.sum(-2) - output).abs().max() > 1e-3


@pytest.mark.parametrize(("shape", "batch_first"), [((4, 15), True), ((15,), False)])
def test_parts_have_the_layout_of_the_layer(shape: tuple[int, ...], batch_first: bool) -> None:
    layer = make(ParaLSTM, batch_first=batch_first)
    result = contributions(layer, data(*shape))
    assert result.parts.shape == (*shape, 4, 8)
    torch.testing.assert_close(result.total, layer(data(*shape))[0], **CLOSE)


def test_a_state_goes_in() -> None:
    layer = make(ParaRNN)
    state = torch.randn(1, 4, 8, dtype=torch.float64)
    torch.testing.assert_close(contributions(layer, data(5, 4), state).total, layer(data(5, 4), state)[0], **CLOSE)


def test_shares_are_covariances_with_the_output() -> None:
    result = contributions(make(ParaRNN, aggregate=nn.Linear(8, 1, dtype=torch.float64)), data(50, 4))
    total = result.total.flatten().numpy()
    for block, share in enumerate(result.shares().tolist()):
        part = result.parts[:, :, block].flatten().numpy()
        assert share == pytest.approx(np.cov(part, total)[0, 1] / np.var(total, ddof=1))


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(LAYERS), st.sampled_from([1, 2, 3, 6]), st.integers(0, 1000))
def test_the_features_of_a_gate_share_their_blocks_contributions(cls: Any, block_size: int, seed: int) -> None:
    torch.manual_seed(seed)
    layer = cls(3, 6, num_layers=2, bidirectional=True, block_size=block_size, dtype=torch.float64)
    blocks = contributions(layer, data(30, 4))
    features = recurrence_features(layer, data(30, 4))
    for gate in layer.gates:
        for name, share in zip(blocks.blocks, blocks.shares().tolist(), strict=True):
            own = [f.share for f in features if (f.layer, f.gate, f.direction, f.block) == (1, gate, *name)]
            assert sum(own) == pytest.approx(share, abs=1e-9)
    assert all(np.isnan(f.share) for f in features if f.layer == 0)


def test_a_block_of_two_decays_shares_by_decay() -> None:
    """In a linear layer a block with two decays is two layers of one unit, whose contributions are plain to see."""
    layer = ParaRNN(1, 2, nonlinearity="linear", bias=False, aggregate=nn.Linear(2, 1, dtype=torch.float64))
    layer = layer.double()
    basis = torch.tensor([[1.0, 0.4], [-0.3, 1.0]], dtype=torch.float64)
    with torch.no_grad():
        layer.weight_hh_l0.copy_(basis @ torch.diag(torch.tensor([0.9, 0.2]).double()) @ basis.inverse())
    x = torch.randn(400, 1, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    output = layer(x)[0].detach().flatten()
    entering = basis.inverse() @ layer.weight_ih_l0.detach()
    leaving = layer.aggregate.weight.detach() @ basis
    for feature, index in zip(recurrence_features(layer, x), (0, 1), strict=True):
        state, part = 0.0, []
        for value in x.flatten().tolist():
            state = feature.modulus * state + entering[index].item() * value
            part.append(leaving[0, index].item() * state)
        assert feature.share == pytest.approx(np.cov(part, output)[0, 1] / np.var(output.numpy(), ddof=1), rel=1e-6)


@pytest.mark.parametrize("cls", [nn.RNN, nn.LSTM, nn.GRU])
def test_vanilla_layers_have_shares_too(cls: Any) -> None:
    torch.manual_seed(0)
    layer = cls(3, 5, bidirectional=True, dtype=torch.float64)
    features = recurrence_features(layer, data(30, 4))
    for gate in {f.gate for f in features}:
        assert sum(f.share for f in features if f.gate == gate) == pytest.approx(1)


def test_shares_are_in_the_table() -> None:
    features = recurrence_features(make(ParaRNN), data(30, 4))
    largest = max(features, key=lambda f: f.share)
    assert f"{largest.share:.1%}" in features.summary().splitlines()[4]
    assert "share" not in recurrence_features(make(ParaRNN)).summary()


@pytest.mark.parametrize(
    ("call", "kind", "fields"),
    [
        (lambda: contributions(nn.Linear(3, 8), data(5, 4)), ArgumentTypeError, {"got": "Linear"}),
        (lambda: contributions(make(ParaRNN), data(5, 4) * math.nan), InputError, {}),
        (lambda: contributions(make(ParaRNN), torch.zeros(5, 4, 7)), ArgumentError, {"got": (5, 4, 7)}),
        (lambda: contributions(make(ParaRNN), pack_sequence([data(5), data(3)])), ArgumentTypeError, {"argument": "x"}),
        (lambda: contributions(make(ParaRNN), data(1, 1)).shares(), NoVariationError, {}),
        (lambda: recurrence_features(make(ParaRNN), data(1, 1)), NoVariationError, {}),
        (lambda: recurrence_features(nn.Sequential(make(ParaRNN)), data(5, 4)), TypeError, {"got": "Sequential"}),
        (lambda: recurrence_features(np.eye(2), data(5, 4)), ArgumentTypeError, {"argument": "obj"}),
        (lambda: fold_in(make(ParaRNN, aggregate="fc"), nn.Linear(8, 1)), TypeError, {"argument": "readout"}),
        (lambda: fold_in(make(ParaRNN, aggregate="ffn"), nn.Linear(8, 1)), TypeError, {"argument": "readout"}),
        (lambda: fold_in(make(ParaRNN), nn.Sequential(nn.Linear(8, 1))), TypeError, {"argument": "readout"}),
    ],
)
def test_rejected_models_and_data(call: Any, kind: type[Exception], fields: dict[str, Any]) -> None:
    with raises(kind, **fields):
        call()


def test_a_layer_of_torch_is_one_block() -> None:
    torch.manual_seed(0)
    layer = nn.LSTM(3, 4)
    result = contributions(layer, data(5, 2).float())
    torch.testing.assert_close(result.parts[..., 0, :], layer(data(5, 2).float())[0].detach())
    assert result.shares().tolist() == pytest.approx([1])


def test_reading_drops_nothing_out_and_leaves_random_numbers_alone() -> None:
    torch.manual_seed(0)
    layer = make(ParaGRU, num_layers=2, dropout=0.5)
    twin, plain, x = nn.GRU(3, 4), make(ParaRNN), data(20, 2)
    before = torch.random.get_rng_state()
    assert torch.equal(contributions(layer, x).shares(), contributions(layer, x).shares())
    assert recurrence_features(layer, x) == recurrence_features(layer, x)
    contributions(twin, x)
    impulse_response(plain, x, lags=3)
    assert layer.training
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("batch_first", [False, True])
def test_one_sequence_of_a_batch(batch_first: bool) -> None:
    layer = make(ParaGRU, batch_first=batch_first, bidirectional=True)
    x = data(4, 7)
    result = contributions(layer, x)
    total, parts = result.sequence(2)
    expected = layer(x)[0][2 if batch_first else slice(None), slice(None) if batch_first else 2]
    torch.testing.assert_close(total, expected.detach())
    torch.testing.assert_close(parts.sum(1) + result.bias, total)
    assert result.names()[0] == "block 0, forward"
    assert result.names()[-1].endswith("reverse")


def test_a_linear_aggregate_may_be_parametrised() -> None:
    layer = ParaRNN(1, 4, aggregate=nn.utils.parametrizations.weight_norm(nn.Linear(4, 1)))
    result = contributions(layer, torch.randn(9, 1))
    assert result.of == "output"


def test_shares_of_large_values_in_single_precision() -> None:
    layer = make(ParaRNN, nonlinearity="linear").float()
    small, large = (contributions(layer, scale * data(9, 2).float()).shares() for scale in (1e10, 1e20))
    assert small.sum().item() == pytest.approx(1)
    torch.testing.assert_close(large, small)

from __future__ import annotations

import torch
from torch import nn

from parallelrnn import ParaGRU, ParaLSTM, swap
from parallelrnn.errors import ArgumentError, ArgumentTypeError
from parallelrnn.nn import Swaps
from tests.support import raises, touch_point


def test_swapping_the_layers_of_a_model() -> None:
    model = nn.ModuleDict(
        {
            "encoder": nn.Sequential(nn.LSTM(3, 8, 2, dropout=0.5, bidirectional=True), nn.Identity()),
            "odd": nn.GRU(3, 51, batch_first=True),
            "cell": nn.LSTMCell(8, 6, bias=False),
            "relu": nn.RNN(3, 4, nonlinearity="relu"),
            "projected": nn.LSTM(3, 12, proj_size=4),
            "map": nn.Linear(3, 3),
        }
    ).double()
    model["again"] = model["cell"]
    model["map_before"] = model["map"]
    model.eval()
    swaps = {row.name: row for row in swap(model)}
    assert list(swaps) == ["encoder.0", "odd", "cell, again", "relu", "projected"]
    assert model["map"] is model["map_before"]
    assert model["cell"] is model["again"]
    assert [type(module).__name__ for module in model.values()][1:5] == [
        "ParaGRU",
        "ParaLSTMCell",
        "ParaRNN",
        "ParaLSTM",
    ]
    assert isinstance(model["encoder"][0], ParaLSTM)
    assert (model["encoder"][0].num_layers, model["encoder"][0].dropout) == (2, 0.5)
    assert model["encoder"][0].bidirectional
    assert model["odd"].batch_first
    assert model["odd"].block_size == [2] * 24 + [3]
    assert "no multiple of 2" in swaps["odd"].reason
    assert model["relu"].nonlinearity == "relu"
    assert model["projected"].block_size == 3
    assert not model["cell"].bias
    assert all(parameter.dtype == torch.float64 for parameter in model.parameters())
    assert not any(module.training for module in model.modules())
    row = swaps["relu"]
    assert row.parameters_before == sum(weight.numel() for weight in nn.RNN(3, 4).parameters())
    assert row.parameters_after == sum(weight.numel() for weight in model["relu"].parameters())
    assert "per_block_" in str(Swaps(swaps.values()))
    assert not swap(model)
    assert str(swap(model)) == "no recurrent layers"


@touch_point("subclasses a layer, hooks, freezes or parametrizes it before `swap(model)`", "differs")
def test_layers_that_swapping_would_damage_are_left_alone() -> None:
    class Own(nn.LSTM):
        pass

    hooked, frozen = nn.GRU(3, 4), nn.GRU(3, 4).requires_grad_(False)
    hooked.register_forward_hook(lambda *arguments: None)
    normed = nn.utils.parametrizations.weight_norm(nn.LSTM(3, 4), "weight_hh_l0")
    model = nn.Sequential(Own(3, 4), hooked, frozen, normed)
    before = list(model)
    swaps = swap(model)
    assert all(old is new for old, new in zip(before, model, strict=True))
    reasons = [row.reason for row in swaps]
    for reason, fact in zip(reasons, ("Own", "hooks", "frozen", "parametrized"), strict=True):
        assert fact in reason
    assert not any(row.after for row in swaps)
    assert "per_block_" not in str(swaps)
    with raises(ArgumentError, "ParaLSTM", argument="model"):
        swap(nn.LSTM(3, 4))
    with raises(ArgumentTypeError, argument="model"):
        swap([nn.LSTM(3, 4)])  # type: ignore[arg-type]


def test_swap_leaves_layers_that_share_weights() -> None:
    model = nn.ModuleDict({"first": nn.GRU(3, 8), "second": nn.GRU(3, 8), "other": nn.GRU(3, 8)})
    model["second"].weight_hh_l0 = model["first"].weight_hh_l0
    swaps = {row.name: row for row in swap(model)}
    assert "shares weights" in swaps["first"].reason
    assert not swaps["second"].after
    assert model["second"].weight_hh_l0 is model["first"].weight_hh_l0
    assert isinstance(model["other"], ParaGRU)


def test_swap_leaves_layers_that_a_list_holds() -> None:
    model, layer = nn.Sequential(nn.LSTM(3, 8), nn.GRU(8, 8)), nn.GRU(8, 8)
    model.append(layer)
    vars(model)["layers"] = [layer]
    *swapped, left = swap(model)
    assert all(row.after for row in swapped)
    assert "list" in left.reason
    assert model[2] is layer


@touch_point("makes its optimizer before `swap(model)`", "differs")
def test_an_optimizer_holds_the_weights_from_before() -> None:
    model = nn.Sequential(nn.GRU(3, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    swap(model)
    held = {id(weight) for group in optimizer.param_groups for weight in group["params"]}
    assert not held & {id(weight) for weight in model.parameters()}

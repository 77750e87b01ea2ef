"""What users of torch.nn rely on: copies, files, packing, precision, compilation and export."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence, pad_packed_sequence

from parallelrnn import ParaGRU, ParaLSTM, ParaRNN
from tests.support import TWINS, as_tuple, dense_twin, random_state, touch_point, warns

LAYERS = [ParaRNN, ParaLSTM, ParaGRU]
FLOAT64 = {"rtol": 1e-11, "atol": 1e-12}
each_layer = pytest.mark.parametrize("cls", LAYERS)


def assert_same(first: Any, second: Any, **tolerance: float) -> None:
    torch.testing.assert_close(first[0], second[0], **tolerance)
    for a, b in zip(as_tuple(first[1]), as_tuple(second[1]), strict=True):
        torch.testing.assert_close(a, b, **tolerance)


@touch_point("`state_dict`, `deepcopy`, pickle", "same")
@each_layer
@pytest.mark.parametrize("options", [{}, {"block_size": [2, 4, 2]}, {"form": "polar"}, {"aggregate": "ffn"}], ids=str)
def test_copies_and_files_keep_every_number(cls: Any, options: dict[str, Any]) -> None:
    layer = cls(3, 8, num_layers=2, bidirectional=True, **options).eval()
    x = torch.randn(5, 4, 3)
    saved = io.BytesIO()
    torch.save(layer.state_dict(), saved)
    saved.seek(0)
    loaded = cls(3, 8, num_layers=2, bidirectional=True, **options).eval()
    loaded.load_state_dict(torch.load(saved, weights_only=True))
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), loaded):
        assert_same(other(x), layer(x), rtol=0, atol=0)


@each_layer
def test_the_default_initialisation_is_that_of_torch(cls: Any) -> None:
    torch.manual_seed(1)
    ours = cls(3, 8, num_layers=2, bidirectional=True, block_size=8, aggregate=None)
    torch.manual_seed(1)
    theirs = TWINS[cls](3, 8, num_layers=2, bidirectional=True)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for name, value in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], value, rtol=0, atol=0)
    x = torch.randn(5, 2, 3)
    ours.load_state_dict(theirs.state_dict())
    assert_same(ours(x), theirs(x))


@touch_point("packed sequences, sorted or not", "same")
@each_layer
@pytest.mark.parametrize("block_size", [2, [1, 2, 3, 2]])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("enforce_sorted", [False, True])
def test_packed_sequences(cls: Any, block_size: Any, bidirectional: bool, enforce_sorted: bool) -> None:
    aggregate = nn.Linear(8 * (1 + bidirectional), 5, dtype=torch.float64)
    options = {"block_size": block_size, "bidirectional": bidirectional, "aggregate": aggregate}
    layer = cls(3, 8, 2, **options, dtype=torch.float64)
    lengths = [7, 5, 5, 1] if enforce_sorted else [5, 1, 7, 5]
    sequences = [torch.randn(length, 3, dtype=torch.float64) for length in lengths]
    packed = pack_sequence(sequences, enforce_sorted=enforce_sorted)
    state = random_state(layer, len(sequences))
    output, final = layer(packed, state)

    assert isinstance(output, PackedSequence)
    for index in ("batch_sizes", "sorted_indices", "unsorted_indices"):
        torch.testing.assert_close(getattr(output, index), getattr(packed, index))
    padded, _ = pad_packed_sequence(output)
    for index, sequence in enumerate(sequences):
        own = tuple(s[:, index] for s in as_tuple(state))
        alone = layer(sequence, own if len(own) == 2 else own[0])
        actual = padded[: len(sequence), index], tuple(s[:, index] for s in as_tuple(final))
        assert_same(actual, alone, **FLOAT64)

    dense = dense_twin(layer)
    expected, expected_final = dense(packed, state)
    plain = PackedSequence(layer.aggregate(expected.data), *expected[1:])
    assert_same((output.data, final), (plain.data, expected_final), **FLOAT64)


def test_packed_sequences_with_projected_unequal_blocks_under_autocast() -> None:
    layer = ParaLSTM(3, 9, 2, proj_size=4, block_size=[4, 5], bidirectional=True, aggregate=None)
    packed = pack_sequence([torch.randn(length, 3) for length in (2, 6, 3)], enforce_sorted=False)
    output, final = layer(packed)
    expected, expected_final = dense_twin(layer)(packed)
    assert_same((output.data, final), (expected.data, expected_final))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded, _ = layer(packed)
    torch.testing.assert_close(rounded.data, output.data, rtol=0, atol=0.02)


@touch_point("unbatched input, `batch_first`", "same")
@each_layer
def test_unbatched_and_batch_first_inputs(cls: Any) -> None:
    layer = cls(3, 8, num_layers=2, bidirectional=True)
    first = cls(3, 8, num_layers=2, bidirectional=True, batch_first=True)
    first.load_state_dict(layer.state_dict())
    x = torch.randn(5, 4, 3)
    state = random_state(layer, 4)
    output, final = layer(x, state)
    assert_same(first(x.transpose(0, 1), state), (output.transpose(0, 1), final))
    own = tuple(s[:, 2] for s in as_tuple(state))
    for module in (layer, first):  # batch_first says nothing about input without a batch
        alone = module(x[:, 2], own if len(own) == 2 else own[0])
        assert_same(alone, (output[:, 2], tuple(s[:, 2] for s in as_tuple(final))))


@touch_point("`dropout`, `train()`, `eval()`", "same")
def test_dropout_lies_between_layers_and_only_in_training() -> None:
    layer = ParaLSTM(3, 8, num_layers=2, dropout=0.5)
    x = torch.randn(5, 4, 3)
    assert not torch.equal(layer(x)[0], layer(x)[0])
    all_dropped = ParaGRU(3, 8, num_layers=2, dropout=1.0, aggregate=None)
    # With everything dropped the second layer sees zeros: its output cannot depend on x, the first layer's state can.
    output, h_n = all_dropped(x)
    other, other_h_n = all_dropped(torch.randn(5, 4, 3))
    torch.testing.assert_close(output, other, rtol=0, atol=0)
    assert not torch.equal(h_n[0], other_h_n[0])
    assert torch.equal(output[-1], h_n[1])  # and nothing is dropped after the last layer
    assert torch.equal(layer.eval()(x)[0], layer(x)[0])
    with warns(UserWarning, "dropout=0.5", "num_layers"):
        ParaLSTM(3, 8, dropout=0.5)


def test_dropout_keeps_its_share_and_the_mean() -> None:
    layer = ParaRNN(4, 4, 2, "linear", bias=False, dropout=0.2, block_size=4, aggregate=None)
    with torch.no_grad():  # both layers pass on what they get
        for name, parameter in layer.named_parameters():
            parameter.copy_(torch.eye(4) if name.startswith("weight_ih") else torch.zeros(4, 4))
    output, _ = layer(torch.ones(1000, 10, 4))
    mask = output != 0
    torch.testing.assert_close(output[mask], torch.full_like(output[mask], 1 / 0.8))
    assert abs(mask.float().mean() - 0.8) < 5 * (0.2 * 0.8 / mask.numel()) ** 0.5  # five standard errors


@touch_point("`.double()`, `.to(torch.bfloat16)`", "same")
@each_layer
def test_double_and_bfloat16_weights(cls: Any) -> None:
    layer = cls(3, 8, num_layers=2)
    x = torch.randn(6, 4, 3)
    reference = layer(x)[0]
    torch.testing.assert_close(copy.deepcopy(layer).double()(x.double())[0].float(), reference)
    half = copy.deepcopy(layer).bfloat16()(x.bfloat16())[0]
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), reference, rtol=0, atol=0.05)  # a few of bfloat16's units of 1/128


@each_layer
@pytest.mark.parametrize("aggregate", ["linear", None])
def test_autocast_is_close_and_keeps_states_and_gradients_in_the_dtype_of_the_weights(cls: Any, aggregate: Any) -> None:
    layer = cls(3, 8, num_layers=2, aggregate=aggregate)
    x = torch.randn(60, 4, 3)
    reference, _ = layer(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output, final = layer(x)
        continued, _ = layer(x.bfloat16(), final)
    assert output.dtype == continued.dtype == (torch.bfloat16 if aggregate else torch.float32)
    assert all(s.dtype == torch.float32 for s in as_tuple(final))
    # Each projection rounds once to bfloat16, 2^-9 of numbers around one; contracting blocks do not let it grow with T.
    torch.testing.assert_close(output.float(), reference, rtol=0, atol=0.02)
    output.float().sum().backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in layer.parameters())


@each_layer
def test_autocast_leaves_the_recurrence_alone(cls: Any) -> None:
    layer = cls(3, 8, bias=False, aggregate=None)
    x, state = torch.zeros(20, 4, 3), random_state(layer, 4)  # nothing to project, so nothing to round
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = layer(x, state)
    assert_same(inside, layer(x, state), rtol=0, atol=0)


@each_layer
@pytest.mark.parametrize(
    "options",
    [{}, pytest.param({"bidirectional": True, "block_size": [2, 4, 2]}, marks=pytest.mark.slow), {"form": "polar"}],
    ids=str,
)
def test_compiles_as_one_graph_with_gradients(cls: Any, options: dict[str, Any]) -> None:
    torch.compiler.reset()
    layer = cls(3, 8, num_layers=2, **options)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    x, state = torch.randn(4, 5, 3), random_state(layer, 5)
    assert_same(compiled(x, state), layer(x, state))
    eager = torch.autograd.grad(layer(x)[0].square().sum(), list(layer.parameters()))
    graph = torch.autograd.grad(compiled(x)[0].square().sum(), list(layer.parameters()))
    for ours, theirs in zip(graph, eager, strict=True):
        torch.testing.assert_close(ours, theirs)


@each_layer
def test_calls_with_other_parameters(cls: Any) -> None:
    layer, other = cls(3, 8), cls(3, 8)
    x = torch.randn(5, 4, 3)
    assert_same(torch.func.functional_call(layer, dict(other.named_parameters()), (x,)), other(x), rtol=0, atol=0)
    parameters = {
        k: torch.stack([a, b]) for (k, a), b in zip(layer.named_parameters(), other.parameters(), strict=True)
    }
    outputs = torch.func.vmap(lambda p: torch.func.functional_call(layer, p, (x,))[0])(parameters)
    torch.testing.assert_close(outputs, torch.stack([layer(x)[0], other(x)[0]]))


@each_layer
def test_shapes_on_the_meta_device(cls: Any) -> None:
    output, final = cls(3, 8, 2, device="meta")(torch.empty(5, 4, 3, device="meta"))
    assert output.shape == (5, 4, 8)
    assert all(s.shape == (2, 4, 8) and s.is_meta for s in as_tuple(final))


@touch_point("makes the layer on the meta device and fills it later", "same")
@each_layer
def test_made_on_the_meta_device_and_filled_later(cls: Any) -> None:
    layer = cls(3, 8, block_size=[2, 3, 3])
    other = cls(3, 8, block_size=[2, 3, 3], device="meta")
    other = other.to_empty(device="cpu")
    other.load_state_dict(layer.state_dict())
    x = torch.randn(5, 4, 3)
    assert_same(other(x), layer(x), rtol=0, atol=0)


@touch_point("reads `hidden_size`, `num_layers`, `bidirectional`; calls `reset_parameters`", "same")
@each_layer
def test_stands_where_its_twin_stood(cls: Any) -> None:
    """Attributes and calls that code written for torch.nn makes."""
    layer = cls(3, 8, 2)
    theirs = TWINS[cls](3, 8, 2)
    layer.flatten_parameters()
    assert [len(group) for group in layer.all_weights] == [len(group) for group in theirs.all_weights]
    for name in [
        "input_size",
        "hidden_size",
        "num_layers",
        "bias",
        "batch_first",
        "dropout",
        "bidirectional",
        "proj_size",
    ]:
        assert getattr(layer, name) == getattr(theirs, name)
    assert isinstance(nn.ModuleList([layer])[0], cls)
    weights = [p.detach().clone() for p in layer.parameters()]
    layer.reset_parameters()
    assert all(not torch.equal(before, after) for before, after in zip(weights, layer.parameters(), strict=True))


def test_a_description_names_what_is_not_default() -> None:
    assert repr(ParaRNN(3, 8)) == "ParaRNN(\n  3, 8, block_size=2\n  (aggregate): None\n)"
    text = repr(ParaGRU(3, 8, 2, bias=False, bidirectional=True, block_size=[2, 6], aggregate="linear"))
    assert "3, 8, block_size=[2, 6], num_layers=2, bias=False, bidirectional=True" in text
    assert "(aggregate): LinearAggregate(in_features=16, out_features=16, bias=False)" in text
    assert "nonlinearity='relu'" in repr(ParaRNN(3, 8, nonlinearity="relu"))

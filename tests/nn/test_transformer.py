from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from parallelrnn import FeatureTracker, recurrence_features, report
from parallelrnn.errors import ArgumentError, ArgumentTypeError, TensorError
from parallelrnn.nn import BlockRecurrentTransformer
from parallelrnn.nn.token_layers import GATES, Cache, RecurrentTokenLayer, make_gate
from tests.support import raises

ATTENTIONS = ("para", "multihead")


def small(**options: Any) -> BlockRecurrentTransformer:
    torch.manual_seed(0)
    made = {"num_layers": 3, "num_heads": 2, "num_states": 4, "segment_length": 5, **options}
    model = BlockRecurrentTransformer(3, 8, **made, dtype=torch.float64)
    for name, parameter in model.named_parameters():  # nothing that is zero or one, as it is at the start
        if "positions" in name or "bias" in name or "ids" in name or "initial" in name:
            nn.init.normal_(parameter)
    return model


def sequences(steps: int = 17, batch: int = 3) -> Tensor:
    return torch.randn(batch, steps, 3, dtype=torch.float64)


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("layers", [(-2,), (0, 2), range(3), ()], ids=str)
def test_a_sequence_in_parts_gives_the_same_as_one_call(attention: str, layers: Any) -> None:
    model, x = small(attention=attention, recurrent_layers=layers), sequences()
    expected, last = model(x)
    weights = torch.randn_like(expected)
    (grad,) = torch.autograd.grad((expected * weights).sum(), model.embed.weight)
    for cuts in ([5, 5, 5, 2], [10, 7], [3, 7, 7], [1] * 17, [16, 1]):
        state, parts = None, []
        for part in x.split(cuts, 1):
            output, state = model(part, state)
            parts.append(output)
        torch.testing.assert_close(torch.cat(parts, 1), expected)
        torch.testing.assert_close(state, last)
        torch.testing.assert_close(
            torch.autograd.grad((torch.cat(parts, 1) * weights).sum(), model.embed.weight)[0], grad
        )


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_nothing_is_known_before_it_comes(attention: str) -> None:
    model, x = small(attention=attention, recurrent_layers=range(3)), sequences()
    before, _ = model(x)
    for step in range(17):
        moved = x.clone()
        moved[:, step:] += 1
        after, _ = model(moved)
        torch.testing.assert_close(after[:, :step], before[:, :step], rtol=0, atol=0)
        assert (after[:, step] - before[:, step]).abs().amax(-1).min() > 1e-6


def test_a_window_is_as_long_as_a_segment_and_states_reach_further() -> None:
    """One layer without states sees itself and five steps before it; with states, all segments before its own."""
    x = sequences()
    for layers, first in (((), 11), ((0,), 0)):
        model = small(num_layers=1, recurrent_layers=layers)
        x.requires_grad_()
        (grad,) = torch.autograd.grad((model(x)[0][:, 16] * torch.arange(8)).sum(), x)  # a plain sum is fixed
        reached = grad.abs().amax((0, 2)).nonzero()
        assert reached[0].item() == first
        assert reached[-1].item() == 16


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_padding_changes_nothing(attention: str) -> None:
    model, x = small(attention=attention, recurrent_layers=(0, 2)), sequences(batch=7)
    lengths = torch.tensor([17, 12, 1, 5, 16, 6, 0])
    for row, length in enumerate(lengths.tolist()):
        x[row, length:] = math.nan
    together, state = model(x, lengths=lengths)
    for row, length in enumerate(lengths.tolist()[:-1]):
        alone, last = model(x[row : row + 1, :length])
        torch.testing.assert_close(together[row, :length], alone[0])
        assert not together[row, length:].any()
        for ours, theirs in zip(state.states, last.states, strict=True):
            torch.testing.assert_close(ours[row], theirs[0])
    (grad,) = torch.autograd.grad(model(x.requires_grad_(), lengths=lengths)[0].exp().sum(), x)
    assert grad.isfinite().all()
    assert not grad[2, 1:].any()
    assert not together[6].any()
    torch.testing.assert_close(state.states[0][6], model.recurrent_layers[0].initial)
    with raises(TensorError, argument="state"):
        model(sequences(batch=7), state)
    torch.testing.assert_close(model(sequences()[:, :5], lengths=[5, 5, 5])[1].ragged, False)


def test_gradients_are_those_of_differences() -> None:
    model = small(num_layers=2, num_states=2, segment_length=2, num_heads=1)
    x = sequences(3, 1).requires_grad_()
    names, parameters = zip(*((n, p) for n, p in model.named_parameters() if p.numel() <= 8), strict=True)

    def outputs(x: Tensor, *values: Tensor) -> Tensor:
        y, state = torch.func.functional_call(model, dict(zip(names, values, strict=True)), (x,))
        return (y * torch.arange(8)).sum() + sum(states.square().sum() for states in state.states)

    assert torch.autograd.gradcheck(outputs, (x, *parameters))


def test_gradients_flow_through_segments_or_stop() -> None:
    x = sequences().requires_grad_()
    for truncate, first in ((None, 0), (2, 10), (3, 15)):
        model = small(truncate=truncate, num_layers=1)
        y, _ = model(x)
        (grad,) = torch.autograd.grad((y[:, 16] * torch.arange(8)).sum(), x, retain_graph=True)
        assert grad.abs().amax((0, 2)).nonzero()[0].item() == first
        (y * torch.randn_like(y)).sum().backward()
        assert all(bool(parameter.grad.any()) for parameter in model.parameters())  # all that it has learns
    model = small()
    _, state = model(x[:, :10])
    (grad,) = torch.autograd.grad(model(x[:, 10:], state.detach())[0].square().sum(), x)
    assert not grad[:, :10].any()


def attended(q: Tensor, k: Tensor, v: Tensor, heads: int, bias: Tensor | None = None) -> Tensor:
    """(N, d), (M, d), head by head; bias (heads, N, M)."""
    parts = []
    for head, (q_h, k_h, v_h) in enumerate(zip(*(x.chunk(heads, -1) for x in (q, k, v)), strict=True)):
        scores = q_h @ k_h.T / math.sqrt(q_h.shape[-1])
        parts.append((scores if bias is None else scores + bias[head]).softmax(-1) @ v_h)
    return torch.cat(parts, -1)


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("block_size", [2, None])
def test_a_recurrent_layer_is_what_its_contract_says(gate: str, block_size: int | None) -> None:
    options = {"dtype": torch.float64}
    layer = RecurrentTokenLayer(8, 2, 0.0, 3, block_size, gate, **options)
    nn.init.normal_(layer.positions.weight)
    tokens, states = torch.randn(4, 8, **options), torch.randn(3, 8, **options)
    old, none = torch.randn(2, 2, 8, **options), torch.zeros(1, 0, 8, **options)
    out, cache = layer(tokens[None], Cache(old[:1], old[1:]), Cache(none, none), 4, states[None])
    after = layer.update(states[None], cache)

    x, s = layer.norm(tokens), layer.state_norm(states) + layer.ids
    q_x, k_x, v_x, q_s = (
        x @ w.T + b for w, b in zip(layer.project.weight.chunk(4), layer.project.bias.chunk(4), strict=True)
    )
    k_s, v_s = layer.of_states["key"](s), layer.of_states["value"](s)
    torch.testing.assert_close((cache.keys[0], cache.values[0]), (k_x, v_x))
    bias = torch.full((2, 4, 6), -math.inf, **options)
    for query in range(4):
        for key in range(6):
            back = query + 2 - key
            if 0 <= back <= 4:
                bias[:, query, key] = layer.positions.weight[:, back]
    among = attended(q_x, torch.cat([old[0], k_x]), torch.cat([old[1], v_x]), 2, bias)
    about = attended(q_s, k_s, v_s, 2)
    y = tokens + layer.out(torch.cat([among, about], -1))
    torch.testing.assert_close(out[0], y + layer.feed_forward(y))

    heads = 2 if block_size is None else 4
    own = attended(layer.of_states["query"](s), k_s, v_s, heads)
    read = attended(layer.of_states["cross_query"](s), k_x, v_x, heads)
    torch.testing.assert_close(after[0], layer.gate(states, layer.state_out(torch.cat([own, read], -1))))


def test_gates() -> None:
    s, h = torch.randn(5, 4, dtype=torch.float64), torch.randn(5, 4, dtype=torch.float64)
    made = {kind: make_gate(kind, 4, dtype=torch.float64) for kind in GATES}

    def of(linear: Any, extra: float = 0.0) -> Tensor:
        return h @ linear.weight.T + linear.bias + extra

    g = 1 / (1 + torch.exp(-made["bias"].keep))
    assert g.tolist() == pytest.approx([1 / (1 + math.exp(-1))] * 4)
    torch.testing.assert_close(made["bias"](s, h), g * s + (1 - g) * of(made["bias"].new))
    g = 1 / (1 + torch.exp(-of(made["full"].keep)))
    torch.testing.assert_close(made["full"](s, h), g * s + (1 - g) * of(made["full"].new))
    f, i = (
        1 / (1 + torch.exp(-of(made["lstm"].get_submodule(name), add))) for name, add in (("forget", 1), ("input", -1))
    )
    torch.testing.assert_close(made["lstm"](s, h), f * s + i * torch.tanh(of(made["lstm"].new)))


@pytest.mark.parametrize(("attention", "blocks", "size"), [("para", 4, 2), ("multihead", 1, 8)])
def test_its_memory_can_be_read_and_followed(attention: str, blocks: int, size: int, tmp_path: Path) -> None:
    model = small(attention=attention, recurrent_layers=(0, 1))
    matrices = [block.matrix for block in model.recurrent_blocks()]
    assert len(matrices) == 2 * 4 * blocks
    assert {tuple(matrix.shape) for matrix in matrices} == {(size, size)}
    features = recurrence_features(model)
    assert {feature.gate for feature in features} == {"query", "cross_query", "key", "value"}
    assert {feature.layer for feature in features} == {0, 1}
    tracker = FeatureTracker(model)
    assert tracker.record(0).counts == features.counts()
    assert "queries, keys and values" in str(features.summary())
    assert "growing" not in str(features.summary()), "what is no transition has no half-life"
    report(model, sequences(), tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "2 of 3 layers with 4 states of 8" in page
    assert "the output is not a sum over blocks" in page


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def test_para_has_fewer_parameters() -> None:
    para, dense = small(attention="para"), small(attention="multihead")
    assert count(dense) - count(para) == 4 * (8 * 8 - 8 * 2)  # four maps of the state in one layer


def test_segments_by_number() -> None:
    x = sequences(16)
    by_length, by_number = small(segment_length=4), small(segment_length=None, num_segments=4)
    torch.testing.assert_close(by_number(x)[0], by_length(x)[0])
    assert by_number._ends(9, 0) == [2, 4, 6, 9]
    assert by_number._ends(3, 0) == [1, 2, 3]
    with raises(ArgumentError, argument="lengths", got=[1, 2, 3]):
        by_number(x, lengths=[1, 2, 3])
    other = small(segment_length=None, num_segments=4)(x)[1]
    torch.testing.assert_close(by_number(x, other)[0], by_length(x, other)[0])


def test_one_layer_has_states_by_default() -> None:
    assert len(small(num_layers=1).recurrent_layers) == 1


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_the_settings_of_the_paper_take_a_training_step(attention: str) -> None:
    for input_size, size, states in ((7, 512, 128), (1, 256, 32)):
        model = BlockRecurrentTransformer(input_size, size, 3, 8, states, num_segments=2, attention=attention)
        before = [parameter.detach().clone() for parameter in model.parameters()]
        y, _ = model(torch.randn(2, 24, input_size))
        y.pow(3).mean().backward()
        torch.optim.Adam(model.parameters()).step()
        for old, new in zip(before, model.parameters(), strict=True):
            assert new.isfinite().all()
            assert not torch.equal(old, new)


def test_it_compiles_as_one_graph_and_runs_under_autocast() -> None:
    model, x = small(num_layers=1, segment_length=2).float(), sequences(5).float()
    expected, _ = model(x)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x)[0], expected, rtol=1e-4, atol=1e-4)
    with torch.autocast("cpu", torch.bfloat16):
        rounded, _ = model(x)
    torch.testing.assert_close(rounded.float(), expected, rtol=0.1, atol=0.2)


def recalled(layers: tuple[int, ...], **options: Any) -> float:
    """How often the first of 12 symbols is recalled at the end, after training; two layers of windows reach back 6."""
    torch.manual_seed(0)
    model = BlockRecurrentTransformer(
        4, 16, num_layers=2, num_heads=2, num_states=2, segment_length=3, recurrent_layers=layers, **options
    )
    readout = nn.Linear(16, 4)
    optimizer = torch.optim.Adam([*model.parameters(), *readout.parameters()], lr=3e-3)
    right = 0.0
    for _ in range(600 if layers else 300):  # most take 80 to 170, one 305, as rounding wills
        symbols = torch.randint(4, (32,))
        x = torch.zeros(32, 12, 4)
        x[range(32), 0, symbols] = 1  # and nothing after it
        scores = readout(model(x)[0][:, -1])
        loss = nn.functional.cross_entropy(scores, symbols)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        right += 0.1 * (float((scores.argmax(-1) == symbols).float().mean()) - right)  # the last ten batches or so
        if right > 0.99:
            break
    return right


@pytest.mark.parametrize(
    ("attention", "gate"),
    [
        pytest.param(attention, gate, marks=() if (attention, gate) == ("para", "bias") else pytest.mark.slow)
        for attention in ATTENTIONS
        for gate in GATES
    ],
)
def test_a_symbol_is_carried_over_segments_by_states(attention: str, gate: str) -> None:
    assert recalled((0,), attention=attention, gate=gate) > 0.99


def test_without_states_no_symbol_is_carried_over_segments() -> None:
    assert recalled(()) < 0.45  # of four, one in four is guessed


def test_wrong_inputs_and_states_are_rejected() -> None:
    model = small()
    with raises(TensorError, argument="x", got=(2, 3)):
        model(torch.zeros(2, 3, dtype=torch.float64))
    with raises(TensorError, argument="x", got=torch.float32):
        model(sequences().float())
    with raises(ArgumentTypeError, argument="x", got=list):
        model([[1.0]])
    for lengths in ([1, 2, 18], [1.0, 2.0, 3.0], [1, -1, 2], [1, 2]):
        with raises(ArgumentError, argument="lengths", got=lengths):
            model(sequences(), lengths=lengths)
    with raises(ArgumentTypeError, argument="state", got=tuple):
        model(sequences(), ())
    others = [small(recurrent_layers=()), small(num_states=5), small(num_layers=2), small(segment_length=9)]
    states = [other(sequences())[1] for other in others]
    states += [model(sequences(batch=2))[1], small().float()(sequences().float())[1]]
    for state in states:
        with raises(TensorError, argument="state"):
            model(sequences(), state)

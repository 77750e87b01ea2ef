"""Any arguments at all: what is built runs as documented and like the reference; what is not says why."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import parallelrnn
from parallelrnn import (
    BlockRecurrentTransformer,
    ParaAttention,
    ParaGRU,
    ParaGRUCell,
    ParaLSTM,
    ParaLSTMCell,
    ParaRNN,
    ParaRNNCell,
    WaveDecoder,
)
from parallelrnn.nn.attention import ParaAttentionCell
from tests.support import as_tuple

LAYERS: dict[str, Any] = {"rnn": ParaRNN, "lstm": ParaLSTM, "gru": ParaGRU}
CELLS: dict[str, Any] = {"rnn": ParaRNNCell, "lstm": ParaLSTMCell, "gru": ParaGRUCell}
# A derived tolerance as in tests/kernels/test_cpu.py: a few dozen roundings of numbers around one, in float64.
TOLERANCE = 1e-12
NUMBERS = [True, False, 0, -1, -(2**70), 2**45, 2**63, 2**70, 0.5, 2.0, float("nan"), float("inf"), 2j]
LISTS = [[], [2, 3], [2, -2], [0], [2**70], ["a"], (1, 2), {3}, {}]
OTHERS = [None, "two", "", b"2", object(), nn.Linear, torch.tensor(2), torch.zeros(3)]
HOSTILE = st.sampled_from([*NUMBERS, *LISTS, *OTHERS])
SETTINGS = settings(
    deadline=None,  # this may be a busy machine
    derandomize=True,  # the same cases every time
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def refused(call: Callable[[], Any]) -> bool:
    """Whether a call refuses, by an error of ours that is a sentence; what comes from deeper inside is a failure."""
    error = _error_of(call)
    if error is None:
        return False
    last = traceback.extract_tb(error.__traceback__)[-1]
    ours = Path(last.filename).is_relative_to(Path(parallelrnn.__file__).parent)
    # The types of torch.nn: where its twin raises a RuntimeError, so do we, with a text of ours.
    assert ours or type(error) is TypeError, "".join(traceback.format_exception(error))
    assert len(str(error).split()) >= 4, f"no sentence: {error}"
    return True


def _error_of(call: Callable[[], Any]) -> Exception | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # dropout of one layer
            call()
    except (ValueError, TypeError, RuntimeError) as error:
        return error
    return None


def layer_options(kind: str) -> st.SearchStrategy[dict[str, Any]]:
    """Arguments that belong together."""
    blocks = st.lists(st.integers(1, 5), min_size=1, max_size=4)
    common: dict[str, st.SearchStrategy[Any]] = {
        "input_size": st.integers(1, 12),
        "num_layers": st.integers(1, 3),
        "bias": st.booleans(),
        "batch_first": st.booleans(),
        "bidirectional": st.booleans(),
        "aggregate": st.sampled_from(["linear", "fc", "ffn", None]),
    }
    if kind == "rnn":
        common["nonlinearity"] = st.sampled_from(["tanh", "relu", "sigmoid", "linear"])

    def with_blocks(drawn: tuple[dict[str, Any], list[int], str]) -> dict[str, Any]:
        options, sizes, how = drawn
        if how == "polar":
            return {**options, "hidden_size": 2 * len(sizes), "block_size": 2, "form": "polar"}
        if how == "equal":
            return {**options, "hidden_size": sizes[0] * len(sizes), "block_size": sizes[0]}
        return {**options, "hidden_size": sum(sizes), "block_size": sizes}

    ways = st.sampled_from(["equal", "unequal", "polar"])
    return st.tuples(st.fixed_dictionaries(common), blocks, ways).map(with_blocks)


@pytest.mark.parametrize("kind", LAYERS)
@settings(SETTINGS, max_examples=25)
@given(data=st.data())
def test_layers_have_the_shapes_of_torch_and_the_numbers_of_the_reference(kind: str, data: st.DataObject) -> None:
    options = data.draw(layer_options(kind))
    steps, batch = data.draw(st.integers(1, 6)), data.draw(st.integers(0, 5))
    torch.manual_seed(0)
    layer = LAYERS[kind](**options, dtype=torch.float64)
    shape = (batch, steps) if layer.batch_first else (steps, batch)
    x = torch.randn(*shape, layer.input_size, dtype=torch.float64)
    output, state = layer(x)
    width = layer.hidden_size * layer.num_directions
    assert output.shape == (*shape, width)
    assert all(s.shape == (layer.num_layers * layer.num_directions, batch, layer.hidden_size) for s in as_tuple(state))
    assert output.isfinite().all()
    plain = LAYERS[kind](**options, dtype=torch.float64, backend="reference")
    plain.load_state_dict(layer.state_dict())
    expected, expected_state = plain(x)
    for ours, theirs in zip((output, *as_tuple(state)), (expected, *as_tuple(expected_state)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=TOLERANCE * max(1.0, _largest(theirs)))


def _largest(tensor: Tensor) -> float:
    return tensor.abs().max().item() if tensor.numel() else 0.0


@pytest.mark.parametrize("kind", CELLS)
@settings(SETTINGS, max_examples=15)
@given(data=st.data())
def test_cells_step_like_the_reference(kind: str, data: st.DataObject) -> None:
    options = data.draw(layer_options(kind))
    for name in ("num_layers", "batch_first", "bidirectional", "aggregate"):
        del options[name]
    batch = data.draw(st.integers(0, 5))
    torch.manual_seed(0)
    cell = CELLS[kind](**options, dtype=torch.float64)
    plain = CELLS[kind](**options, dtype=torch.float64, backend="reference")
    plain.load_state_dict(cell.state_dict())
    x = torch.randn(batch, cell.input_size, dtype=torch.float64)
    for ours, theirs in zip(as_tuple(cell(x)), as_tuple(plain(x)), strict=True):
        assert ours.shape == (batch, cell.hidden_size)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=TOLERANCE * max(1.0, _largest(theirs)))


MODULES: dict[str, tuple[Any, dict[str, Any]]] = {  # with arguments that are right
    **{f"{kind} layer": (cls, {"input_size": 3, "hidden_size": 4, "aggregate": None}) for kind, cls in LAYERS.items()},
    **{f"{kind} cell": (cls, {"input_size": 3, "hidden_size": 4}) for kind, cls in CELLS.items()},
    "transformer": (BlockRecurrentTransformer, {"input_size": 3, "d_model": 4, "num_heads": 2, "num_states": 2}),
    "attention": (ParaAttention, {"embed_dim": 4}),
    "attention cell": (ParaAttentionCell, {"hidden_size": 4}),
    "waves": (WaveDecoder, {"input_size": 3}),
}
RECURRENT = ["bias", "block_size", "form", "backend"]
SEGMENTS = ["segment_length", "num_segments", "truncate"]
LAYER = [*RECURRENT, "num_layers", "batch_first", "dropout", "bidirectional", "aggregate"]
OPTIONS: dict[str, list[str]] = {
    **{f"{kind} cell": RECURRENT for kind in CELLS},
    **{f"{kind} layer": LAYER for kind in LAYERS},
    "rnn layer": [*LAYER, "nonlinearity"],
    "lstm layer": [*LAYER, "proj_size"],
    "transformer": [*SEGMENTS, "num_layers", "recurrent_layers", "attention", "block_size", "gate", "dropout"],
    "attention": ["block_size", "bias"],
    "attention cell": ["block_size"],
    "waves": ["output_size", "num_waves", "num_decays"],
}


@pytest.mark.parametrize("name", MODULES)
@settings(SETTINGS, max_examples=80)
@given(data=st.data())
def test_hostile_arguments_are_refused_or_build_something_that_runs(name: str, data: st.DataObject) -> None:
    cls, right = MODULES[name]
    others = data.draw(st.lists(st.sampled_from([*right, *OPTIONS[name]]), min_size=1, max_size=2, unique=True))
    options = {**right, **{other: data.draw(HOSTILE) for other in others}}
    built: list[nn.Module] = []
    if not refused(lambda: built.append(cls(**options))):
        run(name, built[0])


def run(name: str, module: Any) -> None:
    """What can be built can be called, and gives numbers."""
    module.eval()
    if name == "waves":
        result = module(torch.randn(2, module.input_size), 5)
        assert result.shape == (2, 5, module.output_size)
    elif name == "attention":
        result = module(torch.randn(2, 5, module.embed_dim))
    elif name == "attention cell":
        result = module(torch.randn(2, 5, module.hidden_size))
    elif name == "transformer":
        result, _ = module(torch.randn(2, 5, module.input_size))
        assert result.shape == (2, 5, module.d_model)
    elif name.endswith("cell"):
        result = as_tuple(module(torch.randn(2, module.input_size)))[0]
        assert result.shape == (2, module.hidden_size)
    else:
        result, _ = module(torch.randn(4, 2, module.input_size))
    assert result.isfinite().all()


@pytest.mark.parametrize("name", MODULES)
@settings(SETTINGS, max_examples=25)
@given(data=st.data())
def test_hostile_inputs_are_refused(name: str, data: st.DataObject) -> None:
    cls, right = MODULES[name]
    module = cls(**right)
    width = right.get("input_size", 4)
    shape = data.draw(st.lists(st.sampled_from([0, 1, 2, width]), max_size=4))
    dtype = data.draw(st.sampled_from([torch.float32, torch.float64, torch.int64, torch.bool, torch.complex64]))
    x = data.draw(st.one_of(HOSTILE, st.just(torch.ones(shape, dtype=dtype))))
    second = data.draw(st.one_of(st.none(), HOSTILE, st.just(torch.ones(shape[1:], dtype=dtype))))
    refused(lambda: module(x, 3 if name == "waves" and second is None else second))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: ParaRNN(3, 2**40), "weights of torch.float32 take"),
        (lambda: ParaRNN(3, 2**70), "hidden_size must be at most 2 to the power of 48"),
        (lambda: ParaGRU(3, 8, num_layers=2**40), "and this machine has"),
        (lambda: ParaGRU(3, 4 * 10**6), "ParaGRU: 16000000000000 weights of torch.float32"),  # its aggregate
        (lambda: ParaLSTMCell(2**45, 8), "use smaller sizes"),
        (lambda: ParaAttention(2**30), "use smaller sizes"),
        (lambda: WaveDecoder(3, num_waves=2**60), "use smaller sizes"),
        (lambda: BlockRecurrentTransformer(3, 8, num_layers=2**40), "use smaller sizes"),
        (lambda: ParaRNN(3, 8, dtype=torch.int64), "expected a floating-point dtype, got torch.int64"),
    ],
)
def test_what_no_machine_holds_is_refused_before_memory_is_taken(make: Callable[[], Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        make()


def test_on_the_meta_device_any_size_can_be_looked_at() -> None:
    assert ParaRNN(3, 10**6, aggregate="linear", device="meta").aggregate.weight.shape == (10**6, 10**6)


@pytest.mark.parametrize("value", ["no", 1, None])
def test_bidirectional_is_true_or_false(value: Any) -> None:
    with pytest.raises(TypeError, match="bidirectional should be of type bool, got"):
        ParaGRU(3, 8, bidirectional=value)


def test_attention_and_waves_say_what_they_expected() -> None:
    attention, cell, decoder = ParaAttention(4), ParaAttentionCell(4), WaveDecoder(3)
    x = torch.randn(2, 5, 4)
    for error, text, call in (
        (TypeError, "expected query to be a torch.Tensor, got NoneType", lambda: attention(None)),
        (ValueError, r"query: expected vectors \(B, N, 4\), got the shape \(\)", lambda: attention(torch.ones(()))),
        (ValueError, "key dtype .* does not match weight dtype", lambda: attention(x, x.double())),
        (ValueError, r"value: expected one for each key, \(2, 5, 4\)", lambda: attention(x, x, x[:, 1:])),
        (TypeError, "expected key_padding_mask to be a torch.Tensor", lambda: attention(x, key_padding_mask=[True])),
        (ValueError, "h dtype .* does not match", lambda: cell(x, torch.zeros(2, 4).double())),
        (TypeError, "expected h to be a torch.Tensor, got ndarray", lambda: cell(x, x[:, 0].numpy())),
        (ValueError, r"state: expected \(B, 3\), got the shape \(2, 4\)", lambda: decoder(x[:, 0], 5)),
        (ValueError, "state dtype .* does not match", lambda: decoder(torch.zeros(2, 3).double(), 5)),
        (TypeError, "expected state to be a torch.Tensor, got list", lambda: decoder([0.0] * 3, 5)),
    ):
        with pytest.raises(error, match=text):
            call()

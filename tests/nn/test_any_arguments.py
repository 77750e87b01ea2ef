"""Arguments of any kind: a module either runs as documented and like the reference, or raises an error of ours."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from parallelrnn import (
    BlockRecurrentTransformer,
    ParaAttention,
    ParaAttentionCell,
    ParaGRU,
    ParaGRUCell,
    ParaLSTM,
    ParaLSTMCell,
    ParaRNN,
    ParaRNNCell,
    WaveDecoder,
)
from parallelrnn.errors import ArgumentError, ParallelRNNError, is_out_of_memory
from tests.support import as_tuple, raises

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


def rejected(call: Callable[[], Any]) -> bool:
    """Return whether a call raises an error of ours, or a TypeError of Python; any other is a failure of the test."""
    error = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # dropout of one layer
            call()
    except (ValueError, TypeError, RuntimeError) as raised:
        error = raised
    ours = error is None or isinstance(error, ParallelRNNError) or type(error) is TypeError or is_out_of_memory(error)
    assert ours, "".join(traceback.format_exception(error))
    return error is not None


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

    layouts = st.sampled_from(["equal", "unequal", "polar"])
    return st.tuples(st.fixed_dictionaries(common), blocks, layouts).map(with_blocks)


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
def test_hostile_arguments_are_rejected_or_build_something_that_runs(name: str, data: st.DataObject) -> None:
    cls, right = MODULES[name]
    others = data.draw(st.lists(st.sampled_from([*right, *OPTIONS[name]]), min_size=1, max_size=2, unique=True))
    options = {**right, **{other: data.draw(HOSTILE) for other in others}}
    built: list[nn.Module] = []
    if not rejected(lambda: built.append(cls(**options))):
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


def axes(name: str) -> tuple[tuple[int, ...], int, int | None]:
    """Return the ranks of a module's input, its size, and the axis of time if it has to have a step."""
    kind = name.split()[-1] if name.split()[0] in LAYERS else name
    ranks = {"layer": (2, 3), "cell": (1, 2), "waves": (1, 2, 3, 4)}.get(kind, (3,))
    return ranks, 4 if "attention" in name else 3, {"layer": 0, "transformer": 1}.get(kind)


def fits(name: str, x: Any, second: Any) -> bool:
    """Return whether the modules above take this input, and this state, key or horizon."""
    ranks, size, time = axes(name)
    if not _is_float(x) or x.dim() not in ranks or x.shape[-1] != size or (time is not None and x.shape[time] == 0):
        return False
    if name == "waves":
        return type(second) is int and 1 <= second < 2**45
    if second is None:
        return True
    if name in ("lstm layer", "lstm cell", "transformer") or not _is_float(second):  # whose states are no tensors
        return False
    if name == "attention":
        return second.dim() == 3 and (len(second), second.shape[2]) == (len(x), 4)
    return tuple(second.shape) == _state_shape(name, x)


def _is_float(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype == torch.float32


def _state_shape(name: str, x: Tensor) -> tuple[int, ...]:
    if name.endswith("layer"):
        return (1, *x.shape[1:-1], 4)
    return (len(x), 4) if name == "attention cell" else (*x.shape[:-1], 4)


@pytest.mark.parametrize("name", MODULES)
@settings(SETTINGS, max_examples=60)
@given(data=st.data())
def test_inputs_that_fit_give_finite_outputs_and_all_others_are_rejected(name: str, data: st.DataObject) -> None:
    cls, right = MODULES[name]
    module = cls(**right)
    ranks, size, _ = axes(name)
    dtypes = st.sampled_from([torch.float32, torch.float64, torch.int64, torch.bool, torch.complex64])
    shapes = st.lists(st.sampled_from([0, 1, 2, size]), max_size=4)
    hostile = st.one_of(HOSTILE, st.builds(lambda shape, dtype: torch.ones(shape, dtype=dtype), shapes, dtypes))
    leading = data.draw(st.lists(st.integers(0, 2), min_size=ranks[0] - 1, max_size=ranks[-1] - 1))
    x: Any = torch.ones(*leading, size)
    second = 5 if name == "waves" else data.draw(st.sampled_from([None, torch.zeros(_state_shape(name, x))]))
    made_hostile = data.draw(st.sampled_from(["none", "x", "second", "both"]))
    x = data.draw(hostile) if made_hostile in ("x", "both") else x
    second = data.draw(hostile) if made_hostile in ("second", "both") else second
    results: list[Any] = []
    assert rejected(lambda: results.append(module(x, second))) != fits(name, x, second)
    for result in results:
        assert as_tuple(result)[0].isfinite().all()


@pytest.mark.parametrize(
    "make",
    [
        lambda: ParaRNN(3, 2**40),
        lambda: ParaGRU(3, 8, num_layers=2**40),
        lambda: ParaGRU(3, 4 * 10**6, aggregate="linear"),
        lambda: ParaLSTMCell(2**45, 8),
        lambda: ParaAttention(2**30),
        lambda: WaveDecoder(3, num_waves=2**60),
        lambda: BlockRecurrentTransformer(3, 8, num_layers=2**40),
    ],
)
def test_impossible_sizes_are_rejected_before_allocation(make: Callable[[], Any]) -> None:
    with raises(ArgumentError, "bytes", torch.float32, hint="use smaller sizes"):
        make()


def test_on_the_meta_device_any_size_can_be_looked_at() -> None:
    assert ParaRNN(3, 10**6, aggregate="linear", device="meta").aggregate.weight.shape == (10**6, 10**6)

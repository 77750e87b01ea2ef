"""What several test files need: the layers with their twins, and how to look at an error."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor, nn

from parallelrnn import ParaGRU, ParaGRUCell, ParaLSTM, ParaLSTMCell, ParaRNN, ParaRNNCell

TWINS: dict[type[nn.Module], type[nn.Module]] = {ParaRNN: nn.RNN, ParaLSTM: nn.LSTM, ParaGRU: nn.GRU}
CELLS: dict[type[nn.Module], type[nn.Module]] = {ParaRNN: ParaRNNCell, ParaLSTM: ParaLSTMCell, ParaGRU: ParaGRUCell}

TestT = TypeVar("TestT", bound=Callable[..., object])


def touch_point(code: str, answer: str) -> Callable[[TestT], TestT]:
    """Say which row of the table in docs/layers.md a test holds: what code around a layer does, and the answer."""

    def mark(test: TestT) -> TestT:
        test.touch_point = (code, answer)  # type: ignore[attr-defined]
        return test

    return mark


@contextmanager
def raises(kind: type[Exception], *facts: Any, **fields: Any) -> Iterator[pytest.ExceptionInfo[Any]]:
    """Expect an error with these fields, whose message has these facts in it: names and numbers, not prose."""
    with pytest.raises(kind) as caught:
        yield caught
    for name, value in fields.items():
        assert getattr(caught.value, name) == value, f"{name} is {getattr(caught.value, name)!r}"
    for fact in facts:
        assert str(fact) in str(caught.value)


@contextmanager
def warns(kind: type[Warning], *facts: Any, **fields: Any) -> Iterator[pytest.WarningsRecorder]:
    """Expect a warning as `raises` expects an error. Warnings with other messages are issued again."""
    pattern = "(?s)^" + "".join(f"(?=.*{re.escape(str(fact))})" for fact in facts)
    with pytest.warns(kind, match=pattern) as caught:
        yield caught
    messages = [vars(warning.message) for warning in caught if re.search(pattern, str(warning.message))]
    assert any(fields.items() <= message.items() for message in messages), messages


def random_state(layer: Any, batch: int) -> Any:
    """An initial state with every entry different, in the form in which the layer takes it."""
    sizes = (layer.output_size, layer.hidden_size)[: layer.num_states]
    count = layer.num_layers * layer.num_directions
    dtype = next(layer.parameters()).dtype
    state = tuple(torch.randn(count, batch, size, dtype=dtype) for size in sizes)
    return state if layer.num_states == 2 else state[0]


def as_tuple(state: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (state,) if isinstance(state, Tensor) else tuple(state)


@torch.no_grad()
def dense_twin(layer: Any) -> Any:
    """The layer of torch.nn whose recurrent weights are `torch.block_diag` of the layer's blocks (no aggregate)."""
    options = {"nonlinearity": layer.nonlinearity} if isinstance(layer, ParaRNN) else {}
    if layer.proj_size:
        options["proj_size"] = layer.proj_size
    twin = TWINS[type(layer)](
        layer.input_size,
        layer.hidden_size,
        layer.num_layers,
        bias=layer.bias,
        batch_first=layer.batch_first,
        bidirectional=layer.bidirectional,
        dtype=next(layer.parameters()).dtype,
        **options,
    )
    for name, parameter in twin.named_parameters():
        if name.startswith(("weight_ih", "bias")):
            parameter.copy_(getattr(layer, name))
    sizes = [layer.block_size] * layer.num_blocks if isinstance(layer.block_size, int) else layer.block_size
    for name in [name for name, _ in twin.named_parameters() if name.startswith(("weight_hh", "weight_hr"))]:
        gates = len(layer.gates) if name.startswith("weight_hh") else 1
        rows = layer.proj_size if name.startswith("weight_hr") else layer.hidden_size
        getattr(twin, name).copy_(torch.cat([_diagonal(layer, name, gate, gates, sizes) for gate in range(gates)]))
        assert len(getattr(twin, name)) == gates * rows
    return twin


def _diagonal(layer: Any, name: str, gate: int, gates: int, sizes: list[int]) -> Tensor:
    """One gate's block-diagonal matrix, from parameters as docs/layers.md lays them out."""
    blocks = []
    seen = dict.fromkeys(sizes, 0)  # how many blocks of each size came before
    for size in sizes:
        equal = len(set(sizes)) == 1
        stacked = getattr(layer, name if equal else f"{name}_size{size}")
        rows = layer.proj_size // len(sizes) if name.startswith("weight_hr") else size
        count = sizes.count(size)
        start = (gate * count + seen[size]) * rows
        assert len(stacked) == gates * count * rows
        blocks.append(stacked[start : start + rows])
        seen[size] += 1
    return torch.block_diag(*blocks)

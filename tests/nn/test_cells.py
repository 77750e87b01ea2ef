"""Cells do what torch.nn's cells do; their numbers are in test_torch_modules and test_algebra."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch

from parallelrnn import ParaGRUCell, ParaLSTMCell, ParaRNNCell
from tests.support import as_tuple

CELLS = [ParaRNNCell, ParaLSTMCell, ParaGRUCell]
each_cell = pytest.mark.parametrize("cls", CELLS)


def state_of(cell: Any, batch: int) -> Any:
    state = tuple(torch.randn(batch, cell.hidden_size) for _ in range(cell.num_states))
    return state if len(state) == 2 else state[0]


@each_cell
@pytest.mark.parametrize("options", [{}, {"block_size": [1, 3, 4]}, {"form": "polar"}, {"bias": False}], ids=str)
def test_copies_compiles_and_exports(cls: Any, options: dict[str, Any]) -> None:
    torch.compiler.reset()
    cell = cls(3, 8, **options)
    x, state = torch.randn(5, 3), state_of(cell, 5)
    expected = as_tuple(cell(x, state))
    batch = {0: torch.export.Dim("batch", min=2, max=64)}
    shapes = {"input": batch, "hx": (batch, batch) if cell.num_states == 2 else batch}
    exported = torch.export.export(cell, (torch.randn(4, 3), state_of(cell, 4)), dynamic_shapes=shapes).module()
    compiled = torch.compile(cell, fullgraph=True, backend="aot_eager")
    for other in (copy.deepcopy(cell), pickle.loads(pickle.dumps(cell)), compiled, exported):
        for ours, theirs in zip(as_tuple(other(x, state)), expected, strict=True):
            torch.testing.assert_close(ours, theirs)


@each_cell
def test_unbatched_input_and_empty_batches(cls: Any) -> None:
    cell = cls(3, 8)
    x, state = torch.randn(5, 3), state_of(cell, 5)
    own = tuple(s[2] for s in as_tuple(state))
    alone = as_tuple(cell(x[2], own if len(own) == 2 else own[0]))
    for ours, theirs in zip(alone, as_tuple(cell(x, state)), strict=True):
        torch.testing.assert_close(ours, theirs[2])
    assert all(s.shape == (0, 8) for s in as_tuple(cell(torch.randn(0, 3), state_of(cell, 0))))
    assert all(s.shape == (8,) for s in as_tuple(cell(x[0])))


@each_cell
def test_autocast_keeps_the_state_in_the_dtype_of_the_weights(cls: Any) -> None:
    cell = cls(3, 8)
    x, state = torch.randn(5, 3), state_of(cell, 5)
    expected = as_tuple(cell(x, state))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = as_tuple(cell(x, state))
    for ours, theirs in zip(rounded, expected, strict=True):
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0.02)  # a projection rounded to bfloat16

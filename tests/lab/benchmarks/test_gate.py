from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from parallelrnn.kernels import cpu
from parallelrnn.kernels.memory import LARGE
from parallelrnn.lab.benchmarks import gate
from parallelrnn.lab.benchmarks.cases import CELLS, CONTENDERS, Case
from parallelrnn.lab.benchmarks.contenders import Layer, make_layer
from tests import support
from tests.support import raises

linear_module = sys.modules["parallelrnn.kernels.linear"]  # the name is the function's where it is imported from
NARROW = Case(name="narrow", length=100, input_size=3, hidden_size=8, batch=7, num_layers=2, block_size=4)
WIDE = Case(name="wide", length=100, input_size=12, hidden_size=10, batch=7)


def test_every_contender_of_ours_passes_at_the_widths_of_the_cases() -> None:
    checks = gate.check([NARROW, WIDE], CELLS)
    assert len(checks) == 2 * 2 * 3 * 3  # cases, short and long, cells, contenders
    assert {(check.case.length, check.case.batch) for check in checks} == {(33, 5), (100, 7)}
    compared = {(check.contender, check.cell, check.case.block_size) for check in checks}
    assert compared >= {("aggregated", "GRU", 4), ("loop", "RNN", 2)}
    assert all(check.passed for check in checks)


def test_cases_of_equal_widths_are_compared_once() -> None:
    same = replace(WIDE, name="same")
    assert len(gate.check([WIDE, same], ["RNN"])) == 2 * 3
    assert len(gate.check([], ["RNN"], short_only=[WIDE, same])) == 3


def test_a_measured_case_is_compared_over_several_chunks_of_memory_from_the_pool(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A second chunk, or an aggregate in pooled memory, that is wrong would not show on a short sequence."""
    used = []
    for module in (cpu, linear_module):
        original = module.empty
        monkeypatch.setattr(module, "empty", lambda *a, original=original, **k: used.append(a) or original(*a, **k))
    case = Case(name="long", length=5000, input_size=12, hidden_size=64, batch=32)
    (long,) = {check.case.length for check in gate.check([case], ["RNN"]) if check.case.batch == 32}
    assert long * 32 > 2 * cpu.chunk_rows(64, torch.float32)
    assert long * 32 * 64 * 4 > LARGE
    assert used


@pytest.mark.parametrize("cell", CELLS)
def test_the_twin_is_the_one_that_the_tests_of_the_layers_use(cell: str) -> None:
    layer: Any = make_layer("blocks", cell, NARROW)
    ours, theirs = gate.dense_twin(layer).state_dict(), support.dense_twin(layer).state_dict()
    for name, value in theirs.items():
        torch.testing.assert_close(ours[name], value, rtol=0, atol=0)


def spoil(monkeypatch: pytest.MonkeyPatch, contender: str, cell: str, change: Callable[[Any], object]) -> None:
    """Change the layers of one contender and cell as they are made."""

    def make(name: str, kind: str, case: Case) -> Layer:
        layer = make_layer(name, kind, case)
        if (name, kind) == (contender, cell):
            change(layer)
        return layer

    monkeypatch.setattr(gate, "make_layer", make)


@pytest.mark.parametrize(
    ("contender", "name"),
    [
        *(("blocks", name) for name in ("weight_ih_l1", "weight_hh_l0", "bias_hh_l1")),
        *(("aggregated", name) for name in ("aggregate.weight", "aggregate.bias")),
    ],
)
@pytest.mark.parametrize("factor", [1.001, math.nan])
def test_a_wrong_gradient_is_rejected(
    monkeypatch: pytest.MonkeyPatch, contender: str, name: str, factor: float
) -> None:
    spoil(monkeypatch, contender, "LSTM", lambda layer: layer.get_parameter(name).register_hook(lambda g: factor * g))
    place = f"{CONTENDERS[contender]}, LSTM, length 33, batch 5, input_size 3"
    with raises(gate.GateError, place, f"gradients of {name} by"):
        gate.check([NARROW], CELLS)


def test_an_output_that_is_wrong_in_inference_alone_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    def shift(_: object, args: object, output: Any) -> Any:
        return output if output[0].requires_grad else (output[0] + 2e-5, output[1])

    spoil(monkeypatch, "aggregated", "RNN", lambda layer: layer.register_forward_hook(shift))
    with raises(gate.GateError, "ours, linear, RNN", "outputs differ by 2.0e-05"):
        gate.check([WIDE], ["RNN"])

"""Every input of PyTorch's own module tests for RNN, LSTM, GRU and their cells, through ours and through torch.nn."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence
from torch.testing._internal.common_modules import ModuleErrorEnum, module_db

import parallelrnn
from parallelrnn import from_torch
from parallelrnn.errors import ArgumentTypeError
from tests.support import raises, touch_point

TWINS = (nn.RNN, nn.LSTM, nn.GRU, nn.RNNCell, nn.LSTMCell, nn.GRUCell)
INFOS = {info.module_cls: info for info in module_db if info.module_cls in TWINS}
# In units of rounding of the largest entry: sums of at most 7 products in another order than torch's, over at most 5
# steps and 2 layers, and as many again on the way back.
VALUE_UNITS, GRADIENT_UNITS = 16, 64


def cases(kind: str, dtype: torch.dtype, training: bool) -> list[Any]:
    torch.manual_seed(0)
    parameters = []
    for cls, info in INFOS.items():
        make = getattr(info, f"module_{kind}_func")
        options = {"device": "cpu", "dtype": dtype, "requires_grad": kind == "inputs", "training": training}
        inputs = make(info, with_packed_sequence=True, **options)
        parameters += [pytest.param(cls, case, id=f"{cls.__name__}-{index}") for index, case in enumerate(inputs)]
    return parameters


def tensors(value: object) -> list[torch.Tensor]:
    """Outputs and states, flattened in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, PackedSequence):
        return [value.data]
    assert isinstance(value, tuple | list)
    return [tensor for part in value for tensor in tensors(part)]


def gradients(results: list[torch.Tensor], sources: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Of a loss that weighs every entry of every output and state differently."""
    loss = sum((r * torch.linspace(-1, 2, r.numel(), dtype=r.dtype).view_as(r)).sum() for r in results)
    return torch.autograd.grad(loss, sources)


def assert_close(ours: torch.Tensor, theirs: torch.Tensor, units: float) -> None:
    unit = torch.finfo(theirs.dtype).eps * max(1.0, theirs.abs().max().item())
    torch.testing.assert_close(ours, theirs, rtol=0, atol=units * unit)


def test_the_module_tests_are_all_here() -> None:
    assert set(INFOS) == set(TWINS)
    counts = {cls: sum(p.values[0] is cls for p in cases("inputs", torch.float32, True)) for cls in INFOS}
    assert [counts[cls] for cls in (nn.RNN, nn.LSTM, nn.GRU)] == [64, 32, 32]
    assert all(sum(p.values[0] is cls for p in cases("error_inputs", torch.float32, True)) for cls in INFOS)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize(("cls", "case"), cases("inputs", torch.float32, True))
def test_outputs_states_and_gradients_equal_torch(
    cls: type[nn.Module], case: Any, dtype: torch.dtype, training: bool
) -> None:
    options = {**case.constructor_input.kwargs, "dtype": dtype}
    theirs = cls(*case.constructor_input.args, **options).train(training)
    ours = from_torch(theirs)
    assert ours.training == training
    assert list(ours.state_dict()) == list(theirs.state_dict())

    def convert(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.detach().to(dtype).requires_grad_()
        if isinstance(value, PackedSequence):
            return PackedSequence(convert(value.data), *value[1:])
        return tuple(map(convert, value))

    args = [convert(value) for value in case.forward_input.args]
    expected, actual = tensors(theirs(*args)), tensors(ours(*args))
    for theirs_value, our_value in zip(expected, actual, strict=True):
        assert_close(our_value, theirs_value, VALUE_UNITS)

    sources = tensors(args)
    expected = gradients(expected, [*theirs.parameters(), *sources])
    actual = gradients(actual, [*ours.parameters(), *sources])
    for theirs_value, our_value in zip(expected, actual, strict=True):
        assert_close(our_value, theirs_value, GRADIENT_UNITS)


@touch_point("catches the errors of wrong input", "same")
@pytest.mark.parametrize(("cls", "case"), cases("error_inputs", torch.float32, True))
def test_error_inputs_raise_what_torch_raises(cls: type[nn.Module], case: Any) -> None:
    twin = getattr(parallelrnn, f"Para{cls.__name__}")
    module_input = case.module_error_input

    def construct() -> nn.Module:
        return twin(*module_input.constructor_input.args, **block_size(), **module_input.constructor_input.kwargs)

    def block_size() -> dict[str, Any]:
        size = module_input.constructor_input.args[1]
        return {"block_size": size} if isinstance(size, int) and size > 0 else {}

    if "relu" in module_input.constructor_input.args or "tanh" in module_input.constructor_input.args:
        # Meant as a nonlinearity, but in the place of `bias`, which torch.nn's cells take as true.
        with raises(ArgumentTypeError, argument="bias"):
            construct()
        return
    if case.error_on == ModuleErrorEnum.CONSTRUCTION_ERROR:
        with pytest.raises(case.error_type) as caught:
            construct()
        assert caught.value.argument in case.error_regex
        return
    module = construct()
    with pytest.raises(case.error_type) as caught:
        module(*module_input.forward_input.args, **module_input.forward_input.kwargs)
    assert caught.value.argument in ("input", "hx")

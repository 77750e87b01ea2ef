"""from_torch: convert a trained recurrent module of `torch.nn` to one of ours, as one block or cut into blocks."""

from __future__ import annotations

import inspect
import warnings
from copy import deepcopy
from typing import Any, overload

import torch
from torch import Tensor, nn

from parallelrnn.errors import ArgumentError, ArgumentTypeError
from parallelrnn.nn.aggregate import is_linear_map
from parallelrnn.nn.blocks import BlockSize, parse_block_size, recurrent_blocks, weight_suffixes
from parallelrnn.nn.cells import ParaGRUCell, ParaLSTMCell, ParaRNNCell
from parallelrnn.nn.recurrent import ParaGRU, ParaLSTM, ParaRNN
from parallelrnn.nn.similarity import block_diagonalize

Converted = ParaRNN | ParaLSTM | ParaGRU | ParaRNNCell | ParaLSTMCell | ParaGRUCell

TWINS: dict[type[nn.RNNBase | nn.RNNCellBase], type[Converted]] = {
    nn.RNN: ParaRNN,
    nn.LSTM: ParaLSTM,
    nn.GRU: ParaGRU,
    nn.RNNCell: ParaRNNCell,
    nn.LSTMCell: ParaLSTMCell,
    nn.GRUCell: ParaGRUCell,
}


@overload
def from_torch(module: nn.RNN | ParaRNN, block_size: BlockSize | None = None) -> ParaRNN: ...
@overload
def from_torch(module: nn.LSTM, block_size: BlockSize | None = None) -> ParaLSTM: ...
@overload
def from_torch(module: nn.GRU, block_size: BlockSize | None = None) -> ParaGRU: ...
@overload
def from_torch(module: nn.RNNCell, block_size: BlockSize | None = None) -> ParaRNNCell: ...
@overload
def from_torch(module: nn.LSTMCell, block_size: BlockSize | None = None) -> ParaLSTMCell: ...
@overload
def from_torch(module: nn.GRUCell, block_size: BlockSize | None = None) -> ParaGRUCell: ...
@overload
def from_torch(module: nn.Module, block_size: BlockSize | None = None) -> Converted: ...
def from_torch(module: nn.Module, block_size: BlockSize | None = None) -> Converted:
    """Copy a trained `nn.RNN`, `nn.LSTM`, `nn.GRU` or one of their cells into one of ours.

    With `block_size=None` the copy is one block without an aggregate: it computes what the module computes, to
    rounding, and its parameters have the same names and shapes.

    With a `block_size`, an `nn.RNN` is cut into blocks. A real similarity transform, W = B (W_1 + ... + W_K) B^-1 with
    a direct sum in the middle, makes each recurrent matrix block-diagonal. B^-1 goes into the input projection of its
    layer, and B into that of the next layer or, after the last one, into the aggregate (Eq. 5 of arXiv 2605.02692). The
    copy is exact if the activation is linear, and otherwise a starting point for fine-tuning. (No `nn.RNN` is linear,
    so a `ParaRNN` is accepted too. In training, dropout drops other coordinates.) States of the copy are B^-1 h: zeros
    stay zeros; the caller has to convert any other initial state. All parameters of the copy train.

    A warning gives the condition number of a transform that is so ill-conditioned that rounding the weights matters.
    An LSTM or GRU raises: no single transform makes all of its recurrent matrices block-diagonal.
    """
    if isinstance(module, ParaRNN):
        if block_size is None:
            raise ArgumentError("a ParaRNN is ours already", argument="block_size", hint="give {block_size} to cut it")
        return _cut(module, block_size)
    twin = next((ours for theirs, ours in TWINS.items() if isinstance(module, theirs)), None)
    if twin is None or not isinstance(module, nn.RNNBase | nn.RNNCellBase):
        expected, hint = "nn.RNN, nn.LSTM, nn.GRU or one of their cells", "convert the recurrent part of a larger model"
        raise ArgumentTypeError(argument="module", expected=expected, got=type(module), hint=hint)
    if block_size is None or len(parse_block_size(module.hidden_size, block_size).sizes) == 1:
        return _copy(module, twin)
    if isinstance(module, nn.RNN):
        return _cut(module, block_size)
    raise _cannot_cut(module)


def _copy(module: nn.RNNBase | nn.RNNCellBase, twin: type[Converted]) -> Converted:
    ours = twin(**arguments_of(module, twin, block_size=module.hidden_size, aggregate=None))
    with torch.no_grad():
        for name, parameter in ours.named_parameters():
            original = getattr(module, name)  # a parametrized weight has another name in the state_dict
            parameter.copy_(original)
            parameter.requires_grad_(original.requires_grad)
    return ours.train(module.training)


@torch.no_grad()
def _cut(module: nn.RNN | ParaRNN, block_size: BlockSize) -> ParaRNN:
    """Return a copy with the state of each layer in the coordinates B^-1 h, computed in double precision."""
    ours = ParaRNN(**arguments_of(module, ParaRNN, block_size=block_size, aggregate="linear"))
    matrices: dict[tuple[int, str], list[Tensor]] = {}
    for block in recurrent_blocks(module):
        matrices.setdefault((block.layer, block.direction), []).append(_double(block.matrix))

    below = torch.eye(module.input_size, dtype=torch.float64)  # from the coordinates of the layer below to the original
    transforms: list[Tensor] = []
    new_matrices: list[Tensor] = []
    for layer, direction, suffix in weight_suffixes(module):
        form = block_diagonalize(torch.block_diag(*matrices[layer, direction]).numpy(), ours.blocks.sizes)
        _warn_condition(form.condition, layer, direction, ours.weight_ih_l0.dtype)
        transform = torch.from_numpy(form.transform)
        new_matrices += [torch.from_numpy(block) for block in form.blocks]
        weight_ih = _double(getattr(module, f"weight_ih{suffix}")) @ below
        getattr(ours, f"weight_ih{suffix}").copy_(torch.linalg.solve(transform, weight_ih))
        for name in (f"bias_ih{suffix}", f"bias_hh{suffix}") if module.bias else ():
            getattr(ours, name).copy_(torch.linalg.solve(transform, _double(getattr(module, name))))
        transforms.append(transform)
        if len(transforms) == ours.num_directions:
            below = torch.block_diag(*transforms)
            transforms.clear()
    for block, matrix in zip(ours.recurrent_blocks(), new_matrices, strict=True):
        block.matrix.copy_(matrix)
    _fold_into_aggregate(ours, below, getattr(module, "aggregate", None))
    return ours.train(module.training)


def _fold_into_aggregate(ours: ParaRNN, transform: Tensor, aggregate: nn.Module | None) -> None:
    """Let the aggregate map B^-1 h to h, and then as the original did."""
    if aggregate is None:
        assert isinstance(ours.aggregate, nn.Linear)
        ours.aggregate.weight.copy_(transform)
        if ours.bias:
            ours.aggregate.bias.zero_()
    elif is_linear_map(aggregate):
        ours.aggregate = deepcopy(aggregate).requires_grad_()
        ours.aggregate.weight.copy_(_double(aggregate.weight) @ transform)
    else:
        raise ArgumentError(argument="module", expected="a layer with a linear aggregate or none", got=aggregate)


def _double(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", torch.float64)


def arguments_of(module: nn.Module, twin: type[nn.Module], **ours: Any) -> dict[str, Any]:
    """Return the arguments of `twin` among the sizes, options, device and dtype of `module`, and `ours`."""
    weight = next(module.parameters())
    options = vars(module) | {"device": weight.device, "dtype": weight.dtype, "form": "free"} | ours
    return {name: options[name] for name in inspect.signature(twin).parameters if name in options}


def _warn_condition(condition: float, layer: int, direction: str, dtype: torch.dtype) -> None:
    # Rounding a weight of the cut layer moves the original recurrent matrix by up to condition * eps of its size.
    eps = torch.finfo(dtype).eps
    if condition > eps**-0.5:
        warnings.warn(
            f"layer {layer} ({direction}): the transform that cuts the recurrent matrix into blocks has condition "
            f"number {condition:.1e}; rounding to {dtype} may change that matrix by {condition * eps:.0e} of its size. "
            "Larger blocks or float64 weights lose less",
            stacklevel=5,
        )


def _cannot_cut(module: nn.Module) -> ArgumentError:
    gates = list(dict.fromkeys(block.gate for block in recurrent_blocks(module)))
    reason = "a cell has no aggregate to undo the transform"
    if len(gates) > 1:
        reason = f"no single transform makes the matrices of all its gates ({', '.join(gates)}) block-diagonal"
    problem = f"{type(module).__name__} cannot be cut into blocks: {reason}"
    hint = "from_torch(module) copies it exactly, as one block; for small blocks, train a new layer"
    return ArgumentError(problem, argument="block_size", hint=hint)

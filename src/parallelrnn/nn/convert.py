"""from_torch: a trained recurrent module of `torch.nn` as one of ours, whole or cut into blocks."""

from __future__ import annotations

import inspect
import warnings
from copy import deepcopy
from typing import Any, overload

import torch
from torch import Tensor, nn

from parallelrnn.nn.blocks import BlockSize, parse_block_size
from parallelrnn.nn.cells import ParaGRUCell, ParaLSTMCell, ParaRNNCell
from parallelrnn.nn.matrices import recurrent_blocks, weight_suffixes
from parallelrnn.nn.recurrent import ParaGRU, ParaLSTM, ParaRNN
from parallelrnn.nn.similarity import block_diagonalize

Converted = ParaRNN | ParaLSTM | ParaGRU | ParaRNNCell | ParaLSTMCell | ParaGRUCell

_TWINS: dict[type[nn.RNNBase | nn.RNNCellBase], type[Converted]] = {
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

    With a `block_size` an `nn.RNN` is cut into blocks. A real similarity transform, W = B (W_1 + ... + W_K) B^-1 with a
    direct sum in the middle, makes each recurrent matrix block-diagonal; B^-1 goes into the input projection of its
    layer, and B into that of the next layer or, after the last one, into the aggregate (Eq. 5 of arXiv 2605.02692). The
    copy is exact where the activation is linear, and a starting point for fine-tuning where it is not. (No `nn.RNN` is
    linear, so a `ParaRNN` is taken too; and dropout, in training, drops other coordinates.) States of the copy are
    B^-1 h: zeros stay zeros, any other initial state has to be carried over by the caller. All its parameters train.

    A transform so ill-conditioned that rounding the weights shows is reported by a warning with its condition number.
    An LSTM or GRU raises: no one transform makes its several recurrent matrices block-diagonal together.
    """
    if isinstance(module, ParaRNN):
        if block_size is None:
            raise ValueError("a ParaRNN is one of ours already; give the block_size that it is to be cut into")
        return _cut(module, block_size)
    twin = next((ours for theirs, ours in _TWINS.items() if isinstance(module, theirs)), None)
    if twin is None or not isinstance(module, nn.RNNBase | nn.RNNCellBase):
        raise TypeError(
            f"from_torch takes nn.RNN, nn.LSTM, nn.GRU or one of their cells, got {type(module).__name__}; "
            "of a larger model, convert the recurrent submodule"
        )
    if block_size is None or len(parse_block_size(module.hidden_size, block_size).sizes) == 1:
        return _copy_whole(module, twin)
    if isinstance(module, nn.RNN):
        return _cut(module, block_size)
    raise ValueError(_why_not_cut(module))


def _copy_whole(module: nn.RNNBase | nn.RNNCellBase, twin: type[Converted]) -> Converted:
    ours = twin(**_arguments(module, twin, block_size=module.hidden_size, aggregate=None))
    with torch.no_grad():
        for name, parameter in ours.named_parameters():
            original = getattr(module, name)  # a parametrized weight has another name in the state_dict
            parameter.copy_(original)
            parameter.requires_grad_(original.requires_grad)
    return ours.train(module.training)


@torch.no_grad()
def _cut(module: nn.RNN | ParaRNN, block_size: BlockSize) -> ParaRNN:
    """Change the coordinates of each layer's state from h to B^-1 h, in double precision."""
    ours = ParaRNN(**_arguments(module, ParaRNN, block_size=block_size, aggregate="linear"))
    matrices: dict[tuple[int, str], list[Tensor]] = {}
    for block in recurrent_blocks(module):
        matrices.setdefault((block.layer, block.direction), []).append(_double(block.matrix))

    below = torch.eye(module.input_size, dtype=torch.float64)  # from the coordinates below to the original ones
    transforms: list[Tensor] = []
    new_matrices: list[Tensor] = []
    for layer, direction, suffix in weight_suffixes(module):
        form = block_diagonalize(torch.block_diag(*matrices[layer, direction]).numpy(), ours.blocks.sizes)
        _report_condition(form.condition, layer, direction, ours.weight_ih_l0.dtype)
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
    """Let the aggregate map B^-1 h to h, and on to what the original made of h."""
    if aggregate is None:
        assert isinstance(ours.aggregate, nn.Linear)
        ours.aggregate.weight.copy_(transform)
        if ours.bias:
            ours.aggregate.bias.zero_()
    elif type(aggregate) is nn.Linear:
        ours.aggregate = deepcopy(aggregate).requires_grad_()
        ours.aggregate.weight.copy_(_double(aggregate.weight) @ transform)
    else:
        raise ValueError(f"the layer to be cut should have aggregate=None or a linear one, got {aggregate}")


def _double(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", torch.float64)


def _arguments(module: nn.Module, twin: type[nn.Module], **ours: Any) -> dict[str, Any]:
    """What `twin` takes of the sizes, options, device and dtype of `module`, and of `ours`."""
    weight = next(module.parameters())
    given = vars(module) | {"device": weight.device, "dtype": weight.dtype, "form": "free"} | ours
    return {name: given[name] for name in inspect.signature(twin).parameters if name in given}


def _report_condition(condition: float, layer: int, direction: str, dtype: torch.dtype) -> None:
    # Rounding a weight of the cut layer moves the original recurrent matrix by up to condition * eps of its size.
    eps = torch.finfo(dtype).eps
    if condition > eps**-0.5:
        warnings.warn(
            f"layer {layer} ({direction}): the transform that cuts the recurrent matrix into blocks has condition "
            f"number {condition:.1e}; rounding to {dtype} may move that matrix by {condition * eps:.0e} of its size. "
            "Larger blocks or float64 weights keep more",
            stacklevel=5,
        )


def _why_not_cut(module: nn.Module) -> str:
    gates = list(dict.fromkeys(block.gate for block in recurrent_blocks(module)))
    reason = "a cell has no aggregate that could carry the transform back"
    if len(gates) > 1:
        matrices = f"{len(gates)} recurrent matrices ({', '.join(gates)})"
        reason = f"no one transform makes its {matrices} block-diagonal together"
    return (
        f"{type(module).__name__} cannot be cut into blocks: {reason}. from_torch(module) keeps it exactly, as one "
        "block; for small blocks, train a new layer"
    )

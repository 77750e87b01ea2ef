"""swap: give a whole model blocks in place of its recurrent layers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from parallelrnn.errors import ArgumentError, ArgumentTypeError
from parallelrnn.nn.blocks import BlockSize, check_size
from parallelrnn.nn.convert import TWINS, arguments_of


@dataclass(frozen=True, kw_only=True)
class Swapped:
    """One recurrent layer or cell of a model, and what became of it."""

    name: str  # of the module in the model; all of them, if it is used in several places
    before: str
    after: str  # empty if it was left alone
    reason: str  # why it was left alone, or has blocks of other sizes
    parameters_before: int
    parameters_after: int


class Swaps(tuple[Swapped, ...]):
    """What `swap` did, layer by layer; as text, one line for each."""

    def __str__(self) -> str:
        if not self:
            return "no recurrent layers"
        lines = []
        for layer in self:
            became = f"{layer.after}, {layer.parameters_before:,} to {layer.parameters_after:,} weights"
            what = became if layer.after else "left as it was"
            lines.append(f"{layer.name}: {layer.before} -> {what}" + (f" ({layer.reason})" if layer.reason else ""))
        if any(layer.after for layer in self):
            lines.append("New weights are drawn anew; code that initialises weight_hh needs initialize.per_block_")
        return "\n".join(lines)


def swap(model: nn.Module, block_size: int = 2) -> Swaps:
    """Replace each `nn.RNN`, `nn.LSTM`, `nn.GRU` and cell within a model by one of blocks, in place.

    The new layers have the same arguments, device, dtype and mode, and weights that start anew, whatever the model had
    set: initialise them again if need be, recurrent ones with `parallelrnn.nn.initialize.per_block_`. Make optimizers
    afterwards: they hold the old weights. A `hidden_size` that `block_size` does not divide gets one larger block at
    the end. Subclasses of the layers, and layers with hooks, parametrizations, frozen or shared weights, or that a
    plain list or dict holds as well, are left alone.

    Parameters
    ----------
    model
        A model with recurrent layers anywhere inside. A layer on its own cannot be replaced in place.
    block_size
        Units in each block.

    Returns
    -------
    Swaps
        One row for each layer, with what it became or why it was left; `print` shows them.

    Examples
    --------
    >>> model = nn.Sequential(nn.Linear(3, 8), nn.LSTM(8, 50, num_layers=2))
    >>> print(swap(model))
    1: LSTM(8, 50, num_layers=2) -> ParaLSTM(8, 50, block_size=2, num_layers=2), 32,400 to 13,200 weights
    New weights are drawn anew; code that initialises weight_hh needs initialize.per_block_
    """
    check_size("block_size", block_size)
    if not isinstance(model, nn.Module):
        raise ArgumentTypeError(argument="model", expected="a torch.nn.Module", got=type(model))
    if type(model) in TWINS:
        twin = TWINS[type(model)].__name__  # type: ignore[index]
        problem = f"{type(model).__name__} is a layer by itself, which cannot be replaced in place"
        raise ArgumentError(problem, argument="model", hint=f"use parallelrnn.{twin} instead of it")
    paths: dict[nn.Module, list[str]] = {}  # of each layer, which may occur several times
    for path, module in model.named_modules(remove_duplicate=False):
        if path and isinstance(module, nn.RNNBase | nn.RNNCellBase):
            paths.setdefault(module, []).append(path)
    swaps = []
    owners = Counter(weight for module in {*model.modules()} for weight in module._parameters.values())
    listed = _in_containers(model)
    for layer, its_paths in paths.items():
        reason, after, ours = _reason_to_leave(layer), "", None
        if not reason and any(owners[weight] > 1 for weight in layer.parameters()):
            reason = "it shares weights with another module"
        if not reason and layer in listed:
            reason = "a list or dict of its module holds it as well"
        if not reason:
            sizes, reason = _block_sizes(layer, block_size)
            ours = _twin(layer, sizes)
            after = _described(ours)
            for path in its_paths:
                parent, _, name = path.rpartition(".")
                setattr(model.get_submodule(parent), name, ours)
        swaps.append(
            Swapped(
                name=", ".join(its_paths),
                before=_described(layer),
                after=after,
                reason=reason,
                parameters_before=_count(layer),
                parameters_after=_count(ours or layer),
            )
        )
    return Swaps(swaps)


def _in_containers(model: nn.Module) -> set[nn.Module]:
    """Return modules that plain lists, tuples and dicts of a model hold, where they would stay."""
    found: set[nn.Module] = set()
    for module in model.modules():
        for name, value in vars(module).items():
            if isinstance(value, list | tuple | dict) and name != "_modules":
                items = value.values() if isinstance(value, dict) else value
                found.update(item for item in items if isinstance(item, nn.Module))
    return found


def _reason_to_leave(layer: nn.Module) -> str:
    """Return why a layer cannot be replaced without losing something; empty if it can."""
    if is_parametrized(layer):
        return "it is parametrized"
    if type(layer) not in TWINS:
        return f"{type(layer).__name__} is a class of its own"
    if not all(weight.requires_grad for weight in layer.parameters()):
        return "it has frozen weights"
    hooks = (layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks)
    return "it has hooks" if any(hooks) else ""


def _block_sizes(layer: Any, block_size: int) -> tuple[BlockSize, str]:
    """Return blocks for the units that a layer has, and why they are not those that were asked for."""
    units, projected = layer.hidden_size, getattr(layer, "proj_size", 0)
    if projected:
        count = next(count for count in range(units // block_size or 1, 0, -1) if not units % count + projected % count)
        return units // count, "" if units == count * block_size else "so that proj_size divides into the blocks"
    count, rest = divmod(units, block_size)
    if not rest:
        return block_size, ""
    sizes = [block_size] * max(0, count - 1) + [units - block_size * max(0, count - 1)]
    return sizes, f"{units} is no multiple of {block_size}"


def _twin(layer: Any, block_size: BlockSize) -> nn.Module:
    twin = TWINS[type(layer)]
    return twin(**arguments_of(layer, twin, block_size=block_size, aggregate=None)).train(layer.training)


def _described(layer: nn.Module) -> str:
    return f"{type(layer).__name__}({layer.extra_repr()})"


def _count(layer: nn.Module) -> int:
    return sum(weight.numel() for weight in layer.parameters())

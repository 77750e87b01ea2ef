"""Whether the tensors of a saved model are those that its words speak of, before memory is taken for what they say."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

import torch
from torch import Tensor, nn

from parallelrnn.errors import check_integer

Shapes = dict[str, tuple[int, ...]]


def check_whole_numbers(words: Any) -> None:
    """Whether all counts of a dataclass of words are such: 4.0 and True are equal to counts, and are none."""
    kinds = get_type_hints(type(words))
    for field in dataclasses.fields(words):
        if kinds[field.name] is int:
            check_integer(field.name, getattr(words, field.name), 0)


def shapes_of(make: Callable[[], nn.Module], prefix: str) -> Shapes:
    """Of the tensors of a network, which takes no memory."""
    with torch.device("meta"):
        network = make()
    return {f"{prefix}{name}": tuple(tensor.shape) for name, tensor in network.state_dict().items()}


def check_shapes(expected: Mapping[str, tuple[int, ...]], tensors: Mapping[str, Tensor]) -> None:
    """Whether there are these tensors and no others."""
    for name in expected.keys() | tensors.keys():
        if name not in tensors:
            raise ValueError(f"its tensor {name!r} is missing")
        if name not in expected:
            raise ValueError(f"its words know no tensor {name!r}")
        if tuple(tensors[name].shape) != expected[name]:
            got = tuple(tensors[name].shape)
            raise ValueError(f"its tensor {name!r} should have the shape {expected[name]}, and has {got}")

"""Which transforms of torch.func, and which forward-mode derivatives, are at work around a call."""

from __future__ import annotations

import torch
from torch._C._functorch import TransformType, get_interpreter_stack
from torch.autograd import forward_ad


def in_transform() -> bool:
    """Whether tensors may be wrapped by vmap, and so do not tell whether they need a gradient."""
    return bool(_transforms())


def needs_plain_operations() -> bool:
    """Whether derivatives are taken by transforms that operators with a backward of their own do not have."""
    return forward_ad._current_level >= 0 or any(transform != TransformType.Vmap for transform in _transforms())


def _transforms() -> list[TransformType]:
    if torch.compiler.is_compiling():  # the compiler takes them apart itself
        return []
    return [interpreter.key() for interpreter in get_interpreter_stack() or ()]

"""What is at work around a call: autograd, autocast, compilers, tracers, transforms of torch.func."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch._C._functorch import TransformType, get_interpreter_stack
from torch.autograd import forward_ad
from torch.nn import Parameter


def autocast_enabled(device_type: str) -> bool:
    """Return whether autocast is on. The meta device has no autocast, and asking torch about it is an error."""
    return device_type != "meta" and torch.is_autocast_enabled(device_type)


def without_autocast(device_type: str) -> AbstractContextManager[object]:
    """Return a context in which every operation keeps the dtype of its arguments.

    Autocast may round a projection, but not a state that is fed back at every step.
    """
    return torch.autocast(device_type, enabled=False) if autocast_enabled(device_type) else nullcontext()


def needs_gradient(*tensors: Tensor | None) -> bool:
    """Return whether autograd may ask for the gradient of any of these tensors."""
    # Within vmap a tensor does not know, and a traced program should not depend on the answer.
    if in_transform() or torch._C._get_tracing_state() is not None:
        return True
    if torch.is_grad_enabled():
        for tensor in tensors:  # a generator would take several times as long
            if tensor is not None and tensor.requires_grad:
                return True
    return False


def needs_plain_operations() -> bool:
    """Return whether derivatives are taken by transforms that operators with their own backward do not support."""
    return forward_ad._current_level >= 0 or any(transform != TransformType.Vmap for transform in _transforms())


def is_plain(first: Tensor, *others: Tensor | None) -> bool:
    """Return whether nothing has to see an operator, so that it can run without the cost of the dispatcher.

    Compilers, tracers, transforms, forward-mode derivatives, autocast, dispatch modes and tensor subclasses have to see
    it.
    """
    tensors = (first, *others)
    return is_eager(first.device.type) and all(t is None or type(t) in (Tensor, Parameter) for t in tensors)


def is_eager(device_type: str) -> bool:
    """Return the same where it is known that the tensors are plain."""
    return (
        not torch.compiler.is_compiling()
        and torch._C._len_torch_dispatch_stack() == 0
        and torch._C._len_torch_function_stack() == 0
        and not in_transform()
        and forward_ad._current_level < 0
        and torch._C._get_tracing_state() is None
        and not autocast_enabled(device_type)
    )


def in_transform() -> bool:
    """Return whether a transform of torch.func is at work, so that tensors may be wrapped."""
    return bool(_transforms())


def _transforms() -> Sequence[TransformType]:
    # The compiler takes them apart itself.
    stack = None if torch.compiler.is_compiling() else get_interpreter_stack()
    return [interpreter.key() for interpreter in stack] if stack else ()

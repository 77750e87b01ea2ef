"""Autocast, which may round a projection but not a state that is fed back at every step."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch


def autocast_enabled(device_type: str) -> bool:
    """Whether autocast is on; it is off, rather than an error, on the meta device, which has none."""
    return device_type != "meta" and torch.is_autocast_enabled(device_type)


def without_autocast(device_type: str) -> AbstractContextManager[object]:
    """A context in which every operation keeps the dtype of its arguments."""
    return torch.autocast(device_type, enabled=False) if autocast_enabled(device_type) else nullcontext()

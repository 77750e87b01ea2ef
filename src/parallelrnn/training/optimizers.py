"""Parameter groups and learning-rate schedules.

A schedule changes rates in two ways: `epoch_factor` multiplies them for good after an epoch, and `step_scale` is what
they are multiplied by at one step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn


@dataclass(frozen=True)
class Constant:
    """The same rate throughout, and the base of all schedules."""

    def epoch_factor(self, errors: Sequence[float]) -> float:
        """Return what rates are multiplied by after an epoch, given the validation errors of all epochs so far."""
        return 1.0

    def step_scale(self, step: int, steps: int) -> float:
        """Return what rates are multiplied by at step 0, 1, ... of a training of so many steps."""
        return 1.0


@dataclass(frozen=True)
class Exponential(Constant):
    """Rates that fall by a factor after each epoch."""

    factor: float

    def epoch_factor(self, errors: Sequence[float]) -> float:
        """Return the factor."""
        return self.factor


@dataclass(frozen=True)
class StepDecay(Constant):
    """Rates that fall by a factor after every `period` epochs."""

    factor: float
    period: int

    def epoch_factor(self, errors: Sequence[float]) -> float:
        """Return the factor every so many epochs."""
        return 1.0 if len(errors) % self.period else self.factor


@dataclass(frozen=True)
class Plateau(Constant):
    """Rates that fall by a factor after more than `patience` epochs without a better validation error."""

    factor: float = 0.5
    patience: int = 0

    def epoch_factor(self, errors: Sequence[float]) -> float:
        """Return the factor if the last epoch ends a plateau."""
        best, waited, lowered = math.inf, 0, False
        for error in errors:
            waited = 0 if error < best else waited + 1
            best = min(best, error)
            lowered = waited > self.patience
            waited = 0 if lowered else waited
        return self.factor if lowered else 1.0


@dataclass(frozen=True)
class WarmupCosine(Constant):
    """A linear warm-up over a fraction of all steps, then half a cosine down to zero."""

    warmup: float = 0.1

    def step_scale(self, step: int, steps: int) -> float:
        """Return the scale."""
        warmup = round(self.warmup * steps)
        if step < warmup:
            return (step + 1) / warmup
        return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


@dataclass(frozen=True)
class OneCycle(Constant):
    """A cosine up to the full rate over a fraction of all steps, then one down (Smith and Topin, arXiv 1708.07120)."""

    warmup: float = 0.3
    start: float = 1 / 25  # of the full rate, before the first step
    end: float = 1 / 25e4  # after the last

    def step_scale(self, step: int, steps: int) -> float:
        """Return the scale."""
        top = self.warmup * steps - 1  # the step of the full rate
        if step <= top:
            return _between(self.start, 1.0, step / max(top, 1e-9))
        return _between(1.0, self.end, (step - top) / max(steps - 1 - top, 1e-9))


def _between(first: float, last: float, part: float) -> float:
    """Return a point on half a cosine from the first to the last value."""
    return last + (first - last) / 2 * (1 + math.cos(math.pi * part))


def parameter_groups(
    network: nn.Module, learning_rate: float, weight_decay: float = 0.0, scales: Mapping[str, float] | None = None
) -> list[dict[str, Any]]:
    """Return groups for a torch optimizer, in which only matrices decay, not biases or the weights of norms.

    `scales` multiplies the learning rate of parameters whose names start with a prefix; the longest prefix counts.
    """
    prefixes = sorted(scales or {}, key=len, reverse=True)
    groups: dict[tuple[str, bool], dict[str, Any]] = {}
    for name, parameter in network.named_parameters():
        prefix = next((prefix for prefix in prefixes if name.startswith(prefix)), "")
        decays = weight_decay > 0 and parameter.ndim > 1
        rate = learning_rate * (scales or {}).get(prefix, 1.0)
        group = {"params": [], "lr": rate, "weight_decay": weight_decay if decays else 0.0}
        groups.setdefault((prefix, decays), group)["params"].append(parameter)
    return list(groups.values())


def make_optimizer(groups: Sequence[dict[str, Any]]) -> torch.optim.Optimizer:
    """Return AdamW if weights decay in any of these groups, else Adam."""
    if any(group.get("weight_decay") for group in groups):
        return torch.optim.AdamW(groups, weight_decay=0.0)
    return torch.optim.Adam(groups)

"""Learning rates are those of torch's own schedulers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from parallelrnn.training.optimizers import (
    Constant,
    Exponential,
    OneCycle,
    Plateau,
    StepDecay,
    WarmupCosine,
    make_optimizer,
    parameter_groups,
)

ERRORS = [3.0, 2.0, 2.0, 2.5, 1.0, 1.0, 1.5, 1.2, 1.1, 1.0, 0.9, 0.9, 0.9, 0.9]
STEPS = 40


def rates_of_torch(
    scheduler: Callable[[torch.optim.Optimizer], Any], arguments: list[tuple[float, ...]]
) -> list[float]:
    """Return the rate at each step of an optimizer; the scheduler is stepped in between with these arguments."""
    optimizer = torch.optim.Adam([nn.Parameter(torch.zeros(1))], lr=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch_scheduler = scheduler(optimizer)
        rates = [optimizer.param_groups[0]["lr"]]
        for values in arguments:
            optimizer.step()
            torch_scheduler.step(*values)
            rates.append(optimizer.param_groups[0]["lr"])
    return rates


@pytest.mark.parametrize(
    ("schedule", "scheduler", "takes_errors"),
    [
        (Constant(), lambda o: lr_scheduler.ConstantLR(o, 1.0), False),
        (Exponential(0.6), lambda o: lr_scheduler.ExponentialLR(o, 0.6), False),
        (StepDecay(0.1, 3), lambda o: lr_scheduler.StepLR(o, 3, 0.1), False),
        (Plateau(0.5, 0), lambda o: lr_scheduler.ReduceLROnPlateau(o, factor=0.5, patience=0, threshold=0), True),
        (Plateau(0.3, 2), lambda o: lr_scheduler.ReduceLROnPlateau(o, factor=0.3, patience=2, threshold=0), True),
    ],
    ids=lambda value: str(value) if isinstance(value, Constant) else "",
)
def test_rates_from_epoch_to_epoch(schedule: Constant, scheduler: Any, takes_errors: bool) -> None:
    expected = rates_of_torch(scheduler, [(error,) if takes_errors else () for error in ERRORS])
    rates = [0.1]
    for epoch in range(len(ERRORS)):
        rates.append(rates[-1] * schedule.epoch_factor(ERRORS[: epoch + 1]))
    assert rates == pytest.approx(expected, rel=1e-12)
    assert {schedule.step_scale(step, STEPS) for step in range(STEPS)} == {1.0}


def warmup_then_cosine(optimizer: torch.optim.Optimizer) -> lr_scheduler.SequentialLR:
    """Four steps up, of which the last has the full rate, and the others down."""
    up = lr_scheduler.LinearLR(optimizer, 1 / 4, 1.0, total_iters=3)
    down = lr_scheduler.CosineAnnealingLR(optimizer, STEPS - 4)
    return lr_scheduler.SequentialLR(optimizer, [up, down], [4])


@pytest.mark.parametrize(
    ("schedule", "scheduler"),
    [
        (WarmupCosine(0.1), warmup_then_cosine),
        (WarmupCosine(0.0), lambda o: lr_scheduler.CosineAnnealingLR(o, STEPS)),
        (OneCycle(), lambda o: lr_scheduler.OneCycleLR(o, 0.1, STEPS, cycle_momentum=False)),
        (
            OneCycle(0.5, 1 / 10, 1 / 1000),
            lambda o: lr_scheduler.OneCycleLR(
                o, 0.1, STEPS, pct_start=0.5, div_factor=10, final_div_factor=100, cycle_momentum=False
            ),
        ),
    ],
    ids=lambda value: str(value) if isinstance(value, Constant) else "",
)
def test_rates_from_step_to_step(schedule: Constant, scheduler: Any) -> None:
    rates = [0.1 * schedule.step_scale(step, STEPS) for step in range(STEPS)]
    assert rates == pytest.approx(rates_of_torch(scheduler, [()] * (STEPS - 1)), rel=1e-9)
    assert max(rates) == pytest.approx(0.1)
    assert schedule.epoch_factor(ERRORS) == 1.0


def test_groups_have_rates_of_their_own_and_only_matrices_decay() -> None:
    network = nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3), nn.Linear(3, 1))
    groups = parameter_groups(network, 0.1, weight_decay=0.01, scales={"0": 0.5, "0.bias": 2.0})
    by_name = {
        name: group
        for group in groups
        for name, p in network.named_parameters()
        if any(p is q for q in group["params"])
    }
    assert {name: (group["lr"], group["weight_decay"]) for name, group in by_name.items()} == {
        "0.weight": (0.05, 0.01),
        "0.bias": (0.2, 0.0),
        "1.weight": (0.1, 0.0),
        "1.bias": (0.1, 0.0),
        "2.weight": (0.1, 0.01),
        "2.bias": (0.1, 0.0),
    }
    assert sum(len(group["params"]) for group in groups) == 6
    assert type(make_optimizer(groups)) is torch.optim.AdamW
    assert type(make_optimizer(parameter_groups(network, 0.1))) is torch.optim.Adam
    assert len(parameter_groups(network, 0.1)) == 1

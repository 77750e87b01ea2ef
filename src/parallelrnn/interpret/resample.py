"""New series from a fitted model: its own one-step forecasts and the errors that it made, drawn again."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from parallelrnn.interpret.freerun import FreeRun
from parallelrnn.interpret.layers import as_input, as_taken, time_first

_BEFORE = 500  # steps that are run first and thrown away, at most as many as there are data


@torch.no_grad()
def bootstrap_series(model: Any, readout: nn.Module | None, x: Tensor, count: int = 30, *, seed: int = 0) -> Tensor:
    """So many series (T, count, C) that the model takes for as likely as x, one sequence (T, C).

    Each value is the model's forecast after those before it, plus one of the errors that the model made on x, drawn
    with replacement (the residual bootstrap). Fit the model to each, and `match_fits` says how sure the reading is.
    """
    if x.dim() != 2:
        raise ValueError(f"expected one sequence (T, C), got a tensor of shape {tuple(x.shape)}")
    if len(x) < 2 or count < 1:
        raise ValueError(f"needs at least two steps of data and a count of at least 1, got {len(x)} and {count}")
    run = FreeRun(model, readout)
    series = time_first(run.layer, as_input(run.layer, x))
    forecasts = time_first(run.layer, run.readout(run.layer(as_taken(run.layer, series))[0]))
    errors = (series[1:] - forecasts[:-1])[:, 0]
    errors = errors - errors.mean(0)
    random = torch.Generator().manual_seed(seed)
    before = min(_BEFORE, len(x))
    drawn = errors[torch.randint(len(errors), (before + len(x), count), generator=random)]  # (before + T, count, C)
    found = (_linear_run if run.is_linear else _run)(run, drawn)[before:]
    if not found.isfinite().all():
        raise ValueError("the model's own forecasts grow without bound, so no series can be drawn from it")
    return found.to(x) if x.is_floating_point() else found.to(next(model.parameters()))


def _run(run: FreeRun, errors: Tensor) -> Tensor:
    """Values (T, N, C): each is the forecast after those before it, plus an error."""
    state = torch.zeros(errors.shape[1], run.size, dtype=torch.float64)
    values = []
    for error in errors:
        values.append(run.output(state) + error)
        state = run.after_one(values[-1], state)
    return torch.stack(values)


def _linear_run(run: FreeRun, errors: Tensor) -> Tensor:
    """The same for a linear model, from its matrices: hundreds of times faster."""
    origin = torch.zeros(1, run.size, dtype=torch.float64)
    loop, reading = (torch.from_numpy(matrix).T for matrix in run.jacobian(origin[0]))
    output, after = run.output(origin), run.step(origin)
    nudged = run.after_one(
        output + torch.eye(errors.shape[-1], dtype=torch.float64), origin.expand(errors.shape[-1], -1)
    )
    driven = errors @ (nudged - after)  # (T, N, n)
    state = torch.zeros_like(driven[0])
    states = []
    for drive in driven:
        states.append(state)
        state = after + state @ loop + drive
    return output + torch.stack(states) @ reading + errors

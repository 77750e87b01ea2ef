from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from parallelrnn import ParaGRU, ParaLSTM, ParaRNN
from parallelrnn.interpret import bootstrap_series
from parallelrnn.interpret.freerun import FreeRun


@pytest.mark.parametrize("cls", [ParaRNN, ParaLSTM, ParaGRU, nn.LSTM])
def test_every_error_is_one_that_the_model_made(cls: Any) -> None:
    """On a new series the model makes the errors that were drawn, and no others (once the start is forgotten)."""
    torch.manual_seed(0)
    layer, readout = cls(2, 4).double(), nn.Linear(4, 2).double()
    x = torch.randn(60, 2, dtype=torch.float64)
    errors = x[1:] - readout(layer(x)[0])[:-1]
    errors = errors - errors.mean(0)
    drawn = bootstrap_series(layer, readout, x, 3, seed=1)
    assert drawn.shape == (60, 3, 2)
    made = drawn[1:] - readout(layer(drawn)[0])[:-1]
    distances = torch.cdist(made[40:].flatten(0, 1), errors)
    assert float(distances.min(1).values.max().detach()) < 1e-4  # the new run started elsewhere
    chosen = distances.argmin(1)
    assert len(chosen.unique()) > 10


def test_seeds_and_series_differ() -> None:
    torch.manual_seed(0)
    layer = ParaRNN(1, 4, nonlinearity="linear", aggregate=nn.Linear(4, 1))
    x = torch.randn(50, 1)
    first, second = (bootstrap_series(layer, None, x, 2, seed=seed) for seed in (0, 1))
    assert first.dtype == x.dtype
    assert not torch.equal(first, second)
    assert not torch.equal(first[:, 0], first[:, 1])
    assert torch.equal(first, bootstrap_series(layer, None, x, 2, seed=0))


def test_what_cannot_be_drawn_is_refused() -> None:
    layer = ParaRNN(1, 2, nonlinearity="linear", aggregate=nn.Linear(2, 1))
    with pytest.raises(ValueError, match=r"one sequence \(T, C\)"):
        bootstrap_series(layer, None, torch.randn(50, 1, 1))
    with pytest.raises(ValueError, match="at least two steps"):
        bootstrap_series(layer, None, torch.randn(1, 1))
    with pytest.raises(ValueError, match="puts out what it takes in"):
        bootstrap_series(ParaRNN(1, 2), None, torch.randn(50, 1))
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.fill_(9.0)
    with pytest.raises(ValueError, match="grow without bound"):
        bootstrap_series(layer, None, torch.randn(600, 1))


def test_a_linear_model_draws_the_same_from_its_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    layer = ParaRNN(2, 6, 2, nonlinearity="linear", aggregate=nn.Linear(6, 2)).double()
    x = torch.randn(40, 2, dtype=torch.float64)
    fast = bootstrap_series(layer, None, x, 3)
    monkeypatch.setattr(FreeRun, "is_linear", False)
    torch.testing.assert_close(fast, bootstrap_series(layer, None, x, 3), rtol=1e-10, atol=1e-10)


def test_counts_are_drawn_as_numbers() -> None:
    layer = ParaRNN(1, 2, nonlinearity="linear", aggregate=nn.Linear(2, 1))
    counts = torch.randint(0, 5, (30, 1))
    found = bootstrap_series(layer, None, counts, 2)
    assert found.is_floating_point()
    torch.testing.assert_close(found, bootstrap_series(layer, None, counts.float(), 2))

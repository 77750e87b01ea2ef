"""The last state without those in between is the last of them all."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from parallelrnn import ParaGRU, ParaLSTM, ParaRNN

# Round-off in float64 of sums over at most 63 steps of contractions, in another order.
TOLERANCE = {"rtol": 1e-10, "atol": 1e-11}


@pytest.mark.parametrize("length", [1, 2, 5, 63])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize(("form", "block_size"), [("free", 1), ("free", 2), ("free", 3), ("polar", 2)])
def test_one_linear_layer_equals_the_loop(
    length: int, bias: bool, batch_first: bool, form: str, block_size: int
) -> None:
    torch.manual_seed(length)
    options: dict[str, Any] = {"block_size": block_size, "form": form, "batch_first": batch_first, "bias": bias}
    layer = ParaRNN(3, 12, 1, "linear", **options, aggregate=None, dtype=torch.float64)
    loop = ParaRNN(3, 12, 1, "linear", **options, aggregate=None, dtype=torch.float64, backend="reference")
    loop.load_state_dict(layer.state_dict())
    shape = (7, length, 6) if batch_first else (length, 7, 6)
    x = torch.randn(shape, dtype=torch.float64)[..., ::2]  # not contiguous
    weight = torch.randn(7, 12, dtype=torch.float64)
    results = []
    for module in (layer, loop):
        leaf = x.clone().requires_grad_()
        state = module.last_state(leaf)
        leaves = [leaf, *module.parameters()]  # at one step the recurrent matrix is not used
        gradients = torch.autograd.grad((state * weight).sum(), leaves, materialize_grads=True)
        results.append([state, *gradients])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, **TOLERANCE)


@pytest.mark.parametrize("cls", [ParaRNN, ParaLSTM, ParaGRU])
@pytest.mark.parametrize("options", [{}, {"num_layers": 2}, {"bidirectional": True}, {"block_size": [1, 3, 4]}])
def test_any_layer_gives_the_last_of_its_block_states(cls: Any, options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    layer = cls(2, 8, **options)
    x = torch.randn(5, 3, 2)
    states = layer.block_states(x)
    forward = states[-1, :, :8]
    expected = torch.cat([forward, states[0, :, 8:]], -1)  # the reverse direction ends at the first step
    torch.testing.assert_close(layer.last_state(x), expected)
    torch.testing.assert_close(layer.last_state(x[:, 0]), expected[0])


@pytest.mark.parametrize("nonlinearity", ["linear", "tanh"])
def test_sequences_of_unequal_length_end_where_they_end(nonlinearity: str) -> None:
    torch.manual_seed(0)
    layer = ParaRNN(2, 8, 1, nonlinearity)
    sequences = [torch.randn(length, 2) for length in (2, 5, 3)]
    together = layer.last_state(pack_sequence(sequences, enforce_sorted=False))
    torch.testing.assert_close(together, torch.stack([layer.last_state(sequence) for sequence in sequences]))


def test_exports_with_a_dynamic_batch() -> None:
    class Last(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = ParaRNN(3, 8, 1, "linear")

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer.last_state(x)

    model, batch = Last(), torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(model, (torch.randn(6, 4, 3),), dynamic_shapes=({1: batch},)).module()
    x = torch.randn(6, 9, 3)
    torch.testing.assert_close(program(x), model(x))

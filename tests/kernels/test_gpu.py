"""Layers on the Triton backend against the reference: projection, recurrence and every gradient together."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from parallelrnn import ParaGRU, ParaLSTM, ParaRNN
from parallelrnn.kernels import triton
from tests.support import as_tuple

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
needs_triton = pytest.mark.skipif(not triton.is_available(), reason="Triton is not installed: pip install triton")


@needs_triton
@pytest.mark.parametrize("cls", [ParaRNN, ParaLSTM, ParaGRU])
@pytest.mark.parametrize("options", [{}, {"block_size": [2, 4, 2], "bias": False}, {"form": "polar"}], ids=str)
@pytest.mark.parametrize("packed", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.usefixtures("fresh_memory_is_nan")
def test_a_layer_gives_the_reference_its_due(cls: Any, options: dict[str, Any], packed: bool) -> None:
    kind = {"dtype": torch.float64, "device": DEVICE}
    ours = cls(3, 8, num_layers=2, bidirectional=True, backend="triton", **options, **kind)
    theirs = cls(3, 8, num_layers=2, bidirectional=True, backend="reference", **options, **kind)
    theirs.load_state_dict(ours.state_dict())
    sequences = [torch.randn(length, 3, **kind, requires_grad=True) for length in (5, 5 - 3 * packed, 5 - packed)]
    results = []
    for layer in (ours, theirs):
        layer.zero_grad()
        x = pack_sequence(sequences, enforce_sorted=False) if packed else torch.stack(sequences, 1)
        output, final = layer(x)
        values = [output.data if packed else output, *as_tuple(final)]
        sum((value.square() * (index + 1)).sum() for index, value in enumerate(values)).backward()
        grads = [parameter.grad for parameter in layer.parameters()]
        results.append([*values, *grads, *(sequence.grad.clone() for sequence in sequences)])
        for sequence in sequences:
            sequence.grad = None
        with torch.no_grad():
            output, _ = layer(x)
            results[-1].append(output.data if packed else output)
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


@needs_triton
def test_says_what_it_cannot_do() -> None:
    x = torch.randn(5, 2, 3, device=DEVICE)
    with pytest.raises(
        RuntimeError, match="it is for block sizes 1, 2, 4, 8, 16 and 32 in float32 and float64, not for 3"
    ):
        ParaGRU(3, 6, block_size=3, backend="triton", device=DEVICE)(x)
    with pytest.raises(RuntimeError, match="it has no projections"):
        ParaLSTM(3, 8, proj_size=4, backend="triton", device=DEVICE)(x)


def test_where_triton_or_the_gpu_is_missing_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match="Triton is not installed: pip install triton; use backend='auto'"):
        ParaGRU(3, 8, backend="triton")(torch.randn(5, 2, 3))
    monkeypatch.setattr(triton, "is_available", lambda: True)
    monkeypatch.setattr(triton, "is_interpreted", lambda: False)
    with pytest.raises(RuntimeError, match="it is for the GPU, and the weights are on cpu"):
        ParaGRU(3, 8, backend="triton")(torch.randn(5, 2, 3))

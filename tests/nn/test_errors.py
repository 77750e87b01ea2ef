"""Errors carry what was expected and what came. Their types are those of torch.nn; test_torch_modules compares them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence

from parallelrnn import (
    BlockRecurrentTransformer,
    ParaAttention,
    ParaAttentionCell,
    ParaGRU,
    ParaLSTM,
    ParaLSTMCell,
    ParaRNN,
    ParaRNNCell,
    WaveDecoder,
    from_torch,
)
from parallelrnn.errors import ArgumentError, ArgumentTypeError, InputError, TensorError
from parallelrnn.nn import initialize, recurrent_blocks
from tests.support import raises

x = torch.randn(5, 4, 3)
vectors = torch.randn(2, 5, 4)
h = torch.zeros(1, 4, 8)
Case = tuple[Callable[[], Any], type[Exception], str | None, Any]  # a call, its error, and the fields argument and got


def tensors() -> list[Case]:
    packed = pack_sequence([x[:, 0]])
    rnn, gru, lstm, lstm_cell = ParaRNN(3, 8), ParaGRU(3, 8), ParaLSTM(3, 8), ParaLSTMCell(3, 8)
    projected, first = ParaLSTM(3, 8, proj_size=4), ParaGRU(3, 8, batch_first=True)
    cell, attention, attention_cell, decoder = ParaRNNCell(3, 8), ParaAttention(4), ParaAttentionCell(4), WaveDecoder(3)
    return [
        (lambda: rnn(x[0, 0]), TensorError, "input", (3,)),
        (lambda: rnn(x[None]), TensorError, "input", (1, 5, 4, 3)),
        (lambda: ParaRNN(4, 8)(x), TensorError, "input", (5, 4, 3)),
        (lambda: rnn(x[:0]), TensorError, "input", (0, 4, 3)),
        (lambda: rnn(x[:0, 0]), TensorError, "input", (0, 3)),
        (lambda: first(x[:, :0]), TensorError, "input", (5, 0, 3)),
        (lambda: rnn(x.double()), TensorError, "input", torch.float64),
        (lambda: rnn(x.long()), TensorError, "input", torch.int64),
        (lambda: rnn(x.numpy()), ArgumentTypeError, "input", np.ndarray),
        (lambda: rnn(None), ArgumentTypeError, "input", type(None)),
        (lambda: rnn(x, h.numpy()), ArgumentTypeError, "hx", np.ndarray),
        (lambda: gru(x, h[..., :7]), TensorError, "h_0", (1, 4, 7)),
        (lambda: gru(x, h[0]), TensorError, "h_0", (4, 8)),
        (lambda: gru(x[0], h), TensorError, "h_0", (1, 4, 8)),
        (lambda: gru(x, h.double()), TensorError, "h_0", torch.float64),
        (lambda: gru(x, (h, h)), ArgumentTypeError, "hx", tuple),
        (lambda: lstm(x, h), ArgumentTypeError, "hx", torch.Tensor),
        (lambda: lstm(x, (h,)), ArgumentTypeError, "hx", tuple),
        (lambda: lstm(x, (h, None)), ArgumentTypeError, "hx", type(None)),
        (lambda: lstm(x, (h, h[..., :7])), TensorError, "c_0", (1, 4, 7)),
        (lambda: projected(x, (h, h)), TensorError, "h_0", (1, 4, 8)),
        (lambda: ParaRNN(4, 8)(packed), TensorError, "input", (5, 3)),
        (lambda: rnn(pack_sequence([x])), TensorError, "input", (5, 4, 3)),
        (lambda: rnn(packed, h[:, :2]), TensorError, "h_0", (1, 2, 8)),
        (lambda: rnn(packed, h[0]), TensorError, "h_0", (4, 8)),
        (lambda: rnn(packed, h[:, :1].double()), TensorError, "h_0", torch.float64),
        (lambda: cell(x), TensorError, "input", (5, 4, 3)),
        (lambda: cell(x[0], h[0, 0]), TensorError, "hx", (8,)),
        (lambda: cell(x[0].double()), TensorError, "input", torch.float64),
        (lambda: lstm_cell(x[0], h[0]), ArgumentTypeError, "hx", torch.Tensor),
        (lambda: attention(None), ArgumentTypeError, "query", type(None)),
        (lambda: attention(vectors[0]), TensorError, "query", (5, 4)),
        (lambda: attention(vectors, vectors[..., 1:]), TensorError, "key", (2, 5, 3)),
        (lambda: attention(vectors, vectors[1:]), TensorError, "key", (1, 5, 4)),
        (lambda: attention(vectors, vectors.double()), TensorError, "key", torch.float64),
        (lambda: attention(vectors, vectors, vectors[:, 1:]), TensorError, "value", (2, 4, 4)),
        (lambda: attention(vectors, key_padding_mask=[True]), ArgumentTypeError, "key_padding_mask", list),
        (lambda: attention_cell(vectors[..., 1:]), TensorError, "x", (2, 5, 3)),
        (lambda: attention_cell(vectors, vectors[:, 0].double()), TensorError, "h", torch.float64),
        (lambda: attention_cell(vectors, vectors[:, 0].numpy()), ArgumentTypeError, "h", np.ndarray),
        (lambda: decoder(vectors[:, 0], 5), TensorError, "state", (2, 4)),
        (lambda: decoder(torch.zeros(2, 3).double(), 5), TensorError, "state", torch.float64),
        (lambda: decoder([0.0] * 3, 5), ArgumentTypeError, "state", list),
    ]


def constructors() -> list[Case]:
    def transformer(**options: Any) -> Callable[[], Any]:
        return lambda: BlockRecurrentTransformer(3, 8, **{"num_heads": 2, "segment_length": 5, **options})

    def blocks(hidden_size: int, block_size: Any) -> Callable[[], Any]:
        return lambda: ParaGRU(3, hidden_size, block_size=block_size)

    return [
        (blocks(7, 2), ArgumentError, "block_size", 2),
        (blocks(6, 8), ArgumentError, "block_size", 8),
        (blocks(6, 0), ArgumentError, "block_size", 0),
        (blocks(6, [2, 2]), ArgumentError, "block_size", [2, 2]),
        (blocks(6, []), ArgumentError, "block_size", []),
        (blocks(6, [6, 0]), ArgumentError, "block_size", 0),
        (blocks(6, 2.0), ArgumentTypeError, "block_size", 2.0),
        (blocks(6, True), ArgumentTypeError, "block_size", True),
        (blocks(6, "2"), ArgumentTypeError, "block_size", "2"),
        (blocks(6, [2, 4.0]), ArgumentTypeError, "block_size", 4.0),
        (lambda: ParaRNN(3, 8, nonlinearity="gelu"), ArgumentError, "nonlinearity", "gelu"),
        (lambda: ParaRNN(3, 8, aggregate="mean"), ArgumentError, "aggregate", "mean"),
        (lambda: ParaRNN(3, 8, aggregate=nn.Linear(4, 2)), ArgumentError, "aggregate", 4),
        (lambda: ParaRNN(3, 8, backend="cuda"), ArgumentError, "backend", "cuda"),
        (lambda: ParaRNN(3, 8, 1.0), ArgumentTypeError, "num_layers", 1.0),
        (lambda: ParaGRU(3, 8, bidirectional=1), ArgumentTypeError, "bidirectional", 1),
        (lambda: ParaLSTM(3, 8, dropout=1.5), ArgumentError, "dropout", 1.5),
        (lambda: ParaLSTM(3, 8, proj_size=8), ArgumentError, "proj_size", 8),
        (lambda: ParaLSTM(3, 8, proj_size=-1), ArgumentError, "proj_size", -1),
        (lambda: ParaLSTM(3, 8, proj_size=3), ArgumentError, "proj_size", 3),
        (lambda: ParaRNN(3, 8, block_size=4, form="polar"), ArgumentError, "form", "polar"),
        (lambda: ParaLSTM(3, 8, proj_size=4, form="polar"), ArgumentError, "form", "polar"),
        (lambda: ParaRNNCell(3, 8, form="jordan"), ArgumentError, "form", "jordan"),
        (lambda: ParaRNN(3, 2**70), ArgumentError, "hidden_size", 2**70),
        (lambda: ParaRNN(3, 8, dtype=torch.int64), ArgumentError, "dtype", torch.int64),
        (lambda: ParaAttention(7), ArgumentError, "block_size", 2),
        (lambda: ParaAttention(0), ArgumentError, "embed_dim", 0),
        (lambda: WaveDecoder(3, num_waves=0, num_decays=0), ArgumentError, "num_waves", 0),
        (lambda: WaveDecoder(3, num_waves=-1), ArgumentError, "num_waves", -1),
        (lambda: WaveDecoder(3, num_decays=1.5), ArgumentTypeError, "num_decays", 1.5),
        (lambda: WaveDecoder(3, output_size=0), ArgumentError, "output_size", 0),
        (transformer(num_heads=3), ArgumentError, "d_model", 8),
        (transformer(attention="dense"), ArgumentError, "attention", "dense"),
        (transformer(gate="gru"), ArgumentError, "gate", "gru"),
        (transformer(num_segments=3), ArgumentError, "num_segments", 3),
        (transformer(recurrent_layers=(3,)), ArgumentError, "recurrent_layers", (3,)),
        (transformer(truncate=1), ArgumentError, "truncate", 1),
        (transformer(num_states=0), ArgumentError, "num_states", 0),
        (transformer(block_size=3), ArgumentError, "block_size", 3),
        (transformer(dropout=2), ArgumentError, "dropout", 2),
    ]


def functions() -> list[Case]:
    waves, mixed, chrono, identity = map(vars(initialize).get, ("waves_", "mixed_order_", "chrono_", "identity_"))
    rnn, decoder = ParaRNN(3, 8), WaveDecoder(3, num_waves=2)
    parametrized = nn.utils.parametrizations.weight_norm(ParaRNN(3, 8), "weight_hh_l0")
    diverged = nn.RNN(3, 4)
    nn.init.constant_(diverged.weight_hh_l0, float("nan"))
    return [
        (lambda: recurrent_blocks(nn.Linear(3, 3)), ArgumentTypeError, "module", nn.Linear),
        (lambda: mixed(rnn), ArgumentError, "module", 2),
        (lambda: mixed(ParaRNN(3, 8, block_size=4), (0.5, 1.5)), ArgumentError, "modulus", (0.5, 1.5)),
        (lambda: chrono(rnn, 100), ArgumentError, "module", ParaRNN),
        (lambda: chrono(ParaLSTM(3, 8, bias=False), 100), ArgumentError, "module", None),
        (lambda: chrono(ParaLSTM(3, 8), 2), ArgumentError, "longest", 2),
        (lambda: waves(ParaLSTM(3, 8)), ArgumentError, "module", ParaLSTM),
        (lambda: waves(ParaRNN(3, 6, block_size=3)), ArgumentError, "module", 3),
        (lambda: waves(rnn, [3, 4]), ArgumentError, "periods", [3, 4]),
        (lambda: waves(rnn, [3, 4, 1, 5]), ArgumentError, "periods", [3, 4, 1, 5]),
        (lambda: waves(rnn, 10), ArgumentTypeError, "periods", 10),
        (lambda: waves(rnn, longest=-1), ArgumentError, "longest", -1),
        (lambda: waves(rnn, half_lives=[3, 4, np.inf, 5]), ArgumentError, "half_lives", [3, 4, np.inf, 5]),
        (lambda: identity(ParaRNN(3, 8, form="polar")), ArgumentError, "module", None),
        (lambda: identity(ParaLSTM(3, 8, proj_size=4)), ArgumentError, "module", None),
        (lambda: identity(parametrized), ArgumentError, "module", None),
        (lambda: identity(nn.Linear(3, 3)), ArgumentTypeError, "module", nn.Linear),
        (lambda: waves(nn.Linear(3, 3)), ArgumentTypeError, "module", nn.Linear),
        (lambda: decoder.start_at([24], [10]), ArgumentError, "periods", [24]),
        (lambda: decoder.start_at([24, 1], [10, 10]), ArgumentError, "periods", [24, 1]),
        (lambda: from_torch(nn.LSTM(3, 8), 2), ArgumentError, "block_size", None),
        (lambda: from_torch(nn.GRUCell(3, 8), 2), ArgumentError, "block_size", None),
        (lambda: from_torch(nn.RNNCell(3, 8), 2), ArgumentError, "block_size", None),
        (lambda: from_torch(nn.RNN(3, 8), 3), ArgumentError, "block_size", 3),
        (lambda: from_torch(rnn), ArgumentError, "block_size", None),
        (lambda: from_torch(nn.Sequential(nn.LSTM(3, 8))), ArgumentTypeError, "module", nn.Sequential),
        (lambda: from_torch(diverged, 2), InputError, None, None),
    ]


@pytest.mark.parametrize("cases", [tensors, constructors, functions])
def test_errors_carry_the_argument_and_its_value(cases: Callable[[], list[Case]]) -> None:
    for number, (call, kind, argument, got) in enumerate(cases()):
        with pytest.raises(kind) as caught:
            call()
        error = caught.value
        assert (type(error), error.argument, error.got) == (kind, argument, got), f"case {number}: {error}"


@pytest.mark.parametrize(
    ("hidden_size", "block_size", "proposal"), [(7, 2, "[2, 2, 3]"), (129, 2, "[2] * 63 + [3]"), (11, 4, "[4, 4, 3]")]
)
def test_blocks_that_a_hint_proposes_work(hidden_size: int, block_size: int, proposal: str) -> None:
    with raises(ArgumentError, f"block_size={proposal}"):
        ParaRNN(3, hidden_size, block_size=block_size)
    ParaRNN(3, hidden_size, block_size=eval(proposal))


@pytest.mark.parametrize(("block_size", "proposals"), [(2, ["[4]", "block_size=8"]), ([1, 7], ["block_size=8"])])
def test_projections_that_a_hint_proposes_work(block_size: Any, proposals: list[str]) -> None:
    with raises(ArgumentError, *proposals):
        ParaLSTM(3, 8, proj_size=3, block_size=block_size)
    ParaLSTM(3, 8, proj_size=3, block_size=8)
    ParaLSTM(3, 8, proj_size=4)


@pytest.mark.parametrize(
    ("ours", "theirs", "arguments"),
    [
        (ParaRNN, nn.RNN, (3, 8, 2, "relu", False, True, 0.5, True)),
        (ParaLSTM, nn.LSTM, (3, 8, 2, False, True, 0.5, True, 4)),
        (ParaRNNCell, nn.RNNCell, (3, 8, False, "relu")),
    ],
)
def test_positional_arguments_are_in_the_order_of_torch(ours: Any, theirs: Any, arguments: tuple[Any, ...]) -> None:
    module, twin = ours(*arguments), theirs(*arguments)
    for name in ("num_layers", "nonlinearity", "bias", "batch_first", "dropout", "bidirectional", "proj_size"):
        assert getattr(module, name, 0) == getattr(twin, name, 0)

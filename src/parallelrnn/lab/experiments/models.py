"""Paired models: networks that share everything but the recurrent layer.

A vanilla one has a layer of `torch.nn`; a para one is made of blocks. The same aggregate at the last step and the same
linear map to the outputs follow both.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from parallelrnn.lab.experiments.experiment import ExperimentError
from parallelrnn.nn import BlockRecurrentTransformer, ParaGRU, ParaLSTM, ParaRNN
from parallelrnn.nn.aggregate import make_aggregate

RECURRENT = ("RNN", "ParaRNN", "LSTM", "ParaLSTM", "GRU", "ParaGRU")
TRANSFORMERS = ("BRT", "ParaBRT")
MODELS = (*RECURRENT, *TRANSFORMERS)
_PARA = {"RNN": ParaRNN, "LSTM": ParaLSTM, "GRU": ParaGRU}
_VANILLA = {"RNN": nn.RNN, "LSTM": nn.LSTM, "GRU": nn.GRU}


def twin(model: str) -> str:
    """Return the para model of a vanilla one, and the other way round."""
    return model.removeprefix("Para") if model.startswith("Para") else f"Para{model}"


class Recurrent(nn.Module):
    """A recurrent layer, an aggregate of its last state, and a linear map: inputs (B, T, C) to outputs (B, out)."""

    def __init__(
        self,
        model: str,
        input_size: int,
        output_size: int,
        *,
        hidden_size: int = 128,
        num_layers: int = 1,
        block_size: int = 2,
        aggregate: str | None = "ffn",
        seed: int | None = None,  # initial values of what paired models share
    ) -> None:
        super().__init__()
        if model not in RECURRENT:
            raise ExperimentError(f"there is no model {model!r}", hint=f"choose from {', '.join(RECURRENT)}")
        cell = model.removeprefix("Para")
        sizes = (input_size, hidden_size, num_layers)
        self.layer: nn.Module
        if model in _VANILLA:
            self.layer = _VANILLA[cell](*sizes, batch_first=True)
        else:
            self.layer = _PARA[cell](*sizes, batch_first=True, block_size=block_size, aggregate=None)
        if seed is not None:
            torch.manual_seed(seed)  # the recurrent layers drew different counts of numbers
        self.aggregate = make_aggregate(aggregate, hidden_size, True, None, None) or nn.Identity()
        self.read_out = nn.Linear(hidden_size, output_size)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return outputs (B, out) of sequences (B, T, C)."""
        _, final = self.layer(inputs)
        last = final[0] if isinstance(final, tuple) else final  # an LSTM also returns its cell state
        output: Tensor = self.read_out(self.aggregate(last[-1]))
        return output


def make_recurrent(config: Any, input_size: int, output_size: int, seed: int) -> Recurrent:
    """Return the recurrent network that a configuration describes."""
    sizes = {name: getattr(config, name) for name in ("hidden_size", "num_layers", "block_size")}
    return Recurrent(config.model, input_size, output_size, seed=seed, **sizes)


class Transformer(nn.Module):
    """A Block-Recurrent Transformer and a linear map from its last token: inputs (B, T, C) to outputs (B, out)."""

    def __init__(
        self,
        model: str,
        input_size: int,
        output_size: int,
        *,
        d_model: int,
        num_layers: int,
        num_heads: int,
        num_states: int,
        num_segments: int,
        all_recurrent: bool = False,
    ) -> None:
        super().__init__()
        if model not in TRANSFORMERS:
            raise ExperimentError(f"there is no model {model!r}", hint=f"choose from {', '.join(TRANSFORMERS)}")
        self.transformer = BlockRecurrentTransformer(
            input_size,
            d_model,
            num_layers,
            num_heads,
            num_states,
            num_segments=num_segments,
            recurrent_layers=range(num_layers) if all_recurrent else None,
            attention="para" if model == "ParaBRT" else "multihead",
        )
        self.read_out = nn.Linear(d_model, output_size)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return outputs (B, out) of sequences (B, T, C)."""
        tokens, _ = self.transformer(inputs)
        output: Tensor = self.read_out(tokens[:, -1])
        return output


def count_parameters(network: nn.Module) -> int:
    """Return the number of parameters."""
    return sum(parameter.numel() for parameter in network.parameters())

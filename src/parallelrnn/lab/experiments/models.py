"""Twins: networks that share everything but the recurrent layer.

A vanilla one is `torch.nn`'s; a para one is made of blocks. Both are followed by the same aggregate at the last step,
and by the same linear map to the outputs.
"""

from __future__ import annotations

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
    """The vanilla model of a para one, and the other way round."""
    return model.removeprefix("Para") if model.startswith("Para") else f"Para{model}"


class Recurrent(nn.Module):
    """A recurrent layer, its last state aggregated, and a linear map: inputs (B, T, C) to outputs (B, out)."""

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
        seed: int | None = None,  # what twins share begins the same in both
    ) -> None:
        super().__init__()
        if model not in RECURRENT:
            raise ExperimentError(f"model is one of {', '.join(RECURRENT)}, got {model!r}")
        cell = model.removeprefix("Para")
        sizes = (input_size, hidden_size, num_layers)
        self.layer: nn.Module
        if model in _VANILLA:
            self.layer = _VANILLA[cell](*sizes, batch_first=True)
        else:
            self.layer = _PARA[cell](*sizes, batch_first=True, block_size=block_size, aggregate=None)
        if seed is not None:
            torch.manual_seed(seed)  # the recurrent layers drew numbers of different count
        self.aggregate = make_aggregate(aggregate, hidden_size, True, None, None) or nn.Identity()
        self.read_out = nn.Linear(hidden_size, output_size)

    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs of sequences."""
        _, final = self.layer(inputs)
        last = final[0] if isinstance(final, tuple) else final  # the h alone of LSTMs, of all layers
        output: Tensor = self.read_out(self.aggregate(last[-1]))
        return output


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
            raise ExperimentError(f"model is one of {', '.join(TRANSFORMERS)}, got {model!r}")
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
        """Outputs of sequences."""
        tokens, _ = self.transformer(inputs)
        output: Tensor = self.read_out(tokens[:, -1])
        return output


def count_parameters(network: nn.Module) -> int:
    """Numbers that are learned."""
    return sum(parameter.numel() for parameter in network.parameters())

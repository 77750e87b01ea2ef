"""The recurrence as ONNX's own RNN, LSTM and GRU operators, with block-diagonal weights.

Used while torch.onnx.export traces a model, so that the exported graph does not grow with the sequence length, and both
length and batch size may be dynamic.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from parallelrnn.kernels.weights import State, Weights

_OPERATORS: dict[str, tuple[str, dict[str, Any]]] = {
    "RNN_TANH": ("RNN", {"activations": ["Tanh"]}),
    "RNN_RELU": ("RNN", {"activations": ["Relu"]}),
    "RNN_SIGMOID": ("RNN", {"activations": ["Sigmoid"]}),
    "RNN_LINEAR": ("RNN", {"activations": ["Affine"], "activation_alpha": [1.0], "activation_beta": [0.0]}),
    "LSTM": ("LSTM", {}),
    "GRU": ("GRU", {"linear_before_reset": 1}),  # torch.nn's reset convention
}
# ONNX stacks the gates in another order than torch.nn: input, output, forget, cell; and update, reset, new.
_GATE_ORDER = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2)}
_OPSET = 14


def recurrence(
    mode: str, x: Tensor, weights: Weights, state: State, lengths: Tensor | None, reverse: bool
) -> tuple[Tensor, State]:
    """Emit one ONNX operator, where `supports` says that one is enough."""
    gates, num_blocks, block_size, _ = weights.recurrent.shape
    hidden_size = num_blocks * block_size
    length, batch = x.shape[:2]
    order = _GATE_ORDER.get(mode, (0,))

    def by_gate(stacked: Tensor) -> Tensor:  # (G * d, ...) in torch's order -> (1, G * d, ...) in ONNX's
        parts = stacked.unflatten(0, (gates, hidden_size))
        return torch.cat([parts[gate] for gate in order]).unsqueeze(0)

    # One product puts all blocks on the diagonal: torch.block_diag would add a node to the graph for every block.
    diagonal = torch.eye(num_blocks, dtype=x.dtype, device=x.device)[:, None, :, None]  # (K, 1, K, 1)
    dense = (weights.recurrent.unsqueeze(3) * diagonal).reshape(gates * hidden_size, hidden_size)
    recurrent = by_gate(dense)
    bias = None
    if weights.input_bias is not None and weights.recurrent_bias is not None:
        bias = torch.cat([by_gate(weights.input_bias), by_gate(weights.recurrent_bias)], dim=1)  # (1, 2 * G * d)

    name, attributes = _OPERATORS[mode]
    outputs = torch.onnx.ops.symbolic_multi_out(
        name,
        (x, by_gate(weights.input), recurrent, bias, None, *(s.unsqueeze(0) for s in state)),
        {"hidden_size": hidden_size, "direction": "reverse" if reverse else "forward", **attributes},
        dtypes=[x.dtype] * (1 + len(state)),
        shapes=[(length, 1, batch, hidden_size), *((1, batch, hidden_size) for _ in state)],
        version=_OPSET,
    )
    return outputs[0].squeeze(1), tuple(s.squeeze(0) for s in outputs[1:])


def supports(weights: Weights, lengths: Tensor | None) -> bool:
    """Return whether ONNX has an operator for this recurrence, and the running exporter can emit it.

    Only the exporter built on torch.export can, from torch 2.8 on. Anything else unrolls the reference. So does any
    dtype but float32, the only one that onnxruntime computes these operators in.
    """
    can_emit = hasattr(torch.onnx, "ops") and torch.compiler.is_exporting()
    has_operator = weights.recurrent.dtype == torch.float32 and lengths is None and weights.projection is None
    return can_emit and has_operator

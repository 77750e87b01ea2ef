"""What several test files need: the layers with their twins, and the dense layer that a layer of blocks amounts to."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from parallelrnn import ParaGRU, ParaGRUCell, ParaLSTM, ParaLSTMCell, ParaRNN, ParaRNNCell

TWINS: dict[type[nn.Module], type[nn.Module]] = {ParaRNN: nn.RNN, ParaLSTM: nn.LSTM, ParaGRU: nn.GRU}
CELLS: dict[type[nn.Module], type[nn.Module]] = {ParaRNN: ParaRNNCell, ParaLSTM: ParaLSTMCell, ParaGRU: ParaGRUCell}


def random_state(layer: Any, batch: int) -> Any:
    """An initial state with every entry different, in the form in which the layer takes it."""
    sizes = (layer.output_size, layer.hidden_size)[: layer.num_states]
    count = layer.num_layers * layer.num_directions
    dtype = next(layer.parameters()).dtype
    state = tuple(torch.randn(count, batch, size, dtype=dtype) for size in sizes)
    return state if layer.num_states == 2 else state[0]


def as_tuple(state: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (state,) if isinstance(state, Tensor) else tuple(state)


@torch.no_grad()
def dense_twin(layer: Any) -> Any:
    """The layer of torch.nn whose recurrent weights are `torch.block_diag` of the layer's blocks (no aggregate)."""
    options = {"nonlinearity": layer.nonlinearity} if isinstance(layer, ParaRNN) else {}
    if layer.proj_size:
        options["proj_size"] = layer.proj_size
    twin = TWINS[type(layer)](
        layer.input_size,
        layer.hidden_size,
        layer.num_layers,
        bias=layer.bias,
        batch_first=layer.batch_first,
        bidirectional=layer.bidirectional,
        dtype=next(layer.parameters()).dtype,
        **options,
    )
    for name, parameter in twin.named_parameters():
        if name.startswith(("weight_ih", "bias")):
            parameter.copy_(getattr(layer, name))
    for index, names in enumerate(twin._all_weights):
        suffix = names[0].removeprefix("weight_ih")
        groups = layer._grouped_weights(suffix)
        recurrent, projections = {}, {}
        for blocks, weights in zip(layer.blocks.groups.values(), groups, strict=True):
            recurrent.update(zip(blocks, weights.recurrent.unbind(1), strict=True))
            if weights.projection is not None:
                projections.update(zip(blocks, weights.projection, strict=True))
        order = range(layer.num_blocks)
        gates = [torch.block_diag(*(recurrent[k][gate] for k in order)) for gate in range(len(layer.gates))]
        getattr(twin, f"weight_hh{suffix}").copy_(torch.cat(gates))
        if projections:
            getattr(twin, f"weight_hr{suffix}").copy_(torch.block_diag(*(projections[k] for k in order)))
        assert index < layer.num_layers * layer.num_directions
    return twin

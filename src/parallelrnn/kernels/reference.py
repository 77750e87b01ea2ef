"""The recurrence as a plain, differentiable loop over time: the definition of correct.

The equations of all gates are here, in `rnn_step`, `lstm_step` and `gru_step`, and every backend has to agree with
them. To change a gate, change it here, then in `csrc/cells.h` (`lstm`, `gru` and their backward) and in
`triton_programs.py` (`_lstm_step`, `_gru_step` and their gradients); activations are in `csrc/activations.h`.

Each step is the mathematics of its cell and nothing else. It sees all K blocks at once: u is the input's part of the
pre-activation, r the recurrent part, both (K, B, G, D), and the state is (K, B, D).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from parallelrnn.kernels.contexts import without_autocast
from parallelrnn.kernels.weights import State, Weights

Step = Callable[[Tensor, Tensor, State], State]


def rnn_step(activation: Callable[[Tensor], Tensor], u: Tensor, r: Tensor, state: State) -> State:
    """h' = act(W h + U x + b), Equation 3 of arXiv 2605.02692."""
    return (activation(u + r).squeeze(-2),)


def lstm_step(u: Tensor, r: Tensor, state: State) -> State:
    """The LSTM of torch.nn: input, forget and output gates as in Section 5 of arXiv 2605.02692."""
    _, c = state
    i, f, g, o = (u + r).unbind(-2)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    h = torch.sigmoid(o) * torch.tanh(c)
    return h, c


def gru_step(u: Tensor, r: Tensor, state: State) -> State:
    """The GRU of torch.nn: the reset gate multiplies W_n h + b_n, not h."""
    (h,) = state
    u_reset, u_update, u_new = u.unbind(-2)
    r_reset, r_update, r_new = r.unbind(-2)
    reset = torch.sigmoid(u_reset + r_reset)
    update = torch.sigmoid(u_update + r_update)
    new = torch.tanh(u_new + reset * r_new)
    return ((1 - update) * new + update * h,)


STEPS: dict[str, Step] = {
    "RNN_TANH": partial(rnn_step, torch.tanh),
    "RNN_RELU": partial(rnn_step, torch.relu),
    "RNN_SIGMOID": partial(rnn_step, torch.sigmoid),
    "RNN_LINEAR": partial(rnn_step, lambda pre: pre),
    "LSTM": lstm_step,
    "GRU": gru_step,
}


def recurrence(
    mode: str, x: Tensor, weights: Weights, state: State, lengths: Tensor | None, reverse: bool
) -> tuple[Tensor, State]:
    """Run K blocks side by side over a batch of sequences; `dispatch.recurrence` documents the arguments."""
    step = STEPS[mode]
    gates, num_blocks, block_size, _ = weights.recurrent.shape
    dtype = weights.recurrent.dtype
    inputs = functional.linear(x, weights.input, weights.input_bias)  # (T, B, G * K * D)

    with without_autocast(x.device.type):
        u = inputs.to(dtype).unflatten(-1, (gates, num_blocks, block_size)).permute(0, 3, 1, 2, 4)  # (T, K, B, G, D)
        recur = _recurrent_part(weights)
        state = tuple(_split_blocks(s, num_blocks) for s in state)
        if lengths is not None:
            lengths = lengths[:, None]  # (B, 1)

        steps = list(enumerate(u.unbind(0)))
        outputs = []
        for t, u_t in reversed(steps) if reverse else steps:
            new = step(u_t, recur(state[0]), state)
            if weights.projection is not None:
                new = (torch.bmm(new[0], weights.projection.mT), *new[1:])
            if lengths is None:
                state = new
                outputs.append(state[0])
            else:
                real = t < lengths
                state = tuple(torch.where(real, after, before) for after, before in zip(new, state, strict=True))
                outputs.append(torch.where(real, new[0], 0))
        if reverse:
            outputs.reverse()
        output = torch.stack(outputs).transpose(1, 2).flatten(2)  # (T, B, K * P)
        return output, tuple(s.transpose(0, 1).flatten(1) for s in state)


def _recurrent_part(weights: Weights) -> Callable[[Tensor], Tensor]:
    """Return the map h -> W_k h_k + b_k of all gates and blocks, (K, B, P) -> (K, B, G, D), as one batched product."""
    gates, num_blocks, block_size, projected = weights.recurrent.shape
    w = weights.recurrent.permute(1, 3, 0, 2).reshape(num_blocks, projected, gates * block_size)
    b = weights.recurrent_bias
    if b is not None:
        b = b.view(gates, num_blocks, block_size).transpose(0, 1).reshape(num_blocks, 1, gates * block_size)

    def recur(h: Tensor) -> Tensor:
        r = torch.bmm(h, w) if b is None else torch.bmm(h, w) + b
        return r.view(num_blocks, -1, gates, block_size)

    return recur


def _split_blocks(state: Tensor, num_blocks: int) -> Tensor:
    blocks: Tensor = state.unflatten(-1, (num_blocks, -1))
    return blocks.transpose(0, 1)  # (B, K * D) -> (K, B, D)

"""A linear recurrence whose weights are functions of parameters: its states by the kernels, and their derivatives."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from parallelrnn.kernels import Weights, recurrence


class LinearRecurrence(NamedTuple):
    """s(t+1) = W s(t) + K x(t) + b: a linear ParaRNN of one block, whose weights may be functions of parameters."""

    recurrent: Tensor  # W, (d, d)
    gain: Tensor  # K, (d, n)
    bias: Tensor  # b, (d,)
    start: Tensor  # s(1), (d,), before the first input

    def states(self, x: Tensor) -> Tensor:
        """s(1), ..., s(T+1), (T + 1, d), from x (T, n)."""
        return _run(self.recurrent, self.gain, self.bias, self.start[None], x[:, None])[:, 0]

    def slopes(self, states: Tensor, x: Tensor, of_weights: LinearRecurrence, of_x: Tensor) -> Tensor:
        """The derivatives (T + 1, k, d) of the states by k parameters, given those of the weights and of x.

        Both have a last axis for the parameters. Slopes follow the recurrence of the states, driven by what parameters
        change at each step: they are one batch of k sequences, and have gradients in turn.
        """
        drive = (
            torch.einsum("dek,te->tkd", of_weights.recurrent, states[:-1])
            + torch.einsum("dnk,tn->tkd", of_weights.gain, x)
            + torch.einsum("dn,tnk->tkd", self.gain, of_x)
            + of_weights.bias.T
        )
        return _run(self.recurrent, torch.eye(len(self.start)).to(drive), None, of_weights.start.T, drive)


def _run(recurrent: Tensor, gain: Tensor, bias: Tensor | None, start: Tensor, x: Tensor) -> Tensor:
    """All states (T + 1, B, d), from start (B, d) and x (T, B, n)."""
    states, _ = recurrence("RNN_LINEAR", x, Weights(gain, recurrent[None, None], bias), (start,))
    return torch.cat([start[None], states])

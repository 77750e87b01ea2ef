"""A recurrence of some shape with random weights, and all that can be compared of it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from parallelrnn.kernels import GATES, NUM_STATES, State, Weights, recurrence


@dataclass(frozen=True, kw_only=True)
class Case:
    """A recurrence of some shape; weights and inputs are random."""

    mode: str
    block_size: int = 2
    dtype: torch.dtype = torch.float64
    steps: int = 7
    batch: int = 5
    num_blocks: int = 3
    inputs: int = 3
    bias: bool = True
    packed: bool = False
    reverse: bool = False

    def tensors(self) -> tuple[Tensor, Weights, State, Tensor | None]:
        gates, width = len(GATES[self.mode]), self.num_blocks * self.block_size

        def random(*shape: int) -> Tensor:
            return torch.randn(shape, dtype=self.dtype).mul_(0.4).requires_grad_()

        weights = Weights(
            random(gates * width, self.inputs),
            random(gates, self.num_blocks, self.block_size, self.block_size),
            random(gates * width) if self.bias else None,
            random(gates * width) if self.bias else None,
        )
        state = tuple(random(self.batch, width) for _ in range(NUM_STATES[self.mode]))
        lengths = torch.randint(1, self.steps + 1, (self.batch,)) if self.packed else None
        return random(self.steps, self.batch, self.inputs), weights, state, lengths


def results(
    backend: str, case: Case, x: Tensor, weights: Weights, state: State, lengths: Tensor | None
) -> dict[str, Tensor]:
    """Output, final state and every gradient under a random loss on both."""
    output, final = recurrence(case.mode, x, weights, state, lengths, case.reverse, backend)
    generator = torch.Generator().manual_seed(1)
    loss = sum((y * torch.randn(y.shape, dtype=y.dtype, generator=generator)).sum() for y in (output, *final))
    leaves = {"x": x, **weights._asdict(), **{f"state {index}": s for index, s in enumerate(state)}}
    leaves = {name: leaf for name, leaf in leaves.items() if leaf is not None}
    grads = torch.autograd.grad(loss, leaves.values())
    named = {"output": output, **{f"final {index}": s for index, s in enumerate(final)}}
    return {**named, **{f"grad {name}": grad for name, grad in zip(leaves, grads, strict=True)}}

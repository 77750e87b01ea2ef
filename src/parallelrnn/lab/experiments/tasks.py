"""Supervised tasks over examples in memory: which batch comes when, what is made small, how it is judged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

_STEPS_AT_ONCE = 100_000  # of all sequences that are judged together: what a transformer holds of them stays below 4 GB


@dataclass(frozen=True)
class Part:
    """Some examples: how many, and how to get inputs and targets of those with these numbers."""

    count: int
    take: Callable[[Tensor], tuple[Tensor, Tensor]]

    def in_turns(self) -> Iterator[tuple[Tensor, Tensor]]:
        """All of them, some at a time."""
        length = self.take(torch.zeros(1, dtype=torch.int64))[0].shape[1]
        for rows in torch.arange(self.count).split(max(1, _STEPS_AT_ONCE // length)):
            yield self.take(rows)


class Supervised:
    """Learn a part, judged by another. All examples come in a new order, again and again.

    Epochs are passes over the examples unless `epoch_steps` says how many steps they have.
    """

    def __init__(
        self, train: Part, validation: Part, batch_size: int, seed: int, epoch_steps: int | None = None
    ) -> None:
        self._train, self._validation = train, validation
        self._size, self._seed = batch_size, seed
        self._pass_steps = -(-train.count // batch_size)
        self.steps = self._pass_steps if epoch_steps is None else epoch_steps
        self._order: tuple[int, Tensor] = (-1, torch.empty(0, dtype=torch.int64))

    def batch(self, epoch: int, step: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets."""
        number, position = divmod(epoch * self.steps + step, self._pass_steps)
        if self._order[0] != number:
            random = torch.Generator().manual_seed(1_000_003 * (self._seed + 1) + number)
            self._order = (number, torch.randperm(self._train.count, generator=random))
        return self._train.take(self._order[1][position * self._size : (position + 1) * self._size])

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """What is made small."""
        raise NotImplementedError

    def score(self, network: nn.Module, part: Part) -> dict[str, float]:
        """Of a whole part."""
        raise NotImplementedError

    def judge(self, network: nn.Module) -> dict[str, float]:
        """After an epoch."""
        raise NotImplementedError


class Regression(Supervised):
    """Squared errors."""

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """The mean of squared errors."""
        return functional.mse_loss(output, target)

    @torch.no_grad()
    def score(self, network: nn.Module, part: Part) -> dict[str, float]:
        """Mean squared and mean absolute errors."""
        squared = absolute = count = 0.0
        for inputs, targets in part.in_turns():
            errors = (network(inputs) - targets).double()
            squared += float(errors.square().sum())
            absolute += float(errors.abs().sum())
            count += errors.numel()
        return {"mse": squared / count, "mae": absolute / count}

    def judge(self, network: nn.Module) -> dict[str, float]:
        """The squared error of the validation."""
        return {"validation": self.score(network, self._validation)["mse"]}


class Classification(Supervised):
    """Cross-entropies of classes."""

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """The mean of cross-entropies."""
        return functional.cross_entropy(output, target)

    @torch.no_grad()
    def score(self, network: nn.Module, part: Part) -> dict[str, float]:
        """The part that is right, and the mean cross-entropy."""
        right = loss = 0.0
        for inputs, targets in part.in_turns():
            output = network(inputs)
            right += float((output.argmax(-1) == targets).sum())
            loss += float(functional.cross_entropy(output, targets, reduction="sum"))
        return {"accuracy": right / part.count, "loss": loss / part.count}

    def judge(self, network: nn.Module) -> dict[str, float]:
        """Cross-entropy and accuracy of the validation."""
        found = self.score(network, self._validation)
        return {"validation": found["loss"], "accuracy": found["accuracy"]}

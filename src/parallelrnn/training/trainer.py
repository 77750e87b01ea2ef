"""Fitting a network to examples: a short loop around Lightning Fabric."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor, nn

from parallelrnn.errors import ArgumentError, TrainingError
from parallelrnn.training import collectives
from parallelrnn.training import distributed as launching

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]  # of what a network gives, the target, and the weight of that
ModuleT = TypeVar("ModuleT", bound=nn.Module)
TOGETHER = 2048  # examples that go through a network at once where nothing is learned
_COMPARED = 64  # examples, by which processes see that they have the same network
# What different processors make of the same numbers, relative to these: of data, and of what a network makes of them.
_SAME_DATA, _SAME_NETWORK = 1e-5, 1e-3


class Batch(Protocol):
    """Some examples, as a network takes them: a tuple of tensors, and of None for what they have not."""

    def __iter__(self) -> Iterator[Tensor | None]: ...

    @property
    def target(self) -> Tensor:
        """What the network should give."""
        ...

    @property
    def weight(self) -> Tensor:
        """How much each number of the target counts."""
        ...


class Source(Protocol):
    """Where examples come from."""

    def batch(self, rows: Tensor) -> Batch:
        """Those with these names: rows of the tensor of all that a trainer is given."""
        ...


@dataclass(frozen=True)
class Recipe:
    """How to train."""

    learning_rate: float = 5e-3
    decay: float = 0.6  # of the learning rate after each epoch
    batch_size: int = 448
    max_epochs: int = 10
    epoch_steps: tuple[int, int] = (64, 1000)  # at least and at most; few examples come several times
    patience: int = 3  # epochs without a better validation error
    gradient_clip: float = 1.0
    max_time: float | None = None  # seconds

    def to_finish(self, used: float) -> Recipe:
        """Two more epochs at the pace of the third, for a network that has lost a part of itself; in the time left."""
        left = None if self.max_time is None else max(0.0, self.max_time - used)
        return replace(self, learning_rate=self.learning_rate * self.decay**2, max_epochs=2, max_time=left)


@dataclass
class Progress:
    """Where a training is; all that it takes to go on with it."""

    epoch: int = 0
    best: float = math.inf
    best_epoch: int = -1
    seconds: float = 0.0
    history: list[dict[str, float]] = field(default_factory=list)


@contextmanager
def own_randomness(seed: int, accelerator: str) -> Iterator[None]:
    """Random numbers that start from a seed; afterwards those of the caller go on as if nothing had been."""
    if accelerator == "cpu":  # what other devices have is not touched
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            yield
    else:
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            torch.manual_seed(seed)
            yield


def make_fabric(accelerator: str, devices: int, precision: str) -> Any:
    """What runs the training, launched; for several devices, in as many processes."""
    from lightning_fabric import Fabric  # slow to import, and only training needs it

    nodes = launching.nodes_of(devices)
    try:
        fabric = Fabric(
            accelerator=accelerator,
            strategy=launching.strategy_of(devices * nodes),
            devices=devices,
            num_nodes=nodes,
            precision=precision,  # type: ignore[arg-type]
        )
    except (ValueError, RuntimeError, ImportError) as error:
        raise ArgumentError(
            f"accelerator={accelerator!r}, devices={devices} and precision={precision!r} cannot be had here: {error} "
            "What runs everywhere is accelerator='cpu' and precision='32-true'."
        ) from error
    launching.join(fabric)
    return fabric


class Trainer(Generic[ModuleT]):
    """Trains a network on some examples and keeps the weights that are best on others.

    Where several processes train together, each sees its part of every batch and of the validation. Their gradients and
    errors are added up, so that all of them take the steps, and stop, as one process would that sees everything.
    """

    def __init__(
        self,
        network: ModuleT,
        source: Source,
        training: Tensor,  # names of examples, one in each row
        validation: Tensor,
        loss: Loss,
        recipe: Recipe,
        seed: int,
        fabric: Any,
        together: int = TOGETHER,  # examples that are judged at once
    ) -> None:
        self.recipe, self.source = recipe, source
        self._training, self._validation, self._loss = training, validation, loss
        self._fabric, self._together, self._seed = fabric, together, seed
        self.network = network
        self.optimizer = torch.optim.Adam(network.parameters(), lr=recipe.learning_rate)
        if self.among_others:
            self._check_shares()
        with collectives.told_of_losses() if self.among_others else nullcontext():
            self._module, self._optimizer = fabric.setup(network, self.optimizer)
        self.random = torch.Generator().manual_seed(seed)
        self.progress = Progress()
        self.best = copy.deepcopy(network.state_dict())

    @property
    def steps(self) -> int:
        """In an epoch."""
        least, most = self.recipe.epoch_steps
        return min(most, max(least, -(-len(self._training) // self.recipe.batch_size)))

    def run(self, after_epoch: Callable[[Trainer[ModuleT]], None] = lambda trainer: None) -> ModuleT:
        """Train until nothing gets better, or time is up; the network then has its best weights."""
        while not self.is_done:
            began = time.perf_counter()
            trained = self._epoch()
            judged = self.judge()
            progress = self.progress
            if not math.isfinite(judged):
                raise TrainingError(
                    "the validation error is not finite any more; use a smaller learning_rate, or look for values "
                    "that are out of proportion"
                )
            if judged < progress.best:
                progress.best, progress.best_epoch = judged, progress.epoch
                self.best = copy.deepcopy(self.network.state_dict())
            for group in self.optimizer.param_groups:
                group["lr"] *= self.recipe.decay
            progress.epoch += 1
            progress.seconds += self._slowest(time.perf_counter() - began)
            progress.history.append({"training": trained, "validation": judged})
            after_epoch(self)
        self.network.load_state_dict(self.best)
        return self.network.cpu().float().eval()

    @property
    def is_done(self) -> bool:
        """Whether the epochs, the patience or the time are used up."""
        progress, recipe = self.progress, self.recipe
        late = recipe.max_time is not None and progress.seconds >= recipe.max_time
        stuck = progress.epoch - progress.best_epoch > recipe.patience
        return progress.epoch >= recipe.max_epochs or stuck or (late and progress.epoch > 0)

    @torch.no_grad()
    def judge(self) -> float:
        """The mean loss over the validation."""
        self.network.eval()
        total = count = 0.0
        for rows in self._mine(self._validation).split(self._together):
            if not len(rows):  # fewer examples than processes
                continue
            batch = self._batch(rows)
            weight = float(batch.weight.sum())
            total += float(self._loss(self._module(batch), batch.target, batch.weight)) * max(1.0, weight)
            count += weight
        if self.among_others:
            both = torch.tensor([total, count], dtype=torch.float64, device=self._fabric.device)
            total, count = collectives.combine(both).tolist()
        return total / max(1.0, count)

    def _epoch(self) -> float:
        self._module.train()
        if self.among_others:
            self._draw_apart()
        total = torch.zeros((), device=self._fabric.device)
        for rows in self._batches():
            batch = self._batch(self._mine(rows))
            # What a process finds by itself is not averaged by Fabric: parts of a batch may count differently.
            with self._fabric.no_backward_sync(self._module) if self.among_others else nullcontext():
                loss = self._loss(self._module(batch), batch.target, batch.weight)
                self._optimizer.zero_grad()
                self._fabric.backward(loss)
            loss = loss.detach()
            if self.among_others:
                loss = self._of_whole_batch(loss, batch.weight.sum())
            if self.recipe.gradient_clip:
                self._fabric.clip_gradients(self._module, self._optimizer, max_norm=self.recipe.gradient_clip)
            self._optimizer.step()
            total += loss
        return float(total) / self.steps

    @property
    def among_others(self) -> bool:
        """Whether other processes train the same network."""
        return bool(self._fabric.world_size > 1)

    def _check_shares(self) -> None:
        """Whether there is something for every process to do, and all have the same examples."""
        size, count = min(self.recipe.batch_size, len(self._training)), self._fabric.world_size
        if size < count:
            raise ArgumentError(
                f"a batch of {size} cannot be shared by {count} processes; use a larger batch_size, or fewer devices"
            )
        batch = self.source.batch(self._training[:: max(1, len(self._training) // _COMPARED)])
        with torch.no_grad():
            output = self.network.eval()(batch)
        counts, device = [self._seed % (1 << 62), len(self._training), len(self._validation)], self._fabric.device
        collectives.check_same(counts, self._projections().to(device), _SAME_DATA)
        collectives.check_same(counts, output.double().flatten().to(device), _SAME_NETWORK)

    def _projections(self) -> Tensor:
        """Of all examples on directions in which none is like another: what is changed or exchanged changes them."""
        found = []
        for rows in torch.cat([self._training, self._validation]).split(self._together):
            for one in self.source.batch(rows):
                if one is not None:
                    numbers = one.double().flatten().nan_to_num()
                    direction = torch.arange(len(numbers), dtype=torch.float64).cos()
                    found.append(numbers @ direction / numbers.norm().clamp(min=1e-30))
        return torch.stack(found)

    def _draw_apart(self) -> None:
        """Dropout of its own in each process and epoch; a training that goes on needs no other generator's state."""
        seed = self._seed + 1 + self.progress.epoch * self._fabric.world_size + self._fabric.global_rank
        generator = torch.default_generator if self._fabric.device.type == "cpu" else torch
        generator.manual_seed(seed % (1 << 62))

    def _of_whole_batch(self, loss: Tensor, weight: Tensor) -> Tensor:
        """The loss of a whole batch, and its gradient, from those of the parts: means, each over its own weight."""
        counted = weight.clamp(min=1)  # as in the losses
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.network.parameters()]
        flat = torch.cat([(one * counted).flatten() for one in (*grads, loss)] + [weight.view(1)])
        collectives.combine(flat)
        flat /= flat[-1].clamp(min=1)
        parts = flat[:-2].split([one.numel() for one in grads])
        for parameter, part in zip(self.network.parameters(), parts, strict=True):
            parameter.grad = part.view_as(parameter).to(parameter.dtype)
        return flat[-2]

    def _slowest(self, seconds: float) -> float:
        """Of all processes: time is up for all at once."""
        if not self.among_others:
            return seconds
        taken = torch.tensor(seconds, dtype=torch.float64, device=self._fabric.device)
        return float(collectives.combine(taken, "MAX"))

    def _mine(self, rows: Tensor) -> Tensor:
        """Of some examples, those that this process sees."""
        return rows[self._fabric.global_rank :: self._fabric.world_size]

    def _batch(self, rows: Tensor) -> Batch:
        batch = self.source.batch(rows)
        if self._fabric.device.type == "cpu":
            return batch
        moved: Batch = self._fabric.to_device(batch)
        return moved

    def _batches(self) -> Iterator[Tensor]:
        """As many batches as an epoch has steps: all examples in a new order, and again if there are few."""
        size = min(self.recipe.batch_size, len(self._training))
        order = torch.randperm(len(self._training), generator=self.random)
        while len(order) < self.steps * size:
            order = torch.cat([order, torch.randperm(len(self._training), generator=self.random)])
        for step in range(self.steps):
            yield self._training[order[step * size : (step + 1) * size]]

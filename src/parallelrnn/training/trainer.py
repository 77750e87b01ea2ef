"""One trainer for everything that learns: a loop that resumes to the bit, even in mid-epoch.

The rows of a batch are a function of seed, epoch and step, so a checkpoint holds no order of examples.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor, nn

from parallelrnn.errors import ArgumentError, CheckpointError, TrainingError, check_integer, check_number
from parallelrnn.io import tensors_under
from parallelrnn.training import distributed
from parallelrnn.training.checkpoint import START_OVER, Checkpoint
from parallelrnn.training.optimizers import Constant, Exponential, make_optimizer, parameter_groups

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]  # of a network's output, the target and its weight
ModuleT = TypeVar("ModuleT", bound=nn.Module)
EVALUATION_BATCH = 2048  # examples that go through a network at once where nothing is learned
_COMPARED = 64  # examples by which processes see that they have the same network
# Relative differences that other processors make in the same data, and in what a network makes of them.
_DATA_TOLERANCE, _NETWORK_TOLERANCE = 1e-5, 1e-3


class Source(Protocol):
    """Where examples come from."""

    def batch(self, rows: Tensor) -> Any:
        """Return examples by their rows: tensors in a named tuple, `target` and its `weight` among them."""
        ...


class Sampler(Protocol):
    """Which examples are in which batch."""

    steps: int  # of an epoch

    def rows(self, epoch: int, step: int) -> Tensor:
        """Return the rows of a batch: always the same ones for an epoch and a step."""
        ...


class EpochSampler:
    """All rows in a new order each epoch, several times over where an epoch has more steps; batches of equal size.

    The orders come one after the other from one generator, and are drawn again to get at a later one.
    """

    def __init__(self, rows: Tensor, batch_size: int, epoch_steps: tuple[int, int], seed: int) -> None:
        self._rows, self._seed = rows, seed
        self._size = min(batch_size, len(rows))
        self.steps = min(epoch_steps[1], max(epoch_steps[0], -(-len(rows) // batch_size)))
        self._passes = max(1, -(-self.steps * self._size // len(rows)))
        self._next = sys.maxsize  # epoch that the generator would draw
        self._order = torch.empty(0)

    def rows(self, epoch: int, step: int) -> Tensor:
        """Return the rows of a batch."""
        if epoch < self._next - 1:
            self._random, self._next = torch.Generator().manual_seed(self._seed), 0
        while self._next <= epoch:
            orders = [torch.randperm(len(self._rows), generator=self._random) for _ in range(self._passes)]
            self._order, self._next = torch.cat(orders), self._next + 1
        return self._rows[self._order[step * self._size : (step + 1) * self._size]]


class PassSampler:
    """Rows 0 to `count` - 1 in one order after the other, whatever the steps of an epoch; the last batch is smaller."""

    def __init__(self, count: int, batch_size: int, seed: int, epoch_steps: int | None = None) -> None:
        self._count, self._size, self._seed = count, batch_size, seed
        self._pass_steps = -(-count // batch_size)
        self.steps = self._pass_steps if epoch_steps is None else epoch_steps
        self._order: tuple[int, Tensor] = (-1, torch.empty(0, dtype=torch.int64))

    def rows(self, epoch: int, step: int) -> Tensor:
        """Return the rows of a batch."""
        number, position = divmod(epoch * self.steps + step, self._pass_steps)
        if self._order[0] != number:
            random = torch.Generator().manual_seed(1_000_003 * (self._seed + 1) + number)
            self._order = (number, torch.randperm(self._count, generator=random))
        return self._order[1][position * self._size : (position + 1) * self._size]


@dataclass(frozen=True, kw_only=True)
class TrainerConfig:
    """Optimizer, schedule, batches and stopping rules of a training."""

    learning_rate: float = 5e-3
    schedule: Constant = field(default_factory=lambda: Exponential(0.6))
    weight_decay: float = 0.0  # by AdamW, of matrices
    gradient_clip: float = 1.0  # 0: none
    batch_size: int = 448
    max_epochs: int = 10
    epoch_steps: tuple[int, int] = (64, 1000)  # at least and at most; few examples come several times
    patience: int | None = 3  # epochs without a better validation error
    minimum_rate: float = 0.0  # training ends when the learning rate falls below
    max_time: float | None = None  # seconds, after which no epoch begins
    keep_best: bool = True  # return the weights of the best epoch, else of the last

    def __post_init__(self) -> None:
        check_number("learning_rate", self.learning_rate, "a number above 0", lambda rate: 0 < rate < math.inf)
        check_number("gradient_clip", self.gradient_clip, "a number of at least 0 (0: no clipping)", lambda n: n >= 0)
        if self.max_time is not None:
            check_number("max_time", self.max_time, "a number of seconds above 0", lambda seconds: seconds > 0)
        for name in ("weight_decay", "minimum_rate"):
            check_number(name, getattr(self, name), "a number of at least 0", lambda number: number >= 0)
        for name, minimum in (("batch_size", 1), ("max_epochs", 1), ("patience", 0)):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name), minimum)
        steps = tuple(self.epoch_steps) if isinstance(self.epoch_steps, Sequence) else ()
        if len(steps) != 2 or not all(isinstance(n, Integral) for n in steps) or not 1 <= steps[0] <= steps[1]:
            expected = "the fewest and the most steps of an epoch"
            raise ArgumentError(argument="epoch_steps", expected=expected, got=self.epoch_steps)
        object.__setattr__(self, "epoch_steps", (int(steps[0]), int(steps[1])))


@dataclass(kw_only=True)
class Progress:
    """Where a training is."""

    epoch: int = 0
    step: int = 0  # of the epoch
    loss: float = 0.0  # summed over the steps of the epoch
    rates: list[float] = field(default_factory=list)  # of the parameter groups, before any scale of a step
    seconds: float = 0.0
    processor_seconds: float = 0.0  # which other processes do not lengthen
    threads: int = 1
    history: list[dict[str, float]] = field(default_factory=list)  # of epochs: training, validation, others, rate
    notes: list[Any] = field(default_factory=list)  # JSON that a caller keeps with it

    @property
    def errors(self) -> list[float]:
        """The validation errors of all epochs."""
        return [epoch["validation"] for epoch in self.history]

    @property
    def best(self) -> float:
        """The best validation error."""
        return min(self.errors, default=math.inf)

    @property
    def best_epoch(self) -> int:
        """The first epoch with the best validation error, or -1."""
        return self.errors.index(self.best) if self.history else -1


@contextmanager
def fork_rng(seed: int, accelerator: str) -> Iterator[None]:
    """Draw random numbers from a seed inside; afterwards those of the caller continue as if nothing had happened."""
    on_cpu = accelerator == "cpu"  # which leaves other devices alone
    with torch.random.fork_rng(devices=[] if on_cpu else range(torch.cuda.device_count())):
        (torch.default_generator if on_cpu else torch).manual_seed(seed)
        yield


class _PlainTorch:
    """The part of Fabric's interface that a trainer uses, for one process on the CPU, without its seconds of import."""

    device, world_size, global_rank = torch.device("cpu"), 1, 0
    backward = staticmethod(Tensor.backward)

    def setup(self, network: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[nn.Module, torch.optim.Optimizer]:
        return network, optimizer

    def clip_gradients(self, network: nn.Module, optimizer: torch.optim.Optimizer, **options: Any) -> None:
        nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], **options)


def make_fabric(accelerator: str = "cpu", devices: int = 1, precision: str = "32-true") -> Any:
    """Return a launched Lightning Fabric, or its equivalent in plain torch; devices run in a process each."""
    nodes = distributed.count_nodes(devices)
    by_others = not {"SLURM_NTASKS", "LT_CLI_USED"}.isdisjoint(os.environ)  # which Fabric checks
    if (accelerator, devices * nodes, precision) == ("cpu", 1, "32-true") and not by_others:
        return _PlainTorch()
    try:
        from lightning_fabric import Fabric

        fabric = Fabric(
            accelerator=accelerator,
            strategy=distributed.strategy(devices * nodes),
            devices=devices,
            num_nodes=nodes,
            precision=precision,  # type: ignore[arg-type]
        )
    except (ValueError, RuntimeError, ImportError) as error:
        raise ArgumentError(
            f"accelerator={accelerator!r}, devices={devices}, precision={precision!r} is not available on this "
            f"machine: {str(error).rstrip('.')}",
            hint="accelerator='cpu' and precision='32-true' run everywhere",
        ) from error
    distributed.launch(fabric)
    return fabric


class Trainer(Generic[ModuleT]):
    """Trains a network on some examples, and keeps the weights that are best on others.

    Where several processes train together, each sees its part of every batch and of the validation examples. Gradients
    and errors are summed, so that all processes take the steps, and stop, as one process would that sees everything.
    """

    def __init__(
        self,
        network: ModuleT,
        source: Source,
        training: Tensor,  # rows of examples, as the source knows them
        validation: Tensor,
        loss: Loss,
        config: TrainerConfig,
        seed: int,
        fabric: Any,
        *,
        checkpoint: Checkpoint | None = None,
        sampler: Sampler | None = None,  # an `EpochSampler` if not given
        groups: Sequence[dict[str, Any]] | None = None,  # as torch optimizers take them; all alike if not given
        forward: Callable[[nn.Module, Any], Tensor] = lambda module, batch: module(batch),
        validate: Callable[[nn.Module], dict[str, float]] | None = None,  # metrics, `validation` among them
        evaluation_batch: int = EVALUATION_BATCH,
    ) -> None:
        self.network, self.config, self.checkpoint = network, config, checkpoint
        self._source, self._training, self._validation, self._loss = source, training, validation, loss
        self._fabric, self._seed, self._forward, self._metrics = fabric, seed, forward, validate
        self._evaluation_batch = evaluation_batch
        self.sampler = sampler or EpochSampler(training, config.batch_size, config.epoch_steps, seed)
        self.optimizer = make_optimizer(groups or parameter_groups(network, config.learning_rate, config.weight_decay))
        if self.is_distributed:
            self._check_shares()
        with distributed.explain_lost_processes() if self.is_distributed else nullcontext():
            self._module, self._optimizer = fabric.setup(network, self.optimizer)
        self.progress = Progress(rates=[group["lr"] for group in self.optimizer.param_groups])
        self.best = copy.deepcopy(network.state_dict())
        self._losses: list[Tensor] = []  # of steps, not yet in `progress`, so that accelerators are not waited for

    @property
    def is_distributed(self) -> bool:
        """Whether other processes train the same network."""
        return bool(self._fabric.world_size > 1)

    @property
    def is_done(self) -> bool:
        """Whether the epochs, the patience or the time are used up, or the learning rate is too low."""
        progress, config = self.progress, self.config
        if progress.epoch == 0 or progress.step:
            return False
        late = config.max_time is not None and progress.seconds >= config.max_time
        stalled = config.patience is not None and progress.epoch - 1 - progress.best_epoch >= config.patience
        return progress.epoch >= config.max_epochs or stalled or late or progress.rates[0] < config.minimum_rate

    def resume(self) -> bool:
        """Load the checkpoint, if there is one to resume from, and return whether there was."""
        if self.checkpoint is None:
            return False
        data = self._by_first(self.checkpoint.begin)
        if data is None:
            return False
        progress, tensors = self.checkpoint.decode(data)
        try:
            self._load_state(progress, tensors)
        except (AttributeError, LookupError, TypeError, ValueError, RuntimeError) as error:
            problem = f"{self.checkpoint.file} does not fit this release: {type(error).__name__}: {error}"
            raise CheckpointError(problem, hint=START_OVER) from error
        return True

    def run(
        self,
        after_epoch: Callable[[Trainer[ModuleT]], None] = lambda trainer: None,
        should_stop: Callable[[], bool] = lambda: False,
        show_progress: bool | None = False,
    ) -> ModuleT:
        """Train to the end and return the network with its best weights, in evaluation mode.

        `should_stop` is asked after each step: if it says so, a checkpoint is saved and this returns early, `is_done`
        being False. `show_progress=None` shows a bar if there is a terminal.
        """
        checkpoint, progress = self.checkpoint, self.progress
        progress.threads = torch.get_num_threads()
        self._start_clock()
        saved = time.monotonic()
        with _progress_bar(show_progress if distributed.is_first() else False) as show:
            while not self.is_done:
                self._step()
                ended = progress.step == self.sampler.steps
                if ended:
                    self._end_epoch()
                    after_epoch(self)
                    show(self)
                stopping = should_stop()
                if checkpoint is not None:
                    late = not self.is_distributed and time.monotonic() - saved >= checkpoint.every
                    if stopping or late or (ended and checkpoint.each_epoch):
                        self._stop_clock()
                        self._by_first(lambda: checkpoint.save(*self._state()))
                        saved = time.monotonic()
                        self._start_clock()
                if stopping and not self.is_done:
                    return self.network
        if self.config.keep_best:
            self.network.load_state_dict(self.best)
        return self.network.cpu().float().eval()

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        """Return metrics of the network as it is; `validation`, by default the mean loss, is the one to minimise."""
        self.network.eval()
        if self._metrics is not None:
            return self._metrics(self.network)
        total = count = 0.0
        for rows in self._share(self._validation).split(self._evaluation_batch):
            if not len(rows):  # fewer examples than processes
                continue
            batch = self._batch(rows)
            weight = float(batch.weight.sum())
            total += float(self._loss(self._forward(self._module, batch), batch.target, batch.weight)) * max(
                1.0, weight
            )
            count += weight
        if self.is_distributed:
            sums = torch.tensor([total, count], dtype=torch.float64, device=self._fabric.device)
            total, count = distributed.combine(sums).tolist()
        return {"validation": total / max(1.0, count)}

    def _step(self) -> None:
        progress, config = self.progress, self.config
        if not self.network.training:
            self._module.train()
        if self.is_distributed and progress.step == 0:
            self._seed_dropout()
        batch = self._batch(self._share(self.sampler.rows(progress.epoch, progress.step)))
        # Fabric would average the gradients of processes, but their parts of a batch may count differently.
        with self._fabric.no_backward_sync(self._module) if self.is_distributed else nullcontext():
            loss = self._loss(self._forward(self._module, batch), batch.target, batch.weight)
            self._optimizer.zero_grad()
            self._fabric.backward(loss)
        loss = loss.detach()
        if self.is_distributed:
            loss = distributed.combine_gradients(self.network, loss, batch.weight.sum())
        if config.gradient_clip:
            # What is not finite shows in the validation error, which is reported with a sentence.
            self._fabric.clip_gradients(
                self._module, self._optimizer, max_norm=config.gradient_clip, error_if_nonfinite=False
            )
        step, steps = progress.epoch * self.sampler.steps + progress.step, config.max_epochs * self.sampler.steps
        scale = config.schedule.step_scale(step, steps)
        for group, rate in zip(self.optimizer.param_groups, progress.rates, strict=True):
            group["lr"] = rate * scale
        self._optimizer.step()
        self._losses.append(loss)
        progress.step += 1

    def _end_epoch(self) -> None:
        progress = self.progress
        metrics = self.validate()
        self._add_losses()
        epoch = {"training": progress.loss / self.sampler.steps, **metrics, "rate": progress.rates[0]}
        if not math.isfinite(metrics["validation"]) or not math.isfinite(epoch["training"]):
            problem = f"training diverged: the loss is not finite after epoch {progress.epoch + 1}"
            raise TrainingError(problem, hint="use a smaller {learning_rate}, or look for extreme values in the data")
        if metrics["validation"] < progress.best:
            self.best = copy.deepcopy(self.network.state_dict())
        progress.history.append(epoch)
        factor = self.config.schedule.epoch_factor(progress.errors)
        progress.rates = [rate * factor for rate in progress.rates]
        progress.epoch, progress.step, progress.loss = progress.epoch + 1, 0, 0.0
        self._stop_clock()
        if self.is_distributed:  # of the slowest process: time is up for all at once
            seconds = torch.tensor(progress.seconds, dtype=torch.float64, device=self._fabric.device)
            progress.seconds = float(distributed.combine(seconds, "MAX"))
        self._start_clock()

    def _start_clock(self) -> None:
        self._began = time.perf_counter(), time.process_time()

    def _stop_clock(self) -> None:
        self.progress.seconds += time.perf_counter() - self._began[0]
        self.progress.processor_seconds += time.process_time() - self._began[1]

    def _add_losses(self) -> None:
        for loss in self._losses:
            self.progress.loss += float(loss)
        self._losses.clear()

    def _state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return the progress and all tensors of a training, the state of dropout's generator included."""
        self._add_losses()
        tensors = {f"network.{name}": tensor for name, tensor in self.network.state_dict().items()}
        tensors |= {f"best.{name}": tensor for name, tensor in self.best.items()}
        for index, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{index}.{name}": torch.as_tensor(value) for name, value in state.items()}
        tensors["random.cpu"] = torch.get_rng_state()
        if self._fabric.device.type == "cuda":
            tensors["random.cuda"] = torch.cuda.get_rng_state(self._fabric.device)
        return dataclasses.asdict(self.progress), tensors

    def _load_state(self, progress: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        restored = Progress(**progress)
        in_epoch = check_integer("step", restored.step, 0) < self.sampler.steps
        if not in_epoch or restored.epoch != len(restored.errors) or len(restored.rates) != len(self.progress.rates):
            raise ValueError("its progress is not that of such a training")
        best = tensors_under("best.", tensors)
        self.network.load_state_dict(best)  # raises unless they fit
        self.network.load_state_dict(tensors_under("network.", tensors))
        state = self.optimizer.state_dict()
        state["state"] = {}
        for name, tensor in tensors_under("optimizer.", tensors).items():
            index, _, key = name.partition(".")
            state["state"].setdefault(int(index), {})[key] = tensor
        self.optimizer.load_state_dict(state)
        self.best = best
        torch.set_rng_state(tensors["random.cpu"])
        if self._fabric.device.type == "cuda":
            torch.cuda.set_rng_state(tensors["random.cuda"], self._fabric.device)
        self.progress = restored

    def _by_first(self, work: Callable[[], bytes | None]) -> bytes | None:
        """Let the first process alone do what concerns files: others may not see its directory."""
        return distributed.done_by_first(work) if self.is_distributed else work()

    def _check_shares(self) -> None:
        """Raise unless there is something to do for every process, and all have the same examples."""
        size, count = min(self.config.batch_size, len(self._training)), self._fabric.world_size
        if size < count:
            problem = f"a batch of {size} cannot be shared by {count} processes"
            raise ArgumentError(problem, hint="use a larger {batch_size}, or fewer {devices}")
        batch = self._source.batch(self._training[:: max(1, len(self._training) // _COMPARED)])
        with torch.no_grad():
            output = self._forward(self.network.eval(), batch)
        counts, device = [self._seed % (1 << 62), len(self._training), len(self._validation)], self._fabric.device
        distributed.check_same(counts, self._projections().to(device), _DATA_TOLERANCE)
        distributed.check_same(counts, output.double().flatten().to(device), _NETWORK_TOLERANCE)

    def _projections(self) -> Tensor:
        """Return projections of all examples on directions that change if any example is changed or exchanged."""
        projections = []
        for rows in torch.cat([self._training, self._validation]).split(self._evaluation_batch):
            for tensor in self._source.batch(rows):
                if tensor is not None:
                    numbers = tensor.double().flatten().nan_to_num()
                    direction = torch.arange(len(numbers), dtype=torch.float64).cos()
                    projections.append(numbers @ direction / numbers.norm().clamp(min=1e-30))
        return torch.stack(projections)

    def _seed_dropout(self) -> None:
        """Give each process and epoch a dropout of its own, which a resumed training finds again."""
        seed = self._seed + 1 + self.progress.epoch * self._fabric.world_size + self._fabric.global_rank
        generator = torch.default_generator if self._fabric.device.type == "cpu" else torch
        generator.manual_seed(seed % (1 << 62))

    def _share(self, rows: Tensor) -> Tensor:
        """Return those of some examples that this process sees."""
        return rows[self._fabric.global_rank :: self._fabric.world_size]

    def _batch(self, rows: Tensor) -> Any:
        batch = self._source.batch(rows)
        return batch if self._fabric.device.type == "cpu" else self._fabric.to_device(batch)


@contextmanager
def _progress_bar(wanted: bool | None) -> Iterator[Callable[[Trainer[Any]], None]]:
    if not (sys.stderr.isatty() if wanted is None else wanted):
        yield lambda trainer: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[error]}"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("training", total=None, error="")

        def show(trainer: Trainer[Any]) -> None:
            progress = trainer.progress
            error = f"validation error {progress.errors[-1]:.4f}, best {progress.best:.4f}"
            bar.update(task, total=trainer.config.max_epochs, completed=progress.epoch, error=error)

        yield show

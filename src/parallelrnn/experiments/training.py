"""A training that can be killed at any moment and goes on with the same numbers.

What is drawn at random for a step is drawn from the seed, the epoch and the step, so that nothing has to be played
back; all else is kept in one file every minute, written beside and renamed.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import safetensors
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from parallelrnn.experiments.experiment import Curve, ExperimentError, OutOfTimeError, Workspace
from parallelrnn.files import write_bytes

FILE = "training.safetensors"


class Task(Protocol):
    """What is learned."""

    @property
    def steps(self) -> int:
        """Of an epoch."""
        ...

    def batch(self, epoch: int, step: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets; always the same ones for an epoch and a step."""
        ...

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """What is made small."""
        ...

    def judge(self, network: nn.Module) -> dict[str, float]:
        """Of an epoch: `validation`, by which rates are lowered and weights chosen, and what else curves show."""
        ...


@dataclass(frozen=True)
class Schedule:
    """How long is trained, and how fast."""

    learning_rate: float
    max_epochs: int
    factor: float = 0.5  # by which the rate is lowered
    patience: int | None = 0  # epochs without a better validation before it is; None: every `period` epochs
    period: int = 1
    minimum_rate: float = 0.0  # below which training ends
    stop_after: int | None = None  # epochs without a better validation after which it ends
    gradient_clip: float | None = 1.0
    keep_best: bool = True  # take the weights of the best validation, else the last


@dataclass
class Progress:
    """Where a training is."""

    epoch: int = 0
    step: int = 0  # of the epoch
    loss: float = 0.0  # summed over the epoch's steps
    rate: float = 0.0
    best: float = math.inf
    waited: int = 0  # epochs since the rate was lowered or validation got better
    stuck: int = 0  # epochs since validation got better
    seconds: float = 0.0
    curve: Curve = field(default_factory=list)
    notes: list[Any] = field(default_factory=list)  # what is watched, before training and after each epoch


class Training:
    """Trains a network on a task."""

    def __init__(
        self,
        network: nn.Module,
        task: Task,
        schedule: Schedule,
        workspace: Workspace,
        watch: Callable[[nn.Module], Any] | None = None,
    ) -> None:
        self.network, self.task, self.schedule, self.workspace = network, task, schedule, workspace
        self._watch = watch
        self._optimizer = torch.optim.Adam(network.parameters(), lr=schedule.learning_rate)
        self._best = copy.deepcopy(network.state_dict())
        self.progress = Progress(rate=schedule.learning_rate)

    def run(self) -> Progress:
        """Train to the end, from where an earlier call was cut off; the network then has its best weights."""
        self._restore()
        progress = self.progress
        if self._watch is not None and not progress.notes:
            progress.notes.append(self._watch(self.network))
        kept = time.monotonic()
        while not self.is_done:
            began = time.perf_counter()
            self._step()
            if progress.step == self.task.steps:
                self._end_epoch()
            progress.seconds += time.perf_counter() - began
            if time.monotonic() - kept >= self.workspace.every or self.workspace.is_over:
                self._keep()
                kept = time.monotonic()
                if self.workspace.is_over and not self.is_done:
                    raise OutOfTimeError
        if self.schedule.keep_best:
            self.network.load_state_dict(self._best)
        self.network.eval()
        return progress

    @property
    def is_done(self) -> bool:
        """Whether the epochs are over, the rate is too low, or nothing gets better."""
        progress, schedule = self.progress, self.schedule
        if progress.epoch == 0 or progress.step:
            return False
        stuck = schedule.stop_after is not None and progress.stuck >= schedule.stop_after
        return progress.epoch >= schedule.max_epochs or progress.rate < schedule.minimum_rate or stuck

    def _step(self) -> None:
        progress = self.progress
        self.network.train()
        inputs, targets = self.task.batch(progress.epoch, progress.step)
        loss = self.task.loss(self.network(inputs), targets)
        self._optimizer.zero_grad()
        loss.backward()
        if self.schedule.gradient_clip is not None:
            nn.utils.clip_grad_norm_(self.network.parameters(), self.schedule.gradient_clip)
        for group in self._optimizer.param_groups:
            group["lr"] = progress.rate
        self._optimizer.step()
        progress.loss += loss.item()
        progress.step += 1
        self.workspace.tell((progress.epoch + progress.step / self.task.steps) / self.schedule.max_epochs)

    def _end_epoch(self) -> None:
        progress, schedule = self.progress, self.schedule
        self.network.eval()
        with torch.no_grad():
            judged = self.task.judge(self.network)
        progress.curve.append({"training": progress.loss / self.task.steps, **judged, "rate": progress.rate})
        if self._watch is not None:
            progress.notes.append(self._watch(self.network))
        better = judged["validation"] < progress.best
        if better:
            progress.best = judged["validation"]
            self._best = copy.deepcopy(self.network.state_dict())
        progress.stuck = 0 if better else progress.stuck + 1
        progress.waited = 0 if better and schedule.patience is not None else progress.waited + 1
        if progress.waited > (schedule.period - 1 if schedule.patience is None else schedule.patience):
            progress.rate *= schedule.factor
            progress.waited = 0
        progress.epoch, progress.step, progress.loss = progress.epoch + 1, 0, 0.0

    def _keep(self) -> None:
        directory = self.workspace.directory
        if directory is None:
            return
        directory.mkdir(parents=True, exist_ok=True)
        tensors = {f"network.{name}": tensor for name, tensor in self.network.state_dict().items()}
        tensors |= {f"best.{name}": tensor for name, tensor in self._best.items()}
        for index, state in self._optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{index}.{name}": value for name, value in state.items()}
        tensors["random"] = torch.get_rng_state()
        words = {
            "progress": json.dumps(dataclasses.asdict(self.progress)),
            "threads": str(torch.get_num_threads()),
        }
        kept = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
        write_bytes(directory / FILE, save_tensors(kept, metadata=words))

    def _restore(self) -> None:
        directory = self.workspace.directory
        if directory is None or not (directory / FILE).exists():
            return
        file = directory / FILE
        try:
            with safetensors.safe_open(file, framework="pt") as opened:
                words = opened.metadata() or {}
            tensors = load_tensors(file.read_bytes())
        except safetensors.SafetensorError as error:
            raise ExperimentError(f"{file} is no whole checkpoint: {error}; remove it to start anew") from error
        self.network.load_state_dict(_under("network.", tensors))
        self._best = _under("best.", tensors)
        state = self._optimizer.state_dict()
        state["state"] = {}
        for name, tensor in _under("optimizer.", tensors).items():
            index, _, key = name.partition(".")
            state["state"].setdefault(int(index), {})[key] = tensor
        self._optimizer.load_state_dict(state)
        torch.set_rng_state(tensors["random"])
        self.progress = Progress(**json.loads(words["progress"]))


def progress_of(workspace: Workspace) -> Progress | None:
    """Where a training that was cut off is; None if there is none."""
    file = None if workspace.directory is None else workspace.directory / FILE
    if file is None or not file.exists():
        return None
    with safetensors.safe_open(file, framework="pt") as opened:
        return Progress(**json.loads((opened.metadata() or {})["progress"]))


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}

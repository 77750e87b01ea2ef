"""A training that can be killed at any moment and goes on with the same numbers.

What is drawn at random for a step is drawn from the seed, the epoch and the step, so that nothing has to be played
back; all else is kept in one file every minute, written beside and renamed. The same numbers means: to the bit, on the
same machine with the same versions; the number of threads is that with which it began.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from parallelrnn.errors import FileError
from parallelrnn.io import load_tensors, save_tensors
from parallelrnn.lab.experiments.experiment import Curve, ExperimentError, OutOfTimeError, Workspace
from parallelrnn.training.checkpoint import pack, unpack


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
    processor_seconds: float = 0.0  # which others at work do not make more
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
        of: str = "",  # a sum of the data, if these could be others when it goes on
    ) -> None:
        self.network, self.task, self.schedule, self.workspace = network, task, schedule, workspace
        self._watch, self._of = watch, of
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
            began, began_here = time.perf_counter(), time.process_time()
            self._step()
            if progress.step == self.task.steps:
                self._end_epoch()
            progress.seconds += time.perf_counter() - began
            progress.processor_seconds += time.process_time() - began_here
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
        if not math.isfinite(judged["validation"]):
            raise ExperimentError(
                f"training diverged: the validation error is not finite after epoch {progress.epoch + 1}; nothing was "
                "kept of it; use a smaller learning_rate"
            )
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
        file = self.workspace.checkpoint
        if file is None:
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        words = {
            "of": self._of,
            "progress": json.dumps(dataclasses.asdict(self.progress)),
            "threads": str(torch.get_num_threads()),
        }
        save_tensors(file, pack(self.network, self._best, self._optimizer), words)

    def _restore(self) -> None:
        file = self.workspace.checkpoint
        if file is None or not file.exists():
            return
        words, tensors = _read(file)
        if words.get("of") != self._of:
            raise ExperimentError(f"{file} is of a training on other data; remove it to start anew")
        try:
            self._best = unpack(tensors, self.network, self._optimizer)
            self.progress = Progress(**json.loads(words["progress"]))
            threads = int(words["threads"])
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise ExperimentError(f"{file} does not fit this release: {error}; remove it to start anew") from error
        torch.set_num_threads(threads)  # more or fewer would add up in another order


def progress_of(workspace: Workspace) -> Progress | None:
    """Where a training that was cut off is; None if there is none."""
    file = workspace.checkpoint
    if file is None or not file.exists():
        return None
    words, _ = _read(file)
    return Progress(**json.loads(words["progress"]))


def _read(file: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """What a checkpoint says, and its numbers."""
    try:
        return load_tensors(file)
    except FileError as error:
        raise ExperimentError(f"{error.problem}; delete it to start over") from error

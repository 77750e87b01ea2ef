"""Several processes that train one network: how they start, what they tell each other, and how they end.

They are started by torchrun, on one machine or several; or, on one machine, by Fabric, which runs the script again for
each further process. Either way all of them run the whole script, and only the first writes files.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed, nn

from parallelrnn.errors import ArgumentError, ProcessError

_TIMEOUT = timedelta(minutes=5)  # for which one process waits for another
_POLL = 0.1  # seconds between two looks at processes that start or end
_ENDING = 5.0  # seconds that a process takes to end, at most
_VARIABLES = ("LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "WORLD_SIZE")  # by which processes find others

_children: list[subprocess.Popen[bytes]] = []  # that this process has started
_rank_and_count: tuple[int, int] | None = None  # of this process, once it trains with others; also after they ended


def is_first() -> bool:
    """Return whether this process writes files: it is the only one, or the first of those that train together."""
    return _rank_and_count is None or _rank_and_count[0] == 0


def count_nodes(devices: int) -> int:
    """Return how many machines take part, with this many processes on each; raise if that cannot be."""
    nodes = 1
    if distributed.is_available() and distributed.is_torchelastic_launched():
        local = int(os.environ["LOCAL_WORLD_SIZE"])
        if devices != local:
            raise ArgumentError(
                f"torchrun has started {local} process{'es' * (local > 1)} on this machine",
                argument="devices",
                expected=str(local),
                got=devices,
                hint=f"or call torchrun with --nproc-per-node {devices}",
            )
        nodes = int(os.environ["WORLD_SIZE"]) // local
    if _rank_and_count is not None and devices > 1 and devices * nodes != _rank_and_count[1]:
        raise ArgumentError(
            f"this script runs in {_rank_and_count[1]} processes since its first fit",
            argument="devices",
            expected="one number in one script",
            got=devices,
        )
    if devices > 1 and _rank_and_count is None and "LOCAL_RANK" not in os.environ:
        _check_script(devices)
    return nodes


def strategy(count: int) -> Any:
    """Return Fabric's strategy for this many processes."""
    if count == 1:
        return "auto"
    from lightning_fabric.strategies.ddp import DDPStrategy

    return DDPStrategy(timeout=_TIMEOUT)


def launch(fabric: Any) -> None:
    """Start the processes, unless torchrun does, and wait until all of them are there."""
    global _rank_and_count  # like the group that torch.distributed keeps
    if fabric.world_size == 1:
        fabric.launch()
        return
    started = distributed.is_initialized() or fabric.strategy.cluster_environment.creates_processes_externally
    before = {name: os.environ.get(name) for name in _VARIABLES}
    try:
        if started:
            os.environ.setdefault("LOCAL_RANK", "0")  # else Fabric would start the others again for a second fit
            fabric.launch()
        else:
            _launch_children(fabric)
    except (RuntimeError, ValueError) as error:
        if isinstance(error, ProcessError):
            raise
        minutes = _TIMEOUT.seconds // 60
        problem = f"{fabric.world_size} processes did not find each other within {minutes} minutes: {error}"
        raise ProcessError(problem) from error
    finally:  # what this process starts later does not train with us
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
    if _rank_and_count is None:
        _rank_and_count = distributed.get_rank(), distributed.get_world_size()
        atexit.register(_leave)  # threads of a group that is still there at the end abort the process


def _check_script(devices: int) -> None:
    """Raise if there is no script that could be run again."""
    file = getattr(sys.modules["__main__"], "__file__", None)
    if file is None or hasattr(sys, "ps1") or multiprocessing.parent_process() is not None:
        raise ArgumentError(
            f"devices={devices} runs the script again in each process, but there is no script: this is a notebook, "
            "python -c, an interactive session, or a process of multiprocessing",
            hint="put the fit into a file and run that, or use devices=1",
        )


def _launch_children(fabric: Any) -> None:
    """Start the other processes and join them, unless one of them ends first: it would be waited for in vain.

    Fabric starts them, but its own observer, which kills this process as well if one ends, is left out.
    """
    failures: list[BaseException] = []

    def join() -> None:
        try:
            fabric.launch()
        except BaseException as error:
            failures.append(error)

    try:
        fabric.strategy.launcher._call_children_scripts()
        _children.extend(fabric.strategy.launcher.procs)
        thread = threading.Thread(target=join, daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(_POLL)
            if thread.is_alive() and _endings():
                raise ProcessError(
                    f"{_endings()} before training began; it runs this script from its start, and has said above what "
                    "is wrong",
                    hint="what cannot be done twice, such as making a directory, belongs after fit",
                )
        if failures:
            raise failures[0]
    except BaseException:
        for child in _children:
            child.kill()
            child.wait()
        _children.clear()
        raise
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))  # Fabric shares out the cores, but to the thread above


def _endings() -> str:
    """Say how the processes that this one has started have ended."""
    endings = []
    for rank, child in enumerate(_children, 1):
        status = child.poll()
        if status is not None:
            how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
            endings.append(f"process {rank} {how}")
    return ", ".join(endings)


def _leave() -> None:
    if distributed.is_initialized():
        distributed.destroy_process_group()


@contextmanager
def explain_lost_processes() -> Iterator[None]:
    """Say that another process does not answer, which is what goes wrong inside."""
    try:
        yield
    except RuntimeError as error:
        until = time.monotonic() + _ENDING  # connections close before a process is gone
        while _children and not _endings() and time.monotonic() < until:
            time.sleep(_POLL)
        raise ProcessError(
            f"a process that trains together with this one has ended, or has not answered for "
            f"{_TIMEOUT.seconds // 60} minutes{': ' * bool(_endings())}{_endings()}",
            hint="start all of them again; if fit was called with checkpoint=directory, resume=True continues after "
            "the last complete epoch",
        ) from error


def combine(tensor: Tensor, how: str = "SUM") -> Tensor:
    """Sum the tensors of all processes in place; or take their "MIN" or "MAX"."""
    with explain_lost_processes():
        distributed.all_reduce(tensor, getattr(distributed.ReduceOp, how))
    return tensor


def from_first(value: float) -> float:
    """Return a number as the first process has it."""
    return float(_broadcast(torch.tensor(value, dtype=torch.float64)))


def done_by_first(work: Callable[[], bytes | None]) -> bytes | None:
    """Return in all processes what work returns in the first, which alone does it. Where it fails, all fail."""
    data: bytes | None = None
    failure: Exception | None = None
    if is_first():
        try:
            data = work()
        except Exception as error:
            data, failure = f"{type(error).__name__}: {error}".encode(), error
    length = -1 if data is None else len(data)
    failed, length = _broadcast(torch.tensor([failure is not None, length])).tolist()
    if length >= 0:
        buffer = np.zeros(length, np.uint8) if data is None else np.frombuffer(data, np.uint8).copy()
        data = _broadcast(torch.from_numpy(buffer)).numpy().tobytes()
    if failure is not None:
        raise failure
    if failed:
        assert data is not None
        raise ProcessError(f"the first process failed: {data.decode()}")
    return data


def check_same(counts: Sequence[int], values: Tensor, tolerance: float) -> None:
    """Raise unless all processes have the same integers exactly, and the same values as far as processors agree."""
    exact = torch.tensor([*counts, values.numel()], device=values.device)
    same = torch.equal(combine(exact.clone(), "MIN"), combine(exact.clone(), "MAX"))
    if same:
        values = values.double()
        lowest, highest = combine(values.clone(), "MIN"), combine(values.clone(), "MAX")
        same = bool((highest - lowest <= tolerance * (1 + highest.abs())).all())
    if not same:
        raise ProcessError(
            "the processes have read different data, or draw different random numbers; each runs the script from its "
            "start",
            hint="seed everything random in the script, and give the estimator a {random_state}",
        )


def combine_gradients(network: nn.Module, loss: Tensor, weight: Tensor) -> Tensor:
    """Return the loss of a whole batch, and set its gradient, from the parts: means, each over its own weight."""
    counted = weight.clamp(min=1)  # as in the losses
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in network.parameters()]
    flat = torch.cat([(tensor * counted).flatten() for tensor in (*gradients, loss)] + [weight.view(1)])
    combine(flat)
    flat /= flat[-1].clamp(min=1)
    parts = flat[:-2].split([gradient.numel() for gradient in gradients])
    for parameter, part in zip(network.parameters(), parts, strict=True):
        parameter.grad = part.view_as(parameter).to(parameter.dtype)
    return flat[-2]


def _broadcast(tensor: Tensor) -> Tensor:
    """Return a tensor as the first process has it."""
    moved = tensor.to("cuda" if distributed.get_backend() == "nccl" else "cpu")  # NCCL knows no other
    with explain_lost_processes():
        distributed.broadcast(moved, src=0)
    return moved.cpu()

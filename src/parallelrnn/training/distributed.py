"""Several processes that train one network: how they come together.

They are started by torchrun, on one machine or several; or, on one machine, by the first of them, which runs its own
script again for each of the others. Either way all of them run the whole script, and only the first writes files.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import distributed

from parallelrnn.errors import ArgumentError, ProcessError

TIMEOUT = timedelta(minutes=5)  # for which one waits for another
_LOOK = 0.1  # seconds between two looks at processes that are starting or ending
_MOMENT = 5.0  # seconds that ending takes at most

_others: list[subprocess.Popen[bytes]] = []  # that this process has started


@dataclass(frozen=True)
class _Place:
    """Of this process among those that train together; it stays known when their group has ended."""

    rank: int
    count: int


_place: _Place | None = None


def is_first() -> bool:
    """Whether this process writes files: the only one, or the first of those that have trained together."""
    return _place is None or _place.rank == 0


def nodes_of(devices: int) -> int:
    """How many machines take part, with so many processes on each, if that can be."""
    nodes = 1
    if distributed.is_available() and distributed.is_torchelastic_launched():
        here = int(os.environ["LOCAL_WORLD_SIZE"])
        if devices != here:
            raise ArgumentError(
                f"torchrun has started {here} process{'es' * (here > 1)} on this machine, and devices={devices}; "
                f"give devices={here}, or call torchrun with --nproc-per-node {devices}"
            )
        nodes = int(os.environ["WORLD_SIZE"]) // here
    if _place is not None and devices > 1 and devices * nodes != _place.count:
        raise ArgumentError(
            f"this script runs in {_place.count} processes since its first fit, and devices={devices}; "
            "use one number of devices in one script"
        )
    if devices > 1 and _place is None and "LOCAL_RANK" not in os.environ:
        _this_script(devices)
    return nodes


def strategy_of(count: int) -> Any:
    """How Fabric should handle so many processes."""
    if count == 1:
        return "auto"
    from lightning_fabric.strategies.ddp import DDPStrategy

    return DDPStrategy(timeout=TIMEOUT)


def join(fabric: Any) -> None:
    """Wait until all processes are there, and start them if nobody else does."""
    global _place  # as is the group that torch.distributed keeps
    if fabric.world_size == 1:
        fabric.launch()
        return
    environment = fabric.strategy.cluster_environment
    if distributed.is_initialized() or environment.creates_processes_externally:
        with _called_first(), _told_of_absence(fabric.world_size):
            fabric.launch()
    else:
        try:
            _start_others(fabric.world_size, environment.main_port)
            with _called_first(), _told_of_absence(fabric.world_size):
                _launch_watching(fabric)
        except BaseException:
            _stop_others()
            raise
    if _place is None:
        _place = _Place(distributed.get_rank(), distributed.get_world_size())
        atexit.register(_leave)  # threads of a group that is still there at the end abort the process


def _start_others(count: int, port: int) -> None:
    command = _this_script(count)
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "NODE_RANK": "0", "WORLD_SIZE": str(count)}
    for rank in range(1, count):
        _others.append(subprocess.Popen(command, env={**os.environ, **shared, "LOCAL_RANK": str(rank)}))


def _this_script(count: int) -> list[str]:
    """The command that runs this script again."""
    main = sys.modules["__main__"]
    file = getattr(main, "__file__", None)
    if file is None or hasattr(sys, "ps1") or multiprocessing.parent_process() is not None:
        raise ArgumentError(
            f"devices={count} runs the script again for each further process, and here is none that could be: a "
            "notebook, python -c, an interactive session, or a process of multiprocessing; put the fit into a file "
            "and run that, or use devices=1"
        )
    what = [file] if main.__spec__ is None else ["-m", main.__spec__.name]
    return [sys.executable, *what, *sys.argv[1:]]


def _launch_watching(fabric: Any) -> None:
    """Launch, unless one of the others ends before it has come: it would be waited for in vain."""
    failures: list[BaseException] = []

    def launch() -> None:
        try:
            fabric.launch()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=launch, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_LOOK)
        if thread.is_alive() and endings():
            raise ProcessError(
                f"{endings()} before training began; it runs this script from its start, and has said above what is "
                "wrong; what cannot be done twice, such as making a directory, belongs after fit"
            )
    if failures:
        raise failures[0]
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))  # Fabric shares out the cores, but to its own thread


def endings() -> str:
    """How those that this process has started have ended, in words."""
    words = []
    for rank, other in enumerate(_others, 1):
        status = other.poll()
        if status is not None:
            how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
            words.append(f"process {rank} {how}")
    return ", ".join(words)


def let_end() -> None:
    """Give those that are about to end a moment: their connections close before they are gone."""
    until = time.monotonic() + _MOMENT
    while _others and not endings() and time.monotonic() < until:
        time.sleep(_LOOK)


def _stop_others() -> None:
    for other in _others:
        other.kill()
        other.wait()
    _others.clear()


@contextmanager
def _called_first() -> Iterator[None]:
    """Fabric takes a process that has a number for one that somebody else has started."""
    names = ("LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    before = {name: os.environ.get(name) for name in names}
    os.environ.setdefault("LOCAL_RANK", "0")
    try:
        yield
    finally:  # what this process starts later is not one of us
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)


@contextmanager
def _told_of_absence(count: int) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, ValueError) as error:
        if isinstance(error, ProcessError):
            raise
        raise ProcessError(
            f"the {count} processes that should train together have not come together within "
            f"{TIMEOUT.seconds // 60} minutes, or do not reach each other: {error}"
        ) from error


def _leave() -> None:
    if distributed.is_initialized():
        distributed.destroy_process_group()

"""Who runs jobs: this process, several processes of this machine, or a Ray cluster."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from parallelrnn.errors import is_out_of_memory
from parallelrnn.io import os_error_sentence
from parallelrnn.lab.datasets import DatasetError
from parallelrnn.lab.experiments.experiment import STOP, ExperimentError, Job, Workspace
from parallelrnn.lab.running.perform import perform
from parallelrnn.lab.running.store import Line, Store

_TELL_EVERY = 0.5  # seconds
_HEEDED = (signal.SIGINT, signal.SIGTERM)
_GOES_ON = "the same command goes on from its last checkpoint"


@dataclass(frozen=True)
class Event:
    """What happened to a job."""

    job: Job
    kind: str  # began, moved, done, paused, failed, or taken by another process
    part: float = 0.0  # that is done
    line: Line | None = None
    problem: str = ""


@dataclass(frozen=True)
class Settings:
    """How jobs are run."""

    folder: Path
    workers: int = 1
    threads: int | None = None  # of each worker; the cores, shared out, if not given
    deadline: float = float("inf")  # of time.monotonic()
    every: float = 60.0  # seconds between checkpoints

    @property
    def worker_threads(self) -> int:
        """Threads of each worker: as told, by OMP_NUM_THREADS too, or the cores shared out."""
        told = os.environ.get("OMP_NUM_THREADS", "")
        if self.threads is None and told.isdigit() and int(told):
            return int(told)
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return self.threads or max(1, cores // self.workers)

    @property
    def is_over(self) -> bool:
        """Whether nothing more should begin."""
        return time.monotonic() >= self.deadline or STOP.is_set()

    def workspace(self, job: Job, tell: Callable[[float], None] = lambda part: None) -> Workspace:
        """Of a job."""
        return Workspace(Store(self.folder).workspace(job), self.deadline, tell, self.every)


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Ctrl-C and SIGTERM end runs at their next step, with all that it takes to go on; a second one ends at once."""

    def stop(number: int, frame: Any) -> None:
        STOP.set()
        for one, before in handlers.items():
            signal.signal(one, before)

    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread hears signals
        return
    handlers = {number: signal.signal(number, stop) for number in _HEEDED}
    try:
        yield
    finally:
        STOP.clear()  # what this process runs later is not meant
        for number, before in handlers.items():
            signal.signal(number, before)


def here(jobs: Sequence[Job], settings: Settings) -> Iterator[Event]:
    """One after the other in this process."""
    with stopped_by_signals():
        for job in jobs:
            if settings.is_over:
                return
            yield Event(job, "began")
            yield _attend(job, settings)


def _attend(job: Job, settings: Settings, tell: Callable[[float], None] = lambda part: None) -> Event:
    """Run a job, unless another process is at it or was done with it in the meantime, and keep its result."""
    store = Store(settings.folder)
    try:
        with store.claim(job) as ours:
            if not ours:
                return Event(job, "taken")
            line = store.find(job)
            if line is None:
                line = perform(job, settings.workspace(job, tell), settings.worker_threads)
                if line is not None:
                    store.append(line)
            return Event(job, "paused" if line is None else "done", line=line)
    except BrokenPipeError:
        raise  # who asked is gone
    except Exception as error:
        return Event(job, "failed", problem=_told(error))


def processes(jobs: Sequence[Job], settings: Settings) -> Iterator[Event]:
    """In several processes of this machine. One that is killed takes its job with it, and another takes its place."""
    context = multiprocessing.get_context("spawn")
    waiting = list(jobs)
    busy: dict[Connection, tuple[Any, Job]] = {}
    idle: list[tuple[Connection, Any]] = []
    with stopped_by_signals(), ExitStack() as stack:
        stack.callback(lambda: _dismiss([*idle, *((one, process) for one, (process, _) in busy.items())]))
        while waiting or busy:
            while waiting and len(busy) < settings.workers and not settings.is_over:
                connection, process = _next_of(idle) or _start(context, settings)
                job = waiting.pop(0)
                with suppress(BrokenPipeError):  # of one that was killed just now, which is noticed below
                    connection.send(job)
                busy[connection] = (process, job)
                yield Event(job, "began")
            if not busy:
                return
            for ready in wait(list(busy)):
                connection = next(one for one in busy if one is ready)
                process, job = busy[connection]
                try:
                    event = connection.recv()
                except (EOFError, OSError):
                    process.join()
                    event = Event(job, "failed", problem=_ended(process.exitcode))
                else:
                    if event.kind == "paused":  # it was told to stop, and would pause all that it is given
                        _dismiss([(connection, process)])
                    elif event.kind != "moved":
                        idle.append((connection, process))
                if event.kind != "moved":
                    del busy[connection]
                elif STOP.is_set():
                    # Ctrl-C reaches workers too; who signals this process alone, as kill does, means them as well.
                    with suppress(BrokenPipeError):
                        connection.send(None)
                yield event


def _next_of(idle: list[tuple[Connection, Any]]) -> tuple[Connection, Any] | None:
    """A worker that has nothing to do, unless it was killed meanwhile."""
    while idle:
        connection, process = idle.pop()
        if process.is_alive():
            return connection, process
        connection.close()
    return None


def _dismiss(workers: Sequence[tuple[Connection, Any]]) -> None:
    for connection, process in workers:
        connection.close()  # a worker whose connection is gone ends
        process.join(timeout=1)
        if process.is_alive():
            process.terminate()
            process.join(timeout=10)
        if process.is_alive():  # it is busy with a single long step
            process.kill()
            process.join()


def _start(context: Any, settings: Settings) -> tuple[Connection, Any]:
    """A worker, to which signals come only once it heeds them: until then it imports, and would die of them."""
    resource_tracker.ensure_running()  # else the start of a process would let signals in again
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, settings), daemon=True)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _HEEDED)
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    theirs.close()
    return ours, process


def _work(connection: Connection, settings: Settings) -> None:
    """What a worker does until nobody wants more of it."""
    told = 0.0
    with suppress(EOFError, OSError), stopped_by_signals():  # errors of a connection: who asked is gone
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HEEDED)
        while (job := connection.recv()) is not None:

            def tell(part: float, job: Job = job) -> None:
                nonlocal told
                if time.monotonic() - told >= _TELL_EVERY:
                    told = time.monotonic()
                    connection.send(Event(job, "moved", part=part))
                    if connection.poll():  # nobody sends a second job before the first is done: it is to stop
                        STOP.set()

            connection.send(_attend(job, settings, tell))


def cluster(jobs: Sequence[Job], settings: Settings) -> Iterator[Event]:
    """On the Ray cluster that RAY_ADDRESS names, or on a Ray of this machine; results come here.

    A job that was cut off goes on from its checkpoint where the results folder is shared by all nodes, and from its
    beginning where it is not.
    """
    try:
        import ray
    except ImportError as error:
        raise ExperimentError("--engine ray needs Ray: pip install 'parallelrnn[ray]'") from error
    settings = replace(settings, folder=settings.folder.absolute())
    store, until = Store(settings.folder), time.time() + settings.deadline - time.monotonic()
    started = not ray.is_initialized()
    if started:
        ray.init(address=os.environ.get("RAY_ADDRESS"), log_to_driver=False, include_dashboard=False)
    try:
        nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
        most = max((node["Resources"].get("CPU", 0) for node in nodes if node["Alive"]), default=0)
        if settings.worker_threads > most:
            raise ExperimentError(
                f"a run wants {settings.worker_threads} threads, and no node of the cluster has more than {most:g} "
                "processors; give fewer --threads"
            )
        run = ray.remote(num_cpus=settings.worker_threads, max_retries=1)(_on_a_node)
        running: dict[Any, tuple[Job, ExitStack]] = {}
        waiting = list(jobs)
        while waiting or running:
            while waiting and len(running) < settings.workers and not settings.is_over:
                job, claims = waiting.pop(0), ExitStack()
                yield Event(job, "began")
                if not claims.enter_context(store.claim(job)):
                    yield Event(job, "taken")
                    continue
                line = store.find(job)  # another command may have been done with it in the meantime
                if line is not None:
                    claims.close()
                    yield Event(job, "done", line=line)
                    continue
                running[run.remote(job, settings, until)] = (job, claims)
            if not running:
                return
            (first, *_), _ = ray.wait(list(running), num_returns=1)
            job, claims = running.pop(first)
            with claims:
                try:
                    line = ray.get(first)
                except ray.exceptions.RayError as error:
                    yield Event(job, "failed", problem=_told(error))
                    continue
                if line is not None:
                    store.append(line)
            yield Event(job, "paused" if line is None else "done", line=line)
    finally:
        if started:
            ray.shutdown()


def _on_a_node(job: Job, settings: Settings, until: float) -> Line | None:
    left = until - time.time()  # nodes share the time of day, not the clocks by which deadlines are kept
    if left <= 0:
        return None
    its_own = replace(settings, deadline=time.monotonic() + left)
    return perform(job, its_own.workspace(job), settings.worker_threads)


def _told(error: Exception) -> str:
    """What went wrong: a sentence where one was meant for people, else all of it."""
    cause = getattr(error, "cause", None)  # of an error that came through Ray
    error = cause if isinstance(cause, Exception) else error
    if is_out_of_memory(error):
        return f"memory was used up ({str(error) or type(error).__name__}); try fewer --workers; {_GOES_ON}"
    if isinstance(error, OSError):
        return f"{os_error_sentence(error)}; {_GOES_ON}"
    if isinstance(error, ExperimentError | DatasetError | ValueError | ModuleNotFoundError):
        return str(error) or type(error).__name__
    return "".join(traceback.format_exception(error)).strip()


def _ended(status: int | None) -> str:
    how = f"was killed by signal {-status}" if status is not None and status < 0 else f"ended with status {status}"
    return f"its process {how} (signal 9 often means that memory was used up: try fewer --workers); {_GOES_ON}"


ENGINES = {"local": processes, "ray": cluster, "here": here}

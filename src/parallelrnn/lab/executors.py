"""Carrying out jobs: in this process, in several processes of this machine, or on a Ray cluster."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

from parallelrnn.errors import ArgumentError, MissingPackageError, check_choice, is_out_of_memory
from parallelrnn.io import os_error_sentence
from parallelrnn.lab.experiments.experiment import STOP, Job, OutOfTimeError, Workspace
from parallelrnn.lab.runs import Run, RunStore, commits, cores, machine

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_POLL_SECONDS = 0.5  # between looks at the progress of running jobs
_RESUMES = "the same command resumes from its last checkpoint"
_WORKING = threading.Lock()  # held while this process carries out a job


def perform(job: Job, directory: Path | None, deadline: float, threads: int, checkpoint_every: float) -> Run | None:
    """Carry out or resume a job; return None if it stopped early, for a signal or at `deadline` (of `time.time()`).

    The file `progress` in its directory says how far it is.
    """
    import torch

    from parallelrnn.lab.experiments.registry import EXPERIMENTS

    reported = 0.0

    def report(fraction: float) -> None:
        nonlocal reported
        if directory is not None and time.monotonic() - reported >= _POLL_SECONDS:
            reported = time.monotonic()
            with suppress(OSError):  # the disk is full: only the progress is not shown
                (directory / "progress").write_text(str(fraction))

    with _WORKING:
        made_by = commits(directory)
        started, start = datetime.now(timezone.utc), time.monotonic()
        threads_before = torch.get_num_threads()
        torch.set_num_threads(threads)
        workspace = Workspace(directory, start + deadline - time.time(), report, checkpoint_every)
        try:
            outcome = EXPERIMENTS[job.experiment].run(job.config, job.seed, workspace)
            threads = torch.get_num_threads()  # a resumed run keeps the number that it began with
        except OutOfTimeError:
            return None
        finally:
            torch.set_num_threads(threads_before)
    provenance = {
        "commit": made_by[-1],
        "commits": made_by,
        "machine": machine(threads),
        "started": started.isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - start, 3),  # of this call; the result holds those of all
    }
    config = asdict(job.config)
    return Run(experiment=job.experiment, config=config, seed=job.seed, result=asdict(outcome), provenance=provenance)


class SerialExecutor(Executor):
    """Carries out each call in this process, as it is submitted."""

    def __init__(self, threads: int) -> None:
        pass

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call the function and return a finished future."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class ProcessesExecutor(Executor):
    """Processes, each a pool of its own: one that is killed fails its own job and no other."""

    def __init__(self, threads: int) -> None:
        self._pools: list[ProcessPoolExecutor] = []
        self._idle: list[ProcessPoolExecutor] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Give the call to an idle process, or to a new one."""
        while self._idle:
            with suppress(BrokenExecutor):  # it was killed while idle
                return self._submit_to(self._idle.pop(), fn, *args, **kwargs)
        self._pools.append(ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _start_worker))
        if not hasattr(signal, "pthread_sigmask"):
            return self._submit_to(self._pools[-1], fn, *args, **kwargs)
        resource_tracker.ensure_running()  # else starting the process would unblock signals
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # it would die of them before `_start_worker`
        try:
            return self._submit_to(self._pools[-1], fn, *args, **kwargs)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _submit_to(self, pool: ProcessPoolExecutor, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        def release(future: Future[Any]) -> None:
            was_killed = isinstance(future.exception(), BrokenExecutor)
            if not was_killed and (future.exception() or future.result() is not None):
                self._idle.append(pool)  # unless it was asked to stop: it would stop whatever it is given next

        future = pool.submit(fn, *args, **kwargs)
        future.add_done_callback(release)
        return future

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is not None:
            for process in self._processes():
                process.kill()
        for pool in self._pools:
            pool.shutdown()

    def terminate(self) -> None:
        """Ask the processes to stop their jobs at the next step."""
        for process in self._processes():
            process.terminate()

    def _processes(self) -> list[Any]:
        return [process for pool in self._pools for process in (pool._processes or {}).values()]


class RayExecutor(Executor):
    """Tasks on the Ray cluster that RAY_ADDRESS names, or on a Ray of this machine.

    Jobs resume from their checkpoints if all nodes share the results folder; otherwise they start again.
    """

    def __init__(self, threads: int) -> None:
        try:
            import ray
        except ImportError as error:
            hint = "pip install 'parallelrnn[ray]'"
            raise MissingPackageError("the engine 'ray' needs Ray, which is not installed", hint=hint) from error
        self._ray, self._is_ours = ray, not ray.is_initialized()
        if self._is_ours:
            ray.init(address=os.environ.get("RAY_ADDRESS"), log_to_driver=False, include_dashboard=False)
        nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
        most = max((node["Resources"].get("CPU", 0) for node in nodes if node["Alive"]), default=0)
        if threads > most:
            self.shutdown()
            expected = f"at most {most:g}, the processors of the cluster's largest node"
            raise ArgumentError(argument="threads", expected=expected, got=threads)
        self._threads = threads

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submit the call as a task."""
        future: Future[Any] = (
            self._ray.remote(num_cpus=self._threads, max_retries=1)(fn).remote(*args, **kwargs).future()
        )
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Stop the Ray that this executor started, if it did."""
        if self._is_ours:
            self._ray.shutdown()


ENGINES: dict[str, Callable[[int], Executor]] = {"local": ProcessesExecutor, "ray": RayExecutor, "here": SerialExecutor}


def _start_worker() -> None:
    """Make this process stop at its next step on a signal, or when its parent dies."""

    def end_with_parent() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
            STOP.set()
            with _WORKING:
                os._exit(1)  # an orphan would wait for its next call for ever

    for number in _SIGNALS:
        signal.signal(number, lambda number, frame: STOP.set())
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    threading.Thread(target=end_with_parent, daemon=True).start()


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Make Ctrl-C and SIGTERM stop jobs at their next step, with a checkpoint; a second one ends at once."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread hears signals
        return

    def restore() -> None:
        for number, handler in handlers.items():
            signal.signal(number, handler)

    def stop(number: int, frame: Any) -> None:
        STOP.set()
        restore()

    handlers = {number: signal.signal(number, stop) for number in _SIGNALS}
    try:
        yield
    finally:
        STOP.clear()  # later jobs of this process are not meant
        restore()


@dataclass(frozen=True)
class Event:
    """Something that happened to a job."""

    job: Job
    kind: str  # started, running, done, paused, failed, or taken: another process works on it
    run: Run | None = None
    problem: str = ""


@dataclass(kw_only=True)
class Progress:
    """Progress of a list of jobs."""

    jobs: Sequence[Job]
    done: set[str]  # keys of jobs
    fractions: dict[str, float] = field(default_factory=dict)  # of running jobs
    problems: dict[str, str] = field(default_factory=dict)  # of failed jobs
    begin: float = field(default_factory=time.monotonic)
    work_before: float = 0.0  # jobs, or fractions of them, that were done before

    def __post_init__(self) -> None:
        self.work_before = len(self.done)

    @property
    def work_done(self) -> float:
        """Number of jobs done, with fractions of those that run."""
        return len(self.done) + sum(self.fractions.values())

    @property
    def seconds_left(self) -> float | None:
        """The time that the rest will take at the pace so far; None if there is no pace yet."""
        if self.work_done <= self.work_before:
            return None
        pace = (time.monotonic() - self.begin) / (self.work_done - self.work_before)
        return pace * (len(self.jobs) - len(self.problems) - self.work_done)

    def update(self, event: Event, fraction: float = 0.0) -> None:
        """Take note of an event, and of how far a running job is."""
        key = event.job.key
        if event.kind == "running":
            if key not in self.fractions:
                self.work_before += fraction  # where it resumed
            self.fractions[key] = fraction
        elif event.kind != "started":
            self.fractions.pop(key, None)
        if event.kind == "done":
            self.done.add(key)
        elif event.kind == "failed":
            self.problems[key] = event.problem


def run_jobs(
    jobs: Sequence[Job],
    folder: str | Path,
    *,
    workers: int = 1,
    threads: int | None = None,
    budget: float = float("inf"),
    engine: str = "local",
    checkpoint_every: float = 60.0,
    on_event: Callable[[Progress, Event], None] = lambda progress, event: None,
) -> Progress:
    """Carry out the jobs whose runs are not in the folder yet, for `budget` seconds at most.

    Jobs that were cut off resume, and come first; jobs that another process works on are left to it. `threads` are
    those of each worker: OMP_NUM_THREADS, or a share of the cores, if not given.
    """
    check_choice("engine", engine, ENGINES)
    store = RunStore(folder)
    store.check_writable()
    progress = Progress(jobs=jobs, done={job.key for job in jobs if store.find(job.key)})
    waiting = sorted((job for job in jobs if job.key not in progress.done), key=lambda job: not store.is_begun(job))
    for job in jobs:
        if job.key in progress.done and store.is_begun(job):  # killed after its run was saved
            with store.lock(job):
                pass
    if threads is None:
        variable = os.environ.get("OMP_NUM_THREADS", "")
        threads = int(variable) if variable.isdigit() and int(variable) else max(1, cores() // workers)
    deadline = time.time() + budget  # nodes of a cluster share the time of day, not time.monotonic()
    running: dict[Future[Run | None], tuple[Job, ExitStack]] = {}

    def report(event: Event, fraction: float = 0.0) -> None:
        progress.update(event, fraction)
        on_event(progress, event)

    def release_locks() -> None:
        for _, lock in running.values():
            lock.close()

    with ExitStack() as stack:
        if engine != "ray":  # whose tasks a signal does not reach: they end, and resume from their last checkpoint
            stack.enter_context(_stopped_by_signals())
        stack.callback(release_locks)  # once all workers have ended
        executor = stack.enter_context(ENGINES[engine](threads))
        while waiting or running:
            while waiting and len(running) < workers and time.time() < deadline and not STOP.is_set():
                job, lock = waiting.pop(0), ExitStack()
                report(Event(job, "started"))
                if not lock.enter_context(store.lock(job)):
                    report(Event(job, "taken"))
                elif run := store.find(job.key):  # another command has just saved it
                    lock.close()
                    report(Event(job, "done", run))
                else:
                    workspace = store.workspace(job).absolute()
                    future = executor.submit(perform, job, workspace, deadline, threads, checkpoint_every)
                    running[future] = (job, lock)
            if not running:
                break
            for future in wait(running, _POLL_SECONDS, FIRST_COMPLETED).done:
                job, lock = running.pop(future)
                with lock:
                    event = _save(store, job, future)
                report(event)
            if STOP.is_set() and isinstance(executor, ProcessesExecutor):
                executor.terminate()  # Ctrl-C has reached the workers too; a signal to this process alone has not
            for job, _ in running.values():
                with suppress(OSError, ValueError):  # no progress yet, or it is being written
                    report(Event(job, "running"), float((store.workspace(job) / "progress").read_text()))
    for job in jobs:
        if job.key not in progress.done and store.find(job.key):  # another command has saved it meanwhile
            progress.done.add(job.key)
            progress.problems.pop(job.key, None)
    return progress


def _save(store: RunStore, job: Job, future: Future[Run | None]) -> Event:
    """Save the run of a job that has ended."""
    try:
        run = future.result()
        if run is not None:
            store.save(run)
        return Event(job, "paused" if run is None else "done", run)
    except Exception as error:
        return Event(job, "failed", problem=_describe(error))


def _describe(error: Exception) -> str:
    """Return a sentence for errors that are meant for users, and the traceback of others."""
    cause = getattr(error, "cause", None)  # of an error that came through Ray
    error = cause if isinstance(cause, Exception) else error
    if isinstance(error, BrokenExecutor):
        return f"its process was killed (often because memory ran out: try fewer --workers); {_RESUMES}"
    if is_out_of_memory(error):
        return f"memory ran out ({str(error) or type(error).__name__}); try fewer --workers; {_RESUMES}"
    if isinstance(error, OSError):
        return f"{os_error_sentence(error)}; {_RESUMES}"
    if isinstance(error, ValueError | ModuleNotFoundError):
        return str(error) or type(error).__name__
    return "".join(traceback.format_exception(error)).strip()


def parse_duration(argument: str, text: str) -> float:
    """Return the seconds of a duration such as 90s, 45m, 2h or 1h30m."""
    match = re.fullmatch(r"(?:([\d.]+)h)?(?:([\d.]+)m)?(?:([\d.]+)s)?", text.strip())
    with suppress(ValueError):
        if match and any(match.groups()):
            return sum(float(part or 0) * unit for part, unit in zip(match.groups(), (3600, 60, 1), strict=True))
    raise ArgumentError(argument=argument, expected="a duration such as 90s, 45m, 2h or 1h30m", got=text)

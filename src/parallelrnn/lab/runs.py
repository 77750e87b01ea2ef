"""Runs of experiments and benchmarks: one JSON file each, and the executors that carry them out.

A run is a configuration, a seed, a result and its provenance. `RunStore` keeps runs; `run_jobs` runs what the store
does not hold yet, in this process, in several, or on a Ray cluster.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import re
import shutil
import signal
import statistics
import subprocess
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from importlib import metadata
from multiprocessing import resource_tracker
from pathlib import Path
from typing import IO, Any

import parallelrnn
from parallelrnn.errors import (
    ArgumentError,
    FileError,
    MissingPackageError,
    ParallelRNNError,
    check_choice,
    is_out_of_memory,
)
from parallelrnn.io import check_writable, make_directory, read_bytes, sentence, sum_of, write_text
from parallelrnn.lab.experiments.experiment import STOP, Job, OutOfTimeError, Workspace, run_key

try:
    import fcntl
except ImportError:  # not Unix; there, commands that run at once do not see each other's locks
    fcntl = None  # type: ignore[assignment]

_FIELDS: dict[str, type] = {"experiment": str, "config": dict, "seed": int, "result": dict, "provenance": dict}
_HANDLED_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_POLL_SECONDS = 0.5  # between looks at the progress of running jobs
_RESUMES = "the same command resumes from its last checkpoint"


@dataclass(frozen=True, kw_only=True)
class Run:
    """One finished run of an experiment or benchmark. All of it is JSON."""

    experiment: str
    config: dict[str, Any]
    seed: int
    result: dict[str, Any]
    provenance: dict[str, Any]

    @property
    def key(self) -> str:
        """The run's identity: a hash of experiment, configuration and seed."""
        return run_key(self.experiment, self.config, self.seed)


class RunStore:
    """A folder of runs: `<experiment>/<key>.json`. Several processes may save at once."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def save(self, run: Run) -> Path:
        """Write a run beside its place and rename it; once this returns, it is on the disk."""
        content = {"key": run.key, **asdict(run)}
        content["checksum"] = sum_of(content)
        lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in content.items())
        make_directory(self.folder / run.experiment)
        return write_text(self.folder / run.experiment / f"{run.key}.json", f"{{\n{lines}\n}}\n")

    def find(self, key: str) -> Run | None:
        """Return the run with this key, or None."""
        return next((_read_run(path) for path in self.folder.glob(f"*/{key}.json")), None)

    def load(self, experiment: str) -> list[Run]:
        """Return all runs of an experiment, ordered by key."""
        return [_read_run(path) for path in sorted((self.folder / experiment).glob("*.json"))]

    def check_writable(self) -> None:
        """Raise unless runs can be saved here, before hours are spent on them."""
        hint = "name a folder for {results}"
        if self.folder.exists() and not self.folder.is_dir():
            raise FileError(f"{self.folder} is a file", hint=hint)
        try:
            check_writable(self.folder)
        except OSError as error:
            raise FileError(f"runs cannot be saved in {self.folder}: {error.strerror}", hint=hint) from error

    def workspace(self, job: Job) -> Path:
        """Return the folder of a job's checkpoint and lock."""
        return self.folder / ".checkpoints" / f"{job.experiment}-{job.key}"

    def is_begun(self, job: Job) -> bool:
        """Return whether the job has a checkpoint to resume from."""
        checkpoint = Workspace(self.workspace(job)).checkpoint
        return checkpoint is not None and checkpoint.exists()

    @contextmanager
    def lock(self, job: Job) -> Iterator[bool]:
        """Hold the job's lock, if no other process of this machine does; yields whether it is held.

        On leaving, the workspace is removed if there is nothing to resume: the run was saved, or has no checkpoint.
        """
        directory = self.workspace(job)
        file = _lock_file(directory)
        if file is None:
            yield False
            return
        with file:
            file.truncate(0)
            file.write(f"{os.getpid()}\n{job}\n".encode())  # for `status`
            file.flush()
            try:
                yield True
            finally:
                if not self.is_begun(job) or self.find(job.key) is not None:
                    shutil.rmtree(directory, ignore_errors=True)
                if fcntl is not None:  # closing is not enough if the process was forked meanwhile
                    fcntl.flock(file, fcntl.LOCK_UN)


def _read_run(path: Path) -> Run:
    """Return the run in a file; raise if it is not what `RunStore.save` wrote."""
    hint = "delete the file, and the run is made again"
    try:
        content = json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path} is not JSON ({error})", hint=hint) from error
    if not isinstance(content, dict) or content.pop("checksum", None) != sum_of(content):
        raise FileError(f"{path} was changed after it was written: wrong checksum", hint=hint)
    wrong = [name for name, kind in _FIELDS.items() if not isinstance(content.get(name), kind)]
    if wrong or (content.get("key"), content["experiment"]) != (path.stem, path.parent.name):
        raise FileError(f"{path} does not hold a run: wrong {', '.join(wrong) or 'file name'}", hint=hint)
    run = Run(**{name: content[name] for name in _FIELDS})
    if run.key != path.stem:
        raise FileError(f"{path} does not hold a run: its key is not that of its configuration", hint=hint)
    return run


def _lock_file(directory: Path) -> IO[bytes] | None:
    """Return the workspace's lock file, locked, or None if another process holds it."""
    while True:
        directory.mkdir(parents=True, exist_ok=True)
        try:
            file = (directory / "lock").open("ab")
        except FileNotFoundError:  # its holder has just removed the workspace
            continue
        if fcntl is None:
            return file
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        if os.fstat(file.fileno()).st_nlink:
            return file
        file.close()  # it was removed before it was locked: lock the next one


def _current_commit() -> str:
    """Return the commit of the package's source, with a plus if it was modified, or its version if not in git."""

    def git(*arguments: str) -> str:
        command = ["git", *arguments]
        folder = Path(parallelrnn.__file__).parent
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")  # an installed copy may lie inside another repository
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return f"version {_version('parallelrnn')}"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


COMMIT = _current_commit()  # when the process starts: what is checked out later is not what runs


def machine(threads: int) -> dict[str, Any]:
    """Return the processor, the versions and the number of threads of this process."""
    from parallelrnn.kernels.library import INSTRUCTIONS

    return {
        "processor": processor(),
        "cores": _cores(),
        "threads": threads,
        "instruction_set": "none" if INSTRUCTIONS is None else INSTRUCTIONS.name,
        **{package: _version(package) for package in ("parallelrnn", "torch", "numpy")},
        "python": platform.python_version(),
        "system": platform.platform(),
    }


def processor() -> str:
    """Return the processor's name, as far as the system knows it."""
    cpuinfo = Path("/proc/cpuinfo")
    names = re.findall(r"^model name\s*:\s*(.*)$", cpuinfo.read_text(), re.MULTILINE) if cpuinfo.exists() else []
    return names[0] if names else platform.processor() or platform.machine() or "unknown"


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def commits(directory: Path | None) -> list[str]:
    """Return the commits of all processes that worked on a run; they are kept beside its checkpoint."""
    if directory is None:
        return [COMMIT]
    file = directory / "commits"
    earlier = file.read_text(encoding="utf-8").split("\n") if file.exists() else []
    if not earlier or earlier[-1] != COMMIT:
        directory.mkdir(parents=True, exist_ok=True)
        earlier.append(COMMIT)
        write_text(file, "\n".join(earlier))
    return earlier


_WORKING = threading.Lock()  # held while this process carries out a job


def perform(job: Job, directory: Path | None, deadline: float, threads: int, checkpoint_every: float) -> Run | None:
    """Carry out a job, or resume it; return None if it stopped before its end, at `deadline` in seconds of time.time().

    How far it is stands in the file `progress` of its folder.
    """
    import torch

    from parallelrnn.lab.experiments.registry import EXPERIMENTS

    reported = 0.0

    def report(fraction: float) -> None:
        nonlocal reported
        if directory is not None and time.monotonic() - reported >= _POLL_SECONDS:
            reported = time.monotonic()
            with suppress(OSError):  # a full disk, or a workspace that is not made yet
                (directory / "progress").write_text(str(fraction))

    with _WORKING:
        worked_on_by = commits(directory)
        started = datetime.now(timezone.utc).isoformat(timespec="seconds")
        began, threads_before = time.perf_counter(), torch.get_num_threads()
        torch.set_num_threads(threads)
        workspace = Workspace(directory, time.monotonic() + deadline - time.time(), report, checkpoint_every)
        try:
            outcome = EXPERIMENTS[job.experiment].run(job.config, job.seed, workspace)
            threads = torch.get_num_threads()  # a resumed run keeps the number that it began with
        except OutOfTimeError:
            return None
        finally:
            torch.set_num_threads(threads_before)
    return Run(
        experiment=job.experiment,
        config=asdict(job.config),
        seed=job.seed,
        result=asdict(outcome),
        provenance={
            "commit": worked_on_by[-1],
            "commits": worked_on_by,
            "machine": machine(threads),
            "started": started,
            "seconds": round(time.perf_counter() - began, 3),  # of this call; metrics hold those of all
        },
    )


class SerialExecutor(Executor):
    """Carries out each call in this process as it is submitted."""

    def __init__(self, workers: int = 1, threads: int = 1) -> None:
        self._restore: Callable[[], None] = lambda: None

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call the function; return its result as a finished future."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future

    def stop(self) -> None:
        """Ask running jobs to save a checkpoint and end; jobs of this process see the signal themselves."""

    def __enter__(self) -> SerialExecutor:
        self._restore = _stop_on_signals()
        return self

    def __exit__(self, *error: object) -> None:
        self._restore()


class ProcessesExecutor(SerialExecutor):
    """Worker processes, each a pool of its own: one that is killed fails its own job and no other."""

    def __init__(self, workers: int = 1, threads: int = 1) -> None:
        self._pools: list[ProcessPoolExecutor] = []
        self._idle: list[ProcessPoolExecutor] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Give the call to an idle worker, or to a new one."""
        while self._idle:
            pool = self._idle.pop()
            with suppress(BrokenExecutor):  # it was killed while idle
                return self._give(pool, fn, *args, **kwargs)
        pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _start_worker)
        self._pools.append(pool)
        resource_tracker.ensure_running()  # else starting a process would unblock signals
        with _blocked_signals():  # the worker would die of them while it imports; `_start_worker` lets them in
            return self._give(pool, fn, *args, **kwargs)

    def _give(self, pool: ProcessPoolExecutor, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        def release(future: Future[Any]) -> None:
            stopped = future.cancelled() or (future.exception() is None and future.result() is None)
            if not stopped and not isinstance(future.exception(), BrokenExecutor):
                self._idle.append(pool)  # a worker that stopped would stop at once with whatever it got next

        future = pool.submit(fn, *args, **kwargs)
        future.add_done_callback(release)
        return future

    def stop(self) -> None:
        """Signal all workers: Ctrl-C has reached them already, a signal to this process alone has not."""
        for child in multiprocessing.active_children():
            child.terminate()

    def __exit__(self, kind: object, *error: object) -> None:
        if kind is not None:
            for child in multiprocessing.active_children():
                child.kill()
        for pool in self._pools:
            pool.shutdown()
        super().__exit__()


class RayExecutor(SerialExecutor):
    """Tasks on the Ray cluster that RAY_ADDRESS names, or on a Ray of this machine.

    Jobs resume from their checkpoints where all nodes share the results folder, and start again where they do not.
    """

    def __init__(self, workers: int = 1, threads: int = 1) -> None:
        try:
            import ray
        except ImportError as error:
            raise MissingPackageError(
                "the engine 'ray' needs Ray, which is not installed", hint="pip install 'parallelrnn[ray]'"
            ) from error
        self._ray, self._threads = ray, threads
        self._started = not ray.is_initialized()

    def __enter__(self) -> RayExecutor:
        if self._started:
            self._ray.init(address=os.environ.get("RAY_ADDRESS"), log_to_driver=False, include_dashboard=False)
        nodes: list[dict[str, Any]] = self._ray.nodes()  # type: ignore[no-untyped-call]
        most = max((node["Resources"].get("CPU", 0) for node in nodes if node["Alive"]), default=0)
        if self._threads > most:
            self.__exit__()
            expected = f"at most {most:g}, the processors of the cluster's largest node"
            raise ArgumentError(argument="threads", expected=expected, got=self._threads)
        return self

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submit the call as a task, which is tried twice."""
        task = self._ray.remote(num_cpus=self._threads, max_retries=1)(fn)
        future: Future[Any] = task.remote(*args, **kwargs).future()
        return future

    def __exit__(self, *error: object) -> None:
        if self._started:
            self._ray.shutdown()


ENGINES: dict[str, type[SerialExecutor]] = {"local": ProcessesExecutor, "ray": RayExecutor, "here": SerialExecutor}


def _stop_on_signals() -> Callable[[], None]:
    """Make Ctrl-C and SIGTERM set STOP, and a second one end at once; return what undoes this."""
    if threading.current_thread() is not threading.main_thread():
        return lambda: None  # only the main thread hears signals

    def restore() -> None:
        for number, handler in handlers.items():
            signal.signal(number, handler)

    def stop(number: int, frame: Any) -> None:
        STOP.set()
        restore()

    def undo() -> None:
        STOP.clear()  # later runs of this process are not meant
        restore()

    handlers = {number: signal.signal(number, stop) for number in _HANDLED_SIGNALS}
    return undo


@contextmanager
def _blocked_signals() -> Iterator[None]:
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _start_worker() -> None:
    """Make a new worker stop at the next step on a signal, or when its parent process dies."""

    def end_with_parent() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
            STOP.set()
            with _WORKING:
                os._exit(1)  # an orphan would wait for more calls for ever

    for number in _HANDLED_SIGNALS:
        signal.signal(number, lambda number, frame: STOP.set())
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED_SIGNALS)
    threading.Thread(target=end_with_parent, daemon=True).start()


@dataclass(frozen=True)
class Event:
    """Something that happened to a job."""

    job: Job
    kind: str  # started, progress, done, paused, failed, or taken (by another process)
    run: Run | None = None
    problem: str = ""


@dataclass(kw_only=True)
class Progress:
    """How far a list of jobs is."""

    jobs: Sequence[Job]
    workers: int
    done: dict[str, float] = field(default_factory=dict)  # seconds that a job took, by key
    started: dict[str, float] = field(default_factory=dict)  # when running jobs started
    fraction: dict[str, float] = field(default_factory=dict)  # how far running jobs are
    first_fraction: dict[str, float] = field(default_factory=dict)  # how far they were when resumed
    problems: dict[str, str] = field(default_factory=dict)  # of jobs that failed

    def update(self, event: Event, fraction: float | None = None) -> None:
        """Take note of an event."""
        key = event.job.key
        if event.kind == "started":
            self.started[key] = time.monotonic()
        elif fraction is not None:
            self.first_fraction.setdefault(key, fraction)
            self.fraction[key] = fraction
        else:
            seconds = time.monotonic() - self.started.pop(key)
            if event.kind == "done":
                self.done[key] = seconds
            elif event.kind == "failed":
                self.problems[key] = event.problem

    @property
    def seconds_left(self) -> float | None:
        """The time that the rest will take at the pace so far; None if nothing is known yet."""
        costs: dict[str, list[float]] = {}  # seconds of whole jobs, by kind
        left = 0.0
        for job in self.jobs:
            key, moved = job.key, self.fraction.get(job.key, 0.0) - self.first_fraction.get(job.key, 0.0)
            if self.done.get(key):
                costs.setdefault(_kind(job), []).append(self.done[key])
            elif key in self.started and moved > 0:
                pace = (time.monotonic() - self.started[key]) / moved
                costs.setdefault(_kind(job), []).append(pace)
                left += pace * (1 - self.fraction[key])
        if not costs:
            return None
        average = statistics.mean(cost for same_kind in costs.values() for cost in same_kind)
        for job in self.jobs:
            ended = job.key in self.done or job.key in self.problems
            if not ended and not (job.key in self.started and job.key in self.fraction):
                left += statistics.mean(costs.get(_kind(job), [average]))
        return left / self.workers

    @property
    def fraction_done(self) -> float:
        """The part of all jobs that is done."""
        running = sum(self.fraction.get(key, 0.0) for key in self.started)
        return (len(self.done) + running) / max(1, len(self.jobs))


def _kind(job: Job) -> str:
    return f"{job.experiment} {getattr(job.config, 'model', '')}"


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

    Jobs that were cut off resume, and come first. What another process works on is left to it. `threads` are those of
    each worker; OMP_NUM_THREADS, or an equal share of the cores, if not given.
    """
    check_choice("engine", engine, ENGINES)
    store = RunStore(folder)
    store.check_writable()
    progress = Progress(jobs=jobs, workers=workers, done={job.key: 0.0 for job in jobs if store.find(job.key)})
    waiting = sorted((job for job in jobs if job.key not in progress.done), key=lambda job: not store.is_begun(job))
    for job in jobs:
        if job.key in progress.done and store.is_begun(job):  # killed after the run was saved
            with store.lock(job):
                pass
    if threads is None:
        given = os.environ.get("OMP_NUM_THREADS", "")
        threads = int(given) if given.isdigit() and int(given) else max(1, _cores() // workers)
    deadline = time.time() + budget  # nodes of a cluster share the time of day
    running: dict[Future[Run | None], tuple[Job, ExitStack]] = {}

    def tell(event: Event, fraction: float | None = None) -> None:
        progress.update(event, fraction)
        on_event(progress, event)

    def release_locks() -> None:
        for _, lock in running.values():
            lock.close()

    with ExitStack() as stack:
        stack.callback(release_locks)  # after the workers have ended
        executor = stack.enter_context(ENGINES[engine](workers, threads))
        while waiting or running:
            while waiting and len(running) < workers and time.time() < deadline and not STOP.is_set():
                job, lock = waiting.pop(0), ExitStack()
                tell(Event(job, "started"))
                if not lock.enter_context(store.lock(job)):
                    tell(Event(job, "taken"))
                elif run := store.find(job.key):  # another command has just saved it
                    lock.close()
                    tell(Event(job, "done", run))
                else:
                    arguments = (store.workspace(job).absolute(), deadline, threads, checkpoint_every)
                    running[executor.submit(perform, job, *arguments)] = (job, lock)
            if not running:
                break
            for future in wait(running, _POLL_SECONDS, FIRST_COMPLETED).done:
                job, lock = running.pop(future)
                with lock:
                    event = _outcome(store, job, future)
                tell(event)
            if STOP.is_set():
                executor.stop()
            for job, _ in running.values():
                with suppress(OSError, ValueError):  # not there yet, or being written
                    tell(Event(job, "progress"), float((store.workspace(job) / "progress").read_text()))
    for job in jobs:
        if job.key not in progress.done and store.find(job.key):  # another command has saved it meanwhile
            progress.done[job.key] = 0.0
            progress.problems.pop(job.key, None)
    return progress


def _outcome(store: RunStore, job: Job, future: Future[Run | None]) -> Event:
    """Save the run of a job that has ended."""
    try:
        run = future.result()
        if run is not None:
            store.save(run)
        return Event(job, "paused" if run is None else "done", run)
    except Exception as error:
        return Event(job, "failed", problem=_describe(error))


def _describe(error: Exception) -> str:
    """Return a sentence for errors that are meant for people, and the traceback of others."""
    cause = getattr(error, "cause", None)  # of an error that came through Ray
    error = cause if isinstance(cause, Exception) else error
    if isinstance(error, BrokenExecutor):
        return f"its process was killed (often because memory ran out: try fewer --workers); {_RESUMES}"
    if is_out_of_memory(error):
        return f"memory ran out ({str(error) or type(error).__name__}); try fewer --workers; {_RESUMES}"
    if isinstance(error, OSError):
        return f"{sentence(error)}; {_RESUMES}"
    if isinstance(error, ParallelRNNError | ValueError | ModuleNotFoundError):
        return str(error) or type(error).__name__
    return "".join(traceback.format_exception(error)).strip()


def parse_duration(argument: str, text: str) -> float:
    """Return the seconds of a duration such as 90s, 45m, 2h or 1h30m."""
    number = r"(\d+(?:\.\d+)?)"
    match = re.fullmatch(rf"(?:{number}h)?(?:{number}m)?(?:{number}s)?", text.strip())
    if not text.strip() or match is None:
        raise ArgumentError(argument=argument, expected="a duration such as 90s, 45m, 2h or 1h30m", got=text)
    return sum(float(part or 0) * unit for part, unit in zip(match.groups(), (3600, 60, 1), strict=True))

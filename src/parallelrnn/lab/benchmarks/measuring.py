"""What benchmarks share: the provenance of their numbers, and measuring only what the store does not hold yet."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any

from parallelrnn.lab.benchmarks import BenchError
from parallelrnn.lab.experiments.experiment import run_key
from parallelrnn.lab.runs import COMMIT, Run, RunStore, installed_version, machine

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")  # read as libraries load
Measure = Callable[[dict[str, Any], int], dict[str, Any]]  # a configuration and a seed to a result


def provenance(threads: int, packages: Iterable[str] = ()) -> dict[str, Any]:
    """Return the commit, the machine, and the versions of the packages that a benchmark uses besides."""
    return {
        "commit": COMMIT,
        "machine": {**machine(threads), **{package: installed_version(package) for package in packages}},
    }


def check_same_machine(runs: Iterable[Run], now: dict[str, Any]) -> None:
    """Raise if runs were measured on another machine or with other versions: their numbers do not compare."""
    for run in runs:
        then = run.provenance["machine"]
        differences = [f"{name}: {then.get(name)}, {now[name]}" for name in now if then.get(name) != now[name]]
        if differences:
            raise BenchError(
                f"the earlier runs were measured under other conditions (then, now: {'; '.join(differences)})",
                hint="give another folder, or restore them",
            )


def run_missing(
    store: RunStore,
    name: str,
    jobs: Sequence[tuple[dict[str, Any], int]],
    measure: Measure,
    about: dict[str, Any],
    workers: int | None = None,
    timed: bool = True,
) -> None:
    """Measure the configurations and seeds that the store does not hold yet; save each run as it is done.

    With `workers` in so many processes, else here. A measurement that fails is reported at the end. If runs are
    `timed`, all have to be made on one machine.
    """
    if timed:
        check_same_machine(store.load(name), about["machine"])
    missing = [job for job in jobs if store.find(run_key(name, *job)) is None]
    print(f"{len(jobs) - len(missing)} runs are done, {len(missing)} to go", flush=True)
    failed = 0
    with ExitStack() as stack:
        apply: Any = map
        if workers:
            apply = stack.enter_context(ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"))).map
        results = apply(partial(_attempt, measure), missing)
        for (config, seed), (result, problem) in zip(missing, results, strict=True):
            print(", ".join(map(str, config.values())), f"seed {seed}: {problem or 'done'}", flush=True)
            failed += bool(problem)
            if not problem:
                store.save(Run(experiment=name, config=config, seed=seed, result=result, provenance=about))
    if failed:
        raise SystemExit(f"{failed} runs failed; the same command tries them again")


def _attempt(measure: Measure, job: tuple[dict[str, Any], int]) -> tuple[dict[str, Any], str]:
    try:
        return measure(*job), ""
    except Exception as error:
        return {}, f"{type(error).__name__}: {error}"

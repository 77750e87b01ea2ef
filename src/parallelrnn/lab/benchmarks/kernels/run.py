"""The benchmark from beginning to end: gate, limits, cases, memory, scaling; what is found is saved as it is found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from itertools import product
from pathlib import Path

import torch

from parallelrnn.kernels import machine_peak
from parallelrnn.kernels.library import INSTRUCTIONS
from parallelrnn.kernels.memory import POOL
from parallelrnn.lab.benchmarks.kernels import BenchError, conditions, gate, memory, roofline, timing
from parallelrnn.lab.benchmarks.kernels.cases import CASES, CELLS, KINDS, PARTS, Case, scaling_cases
from parallelrnn.lab.benchmarks.kernels.contenders import CONTENDERS, make_input, make_layer, make_step, why_skipped
from parallelrnn.lab.benchmarks.kernels.results import Bound, Measurement, Results, Run

_SCALED = ("torch", "blocks")


@dataclass(frozen=True)
class Settings:
    """What to measure, and how long."""

    cases: tuple[str, ...] = tuple(CASES)
    cells: tuple[str, ...] = CELLS
    kinds: tuple[str, ...] = KINDS
    parts: tuple[str, ...] = PARTS
    threads: int = 1
    rounds: int = 15
    budget: float = 60.0  # seconds for each case, cell and kind
    command: str = ""


def run(
    settings: Settings,
    output: Path | None = None,
    resume: bool = False,
    tell: Callable[[str], None] = lambda line: None,
) -> Results:
    """Measure all that `settings` ask for and that is not in the file yet; `tell` hears what is being done."""
    with _threads(settings.threads):
        if resume and output is not None and not output.exists():
            tell(f"{output} is not there yet: measuring everything")
        results = _begin(settings, output, resume)
        date = datetime.now(timezone.utc).isoformat(timespec="seconds")
        results.runs.append(Run(date, settings.command, settings.rounds, settings.budget))
        tell("comparing with torch.nn")
        cases = [CASES[name] for name in settings.cases]
        briefly = scaling_cases() if "scaling" in settings.parts else []
        checks = gate.check(cases, settings.cells, briefly)
        results.gate = [one for one in results.gate if one not in checks] + checks
        if results.limits is None:
            tell("measuring the limits of this machine")
            results.limits = machine_peak.measure(settings.threads)
        for _ in _measure_all(settings, results, tell):
            if output is not None:
                results.save(output)
    return results


@contextmanager
def _threads(threads: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _begin(settings: Settings, output: Path | None, resume: bool) -> Results:
    current = conditions.current(settings.threads)
    if INSTRUCTIONS is None:
        raise BenchError("there are no C kernels, so nothing is measured; `parallelrnn doctor` tells what to do")
    if output is None or not output.exists():
        return Results(current)
    if not resume:
        raise BenchError(f"{output} exists; add --resume to go on with it, or give another file")
    results = Results.load(output)
    differences = results.conditions.differences(current)
    if differences:
        raise BenchError(
            f"{output} was measured under other conditions (then, now: {'; '.join(differences)}); "
            "give another file, or restore them"
        )
    return results


def _measure_all(settings: Settings, results: Results, tell: Callable[[str], None]) -> Iterator[None]:
    """Measure one thing after the other; after each, those who save do."""
    cases = [CASES[name] for name in settings.cases]
    if "cases" in settings.parts:
        yield from _measure_part("cases", cases, tuple(CONTENDERS), settings, results, tell)
    if "memory" in settings.parts:
        yield from _measure_memory(cases, settings, results, tell)
    if "scaling" in settings.parts:
        yield from _measure_part("scaling", scaling_cases(), _SCALED, settings, results, tell)


def _measure_part(
    part: str,
    cases: list[Case],
    contenders: tuple[str, ...],
    settings: Settings,
    results: Results,
    tell: Callable[[str], None],
) -> Iterator[None]:
    measurements: list[Measurement] = getattr(results, part)
    for case, cell, kind in product(cases, settings.cells, settings.kinds):
        before = results.find(part, case, cell, kind)
        if before is not None:
            if before.complete and before.rounds >= settings.rounds:
                continue
            measurements.remove(before)
        tell(f"{case.name} {cell} {kind}")
        found = _measure(case, cell, kind, contenders, settings, results)
        for name, taken in found.timings.items():
            if taken.median is None and not why_skipped(name, case, kind):
                tell(f"  no time of {CONTENDERS[name]}: {taken.reason}")
        measurements.append(found)
        yield


def _measure(
    case: Case, cell: str, kind: str, contenders: tuple[str, ...], settings: Settings, results: Results
) -> Measurement:
    POOL.clear()  # what an earlier case needed is not this one's
    torch.manual_seed(0)
    x, grad = make_input(case)
    reasons = {name: why_skipped(name, case, kind) for name in contenders}
    steps = {
        name: make_step(make_layer(name, cell, case), kind, x, grad) for name, reason in reasons.items() if not reason
    }
    timings = timing.measure(steps, settings.rounds, settings.budget)
    timings |= {name: timing.Timing(None, reason=reason) for name, reason in reasons.items() if reason}
    bounds: dict[str, Bound] = {}
    for name in ("blocks", "aggregated"):
        if name in timings and results.limits is not None:
            work = roofline.work(case, cell, kind, aggregated=name == "aggregated")
            seconds, median = work.seconds(results.limits), timings[name].median
            bounds[name] = Bound(seconds, median and median / seconds, **asdict(work))
    return Measurement(case, cell, kind, settings.rounds, timings, bounds)


def _measure_memory(
    cases: list[Case], settings: Settings, results: Results, tell: Callable[[str], None]
) -> Iterator[None]:
    for case, cell, name in product(cases, settings.cells, memory.CONTENDERS):
        before = results.find_memory(name, case, cell)
        if before is not None:
            if before.peak is not None:
                continue
            results.memory.remove(before)
        tell(f"{case.name} {cell} memory of {CONTENDERS[name]}")
        results.memory.append(memory.measure(name, cell, case, settings.threads))
        yield

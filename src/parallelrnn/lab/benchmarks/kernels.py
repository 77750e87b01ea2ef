"""`parallelrnn bench`: our layers beside torch.nn in time and memory, and how close they are to the machine's peak."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import datetime, timezone
from itertools import product
from pathlib import Path
from typing import Any

import torch

from parallelrnn.kernels import machine_peak
from parallelrnn.kernels.library import INSTRUCTIONS
from parallelrnn.kernels.memory import POOL
from parallelrnn.lab.benchmarks import BenchError, gate, roofline, timing
from parallelrnn.lab.benchmarks.cases import (
    CASES,
    CELLS,
    CONTENDERS,
    KINDS,
    SWEEPS,
    Case,
    Settings,
    scaled,
    scaling_cases,
)
from parallelrnn.lab.benchmarks.contenders import make_input, make_layer, make_step, skip_reason
from parallelrnn.lab.benchmarks.measuring import check_same_machine, provenance
from parallelrnn.lab.benchmarks.memory import in_fresh_process, peak_of
from parallelrnn.lab.runs import Run, RunStore
from parallelrnn.lab.tables import Table

NAME = "kernels"
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_OURS = {"blocks": "", "aggregated": ", with aggregate"}  # what rows of speed-ups add to the name of the case
_MEMORY_CONTENDERS = ("torch", *_OURS)
_LETTERS = {"length": "T", "hidden_size": "d", "batch": "B", "block_size": "block_size"}
_IN_DOCUMENT = {"length": (32, 128, 1024), "hidden_size": (32, 512), "batch": (8, 512), "block_size": (1, 4, 8, 16, 32)}


def run(
    settings: Settings,
    output: Path | None = None,
    resume: bool = False,
    report: Callable[[str], None] = lambda line: None,
) -> list[Run]:
    """Measure what `settings` ask for and the folder does not hold yet; return all of it, one run per case.

    `report` is called with a line before each measurement.
    """
    if INSTRUCTIONS is None:
        raise BenchError("there are no C kernels, so nothing is measured", hint="run `parallelrnn doctor`")
    store = None if output is None else RunStore(output)
    about = provenance(settings.threads)
    about["machine"] |= {"dtype": "float32", "huge_pages": _huge_pages(), "load": timing.busy_seconds() is not None}
    earlier = [] if store is None else store.load(NAME)
    if earlier and not resume:
        raise BenchError(f"{output} holds results already", hint="add {resume} to continue them, or change {output}")
    check_same_machine(earlier, about["machine"])
    date = datetime.now(timezone.utc).isoformat(timespec="seconds")
    command = {"date": date, "command": settings.command, "rounds": settings.rounds, "budget": settings.budget}
    runs = {(run.config["part"], run.config["case"]["name"]): run for run in earlier}
    cases = [CASES[name] for name in settings.cases]
    sweeps = scaling_cases() if "scaling" in settings.parts else []
    with _threads(settings.threads):
        report("comparing with torch.nn")
        checks = gate.check(cases, settings.cells, short_only=sweeps)
        if earlier:
            about["machine_peak"] = earlier[0].provenance["machine_peak"]
        else:
            report("measuring the peak rates of this machine")
            about["machine_peak"] = asdict(machine_peak.measure(settings.threads))
        for part, case in [*product(["cases"], cases), *product(["scaling"], sweeps)]:
            config = {"part": part, "case": asdict(case)}
            result: dict[str, Any] = {"times": {}, "memory": {}, "gate": []}
            fresh = Run(experiment=NAME, config=config, seed=0, result=result, provenance={**about, "commands": []})
            current = runs.get((part, case.name), fresh)
            for _ in _measure_case(current, case, settings, report):
                runs[part, case.name] = current
                current.result["gate"] = [asdict(check) for check in checks if _covers(check.case, case)]
                if command not in current.provenance["commands"]:
                    current.provenance["commands"].append(command)
                if store is not None:
                    store.save(current)
    return list(runs.values())


def load(folder: Path) -> list[Run]:
    """Return the runs in a folder; raise if there are none."""
    runs = RunStore(folder).load(NAME)
    if not runs:
        raise BenchError(f"{folder} holds no results of `parallelrnn bench`", hint="give a folder that {output} named")
    return runs


@contextmanager
def _threads(threads: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _huge_pages() -> str:
    if not HUGE_PAGES.exists():
        return "unknown"
    modes = HUGE_PAGES.read_text()  # always [madvise] never
    return modes[modes.find("[") + 1 : modes.find("]")]


def _covers(shape: Case, case: Case) -> bool:
    """Return whether a comparison at some shape was made for this case."""
    return replace(shape, name=case.name, length=case.length, batch=case.batch) == case


def _measure_case(run: Run, case: Case, settings: Settings, report: Callable[[str], None]) -> Iterator[None]:
    """Add what is missing to the run, and yield after each measurement."""
    scaling = run.config["part"] == "scaling"
    contenders = ("torch", "blocks") if scaling else tuple(CONTENDERS)
    peak = machine_peak.MachinePeak(**run.provenance["machine_peak"])
    for cell, kind in product(settings.cells, settings.kinds if scaling or "cases" in settings.parts else ()):
        earlier = run.result["times"].get(f"{cell} {kind}")
        if earlier is None or earlier["rounds"] < settings.rounds or _failures(earlier, case, kind):
            report(f"{case.name} {cell} {kind}")
            measured = _measure(case, cell, kind, contenders, settings, peak)
            run.result["times"][f"{cell} {kind}"] = measured
            for name, reason in _failures(measured, case, kind).items():
                report(f"  no time of {CONTENDERS[name]}: {reason}")
            yield
    for cell, name in product(settings.cells, _MEMORY_CONTENDERS if not scaling and "memory" in settings.parts else ()):
        peaks = run.result["memory"].setdefault(cell, {})
        if name not in peaks:
            report(f"{case.name} {cell} memory of {CONTENDERS[name]}")
            try:
                peaks[name] = in_fresh_process(_take_step, name, cell, case, settings.threads)
            except Exception as error:
                report(f"  the training step failed: {error}")
            yield


def _failures(measured: dict[str, Any], case: Case, kind: str) -> dict[str, str]:
    """Return why contenders that should have a time have none."""
    timings = measured["timings"].items()
    return {
        name: times["reason"] for name, times in timings if not times["median"] and not skip_reason(name, case, kind)
    }


def _measure(
    case: Case, cell: str, kind: str, contenders: Sequence[str], settings: Settings, peak: machine_peak.MachinePeak
) -> dict[str, Any]:
    """Return the times of all contenders for one case, cell and kind, and the lower bounds of ours."""
    POOL.clear()  # memory that an earlier case needed
    torch.manual_seed(0)
    x, grad = make_input(case)
    reasons = {name: skip_reason(name, case, kind) for name in contenders}
    steps = {
        name: make_step(make_layer(name, cell, case), kind, x, grad) for name, reason in reasons.items() if not reason
    }
    timings = timing.measure(steps, settings.rounds, settings.budget)
    timings |= {name: timing.Timing(median=None, reason=reason) for name, reason in reasons.items() if reason}
    bounds = {}
    for name in timings.keys() & _OURS:
        work = roofline.work(case, cell, kind, aggregated=name == "aggregated")
        seconds, median = work.seconds(peak), timings[name].median
        bounds[name] = {"seconds": seconds, "ratio": median and median / seconds, **asdict(work)}
    return {
        "rounds": settings.rounds,
        "timings": {name: asdict(times) for name, times in timings.items()},
        "bounds": bounds,
    }


def _take_step(contender: str, cell: str, case: Case, threads: int) -> int:
    """Return the peak memory of a training step, on top of the layer, its input and the gradient of its output."""
    torch.set_num_threads(threads)
    layer = make_layer(contender, cell, case)
    x, grad = make_input(case)
    # The first step of a process also starts threads and loads code.
    make_step(layer, "training", x[:2], grad[:2]).run()
    step = make_step(layer, "training", x, grad)
    step.prepare()
    return peak_of(step.run)


def tables(runs: Sequence[Run]) -> list[Table]:
    """Return every table that has rows."""
    titles = {
        "Speed-up over torch.nn (our milliseconds)": speedups(runs),
        "Milliseconds, ± half the interquartile range; ours as a multiple of the lower bound": times(runs),
        "Peak memory of a training step in megabytes, without layer and input": memory(runs),
        **{f"Scaling of {kind} around S1: milliseconds of torch.nn / ours": scaling(runs, kind) for kind in KINDS},
    }
    return [replace(table, title=title) for title, table in titles.items() if table.rows]


def speedups(runs: Sequence[Run], leave_out: Sequence[str] = ()) -> Table:
    """Return how many times as fast as torch.nn ours are."""
    rows = []
    for run, kind, (contender, suffix) in product(_part(runs, "cases"), KINDS, _OURS.items()):
        name = f"{_name(run)} {kind}{suffix}"
        pairs = [[_median(run, cell, kind, who) for who in ("torch", contender)] for cell in CELLS]
        cells = [f"{_digits(pair[0] / pair[1])} ({_digits(1e3 * pair[1])} ms)" if all(pair) else "-" for pair in pairs]
        if set(cells) != {"-"} and name not in leave_out:
            rows.append([name, *cells])
    return Table(["", *CELLS], rows)


def readme_table(results: Path) -> Table:
    """Return the speed-ups that the README shows."""
    short = [f"S3-96 {kind}{suffix}" for kind in KINDS for suffix in _OURS.values()]
    return speedups(load(results / "benchmarks"), [*short, *(f"S4 {kind}, with aggregate" for kind in KINDS)])


def times(runs: Sequence[Run]) -> Table:
    """Return every contender's time, and our time as a multiple of the lower bound."""
    rows = []
    for run, cell, kind in product(_part(runs, "cases"), CELLS, KINDS):
        measured = run.result["times"].get(f"{cell} {kind}")
        if measured is not None:
            shown = [measured["timings"].get(name, {}) for name in CONTENDERS]
            texts = [
                f"{_digits(1e3 * t['median'])} ±{50 * t['spread']:.0f}%" if t.get("median") else "-" for t in shown
            ]
            rows.append([f"{_name(run)} {kind} {cell}", *texts, _digits(measured["bounds"]["blocks"]["ratio"])])
    return Table(["", *CONTENDERS.values(), "/ bound"], rows)


def memory(runs: Sequence[Run]) -> Table:
    """Return the peak memory of training steps."""
    rows = []
    for run, cell in product(_part(runs, "cases"), CELLS):
        peaks = [run.result["memory"].get(cell, {}).get(name) for name in _MEMORY_CONTENDERS]
        if any(peaks):
            rows.append([f"{_name(run)} {cell}", *("-" if peak is None else f"{peak / 1e6:.0f}" for peak in peaks)])
    return Table(["", *(CONTENDERS[name] for name in _MEMORY_CONTENDERS)], rows)


def scaling(runs: Sequence[Run], kind: str, sizes: dict[str, tuple[int, ...]] = SWEEPS) -> Table:
    """Return how time grows with each size around S1."""
    by_name = {_name(run): run for run in _part(runs, "scaling")}
    rows = []
    for size, value in ((size, value) for size, values in sizes.items() for value in values):
        run = by_name.get(scaled(size, value).name)
        if run is not None:
            pairs = [[_median(run, cell, kind, name) for name in ("torch", "blocks")] for cell in CELLS]
            texts = [" / ".join(_digits(time and 1e3 * time) for time in pair) if any(pair) else "-" for pair in pairs]
            if set(texts) != {"-"}:
                rows.append([f"{_LETTERS[size]} = {value}", *texts])
    return Table(["", *CELLS], rows)


def scaling_table(results: Path) -> Table:
    """Return the sizes that docs/performance.md shows."""
    return scaling(load(results / "benchmarks"), "training", _IN_DOCUMENT)


def conditions(runs: Sequence[Run]) -> str:
    """Return the conditions of the measurements as a paragraph."""
    machine = runs[0].provenance["machine"]
    dates = sorted({command["date"][:10] for run in runs for command in run.provenance["commands"]})
    timings = [t for run in runs for measured in run.result["times"].values() for t in measured["timings"].values()]
    load = f"windows in which others used more than {timing.MAX_FOREIGN} processors were repeated"
    load += f" ({sum(times['discards'] for times in timings)} were)"
    return (
        f"{machine['processor']}, {machine['threads']} of {machine['cores']} cores, {machine['instruction_set']}, "
        f"{machine['dtype']}; parallelrnn {machine['parallelrnn']}, torch {machine['torch']}, "
        f"numpy {machine['numpy']}, Python {machine['python']}, {machine['system']}; "
        f"huge pages: {machine['huge_pages']}; {', '.join(dates)}. "
        f"Timed alternately; load of other processes: {load if machine['load'] else 'not measured, no /proc/stat'}."
    )


def _part(runs: Sequence[Run], part: str) -> list[Run]:
    """Return the runs of a part, in the order of cases.py."""
    order = [case.name for case in (*CASES.values(), *scaling_cases())]
    return sorted((run for run in runs if run.config["part"] == part), key=lambda run: order.index(_name(run)))


def _name(run: Run) -> str:
    return str(run.config["case"]["name"])


def _median(run: Run, cell: str, kind: str, contender: str) -> Any:
    """Return the median in seconds; None if there is none."""
    timings = run.result["times"].get(f"{cell} {kind}", {}).get("timings", {})
    return timings.get(contender, {}).get("median")


def _digits(number: float | None) -> str:
    """Return three significant digits without an exponent: 0.0123, 1.23, 12.3, 123, 1234."""
    if number is None:
        return "-"
    decimals = 0
    while decimals < 4 and abs(number) * 10**decimals < 100:
        decimals += 1
    return f"{number:.{decimals}f}"

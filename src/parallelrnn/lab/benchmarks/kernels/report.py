"""Results as tables of text, for the terminal and for documents alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from parallelrnn.lab.benchmarks.kernels.cases import CASES, CELLS, KINDS, SWEEPS, Case, scaled
from parallelrnn.lab.benchmarks.kernels.contenders import CONTENDERS
from parallelrnn.lab.benchmarks.kernels.memory import CONTENDERS as MEMORY_CONTENDERS
from parallelrnn.lab.benchmarks.kernels.results import Measurement, Results
from parallelrnn.lab.benchmarks.kernels.timing import Timing

NOTHING = "-"
_SIZES = {"length": "T", "hidden_size": "d", "batch": "B", "block_size": "block_size"}


@dataclass(frozen=True)
class Table:
    """Rows of text under a heading; a text of two lines is one below the other where there is room."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def tables(results: Results) -> list[Table]:
    """Every table that has something in it."""
    every = [ratios(results), times(results), memory(results), *(scaling(results, kind) for kind in KINDS)]
    return [table for table in every if table.rows]


def markdown(results: Results) -> str:
    """All tables for a document, and the conditions in words."""
    return "\n\n".join([*(_as_markdown(table) for table in tables(results)), conditions(results)])


def ratios(results: Results) -> Table:
    """How many times faster ours are than torch.nn: the table of the README."""
    rows = []
    for case in _cases(results.cases):
        for kind in KINDS:
            for contender, suffix in (("blocks", ""), ("aggregated", "\nwith aggregate")):
                cells = tuple(_ratio(results, case, cell, kind, contender) for cell in CELLS)
                if any(text != NOTHING for text in cells):
                    rows.append((f"{case.name} {kind}{suffix}", *cells))
    return Table("Ours beside torch.nn", ("", *CELLS), tuple(rows), "Times as fast as torch.nn (our milliseconds).")


def times(results: Results) -> Table:
    """Every contender's time, and how far ours are from what the machine allows."""
    rows = tuple(
        (
            f"{one.case.name} {one.kind} {one.cell}",
            *(_time(one.timings.get(name)) for name in CONTENDERS),
            _bound(one),
        )
        for one in results.cases
    )
    note = (
        "Milliseconds: median, and half of the range between the quartiles. The last column is our time as a multiple "
        "of the least that arithmetic and memory of this machine allow."
    )
    return Table("Times", ("", *CONTENDERS.values(), "/ bound"), rows, note)


def memory(results: Results) -> Table:
    """The peak of a training step, on top of layer, input and gradient of the output."""
    rows = []
    for case in dict.fromkeys(one.case for one in results.memory):
        for cell in CELLS:
            found = [results.find_memory(contender, case, cell) for contender in MEMORY_CONTENDERS]
            if any(found):
                texts = (NOTHING if one is None or one.peak is None else f"{one.peak / 1e6:.0f}" for one in found)
                rows.append((f"{case.name} {cell}", *texts))
    columns = ("", *(CONTENDERS[name] for name in MEMORY_CONTENDERS))
    return Table("Peak memory of a training step", columns, tuple(rows), "Megabytes, layer and input left out.")


def scaling(results: Results, kind: str) -> Table:
    """How time grows with each size around S1."""
    rows = []
    for size, values in SWEEPS.items():
        for value in values:
            found = [results.find("scaling", scaled(size, value), cell, kind) for cell in CELLS]
            if any(found):
                rows.append((f"{_SIZES[size]} = {value}", *(NOTHING if one is None else _both(one) for one in found)))
    note = "Milliseconds of torch.nn / ours; all sizes but the one named are those of S1."
    return Table(f"Scaling, {kind}", ("", *CELLS), tuple(rows), note)


def conditions(results: Results) -> str:
    """The conditions as a sentence or three."""
    found = results.conditions
    dates = ", ".join(dict.fromkeys(run.date[:10] for run in results.runs))
    return (
        f"{found.processor}, {found.threads} of {found.cores} cores, {found.instruction_set}, {found.dtype}; "
        f"parallelrnn {found.parallelrnn}, torch {found.torch}, numpy {found.numpy}, Python {found.python}, "
        f"{found.system}; huge pages: {found.huge_pages}; {dates}. "
        f"Contenders take turns; load of others: {found.other_load} ({results.discards} were)."
    )


def _as_markdown(table: Table) -> str:
    lines = [table.columns, ("---",) * len(table.columns), *table.rows]
    rows = ["| " + " | ".join(text.replace("\n", ", ") for text in line) + " |" for line in lines]
    return "\n".join([f"**{table.title}.** {table.note}", "", *rows])


def _cases(measurements: list[Measurement]) -> Iterator[Case]:
    """In the order of cases.py."""
    found = dict.fromkeys(one.case for one in measurements)
    yield from sorted(found, key=lambda case: list(CASES).index(case.name) if case.name in CASES else len(CASES))


def _ratio(results: Results, case: Case, cell: str, kind: str, contender: str) -> str:
    one = results.find("cases", case, cell, kind)
    ratio = None if one is None else speedup(one, contender)
    if one is None or ratio is None:
        return NOTHING
    return f"{_digits(ratio)} ({_milliseconds(one.timings[contender].median)} ms)"


def speedup(one: Measurement, contender: str) -> float | None:
    """torch.nn's time in units of the contender's."""
    theirs, ours = (one.timings[name].median if name in one.timings else None for name in ("torch", contender))
    return theirs / ours if theirs and ours else None


def _time(timing: Timing | None) -> str:
    if timing is None or timing.median is None or timing.spread is None:
        return NOTHING
    return f"{_milliseconds(timing.median)} ±{50 * timing.spread:.0f}%"


def _bound(one: Measurement) -> str:
    bound = one.bounds.get("blocks")
    return NOTHING if bound is None or bound.ratio is None else _digits(bound.ratio)


def _both(one: Measurement) -> str:
    return " / ".join(_milliseconds(one.timings[name].median) for name in ("torch", "blocks"))


def _milliseconds(seconds: float | None) -> str:
    return NOTHING if seconds is None else _digits(1e3 * seconds)


def _digits(number: float) -> str:
    """Three digits that count, and never an exponent: 0.0123, 1.23, 12.3, 123, 1234."""
    decimals = 0
    while decimals < 4 and abs(number) * 10**decimals < 100:
        decimals += 1
    return f"{number:.{decimals}f}"

"""The commands: their options, what they print, and their exit status."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console

from parallelrnn.cli import demo as demonstration
from parallelrnn.cli import doctor as diagnosis
from parallelrnn.cli import forecasting, reproduce
from parallelrnn.cli.refusals import refusals
from parallelrnn.lab.benchmarks import BenchError, kernels
from parallelrnn.lab.benchmarks import cases as known
from parallelrnn.lab.benchmarks.cases import Settings
from parallelrnn.lab.runs import Run

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
for command in (forecasting.fit, forecasting.forecast, forecasting.explain, forecasting.evaluate):
    app.command()(command)
app.add_typer(reproduce.app, name="reproduce")


def _tell_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"parallelrnn {version('parallelrnn')}")
        raise typer.Exit


@app.callback()
def _describe(
    _: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_tell_version, is_eager=True)
    ] = False,
) -> None:
    """Recurrent layers made of small blocks that run side by side and can be read."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="A file for the page about it.")] = Path("sunspots.html"),
) -> None:
    """Forecast the sunspots, say what the forecast is made of, and write a page about it; half a minute.

    Example: parallelrnn demo --out sunspots.html
    """
    with refusals():
        demonstration.run(out)


@app.command()
def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")] = False) -> None:
    """Say what computes recurrences here, why, and whether it is right; exit 0 if the fast kernels run.

    Example: parallelrnn doctor --json
    """
    found = diagnosis.diagnose()
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=1))
    else:
        console = Console(highlight=False)
        for line, good in diagnosis.lines(found):
            console.print(line, style=None if good else "yellow", markup=False, soft_wrap=True)
    raise typer.Exit(0 if found.healthy else 1)


@app.command()
def bench(
    cases: Annotated[str, typer.Option(help="Some of these, separated by commas.")] = ",".join(known.CASES),
    cells: Annotated[str, typer.Option(help="Some of these.")] = ",".join(known.CELLS),
    kinds: Annotated[str, typer.Option(help="Some of these.")] = ",".join(known.KINDS),
    parts: Annotated[str, typer.Option(help="Some of these.")] = ",".join(known.PARTS),
    threads: Annotated[int | None, typer.Option(min=1, help="Threads; torch's own number if not given.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Turns that each contender gets, at most.")] = Settings.rounds,
    budget: Annotated[float, typer.Option(min=0, help="Seconds for one case, cell and kind.")] = Settings.budget,
    quick: Annotated[bool, typer.Option("--quick", help="Three rounds of S1 and S3, no more.")] = False,
    output: Annotated[Path | None, typer.Option(help="A folder for all numbers, one JSON file per case.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume what that folder holds.")] = False,
    markdown: Annotated[Path | None, typer.Option(help="Measure nothing; print the tables of this folder.")] = None,
) -> None:
    """Compare ours with torch.nn in time and memory, after checking that they compute the same.

    Contenders take turns in one process. Windows of time in which other processes were at work are taken again.

    Example: parallelrnn bench --quick --output numbers
    """
    if markdown is not None:
        with refusals((BenchError,)):
            runs = kernels.load(markdown)
            typer.echo("\n\n".join([*(table.markdown() for table in kernels.tables(runs)), kernels.conditions(runs)]))
        return
    if resume and output is None:
        raise typer.BadParameter("--resume continues what a folder holds; name it with --output")
    settings = Settings(
        cases=known.QUICK if quick else _chosen("--cases", cases, known.CASES),
        cells=_chosen("--cells", cells, known.CELLS),
        kinds=_chosen("--kinds", kinds, known.KINDS),
        parts=("cases",) if quick else _chosen("--parts", parts, known.PARTS),
        threads=threads or torch.get_num_threads(),
        rounds=3 if quick else rounds,
        budget=budget,
        command=_command(output),
    )
    progress = Console(stderr=True, highlight=False)
    with refusals((BenchError,)):
        _show(kernels.run(settings, output, resume, report=lambda line: progress.print(line, markup=False)))


def _command(output: Path | None) -> str:
    """What was typed, but for the place of the file on this machine."""
    words = ["parallelrnn", *sys.argv[1:]]
    if output is not None:
        for index, word in enumerate(words):
            option, _, value = word.rpartition("=")
            if Path(value) == output:
                words[index] = f"{option}={output.name}" if option else output.name
    return shlex.join(words)


def _chosen(option: str, text: str, names: Iterable[str]) -> tuple[str, ...]:
    """Names separated by commas, in the order of those that there are."""
    wanted = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in names]
    if unknown or not wanted:
        got = ", ".join(unknown) if unknown else "nothing"
        raise typer.BadParameter(f"{option} takes some of {', '.join(names)}, separated by commas; got {got}")
    return tuple(name for name in names if name in wanted)


def _show(runs: list[Run]) -> None:
    console = Console(highlight=False)
    for table in kernels.tables(runs):
        console.print(table.rich())
    console.print(kernels.conditions(runs), markup=False)

"""The command line. Commands import what they need when they run, so that help and usage errors come at once."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from parallelrnn.cli import forecasting, reproduce
from parallelrnn.cli.errors import Group, exit_on_error
from parallelrnn.cli.forecasting import setting
from parallelrnn.lab.benchmarks.cases import CASES, CELLS, KINDS, PARTS, QUICK, Settings

# Rich help would take longer to import than all else that help needs.
app = typer.Typer(
    cls=Group, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None
)
for command in (forecasting.fit, forecasting.forecast, forecasting.explain, forecasting.evaluate):
    app.command()(command)
app.add_typer(reproduce.app, name="reproduce")


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"parallelrnn {version('parallelrnn')}")
        raise typer.Exit


@app.callback()
def _describe(
    _: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Forecast time series with recurrent networks that are made of small, interpretable blocks."""


@app.command()
def demo(out: Annotated[Path, setting("--out", "FILE", "File for the HTML report.")] = Path("sunspots.html")) -> None:
    """Forecast sunspots and write a report, in half a minute.

    Example: parallelrnn demo --out sunspots.html
    """
    with exit_on_error("demo"):
        from parallelrnn.cli.demo import run

        run(out)


@app.command()
def doctor(as_json: forecasting.AsJson = False) -> None:
    """Show which kernels run on this machine and check them.

    The exit status is 0 if the fast kernels run and are correct, else 1.

    Example: parallelrnn doctor --json
    """
    from parallelrnn.cli.doctor import diagnose, lines

    facts = diagnose()
    if as_json:
        typer.echo(json.dumps(facts, indent=1))
    else:
        for line, good in lines(facts):
            typer.secho(line, fg=None if good else "yellow")
    raise typer.Exit(0 if facts["healthy"] else 1)


@app.command()
def bench(
    cases: Annotated[str, setting("--cases", "A,B", "Shapes to measure, separated by commas.")] = ",".join(CASES),
    cells: Annotated[str, setting("--cells", "A,B", "Cells to measure.")] = ",".join(CELLS),
    kinds: Annotated[str, setting("--kinds", "A,B", "What to time.")] = ",".join(KINDS),
    parts: Annotated[str, setting("--parts", "A,B", "What to compare.")] = ",".join(PARTS),
    threads: Annotated[int | None, setting("--threads", "N", "Threads; torch's default if omitted.", min=1)] = None,
    rounds: Annotated[int, setting("--rounds", "N", "Maximum rounds per implementation.", min=1)] = Settings.rounds,
    budget: Annotated[float, setting("--budget", "SECONDS", "Time per case, cell and kind.", min=0)] = Settings.budget,
    quick: Annotated[bool, typer.Option("--quick", help="Only three rounds of S1 and S3.")] = False,
    output: Annotated[Path | None, setting("--output", "DIR", "Folder for results, one JSON file per case.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the measurements in --output.")] = False,
    markdown: Annotated[Path | None, setting("--markdown", "DIR", "Print this folder's tables; time nothing.")] = None,
) -> None:
    """Compare the layers with torch.nn in time and memory.

    Nothing is timed until the results agree. Implementations are timed alternately in one process, and measurements
    that other processes disturbed are repeated.

    Example: parallelrnn bench --quick --output numbers
    """
    if resume and output is None:
        raise typer.BadParameter("--resume needs --output, the folder to continue")
    choices = {
        "cases": QUICK if quick else _choose("--cases", cases, CASES),
        "cells": _choose("--cells", cells, CELLS),
        "kinds": _choose("--kinds", kinds, KINDS),
        "parts": ("cases",) if quick else _choose("--parts", parts, PARTS),
    }
    import torch
    from rich.console import Console

    from parallelrnn.lab.benchmarks import kernels

    with exit_on_error("bench"):
        if markdown is not None:
            runs = kernels.load(markdown)
            typer.echo("\n\n".join([*(table.markdown() for table in kernels.tables(runs)), kernels.conditions(runs)]))
            return
        paths = {str(output): output.name, f"--output={output}": f"--output={output.name}"} if output else {}
        words = [paths.get(word, word) for word in sys.argv[1:]]  # without the path of the output on this machine
        settings = Settings(
            **choices,
            threads=threads or torch.get_num_threads(),
            rounds=3 if quick else rounds,
            budget=budget,
            command=shlex.join(["parallelrnn", *words]),
        )
        runs = kernels.run(settings, output, resume, report=lambda line: typer.echo(line, err=True))
        console = Console(highlight=False)
        for table in kernels.tables(runs):
            console.print(table.rich())
        console.print(kernels.conditions(runs), markup=False)


def _choose(option: str, text: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return the names in a list separated by commas, in the order of `names`."""
    chosen = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in chosen if name not in names]
    if unknown or not chosen:
        got = ", ".join(unknown) or "nothing"
        raise typer.BadParameter(f"{option}: expected some of {', '.join(names)}, separated by commas; got {got}")
    return tuple(name for name in names if name in chosen)

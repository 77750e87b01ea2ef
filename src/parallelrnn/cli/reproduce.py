"""`parallelrnn reproduce`: run the experiments of the paper, see how far they are, and read their tables."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from parallelrnn.cli.refusals import refusals
from parallelrnn.experiments.engines import Event
from parallelrnn.experiments.experiment import Experiment, ExperimentError
from parallelrnn.experiments.registry import EXPERIMENTS
from parallelrnn.experiments.runner import Grid, run, seconds_of
from parallelrnn.experiments.store import Store
from parallelrnn.experiments.training import progress_of
from parallelrnn.files import write_text

app = typer.Typer(
    no_args_is_help=True, help="Run the experiments of the paper (arXiv 2605.02692), and read their tables."
)

Results = Annotated[Path, typer.Option("--results", help="The folder of results; what is there is not run again.")]


def _command(experiment: Experiment) -> Callable[..., None]:
    names = [one.name for one in dataclasses.fields(experiment.config)]

    def command(
        models: Annotated[str | None, typer.Option(help="Some models, separated by commas.")] = None,
        datasets: Annotated[str | None, typer.Option(help="Some data sets, separated by commas.")] = None,
        only: Annotated[list[str] | None, typer.Option(help="Cells with these values: horizon=24,48 say.")] = None,
        changes: Annotated[list[str] | None, typer.Option("--set", help="Another value: max_epochs=5 say.")] = None,
        replicates: Annotated[int | None, typer.Option(min=1, help="Runs of each cell; the paper's number.")] = None,
        budget: Annotated[str | None, typer.Option(help="Stop after 90s, 45m, 2h or 1h30m, and go on later.")] = None,
        workers: Annotated[int, typer.Option(min=1, help="Processes, or jobs at once on a cluster.")] = 1,
        threads: Annotated[int | None, typer.Option(min=1, help="Of each worker; the cores, shared out.")] = None,
        engine: Annotated[str, typer.Option(help="local: processes; here: this one; ray: a cluster.")] = "local",
        keep_every: Annotated[str, typer.Option(help="How often training is kept, to go on with.")] = "60s",
        results: Results = Path("results"),
    ) -> None:
        with refusals():
            chosen = _pairs("--only", only)
            chosen |= {name: text for name, text in (("model", models), ("dataset", datasets)) if text is not None}
            wanted = {name: [value.strip() for value in text.split(",")] for name, text in chosen.items()}
            jobs = experiment.jobs(wanted, _pairs("--set", changes), replicates)
            seconds = None if budget is None else seconds_of(budget)
            with _Progress(experiment) as tell:
                grid = run(
                    jobs,
                    results,
                    workers=workers,
                    threads=threads,
                    budget=seconds,
                    engine=engine,
                    every=seconds_of(keep_every),
                    tell=tell,
                )
            _sum_up(grid)

    command.__doc__ = (
        f"{experiment.of}.\n\nEvery result is kept as it comes, and training goes on where it was cut off. "
        f"What can be chosen by --only and changed by --set: {', '.join(names)}.\n\n"
        f"Example: parallelrnn reproduce {experiment.name} --replicates 3 --budget 2h"
    )
    return command


for _experiment in EXPERIMENTS.values():
    app.command(_experiment.name)(_command(_experiment))


@app.command()
def status(results: Results = Path("results")) -> None:
    """How many runs of each experiment there are, and which were begun.

    Example: parallelrnn reproduce status
    """
    table = Table("experiment", "of the paper", "cells run", "runs", "begun", box=box.SIMPLE_HEAD)
    store = Store(results)
    console = Console(highlight=False)
    with refusals():
        for experiment in EXPERIMENTS.values():
            lines = store.lines(experiment.name)
            begun = sorted((results / ".checkpoints").glob(f"{experiment.name}-*/training.safetensors"))
            cells = {_cell(line["config"], experiment) for line in lines}
            table.add_row(
                experiment.name,
                experiment.of.partition(":")[0],
                f"{len(cells & _all_cells(experiment))} of {len(_all_cells(experiment))}",
                str(len(lines)),
                "; ".join(_how_far(path.parent) for path in begun),
            )
    console.print(table)


def _pairs(option: str, texts: list[str] | None) -> dict[str, str]:
    found = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not equals or not value:
            raise ExperimentError(f"{option} takes name=value, got {text!r}")
        found[name.strip()] = value.strip()
    return found


class _Progress:
    """A bar over the whole grid with the time left, and a line for each job that ends."""

    def __init__(self, experiment: Experiment) -> None:
        self._console = Console(stderr=True, highlight=False)
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[told]}"))
        self._bar = Progress(*columns, console=self._console, transient=True)
        self._task = self._bar.add_task(experiment.name, total=1.0, told="")

    def __enter__(self) -> Callable[[Grid, Event], None]:
        self._bar.start()
        return self._tell

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def _tell(self, grid: Grid, event: Event) -> None:
        left = grid.seconds_left
        told = f"{len(grid.done)} of {len(grid.jobs)} runs" + ("" if left is None else f", {_time(left)} left")
        self._bar.update(self._task, completed=grid.part_done, told=told)
        if event.kind == "done" and event.line is not None:
            found = {name: value for name, value in event.line["metrics"].items() if name in _SHOWN}
            words = ", ".join(f"{name} {value:.4g}" for name, value in found.items())
            self._console.print(f"{event.job}: {words} ({_time(grid.done[event.job.key])})", markup=False)
        elif event.kind == "taken":
            self._console.print(f"{event.job}: another process is at it", markup=False)
        elif event.kind == "failed":
            self._console.print(f"{event.job}: {event.problem}", markup=False, style="red")


_SHOWN = ("mse", "mae", "accuracy", "distance", "epochs", "2 total median", "torch.nn.RNN total median")


def _sum_up(grid: Grid) -> None:
    missing = len(grid.jobs) - len(grid.done) - len(grid.problems)
    parts = [f"{len(grid.done)} of {len(grid.jobs)} runs are there"]
    if missing:
        parts.append(f"{missing} are not yet; the same command goes on with them")
    if grid.problems:
        parts.append(f"{len(grid.problems)} failed")
    typer.echo("; ".join(parts) + ".")
    if grid.problems:
        raise typer.Exit(1)


def _how_far(path: Path) -> str:
    from parallelrnn.experiments.experiment import Workspace

    try:
        found = progress_of(Workspace(path))
    except ExperimentError:
        return "a checkpoint that is not whole"
    return "-" if found is None else f"epoch {found.epoch + 1}, step {found.step}"


def _time(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{seconds:.0f} s" if seconds < 100 else f"{minutes} min" if minutes < 100 else f"{seconds / 3600:.1f} h"


def _cell(config: dict[str, Any], experiment: Experiment) -> str:
    """The names of a cell, whatever its budget."""
    return " ".join(str(config.get(name)) for name in _names(experiment))


def _names(experiment: Experiment) -> list[str]:
    """What tells the cells of an experiment apart."""
    rows = [dataclasses.asdict(cell) for cell in experiment.cells()]
    return [name for name in rows[0] if len({str(row[name]) for row in rows}) > 1]


def _all_cells(experiment: Experiment) -> set[str]:
    return {_cell(dataclasses.asdict(cell), experiment) for cell in experiment.cells()}


@app.command()
def tables(
    results: Results = Path("results"),
    out: Annotated[Path | None, typer.Option(help="A Markdown file to write; printed if not given.")] = None,
    figures: Annotated[Path | None, typer.Option(help="A folder to draw figures into.")] = None,
    claims: Annotated[Path | None, typer.Option(help="A page whose table of claims to renew.")] = None,
) -> None:
    """Tables of all results so far in Markdown, the paper's numbers beside ours; and figures.

    Example: parallelrnn reproduce tables --out results.md --figures figures
    """
    from parallelrnn.experiments.figures import draw
    from parallelrnn.experiments.tables import document, renew_claims

    with refusals():
        store = Store(results)
        lines = {name: store.lines(name) for name in EXPERIMENTS}
        if not any(lines.values()):
            raise ExperimentError(f"there are no results in {results}; run an experiment first, or name another folder")
        pictures: dict[str, list[str]] = {}
        if figures is not None:
            figures.mkdir(parents=True, exist_ok=True)
            for name, experiment in EXPERIMENTS.items():
                drawn = draw(experiment, lines[name], figures)
                pictures[name] = [_address(path, out) for path in drawn]
        text = document(lines, pictures)
        if out is None:
            typer.echo(text)
        else:
            write_text(out, text)
        if claims is not None:
            write_text(claims, renew_claims(claims.read_text(encoding="utf-8"), lines))


def _address(picture: Path, page: Path | None) -> str:
    """Of a picture as a page names it; one that is printed is read here."""
    return Path(os.path.relpath(picture, Path() if page is None else page.parent)).as_posix()

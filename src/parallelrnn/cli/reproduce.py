"""`parallelrnn reproduce`: run the experiments of the paper, see how far they are, and read their tables."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from parallelrnn.cli.doctor import EXTRAS
from parallelrnn.cli.refusals import refusals
from parallelrnn.errors import CheckpointError
from parallelrnn.io import write_text
from parallelrnn.lab.experiments.experiment import Experiment, ExperimentError
from parallelrnn.lab.experiments.registry import EXPERIMENTS
from parallelrnn.lab.picking import pick
from parallelrnn.lab.running.engines import Event
from parallelrnn.lab.running.runner import Grid, run, seconds_of
from parallelrnn.lab.running.store import Store
from parallelrnn.training.checkpoint import FILE, saved_progress

app = typer.Typer(
    no_args_is_help=True, help="Run the experiments of the paper (arXiv 2605.02692), and read their tables."
)

Results = Annotated[Path, typer.Option("--results", help="The folder of results; what is there is not run again.")]


def _command(experiment: Experiment) -> Callable[..., None]:
    names = [one.name for one in dataclasses.fields(experiment.config)]
    some_models = typer.Option(None, help="Some models, separated by commas.", hidden="model" not in names)
    some_datasets = typer.Option(None, help="Some data sets, separated by commas.", hidden="dataset" not in names)

    def command(
        models: str | None = some_models,
        datasets: str | None = some_datasets,
        only: Annotated[list[str] | None, typer.Option(help="Cells with these values: name=value,value.")] = None,
        changes: Annotated[list[str] | None, typer.Option("--set", help="Another value: name=value.")] = None,
        replicates: Annotated[int | None, typer.Option(min=1, help="Runs of each cell; the paper's number.")] = None,
        budget: Annotated[str | None, typer.Option(help="Stop after 90s, 45m, 2h or 1h30m, and go on later.")] = None,
        workers: Annotated[int, typer.Option(min=1, help="Processes, or jobs at once on a cluster.")] = 1,
        threads: Annotated[
            int | None, typer.Option(min=1, help="Of each worker; OMP_NUM_THREADS, or the cores shared out.")
        ] = None,
        engine: Annotated[str, typer.Option(help="local: processes; here: this one; ray: a cluster.")] = "local",
        keep_every: Annotated[str, typer.Option(help="How often training is kept, to go on with.")] = "60s",
        results: Results = Path("results"),
    ) -> None:
        with refusals():
            chosen = {
                name: [value.strip() for value in ",".join(texts).split(",")] for name, texts in _pairs("--only", only)
            }
            for name, text in (("model", models), ("dataset", datasets)):
                if text is not None:
                    chosen[name] = [value.strip() for value in text.split(",")]
            changed = {name: texts[-1] for name, texts in _pairs("--set", changes)}
            jobs = experiment.jobs(chosen, changed, replicates)
            _check_installed()
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

    command.__doc__ = _help(experiment)
    return command


def _check_installed() -> None:
    """Before hundreds of runs end with the same sentence."""
    missing = next((name for name in EXTRAS["datasets"] if find_spec(name) is None), None)
    if missing is not None:
        raise ExperimentError(
            f"reproduce needs {missing}, which is not installed: pip install 'parallelrnn[reproduce]'"
        )


def _help(experiment: Experiment) -> str:
    """What it is of, what its cells are, and what can be changed."""
    rows = [dataclasses.asdict(cell) for cell in experiment.cells()]
    values = {name: list(dict.fromkeys(str(row[name]) for row in rows)) for name in rows[0]}
    cells = "; ".join(f"{name} {', '.join(some)}" for name, some in values.items() if len(some) > 1)
    others = ", ".join(f"{name} {some[0]}" for name, some in values.items() if len(some) == 1)
    times = f"{experiment.replicates} replicates" if experiment.replicates > 1 else "one replicate"
    return (
        f"{experiment.of.removesuffix('?')}.\n\nEvery result is kept as it comes; what is cut off, by Ctrl-C too, goes "
        "on with the same command. The status is 0 if all runs are there, 75 if not yet, 1 if some failed, 2 or 3 if "
        "what was asked for cannot be.\n\n"
        + (f"Cells, to choose by --only: {cells}; {times}.\n\n" if cells else "")
        + f"Values, to change by --set: {others}.\n\n"
        f"Example: parallelrnn reproduce {experiment.name} --replicates 3 --budget 2h"
    )


for _experiment in EXPERIMENTS.values():
    app.command(_experiment.name)(_command(_experiment))


@app.command()
def status(results: Results = Path("results")) -> None:
    """How many runs of each experiment there are, and which were begun.

    Example: parallelrnn reproduce status
    """
    table = Table("experiment", "of the paper", "cells run", "runs", "begun", box=box.SIMPLE_HEAD)
    table.columns[0].no_wrap = True
    store, console, lines_of_begun = Store(results), Console(highlight=False), []
    unread: list[ExperimentError] = []
    with refusals():
        if not results.is_dir():
            raise ExperimentError(f"there is no folder {results}; run an experiment first, or name another folder")
        for experiment in EXPERIMENTS.values():
            begun = sorted((results / ".checkpoints").glob(f"{experiment.name}-*/training.safetensors"))
            cells, runs = "cannot be read", "-"
            try:
                lines = store.lines(experiment.name)
                picked = pick(experiment, lines)
                cells, runs = f"{len(picked.runs)} of {len(picked.cells)}", str(len({line["key"] for line in lines}))
            except ExperimentError as error:
                unread.append(error)
            table.add_row(experiment.name, experiment.of.partition(":")[0], cells, runs, str(len(begun)))
            lines_of_begun += [f"begun: {experiment.name}, {_how_far(path.parent)}" for path in begun]
        console.print(table)
        for line in lines_of_begun:
            console.print(line, markup=False, soft_wrap=True)
        if unread:
            raise ExperimentError("\n".join(map(str, unread)))


def _pairs(option: str, texts: list[str] | None) -> list[tuple[str, list[str]]]:
    """Names and what was given for each; one that is given twice has both."""
    found: dict[str, list[str]] = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not equals or not value:
            raise ExperimentError(f"{option} takes name=value, got {text!r}")
        found.setdefault(name.strip(), []).append(value.strip())
    return list(found.items())


class _Progress:
    """A bar over the whole grid with the time left, and a line for each job that ends."""

    def __init__(self, experiment: Experiment) -> None:
        self._console = Console(stderr=True, highlight=False)
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[told]}"))
        self._bar = Progress(*columns, console=self._console, transient=True)
        self._task = self._bar.add_task(experiment.name, total=1.0, told="")
        self._told = time.monotonic()

    def __enter__(self) -> Callable[[Grid, Event], None]:
        self._bar.start()
        return self._tell

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def _tell(self, grid: Grid, event: Event) -> None:
        left = grid.seconds_left
        told = f"{len(grid.done)} of {len(grid.jobs)} runs" + ("" if left is None else f", {_time(left)} left")
        self._bar.update(self._task, completed=grid.part_done, told=told)
        if not self._console.is_terminal and time.monotonic() - self._told >= _TELL_EVERY:
            self._told = time.monotonic()
            self._say(f"{grid.part_done:.0%} done: {told}")
        if event.kind == "done" and event.line is not None:
            found = {name: value for name, value in event.line["metrics"].items() if name in _SHOWN}
            words = ", ".join(f"{name} {value:.4g}" for name, value in found.items())
            self._say(f"{event.job}: {words} ({_time(grid.done[event.job.key])})")
        elif event.kind == "taken":
            self._say(f"{event.job}: another process is at it")
        elif event.kind == "failed":
            self._say(f"{event.job}: {event.problem}", style="red")

    def _say(self, text: str, style: str | None = None) -> None:
        """A line, whole in a log too."""
        self._console.print(text, markup=False, soft_wrap=True, style=style)


_TELL_EVERY = 60.0  # seconds, where no bar is shown
_SHOWN = ("mse", "mae", "accuracy", "distance", "epochs", "2 total median", "torch.nn.RNN total median")


def _sum_up(grid: Grid) -> None:
    missing = len(grid.jobs) - len(grid.done) - len(grid.problems)
    parts = [f"runs that are there: {len(grid.done)} of {len(grid.jobs)}"]
    if missing:
        parts.append(f"not yet: {missing}, and the same command goes on with them")
    if grid.problems:
        parts.append(f"failed: {len(grid.problems)}")
    typer.echo("; ".join(parts))
    if missing or grid.problems:
        raise typer.Exit(1 if grid.problems else 75)  # 75: the convention for "try again"


def _how_far(path: Path) -> str:
    try:
        found = saved_progress(path / FILE)
    except CheckpointError:
        return "a checkpoint that is not whole"
    lock = path / "lock"
    job = lock.read_text(encoding="utf-8").partition("\n")[2].strip() if lock.exists() else ""
    where = "" if found is None else f"epoch {found['epoch'] + 1}, step {found['step']}"
    return ": ".join(part for part in (job, where) if part)


def _time(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{seconds:.0f} s" if seconds < 100 else f"{minutes} min" if minutes < 100 else f"{seconds / 3600:.1f} h"


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
    from parallelrnn.lab.document import document, renew_claims
    from parallelrnn.lab.figures import draw

    with refusals():
        store = Store(results)
        lines = {name: store.lines(name) for name in EXPERIMENTS}
        if not any(lines.values()):
            raise ExperimentError(f"there are no results in {results}; run an experiment first, or name another folder")
        page = None if claims is None else renew_claims(_page(claims), lines)  # refused before anything is written
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
        if claims is not None and page is not None:
            write_text(claims, page)


def _page(file: Path) -> str:
    """A page whose table of claims is to be renewed."""
    if not file.exists():
        raise ExperimentError(f"there is no page {file} whose table of claims could be renewed; --out writes a new one")
    return file.read_text(encoding="utf-8")


def _address(picture: Path, page: Path | None) -> str:
    """Of a picture as a page names it; one that is printed is read here."""
    return Path(os.path.relpath(picture, Path() if page is None else page.parent)).as_posix()

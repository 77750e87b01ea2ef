"""`parallelrnn reproduce`: run the experiments of the paper, see how far they are, and show their results."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parallelrnn.cli.errors import exit_on_error
from parallelrnn.cli.forecasting import setting
from parallelrnn.errors import MissingPackageError
from parallelrnn.lab.experiments.experiment import ExperimentError
from parallelrnn.lab.experiments.registry import EXPERIMENTS, TITLES

if TYPE_CHECKING:
    from parallelrnn.lab.executors import Event, Progress

_HELP = "Run the experiments of the paper (arXiv 2605.02692)."
app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help=_HELP)

Results = Annotated[Path, setting("--results", "DIR", "Folder of results.")]
_SHOWN_METRICS = ("mse", "mae", "accuracy", "distance", "epochs", "2 total median", "torch.nn.RNN total median")
_REPORT_SECONDS = 60.0  # between lines of progress where no bar is shown
_TRY_AGAIN = 75  # the conventional exit status for "not yet"


def _command(name: str) -> Callable[..., None]:
    def command(
        models: Annotated[str | None, setting("--models", "A,B", "Short for --only model=A,B.")] = None,
        datasets: Annotated[str | None, setting("--datasets", "A,B", "Short for --only dataset=A,B.")] = None,
        only: Annotated[list[str] | None, setting("--only", "NAME=A,B", "Run only these table entries.")] = None,
        changes: Annotated[list[str] | None, setting("--set", "NAME=VALUE", "Change a configuration value.")] = None,
        replicates: Annotated[
            int | None, setting("--replicates", "N", "Runs per table entry; the paper's number if omitted.", min=1)
        ] = None,
        budget: Annotated[
            str | None, setting("--budget", "TIME", "Stop after 90s, 45m, 2h or 1h30m; the same command continues.")
        ] = None,
        workers: Annotated[int, setting("--workers", "N", "Processes, or jobs at once on a cluster.", min=1)] = 1,
        threads: Annotated[
            int | None,
            setting("--threads", "N", "Threads per worker; OMP_NUM_THREADS or a share of the cores if omitted.", min=1),
        ] = None,
        engine: Annotated[str, setting("--engine", "NAME", "local (processes), here (this process) or ray.")] = "local",
        keep_every: Annotated[str, setting("--keep-every", "TIME", "Time between checkpoints.")] = "60s",
        results: Results = Path("results"),
        show: Annotated[bool, typer.Option("--list", help="List the table entries and values to choose from.")] = False,
    ) -> None:
        if show:
            typer.echo(_choices(name))
            return
        chosen = {key: ",".join(texts) for key, texts in _parse_pairs("--only", only).items()}
        short = {key: text for key, text in (("model", models), ("dataset", datasets)) if text is not None}
        values = {key: [value.strip() for value in text.split(",")] for key, text in (chosen | short).items()}
        changed = {key: texts[-1] for key, texts in _parse_pairs("--set", changes).items()}
        with exit_on_error(name):
            from parallelrnn.cli import doctor
            from parallelrnn.lab.executors import parse_duration, run_jobs

            jobs = EXPERIMENTS[name].jobs(values, changed, replicates, {key: f"{key}s" for key in short})
            seconds = float("inf") if budget is None else parse_duration("budget", budget)
            checkpoint_every = parse_duration("keep_every", keep_every)
            if lacking := doctor.missing_packages().get("lab"):  # before hundreds of runs fail for the same reason
                problem = f"reproduce needs {lacking[0]}, which is not installed"
                raise MissingPackageError(problem, hint="pip install 'parallelrnn[lab]'")
            with _ProgressBar(name) as on_event:
                progress = run_jobs(
                    jobs,
                    results,
                    workers=workers,
                    threads=threads,
                    budget=seconds,
                    engine=engine,
                    checkpoint_every=checkpoint_every,
                    on_event=on_event,
                )
        missing = len(jobs) - len(progress.done) - len(progress.problems)
        summary = [f"runs done: {len(progress.done)} of {len(jobs)}"]
        summary += [f"not yet: {missing}; the same command continues"] if missing else []
        summary += [f"failed: {len(progress.problems)}"] if progress.problems else []
        typer.echo("; ".join(summary))
        if missing or progress.problems:
            raise typer.Exit(1 if progress.problems else _TRY_AGAIN)

    command.__doc__ = (
        f"{TITLES[name]}.\n\nThe same command resumes interrupted runs and skips finished ones. "
        "The exit status is 0 if all runs are done, 75 if not yet, 1 if some failed, 2 or 3 if the request is "
        f"invalid.\n\nExample: parallelrnn reproduce {name} --replicates 3 --budget 2h"
    )
    return command


def _choices(name: str) -> str:
    experiment = EXPERIMENTS[name]
    cells = [asdict(cell) for cell in experiment.cells()]
    values = {key: list(dict.fromkeys(str(cell[key]) for cell in cells)) for key in cells[0]}
    chosen = [f"  {key}: {', '.join(texts)}" for key, texts in values.items() if len(texts) > 1]
    fixed = [f"  {key}: {texts[0]}" for key, texts in values.items() if len(texts) == 1]
    replicates = f"{experiment.replicates} replicate{'s' if experiment.replicates > 1 else ''}"
    return "\n".join([f"entries, chosen by --only ({replicates} each):", *chosen, "values, changed by --set:", *fixed])


for _name in TITLES:
    app.command(_name, short_help=f"{TITLES[_name]}.")(_command(_name))


def _parse_pairs(option: str, texts: list[str] | None) -> dict[str, list[str]]:
    pairs: dict[str, list[str]] = {}
    for text in texts or []:
        name, _, value = text.partition("=")
        if not value:
            raise typer.BadParameter(f"{option}: expected name=value, got {text!r}")
        pairs.setdefault(name.strip(), []).append(value.strip())
    return pairs


class _ProgressBar:
    """A bar over all jobs with the time left, and a line for each job that ends."""

    def __init__(self, name: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as RichProgress

        self._console = Console(stderr=True, highlight=False)
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[status]}"))
        self._bar = RichProgress(*columns, console=self._console, transient=True)
        self._task = self._bar.add_task(name, total=1.0, status="")
        self._reported = time.monotonic()

    def __enter__(self) -> Callable[[Progress, Event], None]:
        self._bar.live.start(refresh=True)
        return self._on_event

    def __exit__(self, *_: object) -> None:
        self._bar.live.stop()  # the stop of the bar itself prints an empty line into a file

    def _on_event(self, progress: Progress, event: Event) -> None:
        left, done = progress.seconds_left, progress.work_done / len(progress.jobs)
        status = f"{len(progress.done)} of {len(progress.jobs)} runs"
        status += "" if left is None else f", {_duration(left)} left"
        self._bar.update(self._task, completed=done, status=status)
        if not self._console.is_terminal and time.monotonic() - self._reported >= _REPORT_SECONDS:
            self._reported = time.monotonic()
            self._print(f"{done:.0%} done: {status}")
        if event.kind == "done" and event.run is not None:
            metrics = event.run.result["metrics"]
            shown = ", ".join(f"{name} {metrics[name]:.4g}" for name in _SHOWN_METRICS if name in metrics)
            self._print(f"{event.job}: {shown} ({_duration(event.run.provenance['seconds'])})")
        elif event.kind == "taken":
            self._print(f"{event.job}: another process works on it")
        elif event.kind == "failed":
            self._print(f"{event.job}: {event.problem}", style="red")

    def _print(self, text: str, style: str | None = None) -> None:
        self._console.print(text, markup=False, soft_wrap=True, style=style)


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{seconds:.0f} s" if seconds < 100 else f"{minutes} min" if minutes < 100 else f"{seconds / 3600:.1f} h"


@app.command()
def status(results: Results = Path("results")) -> None:
    """Count the runs that are done and in progress.

    Example: parallelrnn reproduce status
    """
    with exit_on_error("status"):
        from rich.console import Console

        from parallelrnn.lab.runs import RunStore
        from parallelrnn.lab.select_runs import select_runs
        from parallelrnn.lab.tables import Table
        from parallelrnn.training.checkpoint import FILE

        if not results.is_dir():
            raise ExperimentError(f"there is no folder {results}", hint="run an experiment, or give other {results}")
        store, rows, jobs, unreadable = RunStore(results), [], [], []
        for name, experiment in EXPERIMENTS.items():
            workspaces = sorted(path.parent for path in (results / ".checkpoints").glob(f"{name}-*/{FILE}"))
            cells, count = "cannot be read", "-"
            try:
                runs = store.load(name)
                selection = select_runs(experiment, runs)
                cells, count = f"{len(selection.groups)} of {len(selection.cells)}", str(len(runs))
            except ValueError as error:
                unreadable.append(str(error))
            rows.append([name, TITLES[name].partition(":")[0], cells, count, str(len(workspaces))])
            jobs += [f"in progress: {name}, {_describe_job(workspace)}" for workspace in workspaces]
        console = Console(highlight=False)
        console.print(Table(["experiment", "in the paper", "entries run", "runs", "in progress"], rows).rich())
        for line in jobs:
            console.print(line, markup=False, soft_wrap=True)
        if unreadable:
            raise ExperimentError("\n".join(unreadable))


def _describe_job(workspace: Path) -> str:
    files = {name: workspace / name for name in ("lock", "progress")}
    texts = {name: file.read_text(encoding="utf-8") if file.exists() else "" for name, file in files.items()}
    job = texts["lock"].partition("\n")[2].strip() or workspace.name
    try:
        return f"{job}: {float(texts['progress']):.0%} done"
    except ValueError:
        return job


@app.command()
def tables(
    documents: Annotated[
        list[Path] | None, typer.Argument(metavar="DOCUMENT", help="Files or folders whose tables to update.")
    ] = None,
    results: Results = Path("results"),
    out: Annotated[Path | None, setting("--out", "FILE", "Markdown file for the results; printed if omitted.")] = None,
    figures: Annotated[Path | None, setting("--figures", "DIR", "Folder for figures.")] = None,
) -> None:
    """Print results beside the paper's; update documents.

    In a document, a table stands between <!-- table: NAME --> and <!-- end table -->.

    Example: parallelrnn reproduce tables docs README.md --out results/README.md --figures figures
    """
    with exit_on_error("tables"):
        from parallelrnn.io import write_text
        from parallelrnn.lab.tables import marked_documents, renew_tables

        renewed = {
            file: renew_tables(file.read_text(encoding="utf-8"), results) for file in marked_documents(documents or [])
        }
        if out is not None or figures is not None or not documents:
            text = _results_page(results, out, figures)
            if out is not None:
                write_text(out, text)
            elif not documents:
                typer.echo(text)
        for file, text in renewed.items():  # once nothing can fail any more
            write_text(file, text)


def _results_page(results: Path, out: Path | None, figures: Path | None) -> str:
    from parallelrnn.lab.figures import draw
    from parallelrnn.lab.results_page import results_page, select_all

    selections = select_all(results)
    if not any(selection.groups or selection.other_cells for selection in selections.values()):
        raise ExperimentError(f"there are no results in {results}", hint="run an experiment, or give other {results}")
    addresses: dict[str, list[str]] = {}
    if figures is not None:
        figures.mkdir(parents=True, exist_ok=True)
        base = Path() if out is None else out.parent
        for name, selection in selections.items():
            files = draw(name, selection, figures)
            addresses[name] = [Path(os.path.relpath(file, base)).as_posix() for file in files]
    return results_page(selections, addresses)

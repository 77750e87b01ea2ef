"""The commands that forecast: fit, forecast, explain and evaluate."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer
from rich.console import Console

from parallelrnn import Forecaster
from parallelrnn.cli.dates import read_dates
from parallelrnn.cli.refusals import note, refusals, told_warnings
from parallelrnn.cli.tables import Layout, read_table, understand, write_table
from parallelrnn.errors import ModelFileError
from parallelrnn.forecast.data import as_frame
from parallelrnn.forecast.evaluation import evaluate as score
from parallelrnn.interpret.display import printable
from parallelrnn.training.checkpoint import FILE as TRAINING_FILE
from parallelrnn.training.model_files import MANIFEST

Data = Annotated[Path, typer.Argument(help="A CSV or Parquet file of one series or many.", show_default=False)]
Model = Annotated[Path, typer.Argument(help="A directory that `fit` wrote.", show_default=False)]
Time = Annotated[str | None, typer.Option("--time", help="The time column; guessed if not given.")]
TimeFormat = Annotated[
    str | None, typer.Option("--time-format", help="How times are written, as in '%d.%m.%Y %H:%M'. Guessed if clear.")
]
Id = Annotated[str | None, typer.Option("--id", help="The column that tells series apart, if there are several.")]
Target = Annotated[list[str] | None, typer.Option("--target", help="What to forecast; once for each of several.")]
Horizon = Annotated[int, typer.Option("--horizon", min=1, help="Steps to forecast.", show_default=False)]
Lookback = Annotated[int | None, typer.Option("--lookback", min=1, help="Steps that a forecast looks back.")]
Freq = Annotated[str | None, typer.Option("--freq", help="As pandas calls it: h, 15min, D, MS. Guessed if not given.")]
Cell = Annotated[str, typer.Option("--cell", help="What remembers: linear, rnn, lstm, gru or brt.")]
Cells = Annotated[list[str] | None, typer.Option("--cell", help="linear (the default), rnn, lstm, gru, brt; repeated.")]
Decoder = Annotated[str, typer.Option("--decoder", help="waves, or linear (which cannot be read).")]
Past = Annotated[list[str] | None, typer.Option("--past", help="A covariate known up to now.")]
Future = Annotated[list[str] | None, typer.Option("--future", help="A covariate known ahead, too.")]
Static = Annotated[list[str] | None, typer.Option("--static", help="A covariate that never changes.")]
ValSize = Annotated[int | None, typer.Option("--val-size", min=1, help="Steps at the end that tell when to stop.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Fixes all that is random.")]
MaxTime = Annotated[float | None, typer.Option("--max-time", help="Seconds after which training ends, with the epoch.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
Level = Annotated[list[float] | None, typer.Option("--level", help="An interval, in per cent; may be repeated.")]


def fit(
    data: Data,
    horizon: Horizon,
    out: Annotated[Path, typer.Option("--out", help="A directory for the model.", show_default=False)],
    time_col: Time = None,
    time_format: TimeFormat = None,
    id_col: Id = None,
    target: Target = None,
    lookback: Lookback = None,
    freq: Freq = None,
    cell: Cell = "linear",
    decoder: Decoder = "waves",
    past: Past = None,
    future: Future = None,
    static: Static = None,
    val_size: ValSize = None,
    seed: Seed = 0,
    max_time: MaxTime = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a training that was cut off.")] = False,
    as_json: AsJson = False,
) -> None:
    """Learn from a file of series, and keep what was learned in a directory.

    Example: parallelrnn fit ETTh1.csv --time date --target OT --horizon 24 --out model/
    """
    with refusals():
        training = out / TRAINING_FILE
        if training.exists() and not resume:
            raise ValueError(
                f"{out} holds a training that was cut off; add --resume to go on with it, or remove {training} to "
                "start anew"
            )
        if resume and not training.exists():
            note(f"there is no training to go on with in {out}: this one starts anew")
        covariates = _covariates(past, future, static)
        table, layout = _read(data, id_col, time_col, time_format, target, list(chain(*covariates.values())))
        forecaster = Forecaster(
            horizon,
            lookback,
            cell=cell,
            decoder=decoder,
            random_state=seed,
            max_time=max_time,
            **covariates,
        )
        began = time.perf_counter()
        with told_warnings(), _kept_if_cut_off(training):
            forecaster.fit(table, frequency_of(freq), val_size, **layout.arguments(), checkpoint=out, resume=resume)
        forecaster.save(out)
        training.unlink(missing_ok=True)  # what was learned is saved
        seconds = time.perf_counter() - began
        frequency = forecaster.frequency
    if as_json:
        typer.echo(json.dumps({"model": str(out), "seconds": round(seconds, 2), "freq": frequency, **vars_of(layout)}))
        return
    console = Console(highlight=False)
    for guess in [*layout.guesses, *([] if freq else [f"frequency {frequency!r}"])]:
        console.print(f"guessed: {guess}", style="dim", markup=False)
    console.print(f"fitted in {seconds:.1f} s", markup=False)
    console.print(str(forecaster.explain().summary(5)), markup=False, soft_wrap=True)
    console.print(f"the model is in {out}", markup=False)
    console.print(f"next: parallelrnn forecast {out} --level 80 --out forecast.csv", style="dim", markup=False)


def forecast(
    model: Model,
    data: Annotated[Path | None, typer.Option("--data", help="Newer data, or other series, to go on from.")] = None,
    future: Annotated[Path | None, typer.Option("--future", help="Covariates known ahead, for the next steps.")] = None,
    time_format: TimeFormat = None,
    level: Level = None,
    decompose: Annotated[bool, typer.Option("--decompose", help="Add the parts of each forecast.")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="A CSV or Parquet file; printed if not given.")] = None,
    as_json: AsJson = False,
) -> None:
    """Forecast the steps after the series that a model was fitted on, or after those of another file.

    Example: parallelrnn forecast model/ --level 80 --level 95 --out forecast.csv
    """
    with refusals():
        forecaster = _load(model)
        columns, new = forecaster.columns, None
        if data is not None:
            table = _only(read_table(data, columns.id), columns.all, data)
            new = _dated(table, columns.time, time_format)
        ahead = _ahead(future, forecaster, time_format)
        with told_warnings():
            found = as_frame(forecaster.predict(new, level or (), ahead, decompose)).to_pandas()
        if out is not None:
            write_table(found, out)
    if as_json:
        typer.echo(found.to_json(orient="records", date_format="iso", double_precision=15))
    elif out is None:
        text = found.to_csv(index=False)
        typer.echo(printable(text, keep="\n\t") if sys.stdout.isatty() else text, nl=False, color=True)
    else:
        Console(highlight=False).print(f"{len(found)} rows are in {out}", markup=False)


def explain(
    model: Model,
    html: Annotated[Path | None, typer.Option("--html", help="A file for a page to open in a browser.")] = None,
    future: Annotated[Path | None, typer.Option("--future", help="Covariates known ahead, for the next steps.")] = None,
    time_format: TimeFormat = None,
    most: Annotated[int, typer.Option("--most", min=1, help="Rows to print.")] = 8,
    as_json: AsJson = False,
) -> None:
    """Say which cycles the forecasts of a model are made of, and how it remembers; write a page about it.

    Example: parallelrnn explain model/ --html report.html
    """
    with refusals():
        forecaster = _load(model)
        ahead = _ahead(future, forecaster, time_format)
        found = forecaster.explain(ahead)
        if html is not None:
            forecaster.report(html, futr_df=ahead)
    if as_json:
        modes = json.loads(found.modes.to_frame().to_json(orient="records"))
        features = json.loads(found.features.to_frame().to_json(orient="records"))
        typer.echo(json.dumps({"modes": modes, "features": features}))
        return
    console = Console(highlight=False)
    console.print(str(found.summary(most)), markup=False, soft_wrap=True)
    console.print(str(found.features.summary(most)), markup=False, soft_wrap=True)
    if html is not None:
        console.print(f"the page is {html}", markup=False)


def evaluate(
    data: Data,
    horizon: Horizon,
    test_size: Annotated[int | None, typer.Option(min=1, help="Steps at the end to forecast; a fifth.")] = None,
    rows: Annotated[int | None, typer.Option("--rows", min=1, help="Read no more rows than these.")] = None,
    time_col: Time = None,
    time_format: TimeFormat = None,
    id_col: Id = None,
    target: Target = None,
    lookback: Lookback = None,
    freq: Freq = None,
    cells: Cells = None,
    decoder: Decoder = "waves",
    past: Past = None,
    future: Future = None,
    static: Static = None,
    val_size: ValSize = None,
    seed: Seed = 0,
    level: Level = None,
    as_json: AsJson = False,
) -> None:
    """Forecast every window at the end of the series, beside naive, seasonal naive and linear forecasts.

    Example: parallelrnn evaluate ETTh1.csv --rows 14400 --test-size 2880 --val-size 2880 --horizon 96 --cell gru
    """
    with refusals():
        covariates = _covariates(past, future, static)
        table, layout = _read(data, id_col, time_col, time_format, target, list(chain(*covariates.values())))
        table = table if rows is None else table.head(rows)
        forecasters = [
            Forecaster(horizon, lookback, cell=cell, decoder=decoder, random_state=seed, **covariates)
            for cell in cells or ["linear"]
        ]
        with told_warnings():
            panel = forecasters[0].read(table, frequency_of(freq), **layout.arguments())
            size = test_size or max(horizon, int(statistics.median(len(one) for one in panel.series)) // 5)
            found = score(forecasters, panel, size, val_size, tuple(level or (80, 95)))
    if as_json:
        typer.echo(json.dumps(found.to_json()))
    else:
        Console(highlight=False).print(str(found.display().text()), markup=False, soft_wrap=True)


def _load(model: Path) -> Forecaster:
    if (model / TRAINING_FILE).exists() and not (model / MANIFEST).exists():
        raise ModelFileError(
            f"{model} holds a training that was cut off, and no model yet; go on with it by parallelrnn fit, with the "
            "same options and --resume"
        )
    return Forecaster.load(model)


@contextmanager
def _kept_if_cut_off(training: Path) -> Iterator[None]:
    """Say how to go on where Ctrl-C ends the block."""
    try:
        yield
    except KeyboardInterrupt:
        if training.exists():
            note("what was learned so far is kept; the same command with --resume goes on")
        raise


def _covariates(past: list[str] | None, future: list[str] | None, static: list[str] | None) -> dict[str, Any]:
    """As `Forecaster` takes them."""
    return {"past_covariates": past or (), "future_covariates": future or (), "static_covariates": static or ()}


def frequency_of(text: str | None) -> str | int | None:
    """A frequency as `Forecaster.fit` takes it: times that are whole numbers have a whole number of steps."""
    return int(text) if text is not None and text.lstrip("-").isdigit() else text


def vars_of(layout: Layout) -> dict[str, Any]:
    """A layout for JSON."""
    return {"time": layout.time, "id": layout.id, "targets": list(layout.targets), "guessed": list(layout.guesses)}


def _read(
    data: Path,
    id_col: str | None,
    time_col: str | None,
    time_format: str | None,
    target: list[str] | None,
    covariates: Sequence[str],
) -> tuple[pd.DataFrame, Layout]:
    table = read_table(data, id_col)
    layout = understand(table, id_col, time_col, target or (), covariates)
    used = [*([] if layout.id is None else [layout.id]), layout.time, *layout.targets, *covariates]
    return _dated(_only(table, used, data), layout.time, time_format), layout


def _ahead(path: Path | None, forecaster: Forecaster, time_format: str | None) -> pd.DataFrame | None:
    """A file of covariates known ahead."""
    columns = forecaster.columns
    return None if path is None else _dated(read_table(path, columns.id), columns.time, time_format)


def _dated(table: pd.DataFrame, time_col: str, time_format: str | None) -> pd.DataFrame:
    """A table with time stamps; what was guessed of them is told at once, since it may be why they are refused."""
    if time_col not in table.columns:
        return table  # the forecaster refuses it, in its own words
    dated, guess = read_dates(table, time_col, time_format)
    if guess is not None:
        note(guess)
    return dated


def _only(table: pd.DataFrame, used: Sequence[str], data: Path) -> pd.DataFrame:
    """The columns that are used; those that are not are told."""
    missing = [name for name in used if name not in table.columns]
    if missing:
        raise ValueError(
            f"{data.name} has no column {', '.join(map(repr, missing))}; it has {', '.join(map(repr, table.columns))}"
        )
    left = [str(name) for name in table.columns if name not in used]
    if left:
        note(f"not used: {', '.join(map(printable, left))}")
    return table[list(used)]

"""The commands for forecasters: fit, forecast, explain and evaluate."""

from __future__ import annotations

import json
import statistics
import sys
import time
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parallelrnn.cli.errors import exit_on_error, note, print_warnings
from parallelrnn.errors import ArgumentError, CheckpointError, ModelFileError, check_choice, printable

if TYPE_CHECKING:
    import pandas as pd

    from parallelrnn import Forecaster
    from parallelrnn.cli.tables import Layout

CELLS = ("linear", "rnn", "lstm", "gru", "brt")  # also here, to be checked before torch is imported
DECODERS = ("waves", "linear")


def setting(name: str, metavar: str, help: str, **others: Any) -> Any:
    """Declare an option."""
    return typer.Option(name, metavar=metavar, help=help, **others)


Data = Annotated[Path, typer.Argument(metavar="DATA", help="CSV or Parquet file with one or more series.")]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="Directory that `fit` wrote.")]
Time = Annotated[str | None, setting("--time", "COLUMN", "Time column. Guessed if omitted.")]
TimeFormat = Annotated[
    str | None, setting("--time-format", "FORMAT", "Format of the time column, such as %d.%m.%Y. Guessed if omitted.")
]
Id = Annotated[
    str | None, setting("--id", "COLUMN", "Id column. If omitted: unique_id, id, series, item_id or series_id, if any.")
]
Target = Annotated[list[str] | None, setting("--target", "COLUMN", "Target column; repeatable. Guessed if omitted.")]
Horizon = Annotated[int, setting("--horizon", "STEPS", "Number of steps to forecast.", min=1, show_default=False)]
Lookback = Annotated[int | None, setting("--lookback", "STEPS", "Past steps to use; at most 336 if omitted.", min=1)]
Freq = Annotated[str | None, setting("--freq", "FREQ", "Pandas frequency: h, 15min, D, MS. Guessed if omitted.")]
Cell = Annotated[str, setting("--cell", "CELL", "Recurrent cell: linear, rnn, lstm, gru or brt.")]
Cells = Annotated[list[str] | None, setting("--cell", "CELL", "linear (default), rnn, lstm, gru or brt; repeatable.")]
Decoder = Annotated[str, setting("--decoder", "DECODER", "Decoder: waves, or linear (not interpretable).")]
Past = Annotated[list[str] | None, setting("--past", "COLUMN", "Past covariate, known up to the present; repeatable.")]
Future = Annotated[list[str] | None, setting("--future", "COLUMN", "Future covariate, known in advance; repeatable.")]
Static = Annotated[list[str] | None, setting("--static", "COLUMN", "Static covariate, fixed per series; repeatable.")]
FutureFile = Annotated[Path | None, setting("--future", "FILE", "File with the future covariates of the next steps.")]
ValSize = Annotated[int | None, setting("--val-size", "STEPS", "Last steps for validation; a fifth if omitted.", min=1)]
Seed = Annotated[int, setting("--seed", "N", "Random seed.", min=0)]
Models = Annotated[str, setting("--models", "MODELS", "auto, both, local (smoothing) or network.")]
Transform = Annotated[str, setting("--transform", "KIND", "auto, log or none: how positive series are read.")]
AnySign = Annotated[
    bool, typer.Option("--any-sign", help="Let forecasts of series without negative values go below 0.")
]
MaxTime = Annotated[float | None, setting("--max-time", "SECONDS", "Time limit for training, in seconds.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Level = Annotated[list[float] | None, setting("--level", "PERCENT", "Coverage of an interval, such as 80; repeatable.")]


def fit(
    data: Data,
    horizon: Horizon,
    out: Annotated[Path, setting("--out", "DIR", "Directory for the model.", show_default=False)],
    time_col: Time = None,
    time_format: TimeFormat = None,
    id_col: Id = None,
    target: Target = None,
    lookback: Lookback = None,
    freq: Freq = None,
    cell: Cell = "linear",
    decoder: Decoder = "waves",
    models: Models = "auto",
    transform: Transform = "auto",
    any_sign: AnySign = False,
    past: Past = None,
    future: Future = None,
    static: Static = None,
    val_size: ValSize = None,
    seed: Seed = 0,
    max_time: MaxTime = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume training from the checkpoint in --out.")] = False,
    as_json: AsJson = False,
) -> None:
    """Fit a forecaster to a file of series and save it.

    Example: parallelrnn fit ETTh1.csv --time date --target OT --horizon 24 --out model/
    """
    with exit_on_error("fit"):
        _check_model([cell], decoder)
        check_choice("transform", transform, ("auto", "log", "none"))
        if out.is_file():
            raise ArgumentError(f"{out} is a file", argument="out", hint="give a directory")
        covariates = _covariates(past, future, static)
        table, layout = _read(data, id_col, time_col, time_format, target, covariates)
        if not as_json:
            guessed = f"; guessed {', '.join(layout.guesses)}" if layout.guesses else ""
            choose = "; give --target to choose" * (not target and len(layout.targets) > 1)
            _print(f"read {len(table)} rows from {data.name}{guessed}{choose}")
        from parallelrnn import Forecaster
        from parallelrnn.training.checkpoint import FILE

        checkpoint = out / FILE
        if checkpoint.exists() and not resume:
            hint = "add --resume to continue, or delete that file to start over"
            raise CheckpointError(f"{out} holds an unfinished training, {FILE}", hint=hint)
        if resume and not checkpoint.exists():
            note(f"{out} has no checkpoint to resume from; training starts from the beginning")
        forecaster = Forecaster(
            horizon,
            lookback,
            cell=cell,
            decoder=decoder,
            models=models,
            transform=None if transform == "none" else transform,
            positive=False if any_sign else None,
            random_state=seed,
            max_time=max_time,
            **covariates,
        )
        start = time.perf_counter()
        try:
            with print_warnings("fit"):
                forecaster.fit(table, _frequency(freq), val_size, **layout.arguments(), checkpoint=out, resume=resume)
        except KeyboardInterrupt:
            if checkpoint.exists():
                note("interrupted; to resume, run the same command with --resume")
            raise
        forecaster.save(out)
        checkpoint.unlink(missing_ok=True)
        seconds = time.perf_counter() - start
    if as_json:
        columns = {"time": layout.time, "id": layout.id, "targets": layout.targets, "guessed": layout.guesses}
        fitted = {"model": str(out), "seconds": round(seconds, 2), "freq": forecaster.frequency}
        typer.echo(json.dumps({**fitted, **columns}))
        return
    _print(f"fitted in {seconds:.1f} s{'' if freq else f'; guessed frequency {forecaster.frequency!r}'}")
    _print(forecaster.explain().summary(5))
    _print(f"saved the model in {out}")
    _print(f"next: parallelrnn forecast {out} --level 80 --out forecast.csv")


def forecast(
    model: Model,
    data: Annotated[Path | None, setting("--data", "FILE", "File with newer data, or with other series.")] = None,
    future: FutureFile = None,
    time_format: TimeFormat = None,
    level: Level = None,
    decompose: Annotated[bool, typer.Option("--decompose", help="Add the components of each forecast.")] = False,
    out: Annotated[Path | None, setting("--out", "FILE", "CSV or Parquet file. Printed if omitted.")] = None,
    as_json: AsJson = False,
) -> None:
    """Forecast the steps after the training data or newer data.

    Example: parallelrnn forecast model/ --level 80 --level 95 --out forecast.csv
    """
    with exit_on_error("forecast"):
        from parallelrnn.cli.tables import read_table, select_columns, with_times, write_table
        from parallelrnn.forecast.data import as_frame

        forecaster = _load(model)
        columns, newer = forecaster.columns, None
        if data is not None:
            newer = select_columns(read_table(data, columns.id), dict.fromkeys(columns.all, "data"), data)
            newer = with_times(newer, columns.time, time_format)
        futr_df = _read_future(future, forecaster, time_format)
        with print_warnings("forecast"):
            frame = as_frame(forecaster.predict(newer, level or (), futr_df, decompose)).to_pandas()
        if out is not None:
            write_table(frame, out)
    if as_json:
        typer.echo(frame.to_json(orient="records", date_format="iso", double_precision=15))
    elif out is None:
        text = frame.to_csv(index=False)
        typer.echo(printable(text, keep="\n\t") if sys.stdout.isatty() else text, nl=False, color=True)
    else:
        _print(f"wrote {len(frame)} rows to {out}")


def explain(
    model: Model,
    html: Annotated[Path | None, setting("--html", "FILE", "File for an HTML report.")] = None,
    future: FutureFile = None,
    time_format: TimeFormat = None,
    most: Annotated[int, setting("--most", "N", "Maximum number of rows to print.", min=1)] = 8,
    as_json: AsJson = False,
) -> None:
    """Show the cycles in the forecasts and how the model remembers.

    Example: parallelrnn explain model/ --html report.html
    """
    with exit_on_error("explain"):
        forecaster = _load(model)
        futr_df = _read_future(future, forecaster, time_format)
        explanation = forecaster.explain(futr_df)
        if html is not None:
            forecaster.report(html, futr_df=futr_df)
    if as_json:
        modes = json.loads(explanation.modes.to_frame().to_json(orient="records"))
        features = json.loads(explanation.features.to_frame().to_json(orient="records"))
        reading = None if explanation.reading is None else explanation.reading.to_json()
        printed = {"findings": None, "explained": None, "rest": None} if reading is None else reading
        typer.echo(json.dumps({**printed, "notices": explanation.notices, "modes": modes, "features": features}))
        return
    _print(explanation.summary(most))
    _print(explanation.features.summary(most))
    if html is not None:
        _print(f"wrote the report to {html}")


def evaluate(
    data: Data,
    horizon: Horizon,
    test_size: Annotated[
        int | None, setting("--test-size", "STEPS", "Final steps of each series to test on; a fifth if omitted.", min=1)
    ] = None,
    rows: Annotated[int | None, setting("--rows", "N", "Use only the first N rows of the file.", min=1)] = None,
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
    """Test forecasts of the end of each series against baselines.

    Example: parallelrnn evaluate ETTh1.csv --rows 14400 --test-size 2880 --val-size 2880 --horizon 96 --cell gru
    """
    with exit_on_error("evaluate"):
        cells = cells or ["linear"]
        _check_model(cells, decoder)
        covariates = _covariates(past, future, static)
        table, layout = _read(data, id_col, time_col, time_format, target, covariates)
        from parallelrnn import Forecaster
        from parallelrnn.forecast.api import check_levels
        from parallelrnn.forecast.evaluation import evaluate as score

        table = table if rows is None else table.head(rows)
        forecasters = [
            Forecaster(horizon, lookback, cell=cell, decoder=decoder, random_state=seed, **covariates) for cell in cells
        ]
        levels = check_levels(level or (80, 95))
        with print_warnings("evaluate"):
            panel = forecasters[0].read(table, _frequency(freq), **layout.arguments())
            size = test_size or max(horizon, int(statistics.median(map(len, panel.series))) // 5)
            scores = score(forecasters, panel, size, val_size, levels)
    if as_json:
        typer.echo(json.dumps(scores.to_json()))
    else:
        _print(scores.display().text())


def _print(text: object) -> None:
    typer.echo(printable(str(text), keep="\n"))


def _load(model: Path) -> Forecaster:
    from parallelrnn import Forecaster
    from parallelrnn.io import has_model
    from parallelrnn.training.checkpoint import FILE

    if not has_model(model):
        if (model / FILE).exists():
            hint = "run the same parallelrnn fit again with --resume"
            raise ModelFileError(f"{model} holds an unfinished training and no model", hint=hint)
        problem = f"{model} is a file" if model.is_file() else f"there is no model in {model}"
        raise ModelFileError(problem, hint="give the directory given to `parallelrnn fit --out`")
    return Forecaster.load(model)


def _check_model(cells: list[str], decoder: str) -> None:
    for cell in cells:
        check_choice("cell", cell, CELLS)
    check_choice("decoder", decoder, DECODERS)


def _covariates(past: list[str] | None, future: list[str] | None, static: list[str] | None) -> dict[str, Any]:
    return {"past_covariates": past or [], "future_covariates": future or [], "static_covariates": static or []}


def _frequency(text: str | None) -> str | int | None:
    """Return a frequency as `Forecaster.fit` takes it: a number of steps where times are integers."""
    return int(text) if text is not None and text.lstrip("-").isdigit() else text


def _read(
    data: Path,
    id_col: str | None,
    time_col: str | None,
    time_format: str | None,
    targets: list[str] | None,
    covariates: dict[str, Any],
) -> tuple[pd.DataFrame, Layout]:
    from parallelrnn.cli.tables import infer_layout, read_table, select_columns, with_times

    table, names = read_table(data, id_col), list(chain(*covariates.values()))
    layout = infer_layout(table, id_col, time_col, targets or (), names)
    roles = {"id_col": [layout.id], "time_col": [layout.time], "target_col": layout.targets, **covariates}
    arguments = {name: role for role, columns in roles.items() for name in columns if name is not None}
    return with_times(select_columns(table, arguments, data), layout.time, time_format), layout


def _read_future(path: Path | None, forecaster: Forecaster, time_format: str | None) -> pd.DataFrame | None:
    from parallelrnn.cli.tables import read_table, with_times

    columns = forecaster.columns
    return None if path is None else with_times(read_table(path, columns.id), columns.time, time_format)

"""The demonstration: three centuries of sunspots, from a table to a page."""

from __future__ import annotations

import time
from pathlib import Path

import pandas as pd
import typer
from rich.console import Console

from parallelrnn import Forecaster
from parallelrnn.forecast.evaluation import evaluate

HORIZON, TEST = 11, 60  # years


def sunspots() -> pd.DataFrame:
    """Mean sunspot numbers of the years 1700 to 2008, as statsmodels ships them."""
    try:
        from statsmodels.datasets import sunspots as known
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "the demonstration needs statsmodels, which is not installed: pip install 'parallelrnn[demo]'",
            name=error.name,
        ) from error
    data = known.load_pandas().data
    return pd.DataFrame(
        {"ds": pd.to_datetime(data["YEAR"].astype(int).astype(str), format="%Y"), "y": data["SUNACTIVITY"]}
    )


def run(page: Path) -> None:
    """Judge, fit, forecast, explain, and write a page."""
    console = Console(highlight=False)
    began = time.perf_counter()
    table = sunspots()
    forecaster = Forecaster(HORIZON, lookback=4 * HORIZON)
    console.print(f"Yearly sunspots, {len(table)} years. Are forecasts {HORIZON} years ahead any good? The last {TEST}")
    console.print("years are forecast by a model that has not seen them, from every year, beside simple methods:\n")
    typer.echo(str(evaluate([forecaster], forecaster.read(table), TEST, TEST, levels=(80,)).display().text()))

    forecaster.fit(table, val_size=TEST)
    console.print(f"\nNow with all years. The next {HORIZON}, with intervals that should hold 80 % of what comes:\n")
    forecast = forecaster.predict(level=[80])
    for row in forecast.itertuples(index=False):
        stamp, value, low, high = row
        bar = "#" * max(0, round(value / 4))
        console.print(f"  {stamp:%Y}  {value:5.0f}  ({low:3.0f} to {high:3.0f})  {bar}", markup=False)
    console.print("\nWhat this forecast is made of:\n")
    typer.echo(str(forecaster.explain().summary(5)))
    forecaster.report(page, title="Sunspots: what the forecast is made of")
    seconds = time.perf_counter() - began
    console.print(f"\nDone in {seconds:.0f} s. The page about it, for your browser: {page}", markup=False)
    console.print("Your own series: parallelrnn fit data.csv --horizon 24 --out model/", markup=False)

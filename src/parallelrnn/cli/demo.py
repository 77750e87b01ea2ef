"""The demonstration: three centuries of sunspots, from a table to an HTML report."""

from __future__ import annotations

import time
from pathlib import Path

import pandas as pd
from typer import echo

from parallelrnn import Forecaster
from parallelrnn.forecast.evaluation import evaluate
from parallelrnn.interpret.display import optional

HORIZON, TEST = 11, 60  # years


def sunspots() -> pd.DataFrame:
    """Return the mean sunspot numbers of the years 1700 to 2008, which statsmodels ships."""
    data = optional("statsmodels.datasets.sunspots").load_pandas().data
    years = pd.to_datetime(data["YEAR"].astype(int).astype(str), format="%Y")
    return pd.DataFrame({"ds": years, "y": data["SUNACTIVITY"]})


def run(page: Path) -> None:
    """Evaluate, fit, forecast, explain, and write a report."""
    start = time.perf_counter()
    table = sunspots()
    forecaster = Forecaster(HORIZON, lookback=4 * HORIZON)
    echo(f"Yearly sunspots, {len(table)} years. How good are forecasts {HORIZON} years ahead? A model that was trained")
    echo(f"without the last {TEST} years forecasts them from every year, next to simple methods:\n")
    echo(str(evaluate([forecaster], forecaster.read(table), TEST, TEST, levels=(80,)).display().text()))
    forecaster.fit(table, val_size=TEST)
    echo(f"\nNow with all the data. The next {HORIZON} years, with intervals that should hold 80 % of the outcomes:\n")
    for year, value, low, high in forecaster.predict(level=[80]).itertuples(index=False):
        echo(f"  {year:%Y}  {value:5.0f}  ({low:3.0f} to {high:3.0f})  {'#' * max(0, round(value / 4))}")
    echo("\nWhat the forecast is made of:\n")
    echo(str(forecaster.explain().summary(5)))
    forecaster.report(page, title="Sunspots: what the forecast is made of")
    echo(f"\nDone in {time.perf_counter() - start:.0f} s. Open the report in your browser: {page}")
    echo("For your own data: parallelrnn fit data.csv --horizon 24 --out model/")

"""Forecast a CSV file with intervals, say what the forecast is made of, and write a page about it.

Without an argument it is monthly carbon dioxide, as statsmodels ships it; `python examples/forecast_a_csv.py data.csv`
takes a file of yours with a column of times and a column of values.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pandas as pd
from statsmodels.datasets import co2

from parallelrnn import Forecaster


def example_file(folder: Path) -> Path:
    """Monthly means of carbon dioxide at Mauna Loa, 1958 to 2001, as a CSV file."""
    monthly = co2.load_pandas().data["co2"].resample("MS").mean().interpolate()
    path = folder / "co2.csv"
    monthly.rename("y").rename_axis("ds").to_csv(path)
    return path


def main() -> None:
    """Read, fit, forecast, explain."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(sys.argv[1]) if len(sys.argv) > 1 else example_file(Path(folder))
        table = pd.read_csv(path, parse_dates=[0])
    times, values = table.columns[:2]
    forecaster = Forecaster(horizon=24).fit(table, time_col=times, target_col=values)
    print(forecaster.predict(level=[80, 95]).head(6).to_string(index=False))
    print(forecaster.explain().summary(5))
    page = Path(tempfile.gettempdir()) / "forecast.html"
    forecaster.report(page)
    print(f"The page about it: {page}")


if __name__ == "__main__":
    main()

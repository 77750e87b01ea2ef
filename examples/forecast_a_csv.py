"""Forecast a CSV file with intervals, show what the forecast is made of, and write an HTML report.

Without an argument it forecasts monthly carbon dioxide, which statsmodels ships. `python examples/forecast_a_csv.py
data.csv` forecasts a file of yours, with times in the first column and values in the second.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pandas as pd
from statsmodels.datasets import co2

from parallelrnn import Forecaster


def example_file(folder: Path) -> Path:
    """Write the monthly means of carbon dioxide at Mauna Loa, 1958 to 2001, to a CSV file."""
    monthly = co2.load_pandas().data["co2"].resample("MS").mean().interpolate()
    path = folder / "co2.csv"
    monthly.rename("y").rename_axis("ds").to_csv(path)
    return path


def main() -> None:
    """Read, fit, forecast and explain."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(sys.argv[1]) if len(sys.argv) > 1 else example_file(Path(folder))
        table = pd.read_csv(path, parse_dates=[0])
    times, values = table.columns[:2]
    forecaster = Forecaster(horizon=24).fit(table, time_col=times, target_col=values)
    print(forecaster.predict(level=[80, 95]).head(6).to_string(index=False))
    print(forecaster.explain().summary(5))
    page = Path(tempfile.gettempdir()) / "forecast.html"
    forecaster.report(page)
    print(f"Report: {page}")


if __name__ == "__main__":
    main()

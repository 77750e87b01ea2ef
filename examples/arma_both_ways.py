"""An ARMA model as a recurrent layer, and a recurrent layer as an ARMA model: the same numbers, both ways."""

from __future__ import annotations

import numpy as np
import torch
from statsmodels.datasets import sunspots
from statsmodels.tsa.arima.model import ARIMA

from parallelrnn import forecast_modes, recurrence_features
from parallelrnn.classical import ARMA, from_arma, to_arma


def main() -> None:
    """Fit an ARMA model, build the layer, compare the two, and read the layer."""
    series = np.sqrt(sunspots.load_pandas().data["SUNACTIVITY"].to_numpy())
    arima = ARIMA(series, order=(2, 0, 1)).fit()
    layer = from_arma(ar=arima.arparams, ma=arima.maparams, mean=arima.params[0])
    with torch.no_grad():
        forecasts = layer(torch.from_numpy(series)[:, None])[0][:-1, 0].numpy()  # of each next year
    differences = np.abs(forecasts - arima.fittedvalues[1:])[50:]  # once the different initial states are forgotten
    print(f"Forecasts differ by at most {differences.max():.1e}.")
    print(f"Read back from the layer: {to_arma(layer)}")
    print(f"Fitted by parallelrnn:    {ARMA(2, 1).fit(series).coefficients}")
    print(recurrence_features(layer).summary())  # how it remembers: the MA side
    print(forecast_modes(layer).summary())  # the cycles in its forecasts: the AR side


if __name__ == "__main__":
    main()

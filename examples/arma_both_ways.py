"""An ARMA model as a recurrent layer, and a recurrent layer as an ARMA model: the same numbers, both ways."""

from __future__ import annotations

import numpy as np
import torch
from statsmodels.datasets import sunspots
from statsmodels.tsa.arima.model import ARIMA

from parallelrnn import forecast_modes, recurrence_features
from parallelrnn.classical import ARMA, from_arma, to_arma


def main() -> None:
    """Fit, build, compare, read."""
    series = np.sqrt(sunspots.load_pandas().data["SUNACTIVITY"].to_numpy())
    theirs = ARIMA(series, order=(2, 0, 1)).fit()
    layer = from_arma(ar=theirs.arparams, ma=theirs.maparams, mean=theirs.params[0])
    with torch.no_grad():
        ours = layer(torch.from_numpy(series)[:, None])[0][:-1, 0].numpy()  # of the next year, from all before
    late = slice(50, None)  # by then it does not matter what is taken to have been before the first year
    print(f"Forecasts differ by at most {np.abs(ours - theirs.fittedvalues[1:])[late].max():.1e}.")
    print(f"Read back from the layer: {to_arma(layer)}")
    print(f"Fitted by us instead:     {ARMA(2, 1).fit(series).coefficients}")
    print(recurrence_features(layer).summary())  # how it remembers: the moving-average side
    print(forecast_modes(layer).summary())  # the cycles it believes in: the autoregressive side


if __name__ == "__main__":
    main()

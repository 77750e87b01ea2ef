"""Classical models of time series as exact linear ParaRNNs."""

from parallelrnn.classical.arma import ArmaCoefficients, from_arma, reflect, to_arma
from parallelrnn.classical.estimation import ARMA, ArmaFit, ArmaForecast

__all__ = ["ARMA", "ArmaCoefficients", "ArmaFit", "ArmaForecast", "from_arma", "reflect", "to_arma"]

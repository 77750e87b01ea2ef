"""Classical models of time series as exact linear ParaRNNs."""

from parallelrnn.classical.arma import ArmaCoefficients, from_arma, reflect, to_arma
from parallelrnn.classical.arma_fit import ARMA, ArmaFit, ArmaForecast
from parallelrnn.classical.garch import GARCH, GarchCoefficients, GarchFit, from_garch, to_garch
from parallelrnn.classical.vech import VechCoefficients, VechFit, VechGARCH, from_vech, to_vech

__all__ = [
    "ARMA",
    "GARCH",
    "ArmaCoefficients",
    "ArmaFit",
    "ArmaForecast",
    "GarchCoefficients",
    "GarchFit",
    "VechCoefficients",
    "VechFit",
    "VechGARCH",
    "from_arma",
    "from_garch",
    "from_vech",
    "reflect",
    "to_arma",
    "to_garch",
    "to_vech",
]

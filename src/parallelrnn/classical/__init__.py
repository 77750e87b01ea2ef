"""Classical models of time series as exact linear ParaRNNs."""

from parallelrnn.classical.arma import ArmaCoefficients, from_arma, reflect, to_arma
from parallelrnn.classical.estimation import ARMA, ArmaFit, ArmaForecast
from parallelrnn.classical.garch import GarchCoefficients, from_garch, to_garch
from parallelrnn.classical.garch_estimation import GARCH, GarchFit
from parallelrnn.classical.vech import VechCoefficients, from_vech, to_vech
from parallelrnn.classical.vech_estimation import VechFit, VechGARCH

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

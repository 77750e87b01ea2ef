"""Classical models of time series as exact linear ParaRNNs."""

from parallelrnn.classical.arma import ArmaCoefficients, from_arma, reflect, to_arma
from parallelrnn.classical.arma_fit import ARMA, ArmaFit, ArmaForecast
from parallelrnn.classical.garch import GARCH, GarchCoefficients, GarchFit, from_garch, to_garch
from parallelrnn.classical.smoothing import ETS, EtsCoefficients, EtsFit, from_ets, to_ets
from parallelrnn.classical.vech import VechCoefficients, VechFit, VechGARCH, from_vech, to_vech

__all__ = [
    "ARMA",
    "ETS",
    "GARCH",
    "ArmaCoefficients",
    "ArmaFit",
    "ArmaForecast",
    "EtsCoefficients",
    "EtsFit",
    "GarchCoefficients",
    "GarchFit",
    "VechCoefficients",
    "VechFit",
    "VechGARCH",
    "from_arma",
    "from_ets",
    "from_garch",
    "from_vech",
    "reflect",
    "to_arma",
    "to_ets",
    "to_garch",
    "to_vech",
]

"""What fitted models of volatility have in common."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from parallelrnn.interpret import Features, ForecastModes, forecast_modes, recurrence_features
from parallelrnn.interpret.display import Display, Summary
from parallelrnn.nn import ParaRNN

Array = NDArray[np.float64]
PER_PARAMETER = 10  # returns, at the least


class VolatilityFit(ABC):
    """Estimates with their standard errors, information criteria, and how the layer is read."""

    covariance: Array  # (k, k), of the estimates
    returns: Array  # (T, ...)

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """Of what was estimated."""

    @property
    @abstractmethod
    def params(self) -> Array:
        """The estimates (k,), in the order of `names`."""

    @property
    @abstractmethod
    def layer(self) -> ParaRNN:
        """The linear ParaRNN that this model is."""

    @property
    @abstractmethod
    def log_likelihood(self) -> float:
        """Gaussian, given what came before the returns."""

    @property
    def standard_errors(self) -> Array:
        """Of the estimates, by Bollerslev and Wooldridge: right also if returns are not Gaussian given the past."""
        return np.sqrt(self.covariance.diagonal())

    @property
    def aic(self) -> float:
        """Akaike's information criterion."""
        return 2 * len(self.params) - 2 * self.log_likelihood

    @property
    def bic(self) -> float:
        """Schwarz's information criterion."""
        return len(self.params) * math.log(len(self.returns)) - 2 * self.log_likelihood

    @property
    def features(self) -> Features:
        """How variances remember: the recurrent matrix."""
        return recurrence_features(self.layer)

    @property
    def modes(self) -> ForecastModes:
        """How forecasts of variances return to their mean: the closed loop."""
        return forecast_modes(self.layer)

    def _table(self, title: str, *notes: str) -> Summary:
        """The estimates with 95 % intervals, for the terminal."""
        from scipy.stats import norm

        half = norm.ppf(0.975) * self.standard_errors
        found = zip(self.names, self.params, self.standard_errors, half, strict=True)
        rows = [(name, *(f"{x:.4g}" for x in (value, error, value - h, value + h))) for name, value, error, h in found]
        fit = (
            f"{len(self.returns)} steps; log likelihood {self.log_likelihood:.2f}, AIC {self.aic:.2f}, "
            f"BIC {self.bic:.2f}. Standard errors are robust (Bollerslev and Wooldridge)."
        )
        return Display(title, ("", "estimate", "standard error", "2.5 %", "97.5 %"), rows, (fit, *notes)).text()


def check_returns(returns: Array, least: int) -> None:
    """Say what is wrong with returns (T, n): some are missing, or there are fewer steps than `least`."""
    wrong = np.flatnonzero(~np.isfinite(returns).all(axis=1))
    if len(wrong):
        raise ValueError(f"the returns of {len(wrong)} steps are not finite, the first at {wrong[0]}; drop those steps")
    if len(returns) < least:
        raise ValueError(f"{len(returns)} returns are few for this model: give at least {least}, ten for each estimate")
    singular = np.linalg.svd(returns - returns.mean(0), compute_uv=False)
    if singular[-1] <= 1e-12 * abs(returns).max() * math.sqrt(len(returns)):
        raise ValueError(
            "returns do not vary, or those of one series follow from the others'; returns are the changes of prices, "
            "and each series has to bring something new"
        )

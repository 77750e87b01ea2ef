"""ARMA models fitted to a series, by its conditional likelihood through a linear ParaRNN."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Real

import numpy as np
from numpy.typing import ArrayLike, NDArray

from parallelrnn.classical.arma import ArmaCoefficients, from_arma
from parallelrnn.classical.innovations import Innovations
from parallelrnn.classical.one_step_errors import OneStepErrors
from parallelrnn.interpret import Features, ForecastModes, forecast_modes, recurrence_features
from parallelrnn.interpret.display import Display, Summary
from parallelrnn.nn import ParaRNN

Array = NDArray[np.float64]
_LEVEL = 95.0  # per cent, of intervals in a summary
_EDGE = 1 - 1e-4  # an inverse root beyond is one of one, which the search does not reach


class ARMA:
    """y(t) - mean = sum_i ar_i (y(t-i) - mean) + e(t) + sum_j ma_j e(t-j), with p terms of ar and q of ma.

    Examples
    --------
    >>> from statsmodels.datasets import nile
    >>> flow = nile.load_pandas().data["volume"]
    >>> fitted = ARMA(1, 1).fit(flow)
    >>> fitted.coefficients.ar.round(2).tolist()
    [0.89]
    """

    def __init__(self, p: int, q: int, *, mean: bool = True) -> None:
        for name, order in (("p", p), ("q", q)):
            if isinstance(order, bool) or not isinstance(order, int | np.integer) or order < 0:
                raise ValueError(f"{name}: expected a whole number of terms, zero or more, got {order!r}")
        self.p, self.q, self.mean = int(p), int(q), bool(mean)
        if not self.p + self.q + self.mean:
            raise ValueError("an ARMA(0, 0) without a mean has nothing to be estimated")

    def fit(self, y: ArrayLike, given: int | None = None) -> ArmaFit:
        """Maximise the Gaussian likelihood of what comes after the first values, given them and no errors before.

        That is least squares of the one-step errors. The first p values are given, or as many more as are asked for:
        likelihoods, AIC and BIC of models with different p compare only if the same number is given to all.
        Coefficients are those of a stationary and invertible model: they are searched for as partial autocorrelations,
        from three starts.
        """
        from scipy.optimize import least_squares

        series = self._checked(y, given)
        middle, scale = float(series.mean()) if self.mean else 0.0, float(series.std())
        problem = OneStepErrors((series - middle) / scale, self.p, self.q, self.mean, given)
        found = [least_squares(problem.errors, start, problem.jacobian, method="lm") for start in problem.starts()]
        # A search that goes on and on is on its way to a root on the unit circle, where errors are small by no merit.
        best = min([one for one in found if one.success] or found, key=lambda one: float(one.cost))
        if not best.success:
            warnings.warn(
                f"the search for the best coefficients has not come to its end, so there are no standard errors: "
                f"{best.message}",
                stacklevel=2,
            )
        ar, ma, shift = problem.coefficients(best.x)
        errors = problem.errors(best.x)
        variance = float(errors @ errors) / len(errors)
        units = np.concatenate([np.full(int(self.mean), scale), np.ones(self.p + self.q)])
        unknown = np.full((len(units), len(units)), np.nan)
        inverse = _inverse(problem.curvature(ar, ma, shift), ar, ma) if best.success else unknown
        covariance = variance * inverse * np.outer(units, units)
        coefficients = ArmaCoefficients(ar, ma, middle + scale * shift)
        return ArmaFit(coefficients, self.mean, variance * scale**2, covariance, errors * scale, series)

    def _checked(self, y: ArrayLike, given: int | None) -> Array:
        series = np.asarray(np.ma.filled(np.ma.asarray(y, dtype=np.float64), np.nan))
        if series.ndim == 2 and series.shape[1] == 1:
            series = series[:, 0]
        if series.ndim != 1:
            raise ValueError(f"y: expected one series (T,), got the shape {series.shape}")
        wrong = np.flatnonzero(~np.isfinite(series))
        if len(wrong):
            raise ValueError(
                f"y holds {len(wrong)} values that are not finite, the first at {wrong[0]}; fill them first"
            )
        whole = isinstance(given, int | np.integer) and not isinstance(given, bool)
        if given is not None and (not whole or given < self.p):
            raise ValueError(f"given: expected a whole number of values, {self.p} or more, got {given!r}")
        least = 2 * (self.p + self.q + self.mean) + 2 + max(0, (given or 0) - self.p)
        if len(series) < least:
            raise ValueError(f"y has {len(series)} values, and an ARMA({self.p}, {self.q}) wants at least {least}")
        if np.ptp(series) <= 1e-12 * abs(series).max():
            raise ValueError("y does not vary, so there is nothing to fit")
        if not 1e-100 < abs(series).max() < 1e100:
            raise ValueError(f"y has values of the size {abs(series).max():.0e}; give it in other units")
        return series


@dataclass(frozen=True)
class ArmaFit:
    """An ARMA model as it was fitted."""

    coefficients: ArmaCoefficients
    has_mean: bool  # that was estimated
    variance: float  # of the errors
    # Of the estimates, by the curvature of the likelihood; in the order of `names`.
    covariance: Array = field(repr=False)
    errors: Array = field(repr=False)  # (T - given,), one step ahead
    series: Array = field(repr=False)  # (T,)

    @property
    def names(self) -> list[str]:
        """Of what was estimated."""
        ar, ma, _ = self.coefficients
        lags = [f"{side}.L{lag}" for side, terms in (("ar", ar), ("ma", ma)) for lag in range(1, len(terms) + 1)]
        return (["mean"] if self.has_mean else []) + lags

    @property
    def params(self) -> Array:
        """The estimates, in the order of `names`."""
        ar, ma, mean = self.coefficients
        return np.concatenate([[mean] if self.has_mean else [], ar, ma])

    @property
    def standard_errors(self) -> Array:
        """Of the estimates."""
        return np.sqrt(self.covariance.diagonal())

    @property
    def log_likelihood(self) -> float:
        """Gaussian, given the first values and no errors before."""
        return -len(self.errors) / 2 * (math.log(2 * math.pi * self.variance) + 1)

    @property
    def aic(self) -> float:
        """Akaike's information criterion; the variance counts as an estimate. It compares where as much is given."""
        return 2 * (len(self.names) + 1) - 2 * self.log_likelihood

    @property
    def bic(self) -> float:
        """Schwarz's information criterion."""
        return (len(self.names) + 1) * math.log(len(self.errors)) - 2 * self.log_likelihood

    @cached_property
    def layer(self) -> ParaRNN:
        """The linear ParaRNN that this model is."""
        return from_arma(*self.coefficients)

    @property
    def features(self) -> Features:
        """How it remembers: the moving-average side."""
        return recurrence_features(self.layer)

    @property
    def modes(self) -> ForecastModes:
        """The cycles that it believes in: the autoregressive side."""
        return forecast_modes(self.layer)

    def forecast(self, steps: int, level: float = _LEVEL) -> ArmaForecast:
        """The next values with intervals that hold each of them with a probability of `level` per cent."""
        from scipy.stats import norm

        if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or steps < 1:
            raise ValueError(f"steps: expected a whole number above zero, got {steps!r}")
        if not isinstance(level, Real) or not 1 <= level < 100:
            raise ValueError(f"level is in per cent, from 1 to below 100 (95, not 0.95), got {level!r}")
        ar, ma, mean = self.coefficients
        model = Innovations.of_coefficients(ar[:, None, None], ma[:, None, None], np.zeros(1))
        # What is known so far of the values 1, 2, ... steps ahead.
        state = _known(ar, self.series - mean, len(model.recurrent)) + _known(ma, self.errors, len(model.recurrent))
        points, responses = [], [1.0]  # to an error of one, 0, 1, ... steps before
        response = model.gain[:, 0]
        for _ in range(steps):
            points.append(float(state[0]))
            responses.append(float(response[0]))
            state, response = model.closed_loop @ state, model.closed_loop @ response
        deviation = np.sqrt(self.variance * np.cumsum(np.square(responses[:-1])))
        point, half = np.array(points) + mean, float(norm.ppf(0.5 + level / 200)) * deviation
        return ArmaForecast(point, point - half, point + half, float(level))

    def summary(self) -> Summary:
        """The estimates with their standard errors, for the terminal."""
        from scipy.stats import norm

        scores = self.params / self.standard_errors
        half = norm.ppf(0.5 + _LEVEL / 200) * self.standard_errors
        estimates = zip(
            self.names, self.params, self.standard_errors, scores, 2 * norm.sf(abs(scores)), half, strict=True
        )
        rows = [
            (name, f"{value:.4f}", f"{error:.4f}", f"{z:.2f}", f"{p:.3f}", f"{value - h:.4f}", f"{value + h:.4f}")
            for name, value, error, z, p, h in estimates
        ]
        rows.append(("variance", f"{self.variance:.4g}", "", "", "", "", ""))
        ar, ma, _ = self.coefficients
        notes = [
            f"{len(self.series)} values, the first {len(self.series) - len(self.errors)} of them given; conditional "
            f"log likelihood {self.log_likelihood:.2f}, AIC {self.aic:.2f}, BIC {self.bic:.2f}."
        ]
        columns = ("", "estimate", "standard error", "z", "P>|z|", "2.5 %", "97.5 %")
        return Display(f"ARMA({len(ar)}, {len(ma)})", columns, rows, notes).text()


@dataclass(frozen=True)
class ArmaForecast:
    """Forecasts of the next steps and the limits of their intervals, (steps,) each."""

    point: Array
    lower: Array
    upper: Array
    level: float  # per cent


def _inverse(curvature: Array, ar: Array, ma: Array) -> Array:
    """Of the curvature at a minimum; nothing but NaN where it is none, or at the edge of all models."""
    radii = {"ar": _largest_root(ar), "ma": _largest_root(-ma)}
    edges = [side for side, radius in radii.items() if radius > _EDGE]
    if edges or np.linalg.eigvalsh(curvature).min() <= 0:
        where = f"{' and '.join(edges)} at the edge of" if edges else "the likelihood has no maximum within"
        warnings.warn(
            f"{where} the stationary and invertible models, so there are no standard errors; use fewer terms"
            + (", or difference the series" if "ar" in edges else ""),
            stacklevel=3,
        )
        return np.full_like(curvature, np.nan)
    return np.linalg.inv(curvature).astype(np.float64)


def _largest_root(coefficients: Array) -> float:
    """The largest modulus of an inverse root of 1 - sum_i c_i z^i."""
    return float(abs(np.roots([1.0, *-coefficients])).max(initial=0.0))


def _known(coefficients: Array, past: Array, steps: int) -> Array:
    """What the past adds to the values 1, 2, ... steps ahead, if nothing comes after it."""
    latest = past[::-1]
    return np.array([coefficients[ahead:] @ latest[: max(0, len(coefficients) - ahead)] for ahead in range(steps)])

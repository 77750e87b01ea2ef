"""ARMA models fitted to a series by their conditional likelihood, through a linear ParaRNN."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch.func import functional_call

from parallelrnn.classical.arma import ArmaCoefficients, from_arma
from parallelrnn.classical.estimation import ClassicalFit, one_series
from parallelrnn.classical.innovations import Innovations
from parallelrnn.errors import ArgumentError, InputError, check_integer, check_number
from parallelrnn.interpret.display import Display, Summary
from parallelrnn.nn import ParaRNN

Array = NDArray[np.float64]
_LEVEL = 95.0  # per cent, of the intervals in a summary
_UNIT_ROOT = 1 - 1e-4  # an inverse root beyond this is a unit root, which the search cannot reach
_DIFFERENCE = 1e-5  # of coefficients in numerical derivatives, about the cube root of the machine epsilon


class ARMA:
    """The model y(t) - mean = sum_i ar_i (y(t-i) - mean) + e(t) + sum_j ma_j e(t-j), with p terms of ar and q of ma.

    Examples
    --------
    >>> from statsmodels.datasets import nile
    >>> flow = nile.load_pandas().data["volume"]
    >>> fitted = ARMA(1, 1).fit(flow)
    >>> fitted.coefficients.ar.round(2).tolist()
    [0.89]
    """

    def __init__(self, p: int, q: int, *, mean: bool = True) -> None:
        self.p, self.q, self.mean = check_integer("p", p, 0), check_integer("q", q, 0), bool(mean)
        if not self.p + self.q + self.mean:
            raise InputError("an ARMA(0, 0) model without a mean has no parameters to estimate")

    def fit(self, y: ArrayLike, given: int | None = None) -> ArmaFit:
        """Maximise the Gaussian likelihood conditional on the first values, with no errors before them.

        This is least squares of the one-step errors. The first p values are given, or `given` if that is more:
        likelihoods, AIC and BIC of models with different p are comparable only if the same number is given to all.
        The search is over partial autocorrelations, from three starts, so the fitted model is stationary and
        invertible.
        """
        from scipy.optimize import least_squares

        series = self._checked(y, given)
        middle, scale = float(series.mean()) if self.mean else 0.0, float(series.std())
        problem = OneStepErrors((series - middle) / scale, self.p, self.q, self.mean, given)
        results = [least_squares(problem.errors, start, problem.jacobian, method="lm") for start in problem.starts()]
        # A search that does not end approaches a root on the unit circle, where a small error means nothing.
        best = min([result for result in results if result.success] or results, key=lambda result: float(result.cost))
        if not best.success:
            warnings.warn(f"the fit did not converge, so there are no standard errors: {best.message}", stacklevel=2)
        ar, ma, shift = problem.coefficients(best.x)
        errors = problem.errors(best.x)
        variance = float(errors @ errors) / len(errors)
        units = np.concatenate([np.full(int(self.mean), scale), np.ones(self.p + self.q)])
        unknown = np.full((len(units), len(units)), np.nan)
        inverse = _inverse(problem.curvature(ar, ma, shift), ar, ma) if best.success else unknown
        return ArmaFit(
            coefficients=ArmaCoefficients(ar, ma, middle + scale * shift),
            has_mean=self.mean,
            variance=variance * scale**2,
            covariance=variance * inverse * np.outer(units, units),
            errors=errors * scale,
            series=series,
        )

    def _checked(self, y: ArrayLike, given: int | None) -> Array:
        series = one_series("y", np.ma.filled(np.ma.asarray(y, dtype=np.float64), np.nan))
        wrong = np.flatnonzero(~np.isfinite(series))
        if len(wrong):
            problem = f"{len(wrong)} values are not finite, the first at position {wrong[0]}"
            raise ArgumentError(problem, argument="y", hint="fill them first")
        if given is not None:
            check_integer("given", given, self.p)
        least = 2 * (self.p + self.q + self.mean) + 2 + max(0, (given or 0) - self.p)
        if len(series) < least:
            expected = f"at least {least} values for an ARMA({self.p}, {self.q})"
            raise ArgumentError(argument="y", expected=expected, got=len(series))
        if np.ptp(series) <= 1e-12 * abs(series).max():
            raise ArgumentError("the series is constant, so there is nothing to fit", argument="y")
        if not 1e-100 < abs(series).max() < 1e100:
            problem = f"the values are of the order of {abs(series).max():.0e}"
            raise ArgumentError(problem, argument="y", hint="rescale the series")
        return series


@dataclass(frozen=True, kw_only=True)
class ArmaFit(ClassicalFit):
    """A fitted ARMA model."""

    _extra_estimates: ClassVar[int] = 1  # the variance
    coefficients: ArmaCoefficients
    has_mean: bool  # whether the mean was estimated
    variance: float  # of the errors
    covariance: Array = field(repr=False)  # of the estimates, from the curvature of the likelihood; ordered as `names`
    errors: Array = field(repr=False)  # (T - given,), of one-step forecasts
    series: Array = field(repr=False)  # (T,)

    @property
    def names(self) -> list[str]:
        """The names of the estimates."""
        ar, ma, _ = self.coefficients
        lags = [f"{side}.L{lag}" for side, terms in (("ar", ar), ("ma", ma)) for lag in range(1, len(terms) + 1)]
        return (["mean"] if self.has_mean else []) + lags

    @property
    def params(self) -> Array:
        """The estimates, in the order of `names`."""
        ar, ma, mean = self.coefficients
        return np.concatenate([[mean] if self.has_mean else [], ar, ma])

    @property
    def log_likelihood(self) -> float:
        """The Gaussian log likelihood, conditional on the first values and no errors before them."""
        return -len(self.errors) / 2 * (math.log(2 * math.pi * self.variance) + 1)

    @cached_property
    def layer(self) -> ParaRNN:
        """The equivalent linear ParaRNN."""
        return from_arma(*self.coefficients)

    def forecast(self, steps: int, level: float = _LEVEL) -> ArmaForecast:
        """Forecast the next values, with intervals that contain each of them with a probability of `level` per cent."""
        from scipy.stats import norm

        check_integer("steps", steps, 1)
        expected = "a number in per cent, from 1 to below 100 (95, not 0.95)"
        check_number("level", level, expected, lambda value: 1 <= value < 100)
        ar, ma, mean = self.coefficients
        model = Innovations.of_coefficients(ar[:, None, None], ma[:, None, None], np.zeros(1))
        # What is known so far about the values 1, 2, ... steps ahead.
        state = _known(ar, self.series - mean, len(model.recurrent)) + _known(ma, self.errors, len(model.recurrent))
        points, responses = [], [1.0]  # responses to a unit error 0, 1, ... steps earlier
        response = model.gain[:, 0]
        for _ in range(steps):
            points.append(float(state[0]))
            responses.append(float(response[0]))
            state, response = model.closed_loop @ state, model.closed_loop @ response
        deviation = np.sqrt(self.variance * np.cumsum(np.square(responses[:-1])))
        point, half = np.array(points) + mean, float(norm.ppf(0.5 + level / 200)) * deviation
        return ArmaForecast(point, point - half, point + half, float(level))

    def summary(self) -> Summary:
        """Return the estimates with their standard errors as text for the terminal."""
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
            f"{len(self.series)} values, conditional on the first {len(self.series) - len(self.errors)}; log "
            f"likelihood {self.log_likelihood:.2f}, AIC {self.aic:.2f}, BIC {self.bic:.2f}."
        ]
        columns = ("", "estimate", "standard error", "z", "P>|z|", "2.5 %", "97.5 %")
        return Display(f"ARMA({len(ar)}, {len(ma)})", columns, rows, notes).text()


@dataclass(frozen=True)
class ArmaForecast:
    """Forecasts of the next steps and the limits of their intervals, each (steps,)."""

    point: Array
    lower: Array
    upper: Array
    level: float  # per cent


def _inverse(curvature: Array, ar: Array, ma: Array) -> Array:
    """Return the inverse of the curvature at a minimum; NaN at the edge of the stationary and invertible models."""
    radii = {"ar": _largest_root(ar), "ma": _largest_root(-ma)}
    edges = [side for side, radius in radii.items() if radius > _UNIT_ROOT]
    if edges or np.linalg.eigvalsh(curvature).min() <= 0:
        where = f"{' and '.join(edges)} at the edge of" if edges else "the likelihood has no maximum within"
        hint = "use fewer terms, or difference the series" if "ar" in edges else "use fewer terms"
        message = f"{where} the stationary and invertible models, so there are no standard errors; {hint}"
        warnings.warn(message, stacklevel=3)
        return np.full_like(curvature, np.nan)
    return np.linalg.inv(curvature).astype(np.float64)


def _largest_root(coefficients: Array) -> float:
    """Return the largest modulus of an inverse root of 1 - sum_i c_i z^i."""
    return float(abs(np.roots([1.0, *-coefficients])).max(initial=0.0))


def _known(coefficients: Array, past: Array, steps: int) -> Array:
    """Return the contribution of the past to the values 1, 2, ... steps ahead."""
    latest = past[::-1]
    return np.array([coefficients[ahead:] @ latest[: max(0, len(coefficients) - ahead)] for ahead in range(steps)])


class OneStepErrors:
    """The one-step errors of a series as a function of unconstrained parameters: mean and partial autocorrelations."""

    def __init__(self, series: Array, p: int, q: int, mean: bool, given: int | None = None) -> None:
        self.series, self.p, self.q, self.mean = series, p, q, mean
        self.given = p if given is None else given  # values to condition on, at least p

    def coefficients(self, free: Array) -> tuple[Array, Array, float]:
        """Return ar, ma and the mean."""
        shift, ar, ma = self._split(free)
        return from_partials(ar)[0], -from_partials(ma)[0], shift

    def errors(self, free: Array) -> Array:
        """Return the errors (T - given,)."""
        return self.sensitivities(*self.coefficients(free))[0]

    def jacobian(self, free: Array) -> Array:
        """Return the derivatives (T - given, parameters) of the errors."""
        _, slopes = self.sensitivities(*self.coefficients(free))
        _, ar, ma = self._split(free)
        chain = [np.eye(int(self.mean)), from_partials(ar)[1], -from_partials(ma)[1]]
        return np.concatenate(
            [part @ of_free for part, of_free in zip(self._columns(slopes), chain, strict=True)], axis=1
        )

    def sensitivities(self, ar: Array, ma: Array, shift: float) -> tuple[Array, Array]:
        """Return the errors and their derivatives (T - given, parameters) by the mean, ar and ma.

        The errors are the residuals of the autoregression, filtered by the moving average; the derivatives are other
        inputs through the same filter.
        """
        centred = self.series - shift
        past = _lagged(centred, self.p)[self.given :]
        errors = _errors(centred[self.given :] - past @ ar, ma)
        level = np.full((len(errors), int(self.mean)), 1 - ar.sum())
        drives = np.concatenate([level, past, _lagged(errors, self.q)], axis=1)
        return errors, -_errors(drives, ma)

    def curvature(self, ar: Array, ma: Array, shift: float) -> Array:
        """Return the Hessian of half the sum of squares by the mean, ar and ma, by differences of gradients."""

        def slope(natural: Array) -> Array:
            mean, ar, ma = self._columns(natural)
            errors, slopes = self.sensitivities(ar, ma, float(mean.sum()))
            gradient: Array = slopes.T @ errors
            return gradient

        at = np.concatenate([[shift] if self.mean else [], ar, ma])
        steps = _DIFFERENCE * np.eye(len(at))
        hessian = np.array([(slope(at + step) - slope(at - step)) / (2 * _DIFFERENCE) for step in steps])
        symmetric: Array = (hessian + hessian.T) / 2
        return symmetric

    def starts(self) -> Iterator[Array]:
        """Yield the estimate of Hannan and Rissanen, a regression on errors of a long autoregression, shrunk thrice."""
        series = self.series - self.series.mean() * self.mean
        errors = np.zeros_like(series)
        if self.q:
            past = _lagged(series, min(len(series) // 4, max(2 * (self.p + self.q), round(math.log(len(series)) ** 2))))
            errors = series - past @ np.linalg.lstsq(past, series, rcond=None)[0]
        past = np.concatenate([_lagged(series, self.p), _lagged(errors, self.q)], axis=1)
        ar, ma = np.split(np.linalg.lstsq(past, series, rcond=None)[0], [self.p])
        for factor in (0.95, 0.5, 0.0):
            yield np.concatenate([np.zeros(int(self.mean)), to_partials(ar, factor), to_partials(-ma, factor)])

    def _split(self, free: Array) -> tuple[float, Array, Array]:
        mean, ar, ma = self._columns(free)
        return float(mean.sum()), ar, ma

    def _columns(self, array: Array) -> list[Array]:
        return np.split(array, [int(self.mean), int(self.mean) + self.p], axis=-1)


def _lagged(series: Array, lags: int) -> Array:
    """Return the values 1, 2, ... steps earlier, (T, lags), with zeros before the first."""
    columns = [np.concatenate([np.zeros(min(lag, len(series))), series[:-lag]]) for lag in range(1, lags + 1)]
    return np.stack(columns, 1) if columns else np.zeros((len(series), 0))


@torch.no_grad()
def _errors(series: Array, ma: Array) -> Array:
    """Return the errors of a moving average's one-step forecasts, for series (T,) or (T, B), by a linear ParaRNN."""
    model = Innovations.of_coefficients(np.zeros((0, 1, 1)), ma[:, None, None], np.zeros(1))
    weights = {"weight_ih_l0": torch.from_numpy(model.gain), "weight_hh_l0": torch.from_numpy(model.recurrent)}
    x = torch.from_numpy(series).reshape(len(series), -1, 1)  # (T, B, 1)
    states, _ = functional_call(_one_block(len(model.recurrent)), weights, (x,))  # in companion form, one block
    errors: Array = series.copy()
    errors[1:] -= states[:-1, :, 0].numpy().reshape(errors[1:].shape)
    return errors


@cache
def _one_block(size: int) -> ParaRNN:
    """Return a linear layer without weights of its own."""
    options: dict[str, Any] = {"block_size": size, "aggregate": None, "dtype": torch.float64, "device": "meta"}
    return ParaRNN(1, size, nonlinearity="linear", bias=False, **options)


def from_partials(free: Array) -> tuple[Array, Array]:
    """Return the coefficients (p,) of a stationary autoregression for any numbers (p,), and their derivatives (p, p).

    The numbers, squeezed into (-1, 1), are its partial autocorrelations (Monahan, 1984): every stationary
    autoregression has its own, and the same numbers make a moving average invertible.
    """
    partials, slopes = free / np.sqrt(1 + free**2), (1 + free**2) ** -1.5
    coefficients, derivatives = np.zeros(0), np.zeros((0, len(free)))
    for order, (partial, slope) in enumerate(zip(partials, slopes, strict=True)):
        of_last = np.zeros((1, len(free)))
        of_last[0, order] = slope
        derivatives = np.concatenate(
            [derivatives - partial * derivatives[::-1] - coefficients[::-1, None] * of_last, of_last]
        )
        coefficients = np.append(coefficients - partial * coefficients[::-1], partial)
    return coefficients, derivatives


def to_partials(coefficients: Array, factor: float = 1.0) -> Array:
    """Return the numbers of an autoregression with its inverse roots times `factor`, or less to make it stationary."""
    while True:
        left = coefficients * factor ** np.arange(1, len(coefficients) + 1)
        partials: list[float] = []
        while len(left) and abs(left[-1]) < 1:
            partials.insert(0, last := float(left[-1]))
            left = (left[:-1] + last * left[-2::-1]) / (1 - last**2) if len(left) > 1 else left[:0]
        if not len(left):
            squeezed = np.array(partials)
            free: Array = squeezed / np.sqrt(1 - squeezed**2)
            return free
        factor *= 0.95

"""What fitted models share: their results, and Gaussian likelihoods whose variances follow a linear recurrence."""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from parallelrnn.errors import ArgumentError, InputError
from parallelrnn.interpret import Features, ForecastModes, forecast_modes, recurrence_features
from parallelrnn.interpret.display import Display, Summary
from parallelrnn.kernels import Weights, recurrence
from parallelrnn.nn import ParaRNN

Array = NDArray[np.float64]
RETURNS_PER_PARAMETER = 10  # at least
# Iterations of the search: from each of several starts, and then from the best point found.
_FIRST_ITERATIONS, _LAST_ITERATIONS = 100, 2000
_INFEASIBLE_COST = 1e6  # of parameters that are not allowed, or overflow
_FLAT_SLOPE = 1e-4  # of the mean log density; negligible compared with the variation of scores between samples
_SINGULAR_CONDITION = 1e14  # of a Hessian that is effectively singular


class ClassicalFit(ABC):
    """Estimates with their standard errors, information criteria, and the reading of the layer."""

    _extra_estimates: ClassVar[int] = 0  # parameters that are estimated but not among `params`
    covariance: Array  # (k, k), of the estimates
    errors: Any  # (T, ...)

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """The names of the estimates."""

    @property
    @abstractmethod
    def params(self) -> Array:
        """The estimates (k,), in the order of `names`."""

    @property
    @abstractmethod
    def layer(self) -> ParaRNN:
        """The equivalent linear ParaRNN."""

    @property
    @abstractmethod
    def log_likelihood(self) -> float:
        """The Gaussian log likelihood, conditional on the values before the sample."""

    @property
    def standard_errors(self) -> Array:
        """The standard errors of the estimates."""
        return np.sqrt(self.covariance.diagonal())

    @property
    def aic(self) -> float:
        """Akaike's information criterion; it compares fits that condition on the same number of values."""
        return 2 * (len(self.params) + self._extra_estimates) - 2 * self.log_likelihood

    @property
    def bic(self) -> float:
        """Schwarz's information criterion."""
        return (len(self.params) + self._extra_estimates) * math.log(len(self.errors)) - 2 * self.log_likelihood

    @property
    def features(self) -> Features:
        """How the model remembers: the recurrent matrix, which is the moving-average side."""
        return recurrence_features(self.layer)

    @property
    def modes(self) -> ForecastModes:
        """The cycles and decays of its forecasts: the closed loop, which is the autoregressive side."""
        return forecast_modes(self.layer)


class VolatilityFit(ClassicalFit):
    """A fit whose layer forecasts variances; its standard errors are robust (Bollerslev and Wooldridge)."""

    coefficients: Any
    returns: Array  # (T, ...)
    mean: Any
    level: Any

    @property
    def errors(self) -> Array:
        """The returns about their mean, (T, ...)."""
        errors: Array = self.returns - self.mean
        return errors

    @property
    def persistence(self) -> float:
        """The rate at which shocks to volatility persist, see the coefficients."""
        return float(self.coefficients.persistence)

    @property
    def half_life(self) -> float:
        """The steps until half of a shock to volatility is left."""
        return float(self.coefficients.half_life)

    def _table(self, title: str, *notes: str) -> Summary:
        """Return the estimates with 95 % intervals as text for the terminal."""
        from scipy.stats import norm

        half = norm.ppf(0.975) * self.standard_errors
        columns = zip(self.names, self.params, self.standard_errors, half, strict=True)
        rows = [
            (name, *(f"{x:.4g}" for x in (value, error, value - h, value + h))) for name, value, error, h in columns
        ]
        fit = (
            f"{len(self.returns)} steps; log likelihood {self.log_likelihood:.2f}, AIC {self.aic:.2f}, "
            f"BIC {self.bic:.2f}. Standard errors are robust (Bollerslev and Wooldridge)."
        )
        return Display(title, ("", "estimate", "standard error", "2.5 %", "97.5 %"), rows, (fit, *notes)).text()


def one_series(argument: str, values: ArrayLike) -> Array:
    """Return a series (T,), which may be given as one column."""
    series = np.asarray(values, dtype=np.float64)
    if series.ndim != 1 and series.shape[1:] != (1,):
        raise ArgumentError(argument=argument, expected="one series (T,)", got=series.shape)
    return series.reshape(-1)


def check_returns(returns: Array, least: int) -> None:
    """Raise if returns (T, n) are missing, constant or collinear, or if there are fewer than `least`."""
    wrong = np.flatnonzero(~np.isfinite(returns).all(axis=1))
    if len(wrong):
        problem = f"the returns of {len(wrong)} steps are not finite, the first at step {wrong[0]}"
        raise InputError(problem, hint="drop those steps")
    if len(returns) < least:
        problem = f"{len(returns)} returns are too few for this model"
        raise InputError(problem, hint=f"give at least {least}, ten for each estimate")
    singular = np.linalg.svd(returns - returns.mean(0), compute_uv=False)
    if singular[-1] <= 1e-12 * abs(returns).max() * math.sqrt(len(returns)):
        problem = "the returns are constant, or those of one series follow from the others"
        raise InputError(problem, hint="pass changes of prices, of series that are not collinear")


class LinearRecurrence(NamedTuple):
    """The recurrence s(t+1) = W s(t) + K x(t) + b, whose weights may be functions of parameters."""

    recurrent: Tensor  # W, (d, d)
    gain: Tensor  # K, (d, n)
    bias: Tensor  # b, (d,)
    start: Tensor  # s(1), (d,), before the first input

    def states(self, x: Tensor) -> Tensor:
        """Return the states s(1), ..., s(T+1), (T + 1, d), for inputs x (T, n)."""
        return _run(self.recurrent, self.gain, self.bias, self.start[None], x[:, None])[:, 0]

    def slopes(self, states: Tensor, x: Tensor, of_weights: LinearRecurrence, of_x: Tensor) -> Tensor:
        """Return the derivatives (T + 1, k, d) of the states by k parameters, given those of the weights and of x.

        Both have a last axis for the parameters. The derivatives follow the same recurrence, driven by the changes that
        parameters cause at each step: one batch of k sequences, which can be differentiated again.
        """
        drive = (
            torch.einsum("dek,te->tkd", of_weights.recurrent, states[:-1])
            + torch.einsum("dnk,tn->tkd", of_weights.gain, x)
            + torch.einsum("dn,tnk->tkd", self.gain, of_x)
            + of_weights.bias.T
        )
        return _run(self.recurrent, torch.eye(len(self.start)).to(drive), None, of_weights.start.T, drive)


def _run(recurrent: Tensor, gain: Tensor, bias: Tensor | None, start: Tensor, x: Tensor) -> Tensor:
    """Return all states (T + 1, B, d), from start (B, d) and x (T, B, n)."""
    states, _ = recurrence("RNN_LINEAR", x, Weights(gain, recurrent[None, None], bias), (start,))
    return torch.cat([start[None], states])


class Likelihood(ABC):
    """The log density of returns (T, C) about a mean, given the state that results from the returns before them.

    The input of the recurrence is vech(e e'): the lower triangle of the products of errors, column by column.
    """

    bounds: Sequence[tuple[float, float]]  # of the free parameters

    def __init__(self, returns: Array) -> None:
        self.returns = torch.from_numpy(returns)
        self.columns, self.rows = torch.triu_indices(returns.shape[1], returns.shape[1])

    @abstractmethod
    def model(self, params: Tensor) -> tuple[LinearRecurrence, Tensor]:
        """Return the recurrence and the mean (C,) for parameters (k,)."""

    @abstractmethod
    def starts(self) -> Iterator[list[Array]]:
        """Yield groups of similar starting points, since there may be several maxima."""

    @abstractmethod
    def log_densities(self, states: Tensor, errors: Tensor) -> Tensor:
        """Return log densities (T,) from states (T, d) and errors (T, C)."""

    def natural(self, free: Tensor) -> Tensor:
        """Return the parameters for free ones, which only have to respect their bounds."""
        return free

    def allows(self, params: Tensor) -> bool:
        """Return whether the parameters are feasible, beyond what the bounds say."""
        return True

    def terms(self, params: Tensor) -> Tensor:
        """Return the log densities (T,) for parameters (k,)."""
        recurrence, mean = self.model(params)
        errors = self.returns - mean
        return self.log_densities(recurrence.states(self._products(errors))[:-1], errors)

    def scores(self, params: Tensor) -> Tensor:
        """Return the derivatives (T, k) of the log densities by the parameters; they can be differentiated again."""
        recurrence, mean = self.model(params)
        *of_weights, of_mean = torch.autograd.functional.jacobian(self._flat_model, params, create_graph=True)
        errors = self.returns - mean
        x, left, right = self._products(errors), errors[:, self.rows, None], errors[:, self.columns, None]  # (T, m, 1)
        of_x = left * -of_mean[self.columns] + -of_mean[self.rows] * right  # (T, m, k)
        states = recurrence.states(x)
        slopes = recurrence.slopes(states, x, LinearRecurrence(*of_weights), of_x)[:-1]  # (T, k, d)
        now, seen = states[:-1], (self.returns - mean).requires_grad_()  # a copy of the errors, separate from x
        # Each density depends on the state and the errors of its own step only, so one gradient holds all of them.
        by_state, by_error = torch.autograd.grad(self.log_densities(now, seen).sum(), (now, seen), create_graph=True)
        scores: Tensor = torch.einsum("td,tkd->tk", by_state, slopes) - by_error @ of_mean
        return scores

    def maximize(self) -> Array:
        """Search for the most likely parameters (k,) from the best start of each group."""
        from scipy.optimize import minimize

        def search(start: Array, iterations: int) -> Any:
            options = {"maxiter": iterations, "maxfun": 10 * iterations, "maxcor": 30, "ftol": 1e-15, "gtol": 1e-9}
            return minimize(self._cost, start, jac=True, method="L-BFGS-B", bounds=self.bounds, options=options)

        best_starts = [min(group, key=lambda start: self._cost(start)[0]) for group in self.starts()]
        results = [search(start, _FIRST_ITERATIONS) for start in best_starts]
        best = search(min(results, key=lambda result: float(result.fun)).x, _LAST_ITERATIONS)
        low, high = np.array(self.bounds).T
        if abs(best.x - np.clip(best.x - best.jac, low, high)).max() > _FLAT_SLOPE:  # where the bounds allow to go on
            warnings.warn(
                "the search for the most likely parameters did not converge: the data may call for variances that "
                "never forget their start, or for a smaller model; treat the estimates with caution",
                stacklevel=3,
            )
        return self.natural(torch.from_numpy(best.x)).numpy()

    def covariance(self, params: Array) -> Array:
        """Return the covariance of estimates (k,), robust to errors that are not Gaussian.

        It is H^-1 S H^-1, with H the Hessian of the log likelihood and S the sum of squared scores (Bollerslev and
        Wooldridge, 1992); NaN if the likelihood does not identify the parameters.
        """
        point = torch.from_numpy(params).requires_grad_()
        scores = self.scores(point)
        rows = [torch.autograd.grad(score, point, retain_graph=True)[0] for score in scores.sum(0)]
        hessian = torch.stack(rows).numpy()
        if not np.linalg.cond(hessian) < _SINGULAR_CONDITION:
            return np.full_like(hessian, np.nan)
        spread = np.linalg.solve(hessian, scores.detach().numpy().T)  # (k, T)
        covariance: Array = spread @ spread.T
        return covariance

    def _products(self, errors: Tensor) -> Tensor:
        """Return vech(e e'), (T, m), for errors (T, C)."""
        return errors[:, self.rows] * errors[:, self.columns]

    def _flat_model(self, params: Tensor) -> tuple[Tensor, ...]:
        recurrence, mean = self.model(params)
        return (*recurrence, mean)

    def _cost(self, free: Array) -> tuple[float, Array]:
        """Return the mean of -log density, and its gradient."""
        point = torch.from_numpy(np.array(free)).requires_grad_()
        params = self.natural(point)
        cost = -self.terms(params).mean()
        if not (cost.isfinite() and self.allows(params)):
            return _INFEASIBLE_COST, np.zeros_like(free)
        (slope,) = torch.autograd.grad(cost, point)
        return cost.item(), slope.numpy()

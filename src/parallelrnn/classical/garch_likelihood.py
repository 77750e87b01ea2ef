"""Gaussian likelihoods whose variances are states of a linear recurrence: their maximum, and robust standard errors."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parallelrnn.classical.garch_recurrence import LinearRecurrence

Array = NDArray[np.float64]

_FIRST_STEPS, _STEPS = 100, 2000  # of the search, from each of several starts and then from where the best has led
_HOPELESS = 1e6  # the cost of parameters that are not allowed, or lead beyond all numbers
_FLAT = 1e-4  # a slope of the mean log density that is none, beside what scores vary by from sample to sample
_SINGULAR = 1e14  # condition of a Hessian that has no inverse to speak of


class Likelihood(ABC):
    """The log density of returns (T, C) about a mean, given the state to which those before have led.

    The recurrence reads the products of errors: vech(e e') at each step, the lower triangle column by column.
    """

    bounds: Sequence[tuple[float, float]]  # of free parameters

    def __init__(self, returns: Array) -> None:
        self.returns = torch.from_numpy(returns)
        self.columns, self.rows = torch.triu_indices(returns.shape[1], returns.shape[1])

    @abstractmethod
    def model(self, params: Tensor) -> tuple[LinearRecurrence, Tensor]:
        """The recurrence of some parameters (k,), and the mean (C,)."""

    @abstractmethod
    def starts(self) -> Iterator[list[Array]]:
        """Free parameters to begin with, in groups of their kind: there may be several maxima."""

    @abstractmethod
    def log_densities(self, states: Tensor, errors: Tensor) -> Tensor:
        """(T,), from states (T, d) and errors (T, C)."""

    def natural(self, free: Tensor) -> Tensor:
        """Parameters from free ones, which only have to keep to their bounds."""
        return free

    def allows(self, params: Tensor) -> bool:
        """Whether the parameters are among those that are searched, where bounds do not say so."""
        return True

    def terms(self, params: Tensor) -> Tensor:
        """The log densities (T,) of some parameters."""
        recurrence, mean = self.model(params)
        errors = self.returns - mean
        return self.log_densities(recurrence.states(self._products(errors))[:-1], errors)

    def scores(self, params: Tensor) -> Tensor:
        """The derivatives (T, k) of the log densities by the parameters; they have gradients in turn."""
        recurrence, mean = self.model(params)
        *of_weights, of_mean = torch.autograd.functional.jacobian(self._flat_model, params, create_graph=True)
        errors = self.returns - mean
        x, of_x = self._products(errors), self._changes(errors, -of_mean)
        states = recurrence.states(x)
        slopes = recurrence.slopes(states, x, LinearRecurrence(*of_weights), of_x)[:-1]  # (T, k, d)
        now, seen = states[:-1], (self.returns - mean).requires_grad_()  # errors that x does not depend on
        # Each density depends on the state and the errors of its own step alone, so that one gradient has all of them.
        by_state, by_error = torch.autograd.grad(self.log_densities(now, seen).sum(), (now, seen), create_graph=True)
        scores: Tensor = torch.einsum("td,tkd->tk", by_state, slopes) - by_error @ of_mean
        return scores

    def maximize(self) -> Array:
        """The most likely parameters (k,) that are found from the best start of each group."""
        from scipy.optimize import minimize

        def search(start: Array, steps: int) -> Any:
            options = {"maxiter": steps, "maxfun": 10 * steps, "maxcor": 30, "ftol": 1e-15, "gtol": 1e-9}
            return minimize(self._cost, start, jac=True, method="L-BFGS-B", bounds=self.bounds, options=options)

        best_starts = [min(group, key=lambda start: self._cost(start)[0]) for group in self.starts()]
        found = [search(start, _FIRST_STEPS) for start in best_starts]
        best = search(min(found, key=lambda one: float(one.fun)).x, _STEPS)
        if self._slope_left(best.x, best.jac) > _FLAT:
            warnings.warn(
                "the search for the most likely parameters ended before it came to them: the returns may ask for "
                "variances that never forget where they began, or for a smaller model; take the estimates with care",
                stacklevel=3,
            )
        params: Array = self.natural(torch.from_numpy(best.x)).numpy()
        return params

    def covariance(self, params: Array) -> Array:
        """Of estimates (k,), robust to errors that are not Gaussian (Bollerslev and Wooldridge, 1992).

        H^-1 S H^-1, with H the Hessian of the log likelihood and S the sum of squared scores; not a number where the
        likelihood does not tell the parameters.
        """
        point = torch.from_numpy(params).requires_grad_()
        scores = self.scores(point)
        rows = [torch.autograd.grad(one, point, retain_graph=True)[0] for one in scores.sum(0)]
        hessian = torch.stack(rows).numpy()
        if not np.linalg.cond(hessian) < _SINGULAR:
            return np.full_like(hessian, np.nan)
        spread = np.linalg.solve(hessian, scores.detach().numpy().T)  # (k, T)
        covariance: Array = spread @ spread.T
        return covariance

    def _products(self, errors: Tensor) -> Tensor:
        """vech(e e'), (T, m), of errors (T, C)."""
        return errors[:, self.rows] * errors[:, self.columns]

    def _changes(self, errors: Tensor, of_errors: Tensor) -> Tensor:
        """The derivatives (T, m, k) of the products, given those (C, k) of the errors, the same at all steps."""
        left, right = errors[:, self.rows, None], errors[:, self.columns, None]  # (T, m, 1)
        return left * of_errors[self.columns] + of_errors[self.rows] * right

    def _flat_model(self, params: Tensor) -> tuple[Tensor, ...]:
        recurrence, mean = self.model(params)
        return (*recurrence, mean)

    def _cost(self, free: Array) -> tuple[float, Array]:
        """The mean of -log density, and its gradient."""
        point = torch.from_numpy(np.array(free)).requires_grad_()
        params = self.natural(point)
        cost = -self.terms(params).mean()
        if not (cost.isfinite() and self.allows(params)):
            return _HOPELESS, np.zeros_like(free)
        (slope,) = torch.autograd.grad(cost, point)
        return cost.item(), slope.numpy()

    def _slope_left(self, free: Array, slope: Array) -> float:
        """The largest slope in a direction that the bounds allow."""
        low, high = np.array(self.bounds).T
        return float(abs(free - np.clip(free - slope, low, high)).max())

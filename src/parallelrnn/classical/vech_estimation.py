"""VECH-GARCH(1, 1) models fitted to returns of several series, by the Gaussian likelihood through a linear ParaRNN."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from parallelrnn.classical.arma import spectral_radius
from parallelrnn.classical.garch_fit import PER_PARAMETER, VolatilityFit, check_returns
from parallelrnn.classical.garch_likelihood import Likelihood
from parallelrnn.classical.garch_recurrence import LinearRecurrence
from parallelrnn.classical.vech import (
    VechCoefficients,
    bekk,
    bekk_tensors,
    covariance_backcast,
    covariance_forecast,
    covariance_path,
    duplication,
    from_vech,
    vech,
)
from parallelrnn.interpret.display import Step, Summary
from parallelrnn.nn import ParaRNN

Array = NDArray[np.float64]
_BELOW_ONE = 1 - 1e-5  # the largest modulus of an eigenvalue of B, so that rounding does not put that of Phi above
_LEAST = 1e-4  # on the diagonal of C, for series of variance one: the root of the least omega of a GARCH


class VechGARCH:
    """r(t) = mean + y(t), with y(t) Gaussian of covariance H(t) = C C' + A y(t-1) y(t-1)' A' + B H(t-1) B'.

    This is BEKK(1, 1) of Engle and Kroner (1995), the VECH models whose H(t) are positive definite by their form: C is
    lower triangular, A and B are any matrices (n, n). Other VECH models are not searched; `from_vech` takes them.
    Without `mean` the returns are taken to be about zero, as in the paper.
    """

    def __init__(self, *, mean: bool = True) -> None:
        self.mean = bool(mean)

    def fit(self, returns: ArrayLike) -> VechFit:
        """Maximise the Gaussian likelihood, given that all before the first step was as `covariance_backcast` says.

        From several starts, on series of variance one. The signs of A and B, which covariances do not tell, are those
        that make their first entries positive. Where volatility hardly moves, the likelihood has several maxima, and
        the best that was found may not be the highest. Standard errors are robust to returns that are not Gaussian.
        """
        series = self._checked(returns)
        middle = series.mean(0) * self.mean
        scale = np.sqrt(((series - middle) ** 2).mean(0))
        likelihood = _BekkLikelihood((series - middle) / scale, self.mean)
        params = likelihood.with_signs(likelihood.maximize())
        shift, lower, arch, garch = (part.numpy() for part in likelihood.matrices(torch.from_numpy(params)))
        ratios = scale[:, None] / scale  # the units of A and B
        units = np.concatenate(
            [scale[: self.mean * len(scale)], scale[likelihood.rows.numpy()], ratios.ravel(), ratios.ravel()]
        )
        return VechFit(
            lower * scale[:, None],
            arch * ratios,
            garch * ratios,
            middle + scale * shift,
            self.mean,
            likelihood.covariance(params) * np.outer(units, units),
            likelihood.level * np.outer(scale, scale),
            series,
        )

    def _checked(self, returns: ArrayLike) -> Array:
        series = np.asarray(returns, dtype=np.float64)
        if series.ndim != 2 or not series.shape[1]:
            raise ValueError(f"returns: expected (T, n), a column for each series, got the shape {series.shape}")
        size = series.shape[1]
        check_returns(series, PER_PARAMETER * (size * self.mean + size * (size + 1) // 2 + 2 * size**2))
        return series


@dataclass(frozen=True)
class VechFit(VolatilityFit):
    """A VECH-GARCH(1, 1) model as it was fitted, in BEKK's form."""

    constant: Array  # C, (n, n), lower triangular
    arch: Array  # A, (n, n)
    garch: Array  # B, (n, n)
    mean: Array  # (n,)
    has_mean: bool  # that was estimated
    covariance: Array = field(repr=False)  # of the estimates, robust; in the order of `names`
    level: Array = field(repr=False)  # (n, n), of y y' and H before the first step
    returns: Array = field(repr=False)  # (T, n)

    @property
    def names(self) -> list[str]:
        """Of what was estimated: the means, C column by column, A and B row by row."""
        places = range(1, len(self.mean) + 1)
        lower = [f"C[{row},{column}]" for column in places for row in places[column - 1 :]]
        squares = [f"{name}[{row},{column}]" for name in "AB" for row in places for column in places]
        return [f"mean[{place}]" for place in places if self.has_mean] + lower + squares

    @property
    def params(self) -> Array:
        """The estimates, in the order of `names`."""
        means = self.mean[: len(self.mean) * self.has_mean]
        return np.concatenate([means, vech(self.constant), self.arch.ravel(), self.garch.ravel()])

    @property
    def coefficients(self) -> VechCoefficients:
        """The VECH model: b, Theta and Phi."""
        return bekk(self.constant, self.arch, self.garch)

    @cached_property
    def layer(self) -> ParaRNN:
        """The linear ParaRNN from vech(y y') to the next vech(H)."""
        return from_vech(*self.coefficients)

    @property
    def errors(self) -> Array:
        """(T, n), the returns about their means."""
        return self.returns - self.mean

    @cached_property
    def covariances(self) -> Array:
        """(T, n, n), of the returns of each step given those before it."""
        return covariance_path(self.layer, self.errors, self.level)

    @property
    def standardized(self) -> Array:
        """(T, n), L(t)^-1 y(t) with L(t) L(t)' = H(t): if the model is right, uncorrelated and of variance one."""
        solved: Array = np.linalg.solve(np.linalg.cholesky(self.covariances), self.errors[..., None])[..., 0]
        return solved

    def forecast(self, steps: int) -> Array:
        """The covariance matrices (steps, n, n) of the next returns."""
        return covariance_forecast(self.layer, self.errors, steps, self.level)

    @property
    def log_likelihood(self) -> float:
        """Gaussian, given what came before the returns."""
        _, logs = np.linalg.slogdet(2 * np.pi * self.covariances)
        return -0.5 * float(logs.sum() + (self.standardized**2).sum())

    @property
    def persistence(self) -> float:
        """The largest modulus of a forecast mode."""
        return self.coefficients.persistence

    @property
    def half_life(self) -> float:
        """Steps until half is left of a shock to volatility."""
        return self.coefficients.half_life

    @property
    def unconditional_covariance(self) -> Array:
        """(n, n), to which forecasts tend."""
        return self.coefficients.unconditional_covariance

    def summary(self) -> Summary:
        """The estimates with their standard errors, for the terminal."""
        gone = f"a shock to volatility is half gone after {Step().format(self.half_life)}"
        fading = gone if self.persistence < 1 else "shocks to volatility do not fade"
        notes = [
            "H(t) = C C' + A y(t-1) y(t-1)' A' + B H(t-1) B'.",
            f"Persistence {self.persistence:.4f}: {fading}.",
        ]
        if (self.constant.diagonal() < 2 * _LEAST * self.errors.std(0)).any():
            notes.append("C lies on its bound, where standard errors say little.")
        return self._table("VECH-GARCH(1, 1), as BEKK", *notes)


class _BekkLikelihood(Likelihood):
    """Of series of variance one. Parameters are the means (if there are any), vech(C), A and B, row by row."""

    def __init__(self, returns: Array, mean: bool) -> None:
        super().__init__(returns)
        size = returns.shape[1]
        self.mean, self.size = mean, size
        self.level = covariance_backcast(returns)
        self.duplicate = torch.from_numpy(duplication(size))
        free, positive = (-math.inf, math.inf), (_LEAST, math.inf)
        diagonal = [positive if row == column else free for row, column in zip(self.rows, self.columns, strict=True)]
        self.bounds = [*[free] * (size * mean), *diagonal, *[free] * (2 * size**2)]

    def matrices(self, params: Tensor) -> tuple[Tensor, ...]:
        """The mean (n,), C, A and B (n, n)."""
        mean, lower, arch, garch = params.split([self.size * self.mean, len(self.rows), self.size**2, self.size**2])
        shape = self.size, self.size
        if not self.mean:
            mean = params.new_zeros(self.size)
        constant = params.new_zeros(shape).index_put((self.rows, self.columns), lower)
        return mean, constant, arch.reshape(shape), garch.reshape(shape)

    def allows(self, params: Tensor) -> bool:
        """Whether covariances forget where they began."""
        *_, garch = self.matrices(params.detach())
        return spectral_radius(garch.numpy()) < _BELOW_ONE

    def model(self, params: Tensor) -> tuple[LinearRecurrence, Tensor]:
        """The VECH model; the state before the first step is that of a past in which all was at the level."""
        mean, *matrices = self.matrices(params)
        constant, theta, phi = bekk_tensors(*matrices)
        start = constant + (theta + phi) @ torch.from_numpy(vech(self.level))
        return LinearRecurrence(phi, theta, constant, start), mean

    def log_densities(self, states: Tensor, errors: Tensor) -> Tensor:
        """Of errors (T, n) with covariance matrices whose lower triangles are the states."""
        covariances = (states @ self.duplicate.T).unflatten(-1, (self.size, self.size))
        roots, failed = torch.linalg.cholesky_ex(covariances)
        scaled = torch.linalg.solve_triangular(roots, errors[..., None], upper=False)[..., 0]
        logs = roots.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        densities = -0.5 * (self.size * math.log(2 * math.pi) + (scaled**2).sum(-1)) - logs
        return torch.where(failed == 0, densities, -math.inf)  # parameters that lead beyond all numbers

    def starts(self) -> Iterator[list[Array]]:
        """For each of some persistences, what part of it may be A's; the same for all series, with their covariance."""
        for persistence in (0.8, 0.95, 0.99):
            yield [self._start(persistence, part) for part in (0.05, 0.1, 0.2)]

    def _start(self, persistence: float, part: float) -> Array:
        root = np.linalg.cholesky(np.cov(self.returns.numpy(), rowvar=False, bias=True).reshape(self.size, self.size))
        sides = [math.sqrt(persistence * one) * np.eye(self.size).ravel() for one in (part, 1 - part)]
        return np.concatenate([[0.0] * (self.size * self.mean), math.sqrt(1 - persistence) * vech(root), *sides])

    def with_signs(self, params: Array) -> Array:
        """The same model with first entries of A and B that are not negative."""
        *_, arch, garch = self.matrices(torch.from_numpy(params))
        signs = [np.full(self.size**2, math.copysign(1.0, float(one[0, 0]))) for one in (arch, garch)]
        changed: Array = params * np.concatenate([np.ones(len(params) - 2 * self.size**2), *signs])
        return changed

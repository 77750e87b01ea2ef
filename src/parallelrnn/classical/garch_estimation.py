"""GARCH models fitted to returns, by the Gaussian likelihood through a linear ParaRNN."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from parallelrnn.classical.garch import GarchCoefficients, backcast, from_garch, variance_forecast, variance_path
from parallelrnn.classical.garch_fit import PER_PARAMETER, VolatilityFit, check_returns
from parallelrnn.classical.garch_likelihood import Likelihood
from parallelrnn.classical.garch_recurrence import LinearRecurrence
from parallelrnn.interpret.display import Step, Summary
from parallelrnn.nn import ParaRNN

Array = NDArray[np.float64]
_LEAST_OMEGA, _MOST_OMEGA = 1e-8, 10.0  # of the variance of the returns; those of `arch`
_BELOW_ONE = 1 - 1e-8
_NEARLY_INTEGRATED = 1e-6  # persistence below one


class GARCH:
    """r(t) = mean + e(t), with e(t) Gaussian of variance v(t) = omega + sum_i alpha_i e(t-i)^2 + sum_j beta_j v(t-j).

    `p` squared errors and `q` variances, as `arch` names them; Bollerslev (1986) has the letters the other way round.
    With q = 0 this is an ARCH model. Without `mean` the returns are taken to be about zero.

    Examples
    --------
    >>> returns = np.random.default_rng(0).standard_normal(500)
    >>> fitted = GARCH(1, 1).fit(returns)
    >>> fitted.names
    ['mean', 'omega', 'alpha[1]', 'beta[1]']
    """

    def __init__(self, p: int = 1, q: int = 1, *, mean: bool = True) -> None:
        for name, order, least in (("p", p, 1), ("q", q, 0)):
            if isinstance(order, bool) or not isinstance(order, int | np.integer) or order < least:
                raise ValueError(f"{name}: expected a whole number of terms, {least} or more, got {order!r}")
        self.p, self.q, self.mean = int(p), int(q), bool(mean)

    def fit(self, returns: ArrayLike) -> GarchFit:
        """Maximise the Gaussian likelihood, given that all before the first return was as `backcast` says.

        Searched for among omega > 0, alpha and beta >= 0 with a sum below one, from several starts, on returns of
        variance one. Standard errors are robust to returns that are not Gaussian.
        """
        series = self._checked(returns)
        middle = float(series.mean()) * self.mean
        scale = float(np.sqrt(np.mean((series - middle) ** 2)))
        likelihood = _GarchLikelihood((series - middle) / scale, self.p, self.q, self.mean)
        params = likelihood.maximize()
        shift, omega, alpha, beta = (part.numpy() for part in likelihood.split(torch.from_numpy(params)))
        units = np.array([scale] * self.mean + [scale**2] + [1.0] * (self.p + self.q))
        return GarchFit(
            GarchCoefficients(float(omega[0]) * scale**2, alpha, beta),
            middle + scale * float(shift.sum()),
            self.mean,
            likelihood.covariance(params) * np.outer(units, units),
            likelihood.level * scale**2,
            series,
        )

    def _checked(self, returns: ArrayLike) -> Array:
        series = np.asarray(returns, dtype=np.float64)
        if series.ndim == 2 and series.shape[1] == 1:
            series = series[:, 0]
        if series.ndim != 1:
            raise ValueError(f"returns: expected one series (T,), got the shape {series.shape}")
        check_returns(series[:, None], PER_PARAMETER * (self.mean + 1 + self.p + self.q))
        return series


@dataclass(frozen=True)
class GarchFit(VolatilityFit):
    """A GARCH model as it was fitted."""

    coefficients: GarchCoefficients
    mean: float
    has_mean: bool  # that was estimated
    covariance: Array = field(repr=False)  # of the estimates, robust; in the order of `names`
    level: float = field(repr=False)  # of squared errors and variances before the first return
    returns: Array = field(repr=False)  # (T,)

    @property
    def names(self) -> list[str]:
        """Of what was estimated."""
        _, alpha, beta = self.coefficients
        sides = (("alpha", alpha), ("beta", beta))
        lags = [f"{side}[{lag}]" for side, terms in sides for lag in range(1, len(terms) + 1)]
        return (["mean"] if self.has_mean else []) + ["omega", *lags]

    @property
    def params(self) -> Array:
        """The estimates, in the order of `names`."""
        omega, alpha, beta = self.coefficients
        return np.concatenate([[self.mean] if self.has_mean else [], [omega], alpha, beta])

    @cached_property
    def layer(self) -> ParaRNN:
        """The linear ParaRNN from squared errors to the next variance."""
        return from_garch(*self.coefficients)

    @property
    def errors(self) -> Array:
        """(T,), the returns about their mean."""
        return self.returns - self.mean

    @cached_property
    def variance(self) -> Array:
        """(T,), of each return given those before it."""
        return variance_path(self.layer, self.errors, self.level)

    @property
    def standardized(self) -> Array:
        """(T,), errors in units of their standard deviation: if the model is right, alike and independent."""
        return self.errors / np.sqrt(self.variance)

    def forecast(self, steps: int) -> Array:
        """The variances (steps,) of the next returns."""
        return variance_forecast(self.layer, self.errors, steps, self.level)

    @property
    def log_likelihood(self) -> float:
        """Gaussian, given what came before the returns."""
        return -0.5 * float(np.sum(np.log(2 * np.pi * self.variance) + self.standardized**2))

    @property
    def persistence(self) -> float:
        """The sum of alpha and beta."""
        return self.coefficients.persistence

    @property
    def half_life(self) -> float:
        """Steps until half is left of a shock to volatility."""
        return self.coefficients.half_life

    @property
    def unconditional_variance(self) -> float:
        """To which forecasts tend."""
        return self.coefficients.unconditional_variance

    def summary(self) -> Summary:
        """The estimates with their standard errors, for the terminal."""
        _, alpha, beta = self.coefficients
        if 1 - self.persistence > _NEARLY_INTEGRATED:
            fading = (
                f"Persistence {self.persistence:.4f}: a shock to volatility is half gone after "
                f"{Step().format(self.half_life)}; unconditional variance {self.unconditional_variance:.4g}."
            )
        else:
            fading = "The persistence lies on its bound of one: shocks to volatility do not fade (integrated GARCH)."
        notes = [fading]
        if (np.concatenate([alpha, beta]) == 0).any():
            notes.append("Coefficients of zero lie on their bound, where standard errors say little.")
        return self._table(f"GARCH({len(alpha)}, {len(beta)})", *notes)


class _GarchLikelihood(Likelihood):
    """Of returns of variance one. Parameters are the mean (if there is one), omega, alpha and beta.

    Free are the mean, log omega, and for each coefficient its part of what those before it leave of one.
    """

    def __init__(self, returns: Array, p: int, q: int, mean: bool) -> None:
        super().__init__(returns[:, None])
        self.p, self.q, self.mean = p, q, mean
        self.level = backcast(returns)
        self.bounds = [
            *[(-math.inf, math.inf)] * mean,
            (math.log(_LEAST_OMEGA), math.log(_MOST_OMEGA)),
            *[(0.0, _BELOW_ONE)] * (p + q),
        ]

    def split(self, params: Tensor) -> Sequence[Tensor]:
        """Mean (none or one), omega (1,), alpha (p,) and beta (q,)."""
        parts: Sequence[Tensor] = params.split([int(self.mean), 1, self.p, self.q])
        return parts

    def natural(self, free: Tensor) -> Tensor:
        """Coefficients that are not negative and sum to less than one, and omega above zero."""
        mean, log_omega, of_left = free.split([int(self.mean), 1, self.p + self.q])
        left = torch.cat([torch.ones_like(of_left[:1]), (1 - of_left).cumprod(0)[:-1]])
        return torch.cat([mean, log_omega.exp(), of_left * left])

    def model(self, params: Tensor) -> tuple[LinearRecurrence, Tensor]:
        """The companion form; the state before the first return is that of a past in which all was at the level."""
        mean, omega, alpha, beta = self.split(params)
        order = max(self.p, self.q)
        alpha, beta = (torch.cat([one, one.new_zeros(order - len(one))]) for one in (alpha, beta))
        recurrent = torch.cat([beta[:, None], torch.eye(order, dtype=beta.dtype)[:, : order - 1]], 1)
        bias = torch.cat([omega, beta.new_zeros(order - 1)])
        start = bias + self.level * (alpha + beta).flip(0).cumsum(0).flip(0)
        return LinearRecurrence(recurrent, alpha[:, None], bias, start), mean.sum()[None]

    def log_densities(self, states: Tensor, errors: Tensor) -> Tensor:
        """Of errors (T, 1) whose variances are the first of the states."""
        variances = states[:, :1]
        return -0.5 * ((2 * math.pi * variances).log() + errors**2 / variances)[:, 0]

    def starts(self) -> Iterator[list[Array]]:
        """For each of some persistences, what part of it may be alpha's; with the variance of the returns."""
        for persistence in (0.5, 0.8, 0.95, 0.99):
            yield [self._start(persistence, part) for part in ((0.02, 0.05, 0.1, 0.2, 0.5) if self.q else (1.0,))]

    def _start(self, persistence: float, part: float) -> Array:
        sides = np.repeat(persistence * np.array([part, 1 - part]) / [self.p, max(1, self.q)], [self.p, self.q])
        left = 1 - np.concatenate([[0.0], sides.cumsum()[:-1]])
        return np.concatenate([[0.0] * self.mean, [math.log(1 - persistence)], sides / left])

"""GARCH models as linear ParaRNNs on squared errors, and back (Section 2.1 of arXiv 2605.02692).

    v(t) = omega + sum_i alpha_i e(t-i)^2 + sum_j beta_j v(t-j),                v(t) the variance of e(t) given the past

is an ARMA model of the squared errors with ar = alpha + beta and ma = -beta, and v(t) is its forecast of e(t)^2. So the
recurrence features of the layer are the roots of beta, and its forecast modes are the roots of alpha + beta.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from parallelrnn.classical.arma import to_arma
from parallelrnn.classical.estimation import (
    RETURNS_PER_PARAMETER,
    Likelihood,
    LinearRecurrence,
    VolatilityFit,
    check_returns,
    one_series,
)
from parallelrnn.classical.innovations import Innovations, spectral_radius
from parallelrnn.errors import ArgumentError, InputError, check_integer, check_number
from parallelrnn.interpret.display import Step, Summary
from parallelrnn.interpret.dynamics import half_life_of
from parallelrnn.interpret.layers import exact
from parallelrnn.nn import ParaRNN

Array = NDArray[np.float64]
_NEGLIGIBLE = 1e-10  # a coefficient that is zero up to rounding; round trips are accurate to this
_BACKCAST_DECAY, _BACKCAST_STEPS = 0.94, 75  # as in `arch`
_LEAST_OMEGA, _MOST_OMEGA = 1e-8, 10.0  # relative to the variance of the returns, as in `arch`
_BELOW_ONE = 1 - 1e-8
_NEARLY_INTEGRATED = 1e-6  # persistence below one


class GarchCoefficients(NamedTuple):
    """The model v(t) = omega + sum_i alpha_i e(t-i)^2 + sum_j beta_j v(t-j), with p alphas and q betas as in `arch`.

    Bollerslev (1986) has the letters the other way round: q squared errors and p variances.
    """

    omega: float
    alpha: Array  # (p,), of squared errors
    beta: Array  # (q,), of variances

    @property
    def persistence(self) -> float:
        """The sum of alpha and beta; if it is below one, variances return to a mean."""
        return float(self.alpha.sum() + self.beta.sum())

    @property
    def half_life(self) -> float:
        """The steps until half of a shock to volatility is left: the half-life of the slowest forecast mode.

        For p = q = 1 it is the half-life of `persistence`; for other orders the modulus of the mode differs from it.
        """
        if self.persistence >= 1:  # then a real root is at least one, and rounding must not put it below
            return math.inf
        return half_life_of(spectral_radius(_companion(self).closed_loop))

    @property
    def unconditional_variance(self) -> float:
        """The variance to which forecasts tend; infinite if the persistence is one or more."""
        return self.omega / (1 - self.persistence) if self.persistence < 1 else math.inf


def from_garch(omega: float, alpha: ArrayLike, beta: ArrayLike = ()) -> ParaRNN:
    """Return the linear ParaRNN that takes squared errors and outputs the variance of the next error.

    `alpha` (p,) are the coefficients of squared errors and `beta` (q,) those of variances, none of them negative. A
    persistence of one (IGARCH) or more is allowed. The initial state represents the time before the first error;
    `backcast_state` returns the usual one.

    Examples
    --------
    >>> layer = from_garch(0.1, [0.1], [0.8])
    >>> to_garch(layer).beta.round(12).tolist()
    [0.8]
    """
    return _companion(_checked(omega, alpha, beta)).as_layer()


def to_garch(layer: ParaRNN) -> GarchCoefficients:
    """Return the GARCH model of a linear ParaRNN whose output is the forecast of its next input.

    Trailing coefficients that are zero up to rounding are dropped. Those of a layer that was trained freely may be
    negative.
    """
    unbiased = exact(layer)
    for name, weight in unbiased.named_parameters():
        if "bias" in name:
            weight.zero_()  # an ARMA model has a mean, an integrated GARCH has none
    ar, ma, _ = to_arma(unbiased)
    order = max(len(ar), len(ma))
    alpha = np.pad(ar, (0, order - len(ar))) + np.pad(ma, (0, order - len(ma)))
    present = np.flatnonzero(abs(alpha) > _NEGLIGIBLE)
    *before, last = _outputs_without_errors(Innovations.of_layer(layer), layer.hidden_size + 1)
    omega = last + float(ma @ before[::-1][: len(ma)])
    return GarchCoefficients(omega, alpha[: present[-1] + 1 if len(present) else 0], -ma)


def backcast(errors: ArrayLike) -> float:
    """Return the level assumed for squared errors and variances before the first error, the default of `arch`.

    It is the weighted mean of the first 75 squares, or all if there are fewer, with weights 0.94^i.
    """
    weights = past_weights(len(np.asarray(errors)))
    return float(weights @ np.asarray(errors, dtype=np.float64)[: len(weights)] ** 2)


def past_weights(length: int) -> Array:
    """Return the weights of the first steps of a series in its backcast; they sum to one."""
    weights = np.power(_BACKCAST_DECAY, np.arange(min(length, _BACKCAST_STEPS)), dtype=np.float64)
    normed: Array = weights / weights.sum()
    return normed


def backcast_state(layer: ParaRNN, level: float) -> Tensor:
    """Return the state (1, d) after a past in which all squared errors and variances were `level`.

    It is the state whose outputs, if no error follows, are the variances of the model: h from C W^i h, i < d.
    """
    omega, alpha, beta = to_garch(layer)
    model = Innovations.of_layer(layer)
    size = layer.hidden_size
    squares, variances = [level] * len(alpha), [level] * len(beta)  # the latest first
    row, rows, path = model.readout[0], [], []
    for _ in range(size):
        variance = omega + float(alpha @ squares + beta @ variances)
        squares, variances = [0.0, *squares][: len(alpha)], [variance, *variances][: len(beta)]
        path.append(variance)
        rows.append(row)
        row = row @ model.recurrent
    state, *_ = np.linalg.lstsq(np.array(rows), np.subtract(path, _outputs_without_errors(model, size)), rcond=None)
    return torch.from_numpy(state)[None]


def variance_path(layer: ParaRNN, errors: ArrayLike, level: float | None = None) -> Array:
    """Return the variance (T,) of each of the errors (T,), given the errors before it.

    `level` is that of squared errors and variances before the first, `backcast(errors)` by default.
    """
    path, _ = _run(layer, errors, level)
    return path[:-1]


def variance_forecast(layer: ParaRNN, errors: ArrayLike, steps: int, level: float | None = None) -> Array:
    """Return the variances (steps,) of the errors that follow these."""
    _, state = _run(layer, errors, level)
    return Innovations.of_layer(layer).forecast(state[0].numpy(), steps)[:, 0]


@torch.no_grad()
def _run(layer: ParaRNN, errors: ArrayLike, level: float | None) -> tuple[Array, Tensor]:
    """Return the variances (T + 1,) of the errors and of the next one, and the last state."""
    series = np.asarray(errors, dtype=np.float64)
    if series.ndim != 1 or not len(series) or not np.isfinite(series).all():
        hint = "drop missing values"
        raise ArgumentError(argument="errors", expected="finite numbers (T,)", got=series.shape, hint=hint)
    start = backcast_state(layer, backcast(series) if level is None else float(level))
    model = Innovations.of_layer(layer)
    output, state = exact(layer)(torch.from_numpy(series**2)[:, None], start)
    path = np.append(model.readout @ start[0].numpy() + model.level, output[:, 0].numpy())
    if not (path > 0).all():
        problem = f"the variance at step {int((path <= 0).argmax())} would be {path[path <= 0][0]:.4g}"
        raise InputError(problem, hint=f"no coefficient may be negative, and these are {to_garch(layer)}")
    return path, state


def _outputs_without_errors(model: Innovations, steps: int) -> list[float]:
    """Return the outputs from a state of zeros if no error occurs."""
    state, outputs = np.zeros(len(model.recurrent)), []
    for _ in range(steps):
        outputs.append(float(model.readout[0] @ state + model.level[0]))
        state = model.recurrent @ state + model.bias
    return outputs


def _companion(coefficients: GarchCoefficients) -> Innovations:
    """Return the model in terms of squared errors; the constant moves the state, so that no mean is needed."""
    omega, alpha, beta = coefficients
    order = max(len(alpha), len(beta))
    ar = np.pad(alpha, (0, order - len(alpha))) + np.pad(beta, (0, order - len(beta)))
    model = Innovations.of_coefficients(ar[:, None, None], -beta[:, None, None], np.zeros(1))
    return replace(model, bias=omega * np.eye(1, order)[0])


def _checked(omega: float, alpha: ArrayLike, beta: ArrayLike) -> GarchCoefficients:
    sides = {"alpha": np.asarray(alpha, dtype=np.float64), "beta": np.asarray(beta, dtype=np.float64)}
    for name, values in sides.items():
        if values.ndim != 1:
            raise ArgumentError(argument=name, expected="coefficients of lags 1, 2, ...", got=values.shape)
        if not (np.isfinite(values).all() and (values >= 0).all()):
            expected = "coefficients of zero or more, so that variances stay positive"
            raise ArgumentError(argument=name, expected=expected, got=values.tolist())
    if not len(sides["alpha"]):
        raise ArgumentError(argument="alpha", expected="at least one coefficient", got=[])
    check_number("omega", omega, "a finite number above zero", lambda value: 0 < value < math.inf)
    if sides["beta"].sum() >= 1:
        expected = "a sum below 1, so that the variance forgets its start"
        raise ArgumentError(argument="beta", expected=expected, got=round(float(sides["beta"].sum()), 6))
    return GarchCoefficients(float(omega), sides["alpha"], sides["beta"])


class GARCH:
    """The model r(t) = mean + e(t), where e(t) is Gaussian with the variance of `GarchCoefficients`.

    It has `p` squared errors and `q` variances, the names of `arch`; Bollerslev (1986) has the letters the other way
    round. With q = 0 this is an ARCH model. Without `mean` the returns are taken to be about zero.

    Examples
    --------
    >>> returns = np.random.default_rng(0).standard_normal(500)
    >>> fitted = GARCH(1, 1).fit(returns)
    >>> fitted.names
    ['mean', 'omega', 'alpha[1]', 'beta[1]']
    """

    def __init__(self, p: int = 1, q: int = 1, *, mean: bool = True) -> None:
        self.p, self.q, self.mean = check_integer("p", p, 1), check_integer("q", q, 0), bool(mean)

    def fit(self, returns: ArrayLike) -> GarchFit:
        """Maximise the Gaussian likelihood, given the level of `backcast` before the first return.

        The search is over omega > 0 and alpha, beta >= 0 with a sum below one, from several starts, on returns scaled
        to variance one. Standard errors are robust to returns that are not Gaussian.
        """
        series = one_series("returns", returns)
        check_returns(series[:, None], RETURNS_PER_PARAMETER * (self.mean + 1 + self.p + self.q))
        middle = float(series.mean()) * self.mean
        scale = float(np.sqrt(np.mean((series - middle) ** 2)))
        likelihood = _GarchLikelihood((series - middle) / scale, self.p, self.q, self.mean)
        params = likelihood.maximize()
        shift, omega, alpha, beta = (part.numpy() for part in likelihood.split(torch.from_numpy(params)))
        units = np.array([scale] * self.mean + [scale**2] + [1.0] * (self.p + self.q))
        return GarchFit(
            coefficients=GarchCoefficients(float(omega[0]) * scale**2, alpha, beta),
            mean=middle + scale * float(shift.sum()),
            has_mean=self.mean,
            covariance=likelihood.covariance(params) * np.outer(units, units),
            level=likelihood.level * scale**2,
            returns=series,
        )


@dataclass(frozen=True, kw_only=True)
class GarchFit(VolatilityFit):
    """A fitted GARCH model."""

    coefficients: GarchCoefficients
    mean: float
    has_mean: bool  # whether the mean was estimated
    covariance: Array = field(repr=False)  # of the estimates, robust; ordered as `names`
    level: float = field(repr=False)  # of squared errors and variances before the first return
    returns: Array = field(repr=False)  # (T,)

    @property
    def names(self) -> list[str]:
        """The names of the estimates."""
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

    @cached_property
    def variance(self) -> Array:
        """The variance (T,) of each return, given the returns before it."""
        return variance_path(self.layer, self.errors, self.level)

    @property
    def standardized(self) -> Array:
        """The errors (T,) divided by their standard deviation: independent and alike if the model is right."""
        return self.errors / np.sqrt(self.variance)

    def forecast(self, steps: int) -> Array:
        """Return the variances (steps,) of the next returns."""
        return variance_forecast(self.layer, self.errors, steps, self.level)

    @property
    def log_likelihood(self) -> float:
        """The Gaussian log likelihood, conditional on the level before the returns."""
        return -0.5 * float(np.sum(np.log(2 * np.pi * self.variance) + self.standardized**2))

    @property
    def unconditional_variance(self) -> float:
        """The variance to which forecasts tend."""
        return self.coefficients.unconditional_variance

    def summary(self) -> Summary:
        """Return the estimates with their standard errors as text for the terminal."""
        _, alpha, beta = self.coefficients
        if 1 - self.persistence > _NEARLY_INTEGRATED:
            fading = (
                f"Persistence {self.persistence:.4f}: shocks to volatility have a half-life of "
                f"{Step().format(self.half_life)}; unconditional variance {self.unconditional_variance:.4g}."
            )
        else:
            fading = "The persistence is at its bound of one: shocks to volatility do not fade (integrated GARCH)."
        notes = [fading]
        if (np.concatenate([alpha, beta]) == 0).any():
            notes.append("Coefficients of zero are at their bound, where standard errors mean little.")
        return self._table(f"GARCH({len(alpha)}, {len(beta)})", *notes)


class _GarchLikelihood(Likelihood):
    """The likelihood of returns of variance one; the parameters are the mean (if any), omega, alpha and beta.

    Free parameters are the mean, log omega and, for each coefficient, the fraction that it takes of what the
    coefficients before it leave of one.
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
        """Return the mean (none or one), omega (1,), alpha (p,) and beta (q,)."""
        parts: Sequence[Tensor] = params.split([int(self.mean), 1, self.p, self.q])
        return parts

    def natural(self, free: Tensor) -> Tensor:
        """Return coefficients that are not negative and sum to less than one, and omega above zero."""
        mean, log_omega, of_left = free.split([int(self.mean), 1, self.p + self.q])
        left = torch.cat([torch.ones_like(of_left[:1]), (1 - of_left).cumprod(0)[:-1]])
        return torch.cat([mean, log_omega.exp(), of_left * left])

    def model(self, params: Tensor) -> tuple[LinearRecurrence, Tensor]:
        """Return the companion form; the initial state is that of a past entirely at the level."""
        mean, omega, alpha, beta = self.split(params)
        order = max(self.p, self.q)
        alpha, beta = (torch.cat([side, side.new_zeros(order - len(side))]) for side in (alpha, beta))
        recurrent = torch.cat([beta[:, None], torch.eye(order, dtype=beta.dtype)[:, : order - 1]], 1)
        bias = torch.cat([omega, beta.new_zeros(order - 1)])
        start = bias + self.level * (alpha + beta).flip(0).cumsum(0).flip(0)
        return LinearRecurrence(recurrent, alpha[:, None], bias, start), mean.sum()[None]

    def log_densities(self, states: Tensor, errors: Tensor) -> Tensor:
        """Return the log densities of errors (T, 1) whose variances are the first of the states."""
        variances = states[:, :1]
        return -0.5 * ((2 * math.pi * variances).log() + errors**2 / variances)[:, 0]

    def starts(self) -> Iterator[list[Array]]:
        """Yield starts for several persistences, each split in several ways between alpha and beta."""
        for persistence in (0.5, 0.8, 0.95, 0.99):
            yield [self._start(persistence, part) for part in ((0.02, 0.05, 0.1, 0.2, 0.5) if self.q else (1.0,))]

    def _start(self, persistence: float, part: float) -> Array:
        sides = np.repeat(persistence * np.array([part, 1 - part]) / [self.p, max(1, self.q)], [self.p, self.q])
        left = 1 - np.concatenate([[0.0], sides.cumsum()[:-1]])
        return np.concatenate([[0.0] * self.mean, [math.log(1 - persistence)], sides / left])

"""GARCH models as linear ParaRNNs on squared errors, and back (Section 2.1 of arXiv 2605.02692).

    v(t) = omega + sum_i alpha_i e(t-i)^2 + sum_j beta_j v(t-j),                v(t) the variance of e(t) given the past

is an ARMA model of the squared errors with ar = alpha + beta and ma = -beta, and v(t) is its forecast of e(t)^2. So the
recurrence features of the layer are the roots of beta, and its forecast modes those of alpha + beta.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from parallelrnn.classical.arma import spectral_radius, to_arma
from parallelrnn.classical.innovations import Innovations
from parallelrnn.interpret.dynamics import half_life_of
from parallelrnn.interpret.layers import exact
from parallelrnn.nn import ParaRNN

Array = NDArray[np.float64]
_NONE = 1e-10  # coefficients below it are rounding: round trips are exact to that
_DECAY, _LOOKBACK = 0.94, 75  # of the weights in a backcast; those of `arch`


class GarchCoefficients(NamedTuple):
    """v(t) = omega + sum_i alpha_i e(t-i)^2 + sum_j beta_j v(t-j), with p of alpha and q of beta as in `arch`.

    Bollerslev (1986) names the orders the other way round: q squared errors and p variances.
    """

    omega: float
    alpha: Array  # (p,), of squared errors
    beta: Array  # (q,), of variances

    @property
    def persistence(self) -> float:
        """The sum of alpha and beta: below one, variances return to a mean."""
        return float(self.alpha.sum() + self.beta.sum())

    @property
    def half_life(self) -> float:
        """Steps until half is left of a shock to volatility: that of the slowest forecast mode.

        For p = q = 1 that is the half-life of `persistence`; for other orders the modulus of a mode is another number.
        """
        if self.persistence >= 1:  # then a real root is at least one, and rounding shall not put it below
            return math.inf
        return half_life_of(spectral_radius(_companion(self).closed_loop))

    @property
    def unconditional_variance(self) -> float:
        """To which forecasts tend: infinite where the persistence is one or more."""
        return self.omega / (1 - self.persistence) if self.persistence < 1 else math.inf


def from_garch(omega: float, alpha: ArrayLike, beta: ArrayLike = ()) -> ParaRNN:
    """The linear ParaRNN that takes squared errors and puts out the variance of the next error.

    `alpha` (p,) are the coefficients of squared errors and `beta` (q,) those of variances, none of them negative. A
    persistence of one (IGARCH) or above is taken as it is. What came before the first error is up to the initial state:
    `backcast_state` has the usual one.

    Examples
    --------
    >>> layer = from_garch(0.1, [0.1], [0.8])
    >>> to_garch(layer).beta.round(12).tolist()
    [0.8]
    """
    return _companion(_checked(omega, alpha, beta)).as_layer()


def to_garch(layer: ParaRNN) -> GarchCoefficients:
    """The GARCH model that a linear ParaRNN is, whose output is the forecast of its next input.

    Coefficients at the end that are zero but for rounding are left out. Those of a layer that was trained freely may be
    negative.
    """
    still = exact(layer)
    for name, weight in still.named_parameters():
        if "bias" in name:
            weight.zero_()  # an ARMA model has a mean, which an integrated GARCH has not
    ar, ma, _ = to_arma(still)
    order = max(len(ar), len(ma))
    alpha = np.pad(ar, (0, order - len(ar))) + np.pad(ma, (0, order - len(ma)))
    there = np.flatnonzero(abs(alpha) > _NONE)
    *before, last = _silent(Innovations.of_layer(layer), layer.hidden_size + 1)
    omega = last + float(ma @ before[::-1][: len(ma)])
    return GarchCoefficients(omega, alpha[: there[-1] + 1 if len(there) else 0], -ma)


def backcast(errors: ArrayLike) -> float:
    """What squared errors and variances are taken to have been before the first error, as `arch` does by default.

    The mean of the first 75 squares (fewer if there are not so many), each weighted by 0.94 times the one before.
    """
    weights = past_weights(len(np.asarray(errors)))
    return float(weights @ np.asarray(errors, dtype=np.float64)[: len(weights)] ** 2)


def past_weights(length: int) -> Array:
    """Of the first steps of a series of so many, in what is said of the time before it; they sum to one."""
    weights = np.power(_DECAY, np.arange(min(length, _LOOKBACK)), dtype=np.float64)
    normed: Array = weights / weights.sum()
    return normed


def backcast_state(layer: ParaRNN, level: float) -> Tensor:
    """The state (1, d) in which all squared errors and variances of the past were `level`.

    It is the state whose outputs, should no error follow, are the variances of the model: h from C W^i h, i < d.
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
    state, *_ = np.linalg.lstsq(np.array(rows), np.subtract(path, _silent(model, size)), rcond=None)
    return torch.from_numpy(state)[None]


def variance_path(layer: ParaRNN, errors: ArrayLike, level: float | None = None) -> Array:
    """The variance (T,) of each of the errors (T,) given those before it.

    `level` is what squared errors and variances were before the first, `backcast(errors)` by default.
    """
    path, _ = _run(layer, errors, level)
    return path[:-1]


def variance_forecast(layer: ParaRNN, errors: ArrayLike, steps: int, level: float | None = None) -> Array:
    """The variances (steps,) of the errors after these."""
    _, state = _run(layer, errors, level)
    return continued(Innovations.of_layer(layer), state, steps)[:, 0]


def continued(model: Innovations, state: Tensor, steps: int) -> Array:
    """The outputs (steps, n) from a state (1, d) on, of a model that takes its own forecasts for inputs."""
    if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or steps < 1:
        raise ValueError(f"steps: expected a whole number above zero, got {steps!r}")
    loop, drift, now = model.closed_loop, model.bias + model.gain @ model.level, state[0].numpy()
    outputs = []
    for _ in range(steps):
        outputs.append(model.readout @ now + model.level)
        now = loop @ now + drift
    return np.stack(outputs)


@torch.no_grad()
def _run(layer: ParaRNN, errors: ArrayLike, level: float | None) -> tuple[Array, Tensor]:
    """The variances (T + 1,) of the errors and of the one after them, and the last state."""
    series = np.asarray(errors, dtype=np.float64)
    if series.ndim != 1 or not len(series) or not np.isfinite(series).all():
        raise ValueError(f"errors: expected finite numbers (T,), got the shape {series.shape}; drop those missing")
    start = backcast_state(layer, backcast(series) if level is None else float(level))
    model = Innovations.of_layer(layer)
    output, state = exact(layer)(torch.from_numpy(series**2)[:, None], start)
    path = np.append(model.readout @ start[0].numpy() + model.level, output[:, 0].numpy())
    if not (path > 0).all():
        raise ValueError(
            f"the variance of error {int((path <= 0).argmax())} would be {path[path <= 0][0]:.4g}; a variance stays "
            f"above zero if no coefficient is below, and these are {to_garch(layer)}"
        )
    return path, state


def _silent(model: Innovations, steps: int) -> list[float]:
    """The outputs after a state of zeros if no error comes."""
    state, outputs = np.zeros(len(model.recurrent)), []
    for _ in range(steps):
        outputs.append(float(model.readout[0] @ state + model.level[0]))
        state = model.recurrent @ state + model.bias
    return outputs


def _companion(coefficients: GarchCoefficients) -> Innovations:
    """In terms of the squared errors; the constant moves the state, so that no mean is needed."""
    omega, alpha, beta = coefficients
    order = max(len(alpha), len(beta))
    ar = np.pad(alpha, (0, order - len(alpha))) + np.pad(beta, (0, order - len(beta)))
    model = Innovations.of_coefficients(ar[:, None, None], -beta[:, None, None], np.zeros(1))
    return replace(model, bias=omega * np.eye(1, order)[0])


def _checked(omega: float, alpha: ArrayLike, beta: ArrayLike) -> GarchCoefficients:
    sides = {"alpha": np.asarray(alpha, dtype=np.float64), "beta": np.asarray(beta, dtype=np.float64)}
    for name, values in sides.items():
        if values.ndim != 1:
            raise ValueError(f"{name}: expected coefficients of lags 1, 2, ..., got the shape {values.shape}")
        if not (np.isfinite(values).all() and (values >= 0).all()):
            raise ValueError(f"{name}: a variance stays above zero if no coefficient is below, got {values.tolist()}")
    if not len(sides["alpha"]):
        raise ValueError("alpha: expected one coefficient at least, else no error moves the variance")
    if not 0 < omega < math.inf:
        raise ValueError(f"omega: expected a number above zero, got {omega}")
    if sides["beta"].sum() >= 1:
        raise ValueError(
            f"beta: its sum has to be below 1, else the variance never forgets where it began; got "
            f"{sides['beta'].sum():.6g}"
        )
    return GarchCoefficients(float(omega), sides["alpha"], sides["beta"])

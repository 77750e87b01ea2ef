"""ARMA and VARMA models as linear ParaRNNs, and back (Section 2.1 of arXiv 2605.02692)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from parallelrnn.classical.innovations import Innovations, spectral_radius
from parallelrnn.errors import ArgumentError, InputError, check_choice
from parallelrnn.nn import ParaRNN

Array = NDArray[np.float64]
NONINVERTIBLE = ("refuse", "reflect")
_NEGLIGIBLE = 1e-10  # relative to the largest coefficient or one; round trips are accurate to this


class ArmaCoefficients(NamedTuple):
    """The model y(t) - mean = sum_i ar_i (y(t-i) - mean) + e(t) + sum_j ma_j e(t-j), with signs as in statsmodels.

    The paper writes the moving average with a minus sign: its Theta is -ma.
    """

    ar: Array  # (p,), or (p, n, n) for n series
    ma: Array  # (q,), or (q, n, n)
    mean: float | Array  # or (n,)


def from_arma(
    ar: ArrayLike = (), ma: ArrayLike = (), mean: ArrayLike = 0.0, *, noninvertible: str = "refuse"
) -> ParaRNN:
    """Return the linear ParaRNN whose output is the one-step conditional mean of an ARMA(p, q) or VARMA(p, q) model.

    Its recurrence features are the inverse MA roots, its forecast modes the inverse AR roots. A layer that has read
    y(1) ... y(t) from a state of zeros outputs the forecast of y(t+1), given that all values before y(1) were at the
    mean.

    Parameters
    ----------
    ar, ma
        Coefficients (p,) and (q,) of one series, or matrices (p, n, n) and (q, n, n) of n series; signs as in
        statsmodels: y(t) = sum_i ar_i y(t-i) + e(t) + sum_j ma_j e(t-j).
    mean
        Of the series: (n,) or one number.
    noninvertible
        What to do with a moving average that is not invertible, so that past errors do not follow from past values:
        "refuse" it with an error or, for one series, "reflect" its roots to the other side of the unit circle (see
        `reflect`) with a warning.

    Examples
    --------
    >>> layer = from_arma(ar=[1.2, -0.5], ma=[0.4, 0.3])
    >>> to_arma(layer).ar.round(12).tolist()
    [1.2, -0.5]
    """
    arrays = _as_matrices(ar, ma, mean)
    check_choice("noninvertible", noninvertible, NONINVERTIBLE)
    model = Innovations.of_coefficients(*arrays)
    radius = spectral_radius(model.recurrent)
    if radius >= 1:
        if noninvertible == "refuse":
            raise ArgumentError(
                "the moving average is not invertible",
                argument="ma",
                expected="inverse roots below 1 in modulus",
                got=round(radius, 4),
                hint="use {noninvertible}'reflect' for the invertible model with the same autocovariances",
            )
        if len(arrays[2]) > 1:
            problem = "the reflection of a vector moving average depends on the covariance of the errors"
            raise ArgumentError(
                problem, argument="noninvertible", hint="pass the result of reflect(ar, ma, covariance)"
            )
        changed, variance = reflect(*arrays[:2])
        warnings.warn(
            f"the moving average was not invertible (an inverse root has modulus {radius:.4g}) and was reflected; the "
            f"error variance is {variance.item():.4g} times as large",
            stacklevel=2,
        )
        model = Innovations.of_coefficients(arrays[0], changed, arrays[2])
    return model.as_layer()


def to_arma(layer: ParaRNN) -> ArmaCoefficients:
    """Return the ARMA or VARMA model of a linear ParaRNN whose output is the forecast of its next input.

    The characteristic polynomial of the recurrent matrix is the moving average (for several series: C W^m as a
    combination of C W^(m-1), ..., C, for the least m that has one). The autoregressive side follows from it and the
    responses of forecasts to an input. Trailing coefficients that are zero up to rounding are dropped. For several
    series the coefficients are not unique; those given to `from_arma` are recovered.
    """
    model = Innovations.of_layer(layer)
    size, states = model.readout.shape
    powers = [model.readout]  # C W^i
    for _ in range(states):
        powers.append(powers[-1] @ model.recurrent)
    ma = _characteristic([block.matrix for block in layer.recurrent_blocks()]) if size == 1 else _moving_average(powers)
    order = len(ma)
    responses = [power @ model.gain for power in powers[:order]]  # of forecasts to an input 1, 2, ... steps earlier
    ar = -ma
    for lag in range(order):
        ar[lag] += responses[lag] + sum(ma[i] @ responses[lag - 1 - i] for i in range(lag))
    ar, ma, mean = _without_zeros(ar), _without_zeros(ma), _mean_of(model, torch.finfo(layer.weight_ih_l0.dtype).eps)
    if size > 1:
        return ArmaCoefficients(ar, ma, mean)
    return ArmaCoefficients(ar[:, 0, 0], ma[:, 0, 0], float(mean[0]))


def _characteristic(blocks: Sequence[Tensor]) -> Array:
    """Return the characteristic polynomial of all blocks without its leading one, (d, 1, 1)."""
    left = np.concatenate([np.linalg.eigvals(block.detach().cpu().double().numpy()) for block in blocks])
    polynomial, chosen = np.ones(1, complex), int(abs(left).argmax())
    distance = np.zeros(len(left))  # the logarithm of the product of distances to the roots used so far
    # Roots far from all previous ones come first (Leja ordering), or intermediate numbers would lose all digits.
    while len(left):
        root = left[chosen]
        polynomial = np.convolve(polynomial, [1, -root])
        left, distance = np.delete(left, chosen), np.delete(distance, chosen)
        distance = distance + np.log(np.maximum(abs(left - root), np.finfo(np.float64).tiny))
        chosen = int(distance.argmax()) if len(left) else 0
    return polynomial.real[1:, None, None]


def _moving_average(powers: Sequence[Array]) -> Array:
    """Solve C W^m = - sum_i ma_i C W^(m-i) for ma (m, n, n), from C, C W, C W^2, ..., with the least possible m."""
    size, states = powers[0].shape
    for order in range(-(-states // size), states + 1):
        stacked, last = np.concatenate(powers[:order][::-1]), powers[order]
        solved, *_ = np.linalg.lstsq(stacked.T, -last.T, rcond=None)
        missed = abs(solved.T @ stacked + last).max()
        if order == states or missed <= 1e-10 * max(abs(power).max() for power in powers[: order + 1]):
            break
    ma: Array = solved.T.reshape(size, order, size).transpose(1, 0, 2)
    return ma


def reflect(ar: ArrayLike, ma: ArrayLike, covariance: ArrayLike | None = None) -> tuple[Array, Array]:
    """Return the invertible moving average of the same process, and the covariance of its errors.

    `covariance` is that of the errors of the given model, the identity by default. The function solves the Riccati
    equation of the Kalman filter, whose steady state is the model in terms of errors that the data reveal.
    """
    from scipy.linalg import solve_discrete_are

    is_univariate = np.ndim(ar) < 3 and np.ndim(ma) < 3
    ar, ma, _ = _as_matrices(ar, ma, 0.0)
    size = ar.shape[1]
    sigma = np.eye(size) if covariance is None else np.atleast_2d(np.asarray(covariance, dtype=np.float64))
    if sigma.shape != (size, size) or not np.allclose(sigma, sigma.T) or not np.linalg.eigvalsh(sigma).min() > 0:
        expected = f"a positive definite matrix ({size}, {size})"
        raise ArgumentError(argument="covariance", expected=expected, got=covariance)
    model = Innovations.of_coefficients(ar, ma, np.zeros(size))
    moduli = abs(np.linalg.eigvals(model.recurrent))
    if (abs(moduli - 1) < 1e-6).any():
        problem = "the moving average has a root on the unit circle, which cannot be reflected"
        raise ArgumentError(problem, argument="ma", hint="check whether the series was over-differenced")
    if moduli.max() < 1:
        changed = ma
    else:
        loop, gain, readout = model.closed_loop, model.gain, model.readout
        unknown = solve_discrete_are(loop.T, readout.T, gain @ sigma @ gain.T, sigma, s=gain @ sigma)
        seen = readout @ unknown @ readout.T + sigma
        steady = np.linalg.solve(seen.T, (loop @ unknown @ readout.T + gain @ sigma).T).T
        changed = (steady - model.closed_loop[:, :size]).reshape(-1, size, size)[: len(ma)]
        sigma = seen
    return (changed[:, 0, 0] if is_univariate else changed), sigma


def _as_matrices(ar: ArrayLike, ma: ArrayLike, mean: ArrayLike) -> tuple[Array, Array, Array]:
    """Return coefficients (p, n, n) and (q, n, n), and a mean (n,)."""
    sides = []
    for name, value in (("ar", ar), ("ma", ma)):
        array = np.asarray(value, dtype=np.float64)
        if array.ndim == 1:
            array = array[:, None, None]
        if array.ndim != 3 or array.shape[1] != array.shape[2]:
            expected = "coefficients (p,) of one series or matrices (p, n, n) of n series"
            hint = "pass a single matrix as [matrix]"
            raise ArgumentError(argument=name, expected=expected, got=np.shape(value), hint=hint)
        if not np.isfinite(array).all():
            raise ArgumentError(argument=name, expected="finite coefficients", got=value)
        sides.append(array)
    sizes = {array.shape[1] for array in sides if len(array)} or {max(1, np.size(mean))}
    if len(sizes) > 1:
        expected = f"coefficients of {sides[0].shape[1]} series, as many as ar has"
        raise ArgumentError(argument="ma", expected=expected, got=sides[1].shape[1])
    size = sizes.pop()
    if np.size(mean) not in (1, size):
        raise ArgumentError(argument="mean", expected=f"one number or {size}", got=np.size(mean))
    ar, ma = (array if len(array) else np.zeros((0, size, size)) for array in sides)
    return ar, ma, np.broadcast_to(np.asarray(mean, dtype=np.float64).reshape(-1), (size,)).copy()


def _without_zeros(coefficients: Array) -> Array:
    """Drop trailing coefficients that are zero up to rounding."""
    largest = max(1.0, float(abs(coefficients).max(initial=0.0)))
    there = abs(coefficients).max(axis=(1, 2), initial=0.0) > _NEGLIGIBLE * largest
    return coefficients[: len(there) - int(there[::-1].argmax())] if there.any() else coefficients[:0]


def _mean_of(model: Innovations, unit: float) -> Array:
    """Return the fixed point of the forecasts; `unit` is the machine epsilon of the weights."""
    drift = model.bias + model.gain @ model.level  # of the state while the forecast is at its level
    moves = np.eye(len(drift)) - model.closed_loop
    state, *_ = np.linalg.lstsq(moves, drift, rcond=None)
    size = abs(model.bias).max() + (abs(model.gain) @ abs(model.level)).max()
    if abs(moves @ state - drift).max() > 16 * len(drift) * unit * size + np.finfo(np.float64).tiny:
        raise InputError("this layer has a unit root and a drift, so its series has no mean")
    return model.readout @ state + model.level

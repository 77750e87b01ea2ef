"""ARMA and VARMA models as linear ParaRNNs, and back (Section 2.1 of arXiv 2605.02692)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from parallelrnn.classical.innovations import Innovations
from parallelrnn.nn import ParaRNN

Array = NDArray[np.float64]
NONINVERTIBLE = ("refuse", "reflect")
_NONE = 1e-10  # coefficients below it, beside the largest or one, are rounding: round trips are exact to that


class ArmaCoefficients(NamedTuple):
    """y(t) - mean = sum_i ar_i (y(t-i) - mean) + e(t) + sum_j ma_j e(t-j), signs as in statsmodels.

    The paper writes the moving average with a minus: its Theta is -ma.
    """

    ar: Array  # (p,), or (p, n, n) for n series
    ma: Array  # (q,), or (q, n, n)
    mean: float | Array  # or (n,)


def from_arma(
    ar: ArrayLike = (), ma: ArrayLike = (), mean: ArrayLike = 0.0, *, noninvertible: str = "refuse"
) -> ParaRNN:
    """The linear ParaRNN whose output is the conditional mean of an ARMA(p, q), or VARMA(p, q), one step ahead.

    Its recurrence features are the MA roots (their inverses), its forecast modes the AR roots. A layer that has read
    y(1) ... y(t) from a state of zeros puts out the forecast of y(t+1), given that all before y(1) was as on average.

    Parameters
    ----------
    ar, ma
        Coefficients (p,) and (q,) of one series, or matrices (p, n, n) and (q, n, n) of n series; signs as in
        statsmodels: y(t) = sum_i ar_i y(t-i) + e(t) + sum_j ma_j e(t-j).
    mean
        Of the series, (n,) or one number.
    noninvertible
        What to do with a moving average that is not invertible, so that past errors cannot be had from past values:
        "refuse" it, or, of one series, "reflect" its roots to the other side of the unit circle (see `reflect`), which
        is told.

    Examples
    --------
    >>> layer = from_arma(ar=[1.2, -0.5], ma=[0.4, 0.3])
    >>> to_arma(layer).ar.round(12).tolist()
    [1.2, -0.5]
    """
    arrays = _as_matrices(ar, ma, mean)
    if noninvertible not in NONINVERTIBLE:
        raise ValueError(f"noninvertible is one of {', '.join(map(repr, NONINVERTIBLE))}, got {noninvertible!r}")
    model = Innovations.of_coefficients(*arrays)
    radius = spectral_radius(model.recurrent)
    if radius >= 1:
        if noninvertible == "refuse":
            raise ValueError(
                f"the moving average is not invertible: the largest of its inverse roots has modulus {radius:.4g}, and "
                "forecasts from past values need it below 1; noninvertible='reflect' takes the invertible model with "
                "the same autocovariances"
            )
        if len(arrays[2]) > 1:
            raise ValueError(
                "the moving average of several series is reflected in a way that depends on the covariance of their "
                "errors; give from_arma what reflect(ar, ma, covariance) returns"
            )
        changed, variance = reflect(*arrays[:2])
        warnings.warn(
            f"the moving average was not invertible (an inverse root of modulus {radius:.4g}) and was reflected; the "
            f"errors of this model have {variance.item():.4g} times the variance",
            stacklevel=2,
        )
        model = Innovations.of_coefficients(arrays[0], changed, arrays[2])
    return model.as_layer()


def to_arma(layer: ParaRNN) -> ArmaCoefficients:
    """The ARMA or VARMA model that a linear ParaRNN is, whose output is the forecast of its next input.

    The characteristic polynomial of its recurrent matrix is the moving average (for several series, what combination of
    C W^(m-1), ..., C is C W^m, for the least m that has one); with what an input adds to the forecasts after it, this
    gives the autoregressive side. Coefficients at the end that are zero but for rounding are left out.
    For several series coefficients are not unique; those that `from_arma` was given come back.
    """
    model = Innovations.of_layer(layer)
    size, states = model.readout.shape
    powers = [model.readout]  # C W^i
    for _ in range(states):
        powers.append(powers[-1] @ model.recurrent)
    ma = _characteristic([block.matrix for block in layer.recurrent_blocks()]) if size == 1 else _moving_average(powers)
    order = len(ma)
    responses = [power @ model.gain for power in powers[:order]]  # of forecasts, to an input 1, 2, ... steps before
    ar = -ma
    for lag in range(order):
        ar[lag] += responses[lag] + sum(ma[i] @ responses[lag - 1 - i] for i in range(lag))
    ar, ma, mean = _without_zeros(ar), _without_zeros(ma), _mean_of(model, torch.finfo(layer.weight_ih_l0.dtype).eps)
    if size > 1:
        return ArmaCoefficients(ar, ma, mean)
    return ArmaCoefficients(ar[:, 0, 0], ma[:, 0, 0], float(mean[0]))


def _characteristic(blocks: Sequence[Tensor]) -> Array:
    """Of all blocks together, without the leading one, (d, 1, 1)."""
    left = np.concatenate([np.linalg.eigvals(block.detach().cpu().double().numpy()) for block in blocks])
    polynomial, chosen = np.ones(1, complex), int(abs(left).argmax())
    distance = np.zeros(len(left))  # the logarithm of the product of distances to those that were taken
    # Roots that lie far from all before them come first (Leja's order): else numbers in between grow beyond all digits.
    while len(left):
        root = left[chosen]
        polynomial = np.convolve(polynomial, [1, -root])
        left, distance = np.delete(left, chosen), np.delete(distance, chosen)
        distance = distance + np.log(np.maximum(abs(left - root), np.finfo(np.float64).tiny))
        chosen = int(distance.argmax()) if len(left) else 0
    return polynomial.real[1:, None, None]


def _moving_average(powers: Sequence[Array]) -> Array:
    """ma (m, n, n) with C W^m = - sum_i ma_i C W^(m-i), from C, C W, C W^2, ..., for the least such m."""
    size, states = powers[0].shape
    for order in range(-(-states // size), states + 1):
        stacked, last = np.concatenate(powers[:order][::-1]), powers[order]
        solved, *_ = np.linalg.lstsq(stacked.T, -last.T, rcond=None)
        missed = abs(solved.T @ stacked + last).max()
        if order == states or missed <= 1e-10 * max(abs(power).max() for power in powers[: order + 1]):
            break
    found: Array = solved.T.reshape(size, order, size).transpose(1, 0, 2)
    return found


def reflect(ar: ArrayLike, ma: ArrayLike, covariance: ArrayLike | None = None) -> tuple[Array, Array]:
    """The invertible moving average of the same process: coefficients and the covariance of its errors.

    `covariance` is that of the errors of the model given, one or the identity by default. Solves the Riccati equation
    of the Kalman filter, whose steady state is the model in terms of the errors that data reveal.
    """
    from scipy.linalg import solve_discrete_are

    is_one = np.ndim(ar) < 3 and np.ndim(ma) < 3
    ar, ma, _ = _as_matrices(ar, ma, 0.0)
    size = ar.shape[1]
    sigma = np.eye(size) if covariance is None else np.atleast_2d(np.asarray(covariance, dtype=np.float64))
    if sigma.shape != (size, size) or not np.allclose(sigma, sigma.T) or not np.linalg.eigvalsh(sigma).min() > 0:
        raise ValueError(f"covariance: expected a positive definite matrix ({size}, {size}), got {covariance!r}")
    model = Innovations.of_coefficients(ar, ma, np.zeros(size))
    moduli = abs(np.linalg.eigvals(model.recurrent))
    if (abs(moduli - 1) < 1e-6).any():
        raise ValueError(
            "the moving average has a root on the unit circle, which no reflection moves away; was the series "
            "differenced once too often?"
        )
    if moduli.max() < 1:
        changed = ma
    else:
        loop, gain, readout = model.closed_loop, model.gain, model.readout
        unknown = solve_discrete_are(loop.T, readout.T, gain @ sigma @ gain.T, sigma, s=gain @ sigma)
        seen = readout @ unknown @ readout.T + sigma
        steady = np.linalg.solve(seen.T, (loop @ unknown @ readout.T + gain @ sigma).T).T
        changed = (steady - model.closed_loop[:, :size]).reshape(-1, size, size)[: len(ma)]
        sigma = seen
    return (changed[:, 0, 0] if is_one else changed), sigma


def spectral_radius(matrix: Array) -> float:
    """The largest modulus of an eigenvalue."""
    return float(abs(np.linalg.eigvals(matrix)).max())


def _as_matrices(ar: ArrayLike, ma: ArrayLike, mean: ArrayLike) -> tuple[Array, Array, Array]:
    """Coefficients (p, n, n), (q, n, n) and a mean (n,)."""
    found = []
    for name, value in (("ar", ar), ("ma", ma)):
        array = np.asarray(value, dtype=np.float64)
        if array.ndim == 1:
            array = array[:, None, None]
        if array.ndim != 3 or array.shape[1] != array.shape[2]:
            raise ValueError(
                f"{name}: expected coefficients (p,) of one series or matrices (p, n, n) of n, got the shape "
                f"{np.shape(value)}; one matrix, of one lag, is given as [matrix]"
            )
        if not np.isfinite(array).all():
            raise ValueError(f"{name} holds values that are not finite")
        found.append(array)
    sizes = {array.shape[1] for array in found if len(array)} or {max(1, np.size(mean))}
    if len(sizes) > 1:
        raise ValueError(f"ar is of {found[0].shape[1]} series and ma of {found[1].shape[1]}; give the same number")
    size = sizes.pop()
    if np.size(mean) not in (1, size):
        raise ValueError(f"mean: expected one number or {size}, got {np.size(mean)}")
    ar, ma = (array if len(array) else np.zeros((0, size, size)) for array in found)
    return ar, ma, np.broadcast_to(np.asarray(mean, dtype=np.float64).reshape(-1), (size,)).copy()


def _without_zeros(coefficients: Array) -> Array:
    """Without those at the end that are zero but for rounding."""
    largest = max(1.0, float(abs(coefficients).max(initial=0.0)))
    there = abs(coefficients).max(axis=(1, 2), initial=0.0) > _NONE * largest
    return coefficients[: len(there) - int(there[::-1].argmax())] if there.any() else coefficients[:0]


def _mean_of(model: Innovations, unit: float) -> Array:
    """Where forecasts that come true stay as they are; `unit` is that of rounding in the weights."""
    drift = model.bias + model.gain @ model.level  # of the state, if the forecast is at its level
    moves = np.eye(len(drift)) - model.closed_loop
    state, *_ = np.linalg.lstsq(moves, drift, rcond=None)
    size = abs(model.bias).max() + (abs(model.gain) @ abs(model.level)).max()
    if abs(moves @ state - drift).max() > 16 * len(drift) * unit * size:
        raise ValueError("this layer has a unit root and a drift, so its series have no mean")
    mean: Array = model.readout @ state + model.level
    return mean

"""VECH-GARCH(1, 1) as a linear ParaRNN on the products of errors, and back (Section 2.1 of arXiv 2605.02692).

With H(t) the covariance matrix of the n errors y(t) given the past, and m = n (n + 1) / 2,

    h(t) = vech(H(t)) = Theta vech(y(t-1) y(t-1)') + Phi h(t-1) + b

is a linear RNN with recurrent matrix Phi and input weights Theta. The recurrence features of its layer are the
eigenvalues of Phi, its forecast modes those of Theta + Phi. Not every Theta and Phi keep H(t) positive definite: those
of a BEKK model do (`bekk`), and others are watched along a path (`covariance_path`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from parallelrnn.classical.arma import spectral_radius
from parallelrnn.classical.garch import continued, past_weights
from parallelrnn.classical.innovations import Innovations
from parallelrnn.interpret.dynamics import half_life_of
from parallelrnn.interpret.layers import exact
from parallelrnn.nn import ParaRNN

Array = NDArray[np.float64]


class VechCoefficients(NamedTuple):
    """h(t) = constant + arch vech(y(t-1) y(t-1)') + garch h(t-1): b, Theta and Phi of the paper."""

    constant: Array  # (m,)
    arch: Array  # (m, m)
    garch: Array  # (m, m)

    @property
    def persistence(self) -> float:
        """The largest modulus of a forecast mode: below one, covariances return to a mean."""
        return spectral_radius(self.arch + self.garch)

    @property
    def half_life(self) -> float:
        """Steps until half is left of a shock to volatility: that of the slowest forecast mode."""
        return half_life_of(self.persistence)

    @property
    def unconditional_covariance(self) -> Array:
        """(n, n), to which forecasts tend; not a number where the persistence is one or more."""
        if self.persistence >= 1:
            return np.full_like(unvech(self.constant), math.nan)
        return unvech(np.linalg.solve(np.eye(len(self.constant)) - self.arch - self.garch, self.constant))


def vech(matrices: ArrayLike) -> Array:
    """The lower triangles of symmetric matrices (..., n, n), column by column: (..., m).

    Examples
    --------
    >>> vech([[1, 2], [2, 3]]).tolist()
    [1.0, 2.0, 3.0]
    """
    array = np.asarray(matrices, dtype=np.float64)
    columns, rows = np.triu_indices(array.shape[-1])
    lower: Array = array[..., rows, columns]
    return lower


def unvech(vectors: ArrayLike) -> Array:
    """The symmetric matrices (..., n, n) of their lower triangles (..., m)."""
    array = np.asarray(vectors, dtype=np.float64)
    size = series_of(array.shape[-1])
    matrices: Array = (array @ duplication(size).T).reshape(*array.shape[:-1], size, size)
    return matrices


def duplication(size: int) -> Array:
    """D, (n^2, m), with D vech(H) = vec(H) for symmetric H."""
    columns, rows = np.triu_indices(size)
    matrix = np.zeros((size, size, len(rows)))
    matrix[rows, columns, np.arange(len(rows))] = 1
    matrix[columns, rows, np.arange(len(rows))] = 1
    return matrix.reshape(size**2, -1)


def series_of(length: int) -> int:
    """n, from m = n (n + 1) / 2."""
    size = (math.isqrt(8 * length + 1) - 1) // 2
    if size * (size + 1) // 2 != length or not size:
        below, above = size * (size + 1) // 2, (size + 1) * (size + 2) // 2
        raise ValueError(
            f"the covariance matrix of n series has n (n + 1) / 2 entries, such as {below} or {above}, and not {length}"
        )
    return size


def from_vech(constant: ArrayLike, arch: ArrayLike, garch: ArrayLike) -> ParaRNN:
    """The linear ParaRNN that takes vech(y y') and puts out vech(H) of the next errors.

    `constant` (m,), `arch` (m, m) and `garch` (m, m) are b, Theta and Phi. Whether covariance matrices stay positive
    definite is not asked here, since in general it depends on the errors.

    Examples
    --------
    >>> layer = from_vech(*bekk(np.eye(2), 0.3 * np.eye(2), 0.9 * np.eye(2)))
    >>> layer.input_size
    3
    """
    b, theta, phi = _checked(constant, arch, garch)
    return Innovations(phi, theta, np.eye(len(b)), b, np.zeros(len(b))).as_layer()


def to_vech(layer: ParaRNN) -> VechCoefficients:
    """The VECH-GARCH(1, 1) model that a linear ParaRNN is, with as many states as inputs and outputs."""
    model = Innovations.of_layer(layer)
    outputs, states = model.readout.shape
    series_of(outputs)
    if states != outputs or np.linalg.matrix_rank(model.readout) < states:
        raise ValueError(
            f"a VECH-GARCH(1, 1) has a state for each output: expected {outputs} states that the outputs tell, got "
            f"{states}, of which they tell {np.linalg.matrix_rank(model.readout)}"
        )
    phi = np.linalg.solve(model.readout.T, (model.readout @ model.recurrent).T).T
    constant = model.readout @ model.bias + (np.eye(states) - phi) @ model.level
    return VechCoefficients(constant, model.readout @ model.gain, phi)


def bekk(constant: ArrayLike, arch: ArrayLike, garch: ArrayLike) -> VechCoefficients:
    """The VECH model of H(t) = C C' + A y(t-1) y(t-1)' A' + B H(t-1) B', C, A and B (n, n) each.

    Positive definite for every path if C is regular (Engle and Kroner, 1995). Theta = D+ (A x A) D and
    Phi = D+ (B x B) D, with x Kronecker's product and D the duplication matrix.
    """
    tensors = [torch.tensor(np.array(one, dtype=np.float64)) for one in (constant, arch, garch)]
    return VechCoefficients(*(one.numpy() for one in bekk_tensors(*tensors)))


def bekk_tensors(constant: Tensor, arch: Tensor, garch: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The same for tensors, with gradients."""
    duplicate = torch.from_numpy(duplication(len(arch)))
    halve = (duplicate / duplicate.sum(0)).T  # D+, since the columns of D are orthogonal
    theta, phi = (halve @ torch.kron(one, one) @ duplicate for one in (arch, garch))
    return halve @ (constant @ constant.T).flatten(), theta, phi


def covariance_backcast(errors: ArrayLike) -> Array:
    """What y y' and H are taken to have been before the first errors (T, n), (n, n): as `garch.backcast`."""
    weights = past_weights(len(np.asarray(errors)))
    first = np.asarray(errors, dtype=np.float64)[: len(weights)]
    level: Array = (first.T * weights) @ first
    return level


def covariance_path(layer: ParaRNN, errors: ArrayLike, level: ArrayLike | None = None) -> Array:
    """The covariance matrices (T, n, n) of errors (T, n), each given those before it; all have to be positive definite.

    `level` (n, n) is what y y' and H were before the first, `covariance_backcast(errors)` by default.
    """
    path, _ = _run(layer, errors, level)
    return path[:-1]


def covariance_forecast(layer: ParaRNN, errors: ArrayLike, steps: int, level: ArrayLike | None = None) -> Array:
    """The covariance matrices (steps, n, n) of the errors after these."""
    _, state = _run(layer, errors, level)
    return unvech(continued(Innovations.of_layer(layer), state, steps))


@torch.no_grad()
def _run(layer: ParaRNN, errors: ArrayLike, level: ArrayLike | None) -> tuple[Array, Tensor]:
    """The covariance matrices (T + 1, n, n) of the errors and of those after them, and the last state."""
    constant, arch, garch = to_vech(layer)
    series, size = np.asarray(errors, dtype=np.float64), series_of(len(constant))
    if series.ndim != 2 or series.shape[1] != size or not len(series) or not np.isfinite(series).all():
        raise ValueError(
            f"errors: expected finite numbers (T, {size}), got the shape {series.shape}; drop missing ones"
        )
    past = vech(covariance_backcast(series) if level is None else level)
    first = constant + (arch + garch) @ past
    model = Innovations.of_layer(layer)
    start = torch.from_numpy(np.linalg.solve(model.readout, first - model.level))[None]
    output, state = exact(layer)(torch.from_numpy(vech(series[:, :, None] * series[:, None, :])), start)
    path = unvech(np.concatenate([first[None], output.numpy()]))
    _check_positive(path)
    return path, state


def _check_positive(path: Array) -> None:
    smallest = np.linalg.eigvalsh(path)[:, 0]
    if not (smallest > 0).all():
        at = int((smallest <= 0).argmax())
        raise ValueError(
            f"the covariance matrix of step {at} has the eigenvalue {smallest[at]:.4g}; VECH models need not keep "
            "positive definite, and BEKK models do: see bekk and VechGARCH"
        )


def _checked(constant: ArrayLike, arch: ArrayLike, garch: ArrayLike) -> VechCoefficients:
    found = VechCoefficients(*(np.asarray(one, dtype=np.float64) for one in (constant, arch, garch)))
    if found.constant.ndim != 1:
        raise ValueError(f"constant: expected vech of a matrix, (m,), got the shape {found.constant.shape}")
    length = len(found.constant)
    series_of(length)
    for name, one in zip(found._fields, found, strict=True):
        if name != "constant" and one.shape != (length, length):
            raise ValueError(f"{name}: expected the shape {(length, length)}, got {one.shape}")
        if not np.isfinite(one).all():
            raise ValueError(f"{name} holds values that are not finite")
    radius = spectral_radius(found.garch)
    if radius >= 1:
        raise ValueError(
            "garch: its eigenvalues have to be below 1 in modulus, else covariances never forget where they began; the "
            f"largest has modulus {radius:.4g}"
        )
    return found

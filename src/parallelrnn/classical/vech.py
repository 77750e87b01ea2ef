"""VECH-GARCH(1, 1) as a linear ParaRNN on the products of errors, and back (Section 2.1 of arXiv 2605.02692).

With H(t) the covariance matrix of the n errors y(t) given the past, and m = n (n + 1) / 2,

    h(t) = vech(H(t)) = Theta vech(y(t-1) y(t-1)') + Phi h(t-1) + b

is a linear RNN with recurrent matrix Phi and input weights Theta. The recurrence features of its layer are the
eigenvalues of Phi, its forecast modes those of Theta + Phi. Not every Theta and Phi keep H(t) positive definite: those
of a BEKK model do (`bekk`), and others are checked along each path (`covariance_path`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from parallelrnn.classical.estimation import (
    RETURNS_PER_PARAMETER,
    Likelihood,
    LinearRecurrence,
    VolatilityFit,
    check_returns,
)
from parallelrnn.classical.garch import past_weights
from parallelrnn.classical.innovations import Innovations, spectral_radius
from parallelrnn.errors import ArgumentError, InputError
from parallelrnn.interpret.display import Step, Summary
from parallelrnn.interpret.dynamics import half_life_of
from parallelrnn.interpret.layers import exact
from parallelrnn.nn import ParaRNN

Array = NDArray[np.float64]
# The largest modulus of an eigenvalue of B, so that rounding does not push that of Phi above one.
_BELOW_ONE = 1 - 1e-5
_LEAST_DIAGONAL = 1e-4  # of C, for series of variance one: the square root of the least omega of a GARCH


class VechCoefficients(NamedTuple):
    """The model h(t) = constant + arch vech(y(t-1) y(t-1)') + garch h(t-1): b, Theta and Phi of the paper."""

    constant: Array  # (m,)
    arch: Array  # (m, m)
    garch: Array  # (m, m)

    @property
    def persistence(self) -> float:
        """The largest modulus of a forecast mode; if it is below one, covariances return to a mean."""
        return spectral_radius(self.arch + self.garch)

    @property
    def half_life(self) -> float:
        """The steps until half of a shock to volatility is left: the half-life of the slowest forecast mode."""
        return half_life_of(self.persistence)

    @property
    def unconditional_covariance(self) -> Array:
        """The covariance (n, n) to which forecasts tend; NaN if the persistence is one or more."""
        if self.persistence >= 1:
            return np.full_like(unvech(self.constant), math.nan)
        return unvech(np.linalg.solve(np.eye(len(self.constant)) - self.arch - self.garch, self.constant))


def vech(matrices: ArrayLike) -> Array:
    """Return the lower triangles of symmetric matrices (..., n, n), column by column: (..., m).

    Examples
    --------
    >>> vech([[1, 2], [2, 3]]).tolist()
    [1.0, 2.0, 3.0]
    """
    array = np.asarray(matrices, dtype=np.float64)
    columns, rows = np.triu_indices(array.shape[-1])
    return array[..., rows, columns]


def unvech(vectors: ArrayLike) -> Array:
    """Return the symmetric matrices (..., n, n) with these lower triangles (..., m)."""
    array = np.asarray(vectors, dtype=np.float64)
    size = series_of(array.shape[-1])
    matrices: Array = (array @ duplication(size).T).reshape(*array.shape[:-1], size, size)
    return matrices


def duplication(size: int) -> Array:
    """Return the duplication matrix D (n^2, m): D vech(H) = vec(H) for symmetric H."""
    columns, rows = np.triu_indices(size)
    matrix = np.zeros((size, size, len(rows)))
    matrix[rows, columns, np.arange(len(rows))] = 1
    matrix[columns, rows, np.arange(len(rows))] = 1
    return matrix.reshape(size**2, -1)


def series_of(length: int) -> int:
    """Return n for m = n (n + 1) / 2."""
    size = (math.isqrt(8 * length + 1) - 1) // 2
    if size * (size + 1) // 2 != length or not size:
        below, above = size * (size + 1) // 2, (size + 1) * (size + 2) // 2
        expected = f"n (n + 1) / 2 entries of the covariance matrix of n series, such as {below} or {above}"
        raise ArgumentError(expected=expected, got=length)
    return size


def from_vech(constant: ArrayLike, arch: ArrayLike, garch: ArrayLike) -> ParaRNN:
    """Return the linear ParaRNN that takes vech(y y') and outputs vech(H) of the next errors.

    `constant` (m,), `arch` (m, m) and `garch` (m, m) are b, Theta and Phi. The function does not check whether
    covariance matrices stay positive definite, since in general that depends on the errors.

    Examples
    --------
    >>> layer = from_vech(*bekk(np.eye(2), 0.3 * np.eye(2), 0.9 * np.eye(2)))
    >>> layer.input_size
    3
    """
    b, theta, phi = _checked(constant, arch, garch)
    model = Innovations(recurrent=phi, gain=theta, readout=np.eye(len(b)), bias=b, level=np.zeros(len(b)))
    return model.as_layer()


def to_vech(layer: ParaRNN) -> VechCoefficients:
    """Return the VECH-GARCH(1, 1) model of a linear ParaRNN with as many states as inputs and outputs."""
    model = Innovations.of_layer(layer)
    outputs, states = model.readout.shape
    series_of(outputs)
    if states != outputs or np.linalg.matrix_rank(model.readout) < states:
        expected = f"{outputs} states that the {outputs} outputs determine"
        raise ArgumentError(argument="layer", expected=expected, got=states)
    phi = np.linalg.solve(model.readout.T, (model.readout @ model.recurrent).T).T
    constant = model.readout @ model.bias + (np.eye(states) - phi) @ model.level
    return VechCoefficients(constant, model.readout @ model.gain, phi)


def bekk(constant: ArrayLike, arch: ArrayLike, garch: ArrayLike) -> VechCoefficients:
    """Return the VECH model of H(t) = C C' + A y(t-1) y(t-1)' A' + B H(t-1) B', with C, A and B (n, n).

    It is positive definite on every path if C is invertible (Engle and Kroner, 1995). Theta = D+ (A x A) D and
    Phi = D+ (B x B) D, with x the Kronecker product and D the duplication matrix.
    """
    tensors = [torch.tensor(np.array(matrix, dtype=np.float64)) for matrix in (constant, arch, garch)]
    return VechCoefficients(*(part.numpy() for part in _bekk_tensors(*tensors)))


def _bekk_tensors(constant: Tensor, arch: Tensor, garch: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    duplicate = torch.from_numpy(duplication(len(arch)))
    halve = (duplicate / duplicate.sum(0)).T  # D+, since the columns of D are orthogonal
    theta, phi = (halve @ torch.kron(matrix, matrix) @ duplicate for matrix in (arch, garch))
    return halve @ (constant @ constant.T).flatten(), theta, phi


def covariance_backcast(errors: ArrayLike) -> Array:
    """Return the level (n, n) assumed for y y' and H before the first errors (T, n), as `garch.backcast` does."""
    weights = past_weights(len(np.asarray(errors)))
    first = np.asarray(errors, dtype=np.float64)[: len(weights)]
    level: Array = (first.T * weights) @ first
    return level


def covariance_path(layer: ParaRNN, errors: ArrayLike, level: ArrayLike | None = None) -> Array:
    """Return the covariance matrices (T, n, n) of errors (T, n), each given the errors before it.

    `level` (n, n) is that of y y' and H before the first, `covariance_backcast(errors)` by default. Raises unless all
    matrices are positive definite.
    """
    path, _ = _run(layer, errors, level)
    return path[:-1]


def covariance_forecast(layer: ParaRNN, errors: ArrayLike, steps: int, level: ArrayLike | None = None) -> Array:
    """Return the covariance matrices (steps, n, n) of the errors that follow these."""
    _, state = _run(layer, errors, level)
    return unvech(Innovations.of_layer(layer).forecast(state[0].numpy(), steps))


@torch.no_grad()
def _run(layer: ParaRNN, errors: ArrayLike, level: ArrayLike | None) -> tuple[Array, Tensor]:
    """Return the covariance matrices (T + 1, n, n) of the errors and of the next ones, and the last state."""
    constant, arch, garch = to_vech(layer)
    series, size = np.asarray(errors, dtype=np.float64), series_of(len(constant))
    if series.ndim != 2 or series.shape[1] != size or not len(series) or not np.isfinite(series).all():
        expected, hint = f"finite numbers (T, {size})", "drop missing values"
        raise ArgumentError(argument="errors", expected=expected, got=series.shape, hint=hint)
    past = vech(covariance_backcast(series) if level is None else level)
    first = constant + (arch + garch) @ past
    model = Innovations.of_layer(layer)
    start = torch.from_numpy(np.linalg.solve(model.readout, first - model.level))[None]
    output, state = exact(layer)(torch.from_numpy(vech(series[:, :, None] * series[:, None, :])), start)
    path = unvech(np.concatenate([first[None], output.numpy()]))
    smallest = np.linalg.eigvalsh(path)[:, 0]
    if not (smallest > 0).all():
        step = int((smallest <= 0).argmax())
        problem = f"the covariance matrix at step {step} has the eigenvalue {smallest[step]:.4g}"
        raise InputError(problem, hint="BEKK models stay positive definite, others need not: see bekk and VechGARCH")
    return path, state


def _checked(constant: ArrayLike, arch: ArrayLike, garch: ArrayLike) -> VechCoefficients:
    coefficients = VechCoefficients(*(np.asarray(part, dtype=np.float64) for part in (constant, arch, garch)))
    if coefficients.constant.ndim != 1:
        raise ArgumentError(argument="constant", expected="vech of a matrix, (m,)", got=coefficients.constant.shape)
    length = len(coefficients.constant)
    series_of(length)
    for name, part in coefficients._asdict().items():
        if name != "constant" and part.shape != (length, length):
            raise ArgumentError(argument=name, expected=f"the shape {(length, length)}", got=part.shape)
        if not np.isfinite(part).all():
            raise ArgumentError(argument=name, expected="finite numbers", got=part.tolist())
    radius = spectral_radius(coefficients.garch)
    if radius >= 1:
        expected = "eigenvalues below 1 in modulus, so that covariances forget their start"
        raise ArgumentError(argument="garch", expected=expected, got=round(radius, 4))
    return coefficients


class VechGARCH:
    """The model r(t) = mean + y(t), y(t) Gaussian with covariance H(t) = C C' + A y(t-1) y(t-1)' A' + B H(t-1) B'.

    This is BEKK(1, 1) of Engle and Kroner (1995): the VECH models whose H(t) is positive definite by construction. C is
    lower triangular; A and B are any matrices (n, n). Other VECH models are not fitted; `from_vech` accepts them.
    Without `mean` the returns are taken to be about zero, as in the paper.
    """

    def __init__(self, *, mean: bool = True) -> None:
        self.mean = bool(mean)

    def fit(self, returns: ArrayLike) -> VechFit:
        """Maximise the Gaussian likelihood, given the level of `covariance_backcast` before the first step.

        The search has several starts, on series scaled to variance one. The signs of A and B, which covariances do not
        determine, make the first entries positive. If volatility hardly moves, the likelihood has several maxima, and
        the best one found may not be the highest. Standard errors are robust to returns that are not Gaussian.
        """
        series = np.asarray(returns, dtype=np.float64)
        if series.ndim != 2 or not series.shape[1]:
            raise ArgumentError(argument="returns", expected="(T, n), one column per series", got=series.shape)
        size = series.shape[1]
        check_returns(series, RETURNS_PER_PARAMETER * (size * self.mean + size * (size + 1) // 2 + 2 * size**2))
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
            constant=lower * scale[:, None],
            arch=arch * ratios,
            garch=garch * ratios,
            mean=middle + scale * shift,
            has_mean=self.mean,
            covariance=likelihood.covariance(params) * np.outer(units, units),
            level=likelihood.level * np.outer(scale, scale),
            returns=series,
        )


@dataclass(frozen=True, kw_only=True)
class VechFit(VolatilityFit):
    """A fitted VECH-GARCH(1, 1) model, in BEKK form."""

    constant: Array  # C, (n, n), lower triangular
    arch: Array  # A, (n, n)
    garch: Array  # B, (n, n)
    mean: Array  # (n,)
    has_mean: bool  # whether the mean was estimated
    covariance: Array = field(repr=False)  # of the estimates, robust; ordered as `names`
    level: Array = field(repr=False)  # (n, n), of y y' and H before the first step
    returns: Array = field(repr=False)  # (T, n)

    @property
    def names(self) -> list[str]:
        """The names of the estimates: the means, C column by column, A and B row by row."""
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
        """The VECH coefficients b, Theta and Phi."""
        return bekk(self.constant, self.arch, self.garch)

    @cached_property
    def layer(self) -> ParaRNN:
        """The linear ParaRNN from vech(y y') to the next vech(H)."""
        return from_vech(*self.coefficients)

    @cached_property
    def covariances(self) -> Array:
        """The covariance matrices (T, n, n) of the returns of each step, given the returns before it."""
        return covariance_path(self.layer, self.errors, self.level)

    @property
    def standardized(self) -> Array:
        """L(t)^-1 y(t), (T, n), with L(t) L(t)' = H(t): uncorrelated with variance one if the model is right."""
        return np.linalg.solve(np.linalg.cholesky(self.covariances), self.errors[..., None])[..., 0]

    def forecast(self, steps: int) -> Array:
        """Return the covariance matrices (steps, n, n) of the next returns."""
        return covariance_forecast(self.layer, self.errors, steps, self.level)

    @property
    def log_likelihood(self) -> float:
        """The Gaussian log likelihood, conditional on the level before the returns."""
        _, logs = np.linalg.slogdet(2 * np.pi * self.covariances)
        return -0.5 * float(logs.sum() + (self.standardized**2).sum())

    @property
    def unconditional_covariance(self) -> Array:
        """The covariance matrix (n, n) to which forecasts tend."""
        return self.coefficients.unconditional_covariance

    def summary(self) -> Summary:
        """Return the estimates with their standard errors as text for the terminal."""
        fading = "shocks to volatility do not fade"
        if self.persistence < 1:
            fading = f"shocks to volatility have a half-life of {Step().format(self.half_life)}"
        notes = ["H(t) = C C' + A y(t-1) y(t-1)' A' + B H(t-1) B'.", f"Persistence {self.persistence:.4f}: {fading}."]
        if (self.constant.diagonal() < 2 * _LEAST_DIAGONAL * self.errors.std(0)).any():
            notes.append("C is at its bound, where standard errors mean little.")
        return self._table("VECH-GARCH(1, 1), as BEKK", *notes)


class _BekkLikelihood(Likelihood):
    """The likelihood of series of variance one; the parameters are the means (if any), vech(C), A and B by rows."""

    def __init__(self, returns: Array, mean: bool) -> None:
        super().__init__(returns)
        size = returns.shape[1]
        self.mean, self.size = mean, size
        self.level = covariance_backcast(returns)
        self.duplicate = torch.from_numpy(duplication(size))
        free, positive = (-math.inf, math.inf), (_LEAST_DIAGONAL, math.inf)
        diagonal = [positive if row == column else free for row, column in zip(self.rows, self.columns, strict=True)]
        self.bounds = [*[free] * (size * mean), *diagonal, *[free] * (2 * size**2)]

    def matrices(self, params: Tensor) -> tuple[Tensor, ...]:
        """Return the mean (n,) and C, A and B (n, n)."""
        mean, lower, arch, garch = params.split([self.size * self.mean, len(self.rows), self.size**2, self.size**2])
        shape = self.size, self.size
        if not self.mean:
            mean = params.new_zeros(self.size)
        constant = params.new_zeros(shape).index_put((self.rows, self.columns), lower)
        return mean, constant, arch.reshape(shape), garch.reshape(shape)

    def allows(self, params: Tensor) -> bool:
        """Return whether covariances forget their start."""
        *_, garch = self.matrices(params.detach())
        return spectral_radius(garch.numpy()) < _BELOW_ONE

    def model(self, params: Tensor) -> tuple[LinearRecurrence, Tensor]:
        """Return the VECH recurrence; the initial state is that of a past entirely at the level."""
        mean, *matrices = self.matrices(params)
        constant, theta, phi = _bekk_tensors(*matrices)
        start = constant + (theta + phi) @ torch.from_numpy(vech(self.level))
        return LinearRecurrence(phi, theta, constant, start), mean

    def log_densities(self, states: Tensor, errors: Tensor) -> Tensor:
        """Return the log densities of errors (T, n); the states are the lower triangles of their covariances."""
        covariances = (states @ self.duplicate.T).unflatten(-1, (self.size, self.size))
        roots, failed = torch.linalg.cholesky_ex(covariances)
        scaled = torch.linalg.solve_triangular(roots, errors[..., None], upper=False)[..., 0]
        logs = roots.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        densities = -0.5 * (self.size * math.log(2 * math.pi) + (scaled**2).sum(-1)) - logs
        return torch.where(failed == 0, densities, -math.inf)  # parameters that overflow

    def starts(self) -> Iterator[list[Array]]:
        """Yield starts for several persistences, each split in several ways between A and B, alike for all series."""
        for persistence in (0.8, 0.95, 0.99):
            yield [self._start(persistence, part) for part in (0.05, 0.1, 0.2)]

    def _start(self, persistence: float, part: float) -> Array:
        root = np.linalg.cholesky(np.cov(self.returns.numpy(), rowvar=False, bias=True).reshape(self.size, self.size))
        sides = [math.sqrt(persistence * share) * np.eye(self.size).ravel() for share in (part, 1 - part)]
        return np.concatenate([[0.0] * (self.size * self.mean), math.sqrt(1 - persistence) * vech(root), *sides])

    def with_signs(self, params: Array) -> Array:
        """Return the same model with non-negative first entries of A and B."""
        *_, arch, garch = self.matrices(torch.from_numpy(params))
        signs = [np.full(self.size**2, math.copysign(1.0, float(matrix[0, 0]))) for matrix in (arch, garch)]
        changed: Array = params * np.concatenate([np.ones(len(params) - 2 * self.size**2), *signs])
        return changed

"""Exponential smoothing as linear ParaRNNs: level, trend and season in innovations form.

With e(t) = y(t) - forecast, the state of level l, slope b and the last m seasonal terms s follows

    l(t) = l(t-1) + phi b(t-1) + alpha e(t)
    b(t) = phi b(t-1) + beta e(t)                              forecast of y(t): l(t-1) + phi b(t-1) + s(t-m)
    s(t) = s(t-m) + gamma e(t)

(Hyndman et al., "Forecasting with exponential smoothing", 2008; multiplicative models are additive in logarithms). So
its closed loop is made of blocks with names: the level is R-1 at one, the slope R-1 at phi (with the level R-2 at one
if phi is one), the season C-1 at the lines of its period. As an RNN that reads the data it is
x(t) = (F - g w) x(t-1) + g y(t).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from parallelrnn.classical.innovations import Innovations
from parallelrnn.errors import ArgumentError, InputError, check_choice, check_integer
from parallelrnn.kernels import Weights, recurrence
from parallelrnn.nn import ParaRNN

Array = NDArray[np.float64]
TRENDS = (None, "add", "damped")
_DAMPING = (0.8, 0.98)  # limits of phi, as in statsmodels and in the book
_TOGETHER = 16  # series that are fitted side by side, as blocks of one layer
_ITERATIONS = 150
_FIRST_STEP, _STEPS = 0.1, (1e-7, 1.0)  # of parameters, in each iteration
_STARTS = ((-2.0, -2.0, -2.0, 1.0), (2.0, -3.0, -2.0, 1.0))  # of sigmoids
_BEGINNING = 6  # values that a level and a slope begin with
_LEAST = 1e-12  # of the variance of a series: no error is smaller
_SAME = 1e-6  # eigenvalues that are equal


class EtsCoefficients(NamedTuple):
    """Smoothing of level (alpha), slope (beta) and season (gamma), and the damping of the slope (phi).

    Without a trend beta and phi are 0; without a season gamma is 0 and the period 1.
    """

    alpha: float
    beta: float = 0.0
    gamma: float = 0.0
    phi: float = 0.0
    period: int = 1

    @property
    def has_trend(self) -> bool:
        """Whether there is a slope."""
        return self.phi > 0


def ets_matrices(coefficients: Tensor, period: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return transitions F (n, D, D), gains g (n, D) and readouts w (n, D) of n models with level, slope and season.

    The coefficients (n, 4) are alpha, beta, gamma and phi.
    """
    alpha, beta, gamma, phi = coefficients.unbind(1)
    n, size = len(alpha), 2 + (period if period > 1 else 0)
    transition = alpha.new_zeros(n, size, size)
    transition[:, 0, 0] = 1.0
    transition[:, 0, 1] = transition[:, 1, 1] = phi
    gain, readout = alpha.new_zeros(n, size), alpha.new_zeros(n, size)
    gain[:, 0], gain[:, 1] = alpha, beta
    readout[:, 0], readout[:, 1] = 1.0, phi
    if period > 1:  # the last m seasonal terms, the newest first
        gain[:, 2] = gamma
        transition[:, 2, -1] = readout[:, -1] = 1.0
        transition[:, 3:, 2:-1] = torch.eye(period - 1, dtype=alpha.dtype)
    return transition, gain, readout


def from_ets(coefficients: EtsCoefficients) -> ParaRNN:
    """Return the linear ParaRNN whose output is the one-step forecast of exponential smoothing.

    Its forecast modes are the level, the slope and the lines of the season; its recurrence features say how fast it
    forgets.

    Examples
    --------
    >>> layer = from_ets(EtsCoefficients(alpha=0.5, beta=0.1, phi=0.9))
    >>> [round(number, 6) for number in to_ets(layer)]
    [0.5, 0.1, 0.0, 0.9, 1]
    """
    period = check_integer("period", coefficients.period, 1)
    alpha, beta, gamma, phi, _ = coefficients
    if not 0 < alpha <= 2 or not 0 <= phi <= 1 or (beta and not phi) or (gamma and period == 1):
        expected = "0 < alpha <= 2 and 0 <= phi <= 1, beta only with phi, gamma only with a period"
        raise ArgumentError(argument="coefficients", expected=expected, got=coefficients)
    values = torch.tensor([coefficients[:4]], dtype=torch.float64)
    parts = [part[0].numpy() for part in ets_matrices(values, period)]
    if not coefficients.has_trend:  # leave the slope out
        kept = np.array([index for index in range(len(parts[1])) if index != 1])
        parts = [parts[0][np.ix_(kept, kept)], parts[1][kept], parts[2][kept]]
    transition, gain, readout = parts
    size = len(gain)
    return Innovations(
        recurrent=transition - np.outer(gain, readout),
        gain=gain[:, None],
        readout=readout[None],
        bias=np.zeros(size),
        level=np.zeros(1),
    ).as_layer()


def to_ets(layer: ParaRNN) -> EtsCoefficients:
    """Return the coefficients of a layer that is an exponential smoothing, whatever the basis of its state."""
    model = Innovations.of_layer(layer)
    loop, size = model.closed_loop, len(model.recurrent)
    period = _period_of(loop)
    has_trend = size - (period if period > 1 else 0) == 2
    if size != 1 + has_trend + (period if period > 1 else 0) or model.gain.shape[1] != 1:
        raise InputError("the layer is no exponential smoothing: its closed loop is not a level, a slope and a season")
    phi = float(np.linalg.det(loop)) * (-1) ** (period - 1) if has_trend else 0.0
    # The response of the forecast j steps after an error: alpha + beta (phi + ... + phi^j), and gamma after a period.
    power, responses, terms = model.gain, [], []
    for j in range(1, period + 4):
        responses.append(float((model.readout @ power)[0, 0]))
        terms.append([1.0, sum(phi**i for i in range(1, j + 1)), float(period > 1 and j % period == 0)])
        power = loop @ power
    kept = [0] + [1] * has_trend + [2] * (period > 1)
    fitted, *_ = np.linalg.lstsq(np.array(terms)[:, kept], np.array(responses), rcond=None)
    alpha, beta, gamma = (float(fitted[kept.index(index)]) if index in kept else 0.0 for index in range(3))
    return EtsCoefficients(alpha, beta, gamma, phi, period)


def _period_of(loop: Array) -> int:
    """Return the period of the season in a closed loop, 1 if there is none."""
    eigenvalues = np.linalg.eigvals(loop)
    for period in (len(loop) - 1, len(loop) - 2):
        lines = np.exp(2j * math.pi * np.arange(1, period) / period) if period > 1 else np.zeros(0)
        if len(lines) and all(abs(eigenvalues - line).min() < _SAME for line in lines):
            return period
    return 1


@dataclass(frozen=True, kw_only=True)
class EtsFit:
    """Exponential smoothing fitted to n series, each with coefficients of its own."""

    coefficients: Array  # (n, 4): alpha, beta, gamma and phi
    period: int
    initial: Array  # (n, D), the states before the first values: level, slope, and the season, the newest first
    final: Array  # (n, D), the states after the last values
    variance: Array  # (n,), of the errors one step ahead
    counts: NDArray[np.int64]  # (n,), the lengths of the series

    def __len__(self) -> int:
        return len(self.coefficients)

    def __getitem__(self, series: int) -> EtsCoefficients:
        """Return the coefficients of one series."""
        alpha, beta, gamma, phi = self.coefficients[series].tolist()
        return EtsCoefficients(alpha, beta, gamma, phi, self.period)

    @cached_property
    def aicc(self) -> Array:
        """Akaike's information criterion for short series, (n,), by which fits of the same series compare."""
        damping = float(self.coefficients[:, 3].max())
        has_trend, is_damped = damping > 0, 0 < damping < 1
        season = self.period if self.period > 1 else 0
        count = 3 + 2 * has_trend + is_damped + (season > 0) + season
        spare = np.maximum(self.counts - count - 1, 1e-9)
        value: Array = (
            self.counts * np.log(np.maximum(self.variance, np.finfo(float).tiny))
            + 2 * count
            + 2 * count * (count + 1) / spare
        )
        return np.where(self.counts > count + 1, value, np.inf)

    def forecast(self, steps: int) -> Array:
        """Return forecasts (n, steps)."""
        transition, _, readout = ets_matrices(torch.from_numpy(self.coefficients), self.period)
        state, outputs = torch.from_numpy(self.final), []
        for _ in range(check_integer("steps", steps, 1)):
            outputs.append((readout * state).sum(1))
            state = torch.bmm(transition, state[:, :, None])[..., 0]
        return torch.stack(outputs, 1).numpy()


@dataclass(frozen=True)
class ETS:
    """Exponential smoothing with additive errors: a level, perhaps a trend, perhaps a season.

    Parameters
    ----------
    trend
        None, "add" or "damped".
    period
        Steps of the season; 1 for none.

    Examples
    --------
    >>> fit = ETS(trend="add", period=4).fit([np.arange(40.0) + np.tile([3.0, 0.0, -2.0, -1.0], 10)])
    >>> fit.forecast(4).round(2).tolist()
    [[43.0, 41.0, 40.0, 42.0]]
    """

    trend: str | None = None
    period: int = 1

    def __post_init__(self) -> None:
        check_choice("trend", self.trend, TRENDS)
        check_integer("period", self.period, 1)

    def fit(self, series: Sequence[ArrayLike]) -> EtsFit:
        """Fit series by least squares of their errors one step ahead, all as blocks side by side.

        Series need at least as many values as states, 1 for the level, 1 for a trend and a period for a season, plus
        two.
        """
        values = [np.asarray(single, dtype=np.float64) for single in series]
        if not values:
            raise ArgumentError(argument="series", expected="at least one array", got="none")
        least = 3 + (self.trend is not None) + (self.period if self.period > 1 else 0)
        for index, single in enumerate(values):
            if single.ndim != 1 or len(single) < least or not np.isfinite(single).all():
                expected = f"finite arrays of one dimension with at least {least} values"
                raise ArgumentError(f"series {index} cannot be fitted", argument="series", expected=expected)
        order = sorted(range(len(values)), key=lambda index: len(values[index]))
        parts = [order[start : start + _TOGETHER] for start in range(0, len(order), _TOGETHER)]
        fits = [self._fit_chunk([values[index] for index in part]) for part in parts]
        place = np.argsort(order)
        joined = {name: np.concatenate([fit[name] for fit in fits])[place] for name in fits[0]}
        return EtsFit(period=self.period, counts=np.array([len(single) for single in values]), **joined)

    def _fit_chunk(self, series: Sequence[Array]) -> dict[str, Array]:
        scale = np.array([max(float(single.std()), 1e-12 * abs(single).max(), 1e-300) for single in series])
        offset = np.array([single[0] for single in series])
        scaled = [(single - first) / size for single, first, size in zip(series, offset, scale, strict=True)]
        coefficients, initial, losses = self._least_squares(_Chunk(scaled, self.period), scaled)
        states, _ = _Chunk(scaled, self.period).states(coefficients, initial)
        final = states[[len(single) for single in series], torch.arange(len(series))]
        size, first = torch.from_numpy(scale), torch.from_numpy(offset)
        rescaled = [state * size[:, None] for state in (initial, final)]
        for state in rescaled:
            state[:, 0] += first
        return {
            "coefficients": coefficients.numpy(),
            "initial": rescaled[0].numpy(),
            "final": rescaled[1].numpy(),
            "variance": losses.exp().numpy() * scale**2,
        }

    def _least_squares(self, chunk: _Chunk, series: Sequence[Array]) -> tuple[Tensor, Tensor, Tensor]:
        """Return the best coefficients (n, 4), initial states (n, D) and losses (n,), from several starts each."""
        count, has_trend = len(series), self.trend is not None
        starts = [initial_state(single, self.period, has_trend) for single in series]
        initial = torch.from_numpy(np.stack(starts)).repeat(len(_STARTS), 1)
        free = torch.tensor(_STARTS, dtype=torch.float64).repeat_interleave(count, 0)
        chunk = chunk.repeated(len(_STARTS))
        free.requires_grad_()
        initial.requires_grad_()
        optimizer = torch.optim.Rprop([free, initial], lr=_FIRST_STEP, step_sizes=_STEPS)
        least = torch.full((len(free),), math.inf, dtype=torch.float64)
        best = [free.detach().clone(), initial.detach().clone()]
        for _ in range(_ITERATIONS):
            optimizer.zero_grad()
            losses = chunk.losses(self._coefficients(free), initial)
            is_better = losses.detach() < least
            least = torch.where(is_better, losses.detach(), least)
            for kept, now in zip(best, (free, initial), strict=True):
                kept[is_better] = now.detach()[is_better]
            losses.sum().backward()
            if not has_trend:
                assert initial.grad is not None
                initial.grad[:, 1] = 0.0
            optimizer.step()
        rows = least.view(len(_STARTS), count).argmin(0) * count + torch.arange(count)
        return self._coefficients(best[0][rows]), best[1][rows], least[rows]

    def _coefficients(self, free: Tensor) -> Tensor:
        """Return alpha, beta, gamma and phi (n, 4) within their limits."""
        level, slope, season, damping = torch.sigmoid(free).unbind(1)
        none = torch.zeros_like(level)
        beta = none if self.trend is None else level * slope
        gamma = (1 - level) * season if self.period > 1 else none
        phi = {None: none, "add": none + 1, "damped": _DAMPING[0] + (_DAMPING[1] - _DAMPING[0]) * damping}[self.trend]
        return torch.stack([level, beta, gamma, phi], 1)


class _Chunk:
    """Series side by side: each is the input of one block of a linear layer."""

    def __init__(self, series: Sequence[Array], period: int) -> None:
        self.period = period
        self.lengths = torch.tensor([len(single) for single in series])
        self.values = torch.zeros(int(self.lengths.max()), len(series), dtype=torch.float64)  # (T, n)
        for index, single in enumerate(series):
            self.values[: len(single), index] = torch.from_numpy(single)
        self.real = torch.arange(len(self.values))[:, None] < self.lengths

    def repeated(self, times: int) -> _Chunk:
        """Return these series several times over."""
        chunk = copy.copy(self)
        chunk.lengths, chunk.values, chunk.real = (
            self.lengths.repeat(times),
            self.values.repeat(1, times),
            self.real.repeat(1, times),
        )
        return chunk

    def states(self, coefficients: Tensor, initial: Tensor) -> tuple[Tensor, Tensor]:
        """Return the states (T + 1, n, D) before the first values and after each, and the readouts (n, D)."""
        transition, gain, readout = ets_matrices(coefficients, self.period)
        weights = Weights(
            input=torch.block_diag(*gain[:, :, None]),
            recurrent=(transition - gain[:, :, None] * readout[:, None])[None],
        )
        output, _ = recurrence("RNN_LINEAR", self.values[:, None], weights, (initial.reshape(1, -1),))
        return torch.cat([initial[None], output.view(len(output), *initial.shape)]), readout

    def losses(self, coefficients: Tensor, initial: Tensor) -> Tensor:
        """Return the logarithm of the mean squared error of forecasts one step ahead, (n,)."""
        states, readout = self.states(coefficients, initial)
        errors = torch.where(self.real, self.values - (states[:-1] * readout).sum(-1), 0.0)
        return torch.log((errors**2).sum(0) / self.lengths + _LEAST)


def initial_state(values: Array, period: int, has_trend: bool) -> Array:
    """Return a state (D,) to begin with: a line through the first values, and the season of all of them."""
    season = seasonal_means(values, period) if period > 1 else np.zeros(1)
    flat = values - season[np.arange(len(values)) % len(season)]
    count = min(len(values), max(_BEGINNING, 2 * period))
    slope, level = line_through(flat[:count])
    first = [level - slope, slope] if has_trend else [float(flat[: max(2, count // 2)].mean()), 0.0]
    return np.array([*first, *season[::-1]] if period > 1 else first)


def line_through(values: Array) -> tuple[float, float]:
    """Return slope and first value of the line of least squares through values, one step apart."""
    away = np.arange(len(values)) - (len(values) - 1) / 2
    spread = float(away @ away)
    slope = float(away @ values) / spread if spread else 0.0
    return slope, float(values.mean()) + slope * float(away[0])


def seasonal_means(values: Array, period: int) -> Array:
    """Return the mean distance of each phase of a season from a moving average of whole periods, (period,)."""
    weights = np.ones(period) if period % 2 else np.array([0.5, *[1.0] * (period - 1), 0.5])
    if len(values) < len(weights) + period:  # too short for a moving average: about a line
        time = np.arange(len(values))
        slope, level = line_through(values)
        away, phases = values - level - slope * time, time % period
    else:
        average = np.convolve(values, weights / period, "valid")
        first = len(weights) // 2
        away, phases = values[first : first + len(average)] - average, (first + np.arange(len(average))) % period
    sums = np.bincount(phases, away, period) / np.maximum(np.bincount(phases, minlength=period), 1)
    centred: Array = sums - sums.mean()
    return centred

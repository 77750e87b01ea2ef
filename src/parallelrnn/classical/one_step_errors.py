"""The one-step errors of an ARMA model as a function of its coefficients: what least squares minimises."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.func import functional_call

from parallelrnn.classical.innovations import Innovations
from parallelrnn.classical.partials import from_partials, to_partials
from parallelrnn.nn import ParaRNN

Array = NDArray[np.float64]
_DIFFERENCE = 1e-5  # in coefficients, about the cube root of rounding


class OneStepErrors:
    """The one-step errors of a series as a function of free parameters: the mean, and partial autocorrelations."""

    def __init__(self, series: Array, p: int, q: int, mean: bool, given: int | None = None) -> None:
        self.series, self.p, self.q, self.mean = series, p, q, mean
        self.given = p if given is None else given  # values that are not explained, p or more

    def coefficients(self, free: Array) -> tuple[Array, Array, float]:
        """ar, ma and the mean."""
        shift, ar, ma = self._split(free)
        return from_partials(ar)[0], -from_partials(ma)[0], shift

    def errors(self, free: Array) -> Array:
        """(T - given,)."""
        return self.sensitivities(*self.coefficients(free))[0]

    def jacobian(self, free: Array) -> Array:
        """Of the errors, (T - given, parameters)."""
        _, slopes = self.sensitivities(*self.coefficients(free))
        _, ar, ma = self._split(free)
        chain = [np.eye(int(self.mean)), from_partials(ar)[1], -from_partials(ma)[1]]
        return np.concatenate(
            [part @ of_free for part, of_free in zip(self._columns(slopes), chain, strict=True)], axis=1
        )

    def sensitivities(self, ar: Array, ma: Array, shift: float) -> tuple[Array, Array]:
        """The errors and their slopes (T - given, parameters) in the mean, ar and ma.

        Errors are what the moving average makes of what the autoregression leaves; slopes, what it makes of other
        inputs.
        """
        centred = self.series - shift
        past = _lagged(centred, self.p)[self.given :]
        errors = _errors(centred[self.given :] - past @ ar, ma)
        level = np.full((len(errors), int(self.mean)), 1 - ar.sum())
        drives = np.concatenate([level, past, _lagged(errors, self.q)], axis=1)
        return errors, -_errors(drives, ma)

    def curvature(self, ar: Array, ma: Array, shift: float) -> Array:
        """Second derivatives of half the sum of squares in the mean, ar and ma, by differences of the first."""

        def slope(natural: Array) -> Array:
            mean, ar, ma = self._columns(natural)
            errors, slopes = self.sensitivities(ar, ma, float(mean.sum()))
            found: Array = slopes.T @ errors
            return found

        at = np.concatenate([[shift] if self.mean else [], ar, ma])
        steps = _DIFFERENCE * np.eye(len(at))
        found = np.array([(slope(at + step) - slope(at - step)) / (2 * _DIFFERENCE) for step in steps])
        symmetric: Array = (found + found.T) / 2
        return symmetric

    def starts(self) -> Iterator[Array]:
        """Regressions on the errors of a long autoregression (Hannan and Rissanen), the same toned down, and zeros."""
        ar, ma = self._regressed()
        for factor in (0.95, 0.5, 0.0):
            free = [np.zeros(int(self.mean)), to_partials(ar, factor), to_partials(-ma, factor)]
            yield np.concatenate(free)

    def _regressed(self) -> tuple[Array, Array]:
        series = self.series - self.series.mean() * self.mean
        lags = min(len(series) // 4, max(2 * (self.p + self.q), round(math.log(len(series)) ** 2)))
        errors = np.zeros_like(series)
        if self.q:
            past = _lagged(series, lags)
            errors = series - past @ np.linalg.lstsq(past, series, rcond=None)[0]
        past = np.concatenate([_lagged(series, self.p), _lagged(errors, self.q)], axis=1)
        found = np.linalg.lstsq(past, series, rcond=None)[0]
        return found[: self.p], found[self.p :]

    def _split(self, free: Array) -> tuple[float, Array, Array]:
        mean, ar, ma = self._columns(free)
        return float(mean.sum()), ar, ma

    def _columns(self, array: Array) -> list[Array]:
        return np.split(array, [int(self.mean), int(self.mean) + self.p], axis=-1)


def _lagged(series: Array, lags: int) -> Array:
    """(T, lags): what was 1, 2, ... steps before, and zeros before the beginning."""
    columns = [np.concatenate([np.zeros(min(lag, len(series))), series[:-lag]]) for lag in range(1, lags + 1)]
    return np.stack(columns, 1) if columns else np.zeros((len(series), 0))


@torch.no_grad()
def _errors(series: Array, ma: Array) -> Array:
    """Of the one-step forecasts of a moving average, for one series (T,) or several (T, B), by a linear ParaRNN."""
    model = Innovations.of_coefficients(np.zeros((0, 1, 1)), ma[:, None, None], np.zeros(1))
    weights = {"weight_ih_l0": torch.from_numpy(model.gain), "weight_hh_l0": torch.from_numpy(model.recurrent)}
    x = torch.from_numpy(series).reshape(len(series), -1, 1)  # (T, B, 1)
    states, _ = functional_call(_one_block(len(model.recurrent)), weights, (x,))  # in companion form, one block
    errors: Array = series.copy()
    errors[1:] -= states[:-1, :, 0].numpy().reshape(errors[1:].shape)
    return errors


@cache
def _one_block(size: int) -> ParaRNN:
    """A linear layer without weights of its own."""
    options: dict[str, Any] = {"block_size": size, "aggregate": None, "dtype": torch.float64, "device": "meta"}
    return ParaRNN(1, size, nonlinearity="linear", bias=False, **options)

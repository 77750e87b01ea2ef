"""Local models: a bank of exponential smoothings, run along each series and weighed by how well they forecast it.

Every model of the bank is a linear block with fixed coefficients, so one layer runs all of them over all series. A
series weighs the models by their errors at several steps ahead, and borrows strength from the other series: what
forecasts the panel well is likely to forecast a short series well. The weighted sum is again a level, slopes and a
season, which have names and add up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from parallelrnn.classical.smoothing import EtsCoefficients, ets_matrices, from_ets, initial_state, line_through
from parallelrnn.forecast.data import Array, Series
from parallelrnn.kernels import Weights, recurrence
from parallelrnn.nn import ParaRNN

PARTS = ("level", "damped trend", "trend", "season")
DAMPINGS = (0.8, 1.0)  # of the slopes of the two kinds of trends
_ALPHAS, _BETAS, _GAMMAS = (0.1, 0.3, 0.6, 1.0), (0.05, 0.2), (0.0, 0.1, 0.3)
MAX_PERIOD = 12  # steps of a season that is smoothed; the network knows longer ones
_BEGINNING = 6  # steps that a level and a slope begin with, which no model is judged by
_TOGETHER = 64  # series that run at once
_VECTOR = 8  # numbers that a processor reckons with at once
_MAX_AHEAD = 5  # steps ahead at which models are judged
_MAX_NUMBERS = 2**25  # of states and forecasts that are kept at once
_HISTORY = (
    300  # steps by which models are judged, and before the first state that is asked for: what was earlier is lost
)
_SETTLED = 100  # steps of these after which what models began with matters little
_SHARPNESS, _PANEL_SHARPNESS = 10.0, 120.0  # how fast weights fall with the logarithm of errors: own, and of the panel
_FULL_COUNT, _MAX_COUNT = 50.0, 800.0  # errors at which weights are as sharp as this, and beyond which no sharper
_SAMPLED, _KEPT = 250, 16  # series that choose the models of larger panels, and how many
_PANEL_DOUBT = 10.0  # series that the opinion of the panel counts less by
_FARTHEST = 2.0  # by which a logarithm of errors counts as different from the median
_FLOOR = 0.01  # of the least value of a series that is read as logarithms: what is smaller counts as this
_WORST = 1e6  # times the scale of a series: no error is larger


class Model(NamedTuple):
    """An exponential smoothing of a bank."""

    alpha: float
    beta: float
    gamma: float
    phi: float
    is_half: bool  # whether its slope is constant, half that of a line through the series
    season: bool


@dataclass(frozen=True)
class Bank:
    """Exponential smoothings with and without a season of `period` steps (1: none), which forecast `horizon` steps.

    All of them, or those whose numbers are `kept`.
    """

    period: int
    horizon: int
    kept: tuple[int, ...] | None = None

    @cached_property
    def models(self) -> tuple[Model, ...]:
        """The models, those without a season first.

        A constant slope of half that of a line through the series is Theta's (Assimakopoulos and Nikolopoulos, 2000).
        """
        trends = [(0.0, 0.0, False), (0.0, 1.0, True), *((b, p, False) for b, p in product(_BETAS, DAMPINGS))]
        seasons = [(0.0, False), *((gamma, True) for gamma in _GAMMAS if self.period > 1)]
        models = [
            Model(alpha, beta, gamma, phi, is_half, season)
            for (gamma, season), alpha, (beta, phi, is_half) in product(seasons, _ALPHAS, trends)
            if beta <= alpha
        ]
        return tuple(models if self.kept is None else [models[number] for number in self.kept])

    def best(self, prior: Array, count: int) -> Bank:
        """Return a bank of the `count` models that a panel prefers, of values or of logarithms; see `model_weights`."""
        halves = prior.reshape(2, -1)
        halves = np.where(halves.any(axis=1, keepdims=True), halves, -np.inf)  # zeros where nothing was compared
        order = np.argsort(-halves.max(axis=0), kind="stable")[:count].tolist()
        return Bank(self.period, self.horizon, tuple(sorted(order)))

    def _models(self, season: bool) -> list[Model]:
        return [model for model in self.models if model.season == season]

    @property
    def size(self) -> int:
        """The numbers of a collapsed state: a level, a slope for each damping, a season."""
        return 1 + len(DAMPINGS) + (self.period if self.period > 1 else 0)

    @cached_property
    def readout(self) -> Tensor:
        """The map (size, H, parts) from a collapsed state to the parts of forecasts."""
        table = torch.zeros(self.size, self.horizon, len(PARTS), dtype=torch.float64)
        table[0, :, 0] = 1.0
        ahead = torch.arange(1, self.horizon + 1, dtype=torch.float64)
        for index, phi in enumerate(DAMPINGS):
            table[1 + index, :, 1 + index] = torch.cumsum(phi**ahead, 0)
        if self.period > 1:
            for h in range(self.horizon):
                table[1 + len(DAMPINGS) + self.period - 1 - h % self.period, h, 3] = 1.0
        return table

    def knows_season(self, steps: int) -> bool:
        """Return whether so many values tell what models with a season begin with: two periods."""
        return steps >= 2 * self.period > 2

    def beginning(self, steps: int) -> int:
        """Return how many of the first values models begin with, which they are not judged by."""
        usual = max(_BEGINNING, steps // 3) if steps >= 2 * _BEGINNING else min(steps, max(3, steps // 2))
        if not self.knows_season(steps):
            return usual
        # Of less than three periods one is enough, lest nothing be left to judge by.
        return max(usual, 2 * self.period + 1 if steps >= 3 * self.period else self.period + 2)

    def layer(self, model: int) -> ParaRNN:
        """Return one of the models as a linear layer."""
        own = self.models[model]
        return from_ets(EtsCoefficients(*own[:4], period=self.period if own.season else 1))

    def states(self, series: Sequence[Array], steps: Sequence[int]) -> list[Tensor]:
        """Return the states (T, B, models, D) after each value of series, of models without and with a season.

        What they begin with is read off the first `steps` values of each.
        """
        lengths = torch.tensor([len(values) for values in series])
        table = torch.zeros(int(lengths.max()), len(series), 1)
        for index, values in enumerate(series):
            table[: len(values), index, 0] = torch.from_numpy(values)
        known = [values[:n] for values, n in zip(series, steps, strict=True)]
        return [self._run(table, known, lengths, season) for season in self._seasons]

    @property
    def _seasons(self) -> list[bool]:
        """Whether there are models without a season, and with one."""
        return sorted({model.season for model in self.models})

    def _run(self, table: Tensor, known: Sequence[Array], lengths: Tensor, season: bool) -> Tensor:
        period, models = self.period if season else 1, self._models(season)
        coefficients = torch.tensor([model[:4] for model in models], dtype=torch.float64)
        transition, gain, readout = ets_matrices(coefficients, period)
        size = gain.shape[1]
        padding = -size % _VECTOR if size > 2 else 0  # units that stay zero, with which blocks fill whole vectors
        recurrent = nn.functional.pad(transition - gain[:, :, None] * readout[:, None], (0, padding, 0, padding))
        gain = nn.functional.pad(gain, (0, padding))
        weights = Weights(gain.reshape(-1, 1).to(table), recurrent[None].to(table))
        trends = torch.tensor([0 if not model.phi else 2 if model.is_half else 1 for model in models])
        starts = torch.from_numpy(np.stack([_starts(values, period) for values in known]))  # (B, 3, D)
        first = nn.functional.pad(starts[:, trends], (0, padding)).flatten(1).to(table)
        output, _ = recurrence("RNN_LINEAR", table, weights, (first,), lengths)
        return output.view(*output.shape[:2], len(models), -1)[..., :size]

    def forecasts(self, states: Sequence[Tensor], ahead: Sequence[int]) -> Tensor:
        """Return what models forecast some steps ahead, (T, B, models, steps)."""
        parts = []
        for season, own in zip(self._seasons, states, strict=True):
            models = self._models(season)
            table = self.readout.sum(-1)[:, [h - 1 for h in ahead]].to(own)  # (size, steps)
            slopes = torch.stack(
                [table[1 + DAMPINGS.index(own.phi)] if own.phi else torch.zeros_like(table[0]) for own in models]
            )
            maps = [table[:1].expand(len(models), -1)[:, None], slopes[:, None]]
            if season:
                maps.append(table[1 + len(DAMPINGS) :].expand(len(models), -1, -1))
            parts.append(torch.einsum("tbkd,kdh->tbkh", own, torch.cat(maps, 1)))
        return torch.cat(parts, 2)

    def collapse(self, states: Sequence[Tensor], weights: Tensor) -> Tensor:
        """Return the weighted sum (T, B, size) of the states of all models; `weights` are (B, models)."""
        total = states[0].new_zeros(*states[0].shape[:2], self.size)
        first = 0
        for season, own in zip(self._seasons, states, strict=True):
            models = self._models(season)
            weighted = own * weights[:, first : first + len(models), None].to(own)
            first += len(models)
            total[..., 0] += weighted[..., 0].sum(2)
            for index, phi in enumerate(DAMPINGS):
                rows = [row for row, model in enumerate(models) if model.phi == phi]
                total[..., 1 + index] += weighted[:, :, rows, 1].sum(2)
            if season:
                total[..., 1 + len(DAMPINGS) :] += weighted[..., 2:].sum(2)
        return total

    def errors(
        self, series: Sequence[Array], observed: Sequence[NDArray[np.bool_]], invert: Sequence[Inverse]
    ) -> tuple[Array, Array]:
        """Return the mean errors (B, models) of forecasts of observed values by observed ones, and their counts."""
        steps = [len(values) for values in series]
        ahead = sorted({1, min(2, self.horizon), *(max(1, k * self.horizon // 3) for k in (1, 2)), self.horizon})
        # What models begin with is read off values that they are not judged by.
        begins = [self.beginning(n) for n in steps]
        first = min(begins) - 1  # the first origin is the last value that models begin with
        states = [own[first:] for own in self.states(series, begins)]
        totals, counts = np.zeros((len(series), len(self.models))), np.zeros(len(series))
        forecasts = self.forecasts(states, ahead).numpy()  # (T, B, models, ahead)
        for index, (values, n, inverse) in enumerate(zip(series, steps, invert, strict=True)):
            actual, seen = inverse(values), observed[index]
            for place, h in enumerate(ahead):
                begin = begins[index] - 1
                if n - h <= begin:
                    continue
                origins = begin + np.flatnonzero(seen[begin : n - h] & seen[begin + h :])
                missed = abs(actual[origins + h, None] - inverse(forecasts[origins - first, index, :, place]))
                totals[index] += np.minimum(missed, _WORST).sum(0)
                counts[index] += len(origins)
        with np.errstate(invalid="ignore", divide="ignore"):
            means: Array = totals / counts[:, None]
        if self.period > 1:
            short = [index for index, n in enumerate(steps) if not self.knows_season(n)]
            means[short, len(self._models(False)) :] = np.inf
        return means, counts


@dataclass(frozen=True)
class Inverse:
    """The map from the scale of the network to values that errors are measured in."""

    mean: float
    scale: float
    is_log: bool
    unit: float  # of errors

    def __call__(self, scaled: Array) -> Array:
        """Return values relative to the unit."""
        values = scaled * self.scale + self.mean
        return (np.exp(np.minimum(values, 700.0)) if self.is_log else values) / self.unit


def model_weights(errors: Array, counts: Array, prior: Array | None = None) -> tuple[Array, Array]:
    """Return the weights (N, models) of series and the opinion of the panel (models,), by errors at `counts` places.

    Models whose errors are not finite have no weight. A given `prior` is kept.
    """
    logs = np.log(np.clip(errors, 1e-9, _WORST))
    usable = np.isfinite(errors)
    usable[~usable.any(axis=1)] = True  # nothing is known of these but what the panel says
    middle = np.array([np.median(own[mask]) for own, mask in zip(logs, usable, strict=True)])[:, None]
    away = np.where(usable & np.isfinite(logs), np.clip(logs - middle, -_FARTHEST, _FARTHEST), 0.0)
    if prior is None:
        votes = (counts > 0).sum()
        prior = -_PANEL_SHARPNESS * away[counts > 0].sum(0) / (votes + _PANEL_DOUBT)
    sharpness = _SHARPNESS * np.sqrt(np.minimum(counts, _MAX_COUNT) / _FULL_COUNT)
    logits = np.where(usable, prior - sharpness[:, None] * np.nan_to_num(logs - middle), -np.inf)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True), prior


@dataclass(frozen=True)
class LocalModels:
    """The local models of a panel, as far as forecasts need them."""

    bank: Bank
    prior: Array  # (2 * models,), what the panel makes of models of values, and of logarithms
    weights: Tensor  # (N, C, models)
    states: Tensor  # (N, C, size), collapsed, at the ends of the fitted series
    logs: bool | None  # whether logarithms were asked for; None if errors decided


def weigh(
    bank: Bank,
    series: Sequence[Series],
    steps: Sequence[int],
    logs: bool | NDArray[np.bool_] | None,
    prior: Array | None = None,
) -> tuple[Array, Tensor, Array]:
    """Return the floors (N, C) of series that are better read as logarithms, weights (N, C, models) and the prior.

    All by errors within the first `steps` of each series. `logs` says whether logarithms are taken, of all or of each
    channel (N, C); None leaves it to the errors. Only series that are positive have any.
    """
    spans = [(single, slice(max(0, n - _HISTORY), n)) for single, n in zip(series, steps, strict=True)]
    known = [values[span] for single, span in spans for values in single.values.T]
    observed = [mask[span] for single, span in spans for mask in single.observed.T]
    positive = np.array([bool((values > 0).all()) for single in series for values in single.values.T])
    wanted = np.full(len(known), bool(logs)) if logs is None or isinstance(logs, bool) else logs.ravel()
    count = len(bank.models)
    errors, counts = np.full((len(known), 2 * count), np.inf), np.zeros(len(known))
    for is_log in (False, True):
        is_allowed = np.full(len(known), True) if logs is None else (wanted & positive) == is_log
        usable = np.flatnonzero(is_allowed & (positive | (not is_log)))
        for chunk in _chunks(bank, [len(known[index]) for index in usable]):
            rows = usable[chunk]
            scaled, inverse = zip(*(_scaled(known[row], is_log, bank.period) for row in rows), strict=True)
            means, counted = bank.errors(scaled, [observed[row] for row in rows], inverse)
            errors[rows, count * is_log : count * (is_log + 1)] = means
            counts[rows] = counted
    weights, prior = model_weights(errors, counts, prior)
    halves = weights.reshape(-1, 2, count)
    logged = (halves[:, 1].sum(1) > halves[:, 0].sum(1)) & positive
    own = halves[np.arange(len(halves)), logged.astype(int)]
    own = own / np.maximum(own.sum(1, keepdims=True), 1e-300)
    least = [float(values.min()) for single, n in zip(series, steps, strict=True) for values in single.values[:n].T]
    floors = np.where(logged, _FLOOR * np.array(least), 0.0)
    shape = len(series), series[0].values.shape[1]
    return floors.reshape(shape), torch.from_numpy(own).float().view(*shape, -1), prior


def choose_bank(period: int, horizon: int, series: Sequence[Series], steps: Sequence[int], logs: bool | None) -> Bank:
    """Return all models, or for a large panel those that do best on a sample of its series."""
    bank = Bank(period, horizon)
    if len(series) < 2 * _SAMPLED:
        return bank
    sample = np.random.default_rng(0).choice(len(series), _SAMPLED, replace=False).tolist()
    _, _, prior = weigh(bank, [series[index] for index in sample], [steps[index] for index in sample], logs)
    return bank.best(prior, _KEPT)


def run_local(
    bank: Bank, series: Sequence[Array], steps: Sequence[int], weights: Tensor, first: Sequence[int]
) -> list[Tensor]:
    """Return the collapsed states (T, C, size) after each of the last steps of series (T, C) at the network's scale.

    At least those from step `first` on. What models begin with is read off values before `steps`.
    """
    begins = [max(0, own - _HISTORY) for own in first]
    spans = list(zip(series, begins, steps, strict=True))
    channels = [(values[begin:], n - begin) for table, begin, n in spans for values in table.T]
    found: list[Tensor] = [torch.zeros(0)] * len(channels)
    flat = weights.flatten(0, 1)
    for chunk in _chunks(bank, [len(values) for values, _ in channels]):
        states = bank.states([channels[index][0] for index in chunk], [channels[index][1] for index in chunk])
        collapsed = bank.collapse(states, flat[chunk]).float()
        for place, index in enumerate(chunk):
            found[index] = collapsed[: len(channels[index][0]), place]
    width = weights.shape[1]
    joined = [torch.stack(found[width * index : width * (index + 1)], 1) for index in range(len(series))]
    return [own[_SETTLED:] if begin else own for own, begin in zip(joined, begins, strict=True)]


def _scaled(values: Array, is_log: bool, period: int) -> tuple[Array, Inverse]:
    """Return values or logarithms at unit scale, and the way back to values relative to their usual changes."""
    lag = period if len(values) > period + 1 else 1
    unit = float(abs(values[lag:] - values[:-lag]).mean()) if len(values) > lag else 0.0
    read = np.log(values) if is_log else values
    mean, scale = float(read.mean()), float(read.std())
    scale = scale if scale > 1e-12 * max(1.0, float(abs(read).max())) else 1.0
    return (read - mean) / scale, Inverse(mean, scale, is_log, unit if unit > 0 else 1.0)


def _chunks(bank: Bank, lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield the indices of series that run together, those of similar lengths."""
    order = sorted(range(len(lengths)), key=lambda index: lengths[index])
    while order:
        numbers = max(1, lengths[order[-1]]) * len(bank.models) * (bank.size + _MAX_AHEAD)
        together = max(1, min(_TOGETHER, _MAX_NUMBERS // numbers))
        yield order[-together:]
        del order[-together:]


def season_of(periods: Sequence[float]) -> int:
    """Return the period of the season that local models smooth, 1 for none."""
    integers = [round(period) for period in periods if abs(period - round(period)) < 1e-9 and period <= MAX_PERIOD]
    return max(integers, default=1)


def _starts(values: Array, period: int) -> NDArray[np.float64]:
    """Return the states (3, D) that models without a slope, with one, and with half that of a line begin with."""
    if len(values) < 3:
        level = [float(values[0]) if len(values) else 0.0, 0.0, *[0.0] * (period if period > 1 else 0)]
        return np.array([level] * 3)
    known_period = period if len(values) >= period + 2 else 1
    flat, sloped = (initial_state(values, known_period, has_trend) for has_trend in (False, True))
    half = flat.copy()
    half[1] = line_through(values)[0] / 2
    states = np.stack([flat, sloped, half])
    missing = (period if period > 1 else 0) - (states.shape[1] - 2)
    return np.pad(states, ((0, 0), (0, missing)))

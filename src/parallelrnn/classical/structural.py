"""Series as sums of linear blocks and noise: the exact Gaussian likelihood of levels, decays and damped waves.

A block's state follows s(t+1) = A s(t) + w(t), with A a number (a level or a decay) or a rotation times a modulus (a
wave); the series is the sum of the first units of all blocks, of regressors, and of white noise. Given the series, the
states have a banded precision matrix, so that one banded Cholesky factor yields the exact likelihood (as in Chan and
Jeliazkov, 2009). Variances are relative to that of the noise, which is estimated in closed form, as are the effects of
the regressors (restricted likelihood).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from parallelrnn.errors import ArgumentError

Array = NDArray[np.float64]
_MIN_RATE = 1e-4  # per length of the series: slower cannot be told from never fading
_MAX_RATE = 3.0
_LEAST_NOISE = 1e-8  # of the variance of a series
_VARIANCES = (1e-8, 1e8)  # relative to the noise
_TOLERANCE = 1e-5  # of the log likelihood, relative to its size
_IMPOSSIBLE = 1e10  # the cost of parameters without a likelihood
_DIFFERENCE = 1e-5  # of parameters, in numerical gradients
_CURVATURE_STEP = 1e-2  # of parameters, in numerical Hessians


@dataclass(frozen=True, kw_only=True)
class Block:
    """One block of a sum: a level that wanders (rate 0, angle 0), a decay (angle 0 or pi) or a damped wave."""

    variance: float  # of its first unit, or of its steps if it is a level; relative to the noise
    rate: float  # -log(modulus)
    angle: float  # in [0, pi]

    @property
    def size(self) -> int:
        """The number of units."""
        return 2 if 0 < self.angle < math.pi else 1

    @property
    def matrix(self) -> Array:
        """The map from a state to the next one, (size, size)."""
        cosine, sine = math.cos(self.angle), math.sin(self.angle)
        rotation = [[cosine, sine], [-sine, cosine]] if self.size == 2 else [[cosine]]
        return math.exp(-self.rate) * np.array(rotation)

    @property
    def drive(self) -> float:
        """The variance of w."""
        return self.variance * (-math.expm1(-2 * self.rate) if self.rate > 0 else 1.0)


class Structural:
    """The likelihood of one series or of several that share their blocks, each with noise and effects of its own.

    Parameters
    ----------
    series
        Arrays (T,) of values, NaN where nothing was observed.
    regressors
        Arrays (T, k), one for each series.
    """

    def __init__(self, series: Sequence[Array], regressors: Sequence[Array]) -> None:
        if [len(values) for values in series] != [len(columns) for columns in regressors]:
            raise ArgumentError(argument="regressors", expected="as many rows as each series has", got=None)
        self.lengths = np.array([len(values) for values in series])
        table = np.column_stack([np.concatenate(series), np.concatenate(regressors)])
        self.observed = np.isfinite(table[:, 0])
        self.table = np.where(self.observed[:, None], table, 0.0)  # (T, 1 + k)
        ends = np.cumsum(self.lengths)
        self.first = ends - self.lengths  # the first step of each series
        self.linked = np.ones(len(table))  # 0 where a series ends, so that no state follows
        self.linked[ends - 1] = 0.0
        self.counts = np.add.reduceat(self.observed.astype(float), self.first)
        self.least_noise = _LEAST_NOISE * np.array([np.nanvar(values) for values in series])

    def rows(self, series: int) -> slice:
        """Return the rows of `table` that belong to a series."""
        return slice(int(self.first[series]), int(self.first[series] + self.lengths[series]))

    @property
    def effects(self) -> int:
        """The number of regressors."""
        return int(self.table.shape[1]) - 1

    def with_table(self, table: Array) -> Structural:
        """Return a model of other values (T, 1 + k) at the same steps."""
        ends = np.cumsum(self.lengths)[:-1]
        values = np.where(self.observed, table[:, 0], np.nan)
        return Structural(np.split(values, ends), np.split(table[:, 1:], ends))

    def log_likelihood(self, blocks: Sequence[Block]) -> float:
        """Return the restricted log likelihood, up to a constant; -inf where rounding leaves none."""
        try:
            value = Filtered(self, tuple(blocks)).log_likelihood
        except np.linalg.LinAlgError:
            return -math.inf
        return value if math.isfinite(value) else -math.inf


@dataclass(frozen=True)
class Filtered:
    """Series seen through blocks: the likelihood, the effects of regressors, and what is left of the series."""

    model: Structural
    blocks: tuple[Block, ...]

    @cached_property
    def _factor(self) -> tuple[Array, float]:
        """The banded Cholesky factor of the states' precision, and the log determinant of the series' covariance."""
        from scipy.linalg import cholesky_banded

        model, steps = self.model, len(self.model.table)
        sizes = [block.size for block in self.blocks]
        units, starts = sum(sizes), self._starts
        bands = np.zeros((units + max(sizes), steps, units))
        prior = 0.0
        for block, start in zip(self.blocks, starts, strict=True):
            drive, matrix = block.drive, block.matrix
            diagonal = model.linked * (math.exp(-2 * block.rate) / drive) + 1 / drive
            diagonal[model.first] += 1 / block.variance - 1 / drive
            for row in range(block.size):
                bands[0, :, start + row] = diagonal
                for column in range(block.size):
                    bands[units + row - column, :, start + column] -= model.linked * (matrix[row, column] / drive)
            series = len(model.lengths)
            prior -= block.size * ((steps - series) * math.log(drive) + series * math.log(block.variance))
        for index, column in enumerate(starts):  # all first units are seen together
            for row in starts[index:]:
                bands[row - column, :, column] += model.observed
        factor = cholesky_banded(bands.reshape(len(bands), -1), overwrite_ab=True, lower=True, check_finite=False)
        return factor, 2 * float(np.log(factor[0]).sum()) - prior

    @property
    def _starts(self) -> NDArray[np.int64]:
        """The first unit of each block."""
        return np.cumsum([0, *(block.size for block in self.blocks)])[:-1]

    @property
    def log_determinant(self) -> float:
        """That of the series' covariance, relative to the noise."""
        return self._factor[1] if self.blocks else 0.0

    @cached_property
    def _states(self) -> Array:
        """The states (T, units, 1 + k), if the columns of the table were series."""
        from scipy.linalg import cho_solve_banded

        if not self.blocks:
            return np.zeros((len(self.model.table), 0, self.model.table.shape[1]))
        right = np.zeros((len(self.model.table), sum(block.size for block in self.blocks), self.model.table.shape[1]))
        right[:, self._starts] = self.model.table[:, None]
        flat = right.reshape(-1, right.shape[2])
        states: Array = cho_solve_banded((self._factor[0], True), flat, overwrite_b=True, check_finite=False)
        return states.reshape(right.shape)

    @cached_property
    def _weighted(self) -> Array:
        """The table (T, 1 + k) times the inverse of the covariance, relative to the noise."""
        weighted: Array = self.model.table - self._states[:, self._starts].sum(1) * self.model.observed[:, None]
        return weighted

    @cached_property
    def _moments(self) -> Array:
        """The products of series and regressors (S, 1 + k, 1 + k), weighted by the inverse covariance."""
        products = self.model.table[:, :, None] * self._weighted[:, None, :]
        sums: Array = np.add.reduceat(products, self.model.first)
        return sums

    @cached_property
    def effects(self) -> Array:
        """The effects of the regressors (S, k)."""
        moments = self._moments
        if not self.model.effects:
            return np.zeros((len(moments), 0))
        return np.asarray(np.linalg.solve(moments[:, 1:, 1:], moments[:, 1:, :1])[..., 0])

    @property
    def effect_covariance(self) -> Array:
        """The covariance (S, k, k) of the effects."""
        covariance: Array = np.linalg.inv(self._moments[:, 1:, 1:]) * self.noise[:, None, None]
        return covariance

    @cached_property
    def _left(self) -> Array:
        """The weighted sum of squares that blocks and regressors leave of each series (S,)."""
        moments = self._moments
        left: Array = moments[:, 0, 0] - (moments[:, 0, 1:] * self.effects).sum(1)
        return left

    @cached_property
    def noise(self) -> Array:
        """The variance of the noise of each series (S,), no smaller than what rounding leaves."""
        freedom = self.model.counts - self.model.effects
        return np.asarray(np.maximum(self._left / freedom, self.model.least_noise))

    @cached_property
    def log_likelihood(self) -> float:
        """The restricted log likelihood, up to a constant."""
        freedom = self.model.counts - self.model.effects
        effects = float(np.linalg.slogdet(self._moments[:, 1:, 1:])[1].sum()) if self.model.effects else 0.0
        fit = float((freedom * np.log(self.noise) + self._left / self.noise - freedom).sum())
        return -0.5 * (fit + self.log_determinant + effects)

    @property
    def profile_likelihood(self) -> float:
        """The log likelihood at the best effects, by which models with different regressors compare."""
        left = np.maximum(self._left, self.model.counts * self.model.least_noise)
        return -0.5 * (float((self.model.counts * np.log(left / self.model.counts)).sum()) + self.log_determinant)

    def slope(self, parameters: Parameters, vector: Array) -> Array:
        """Return the derivative of the log likelihood by a vector of parameters whose blocks these are.

        All but the log determinant depends on a block by the squares of its states alone, from step to step.
        """
        weights = np.einsum("si,sj->sij", self._contrast, self._contrast / self.noise[:, None])
        if self.model.effects:
            weights[:, 1:, 1:] += np.linalg.inv(self._moments[:, 1:, 1:])
        states = self._states
        weighted = np.concatenate(
            [states[self.model.rows(index)] @ own for index, own in enumerate(weights)]
        )  # (T, units, 1 + k)
        squares = np.einsum("tuj,tuj->tu", states, weighted)
        first, linked = squares[self.model.first].sum(0), self.model.linked @ squares
        moves = np.einsum("t,tuj,tvj->uv", self.model.linked[:-1], states[1:], weighted[:-1])

        def square(index: int, block: Block) -> float:
            own = slice(self._starts[index], self._starts[index] + block.size)
            steps = squares[:, own].sum() - first[own].sum() + math.exp(-2 * block.rate) * linked[own].sum()
            turned = (block.matrix * moves[own, own]).sum()
            return float((steps - 2 * turned) / block.drive + first[own].sum() / block.variance)

        slope, own = np.zeros(len(vector)), [square(*pair) for pair in enumerate(self.blocks)]
        high = [limit for _, limit in parameters.bounds]
        for place, (index, _) in enumerate(parameters.places):
            step = _DIFFERENCE if vector[place] + _DIFFERENCE <= high[place] else -_DIFFERENCE
            moved = vector.copy()
            moved[place] += step
            blocks = parameters.to_blocks(moved)
            change = square(index, blocks[index]) - own[index]
            change += Filtered(self.model, blocks).log_determinant - self.log_determinant
            slope[place] = -0.5 * change / step
        return slope

    @property
    def _contrast(self) -> Array:
        """The weights (S, 1 + k) of series and regressors in the series less their effects."""
        return np.concatenate([np.ones((len(self.effects), 1)), -self.effects], 1)

    @cached_property
    def residuals(self) -> Array:
        """The series less the effects of regressors, times the inverse covariance, at unit noise (T,)."""
        left = self._without_effects(self._weighted)
        scaled: Array = left / np.sqrt(np.repeat(self.noise, self.model.lengths))
        return scaled

    def without_regressors(self, kept: int) -> Structural:
        """Return a model of the series less the effects of all regressors but the first."""
        effects = np.repeat(self.effects[:, kept:], self.model.lengths, axis=0)
        left = self.model.table[:, 0] - (self.model.table[:, 1 + kept :] * effects).sum(1)
        return self.model.with_table(np.column_stack([left, self.model.table[:, 1 : 1 + kept]]))

    @property
    def smoothed(self) -> Array:
        """The first units of blocks (T, blocks) given all of the series."""
        first = self._states[:, self._starts]
        return np.stack([self._without_effects(own) for own in first.transpose(1, 0, 2)], -1)

    def _without_effects(self, table: Array) -> Array:
        """Return the first column (T,) of what was made of the series and its regressors, less their effects."""
        effects = np.repeat(self.effects, self.model.lengths, axis=0)
        left: Array = table[:, 0] - (table[:, 1:] * effects).sum(1)
        return left

    def filtered_states(self, most: int) -> Iterator[Array]:
        """Yield the states (T, blocks, 2) of each series given its values up to each step, for `most` steps in all.

        The second unit of a block of size 1 is zero.
        """
        from scipy.linalg import block_diag

        sizes = [block.size for block in self.blocks]
        starts, units = np.cumsum([0, *sizes])[:-1], sum(sizes)
        matrix = block_diag(*[block.matrix for block in self.blocks])
        drive = np.repeat([block.drive for block in self.blocks], sizes)
        columns = [(k, j) for k, size in enumerate(sizes) for j in range(size)]
        place = np.array([2 * k + j for k, j in columns], dtype=int)
        owner = 0
        for series in range(len(self.model.lengths)):
            if owner >= most:
                return
            rows = self.model.rows(series)
            left = self.model.table[rows, 0] - self.model.table[rows, 1:] @ self.effects[series]
            state = np.zeros(units)
            spread = np.diag(np.repeat([block.variance for block in self.blocks], sizes)).astype(float)
            states = np.zeros((len(left), 2 * len(sizes)))
            for step, (value, seen) in enumerate(zip(left, self.model.observed[rows], strict=True)):
                if step:
                    state, spread = matrix @ state, matrix @ spread @ matrix.T
                    spread[np.diag_indices(units)] += drive
                if seen and units:
                    ahead = spread[:, starts].sum(1)
                    gain = ahead / (1 + ahead[starts].sum())
                    state = state + gain * (value - state[starts].sum())
                    spread = spread - np.outer(gain, ahead)
                states[step, place] = state
            owner += len(left)
            yield states.reshape(len(left), -1, 2)

    def explained(self, horizon: int) -> Array:
        """Return what each block adds to the variance of the best forecasts (blocks,), relative to the noise.

        On average over the horizon, and over all time: the covariance of a block's part with the forecast. Levels,
        which have no variance, are only counted as far as others depend on them.
        """
        from scipy.linalg import block_diag, solve_discrete_are

        sizes = [block.size for block in self.blocks]
        matrix = block_diag(*[block.matrix for block in self.blocks])
        drive = np.repeat([block.drive for block in self.blocks], sizes)
        first = np.zeros((len(drive), 1))
        first[np.cumsum([0, *sizes])[:-1]] = 1.0
        ahead = solve_discrete_are(matrix.T, first, np.diag(drive), np.eye(1))  # of predicted states
        gain = ahead @ first / math.sqrt(1 + float((first.T @ ahead @ first)[0, 0]))
        variances = [0.0 if block.rate == 0 else block.variance for block in self.blocks]
        known = np.diag(np.repeat(variances, sizes)) - (ahead - gain @ gain.T)  # of the states as the filter has them
        is_unit = np.array([(index, unit) for index, size in enumerate(sizes) for unit in range(size)])
        weights = np.zeros((horizon, len(sizes), len(drive)))
        weights[:, is_unit[:, 0], np.arange(len(drive))] = self.powers(horizon)[:, is_unit[:, 0], is_unit[:, 1]]
        total: Array = np.einsum("hku,uv,hv->k", weights, known, weights.sum(1)) / horizon
        return total

    def powers(self, horizon: int) -> Array:
        """Return the weights (H, blocks, 2) of each unit in the first unit of its block, some steps later."""
        ahead = np.arange(1, horizon + 1)[:, None]
        angle, rate = (np.array([getattr(block, name) for block in self.blocks]) for name in ("angle", "rate"))
        decay = np.exp(-ahead * rate)
        weights: Array = np.stack([decay * np.cos(ahead * angle), decay * np.sin(ahead * angle)], -1)
        return weights

    def spectrum(self, angles: Array) -> Array:
        """Return the spectral density at these angles, relative to that of the noise."""
        total = np.ones_like(angles)
        turn = np.exp(-1j * angles)
        for block in self.blocks:
            if block.size == 1:
                total += block.drive / abs(1 - block.matrix[0, 0] * turn) ** 2
                continue
            # The first unit of a rotation by z = modulus exp(i angle) is the real part of a complex AR(1).
            modulus = math.exp(-block.rate)
            for sign in (1, -1):
                total += block.drive / 2 / abs(1 - modulus * np.exp(1j * sign * block.angle) * turn) ** 2
        return total


class Parameters:
    """The blocks of a model as one vector: log variances, log rates, and angles in turns over the series.

    Rates of levels are zero, and the angles of decays stay as they are. `least_rate` gives the lower limit of the rate
    of the last block, a wave, by its angle.
    """

    def __init__(self, blocks: Sequence[Block], steps: int, least_rate: Callable[[float], float] | None = None) -> None:
        self.blocks, self.steps, self.least_rate = tuple(blocks), steps, least_rate
        self.places = [
            (index, name)
            for index, block in enumerate(blocks)
            for name in ("variance", "rate", "angle")
            if name == "variance" or (block.rate > 0 and (name == "rate" or block.size == 2))
        ]

    @property
    def start(self) -> Array:
        """The vector of the blocks themselves, within the bounds."""
        low, high = np.array(self.bounds).T
        return np.clip([self._to_free(name, getattr(self.blocks[i], name)) for i, name in self.places], low, high)

    @property
    def bounds(self) -> list[tuple[float, float]]:
        """The limits of each entry."""
        of = {
            "variance": (math.log(_VARIANCES[0]), math.log(_VARIANCES[1])),
            "rate": (math.log(_MIN_RATE / self.steps), math.log(_MAX_RATE)),
            "angle": (1.0, self.steps / 2 - 0.5),
        }
        return [of[name] for _, name in self.places]

    def to_blocks(self, free: Array) -> tuple[Block, ...]:
        """Return the blocks of a vector."""
        changed: list[dict[str, float]] = [{} for _ in self.blocks]
        for (index, name), value in zip(self.places, free, strict=True):
            changed[index][name] = 2 * math.pi * value / self.steps if name == "angle" else math.exp(value)
        blocks = [replace(block, **values) for block, values in zip(self.blocks, changed, strict=True)]
        if self.least_rate is not None:
            blocks[-1] = replace(blocks[-1], rate=max(blocks[-1].rate, self.least_rate(blocks[-1].angle)))
        return tuple(blocks)

    def _to_free(self, name: str, value: float) -> float:
        return value * self.steps / (2 * math.pi) if name == "angle" else math.log(value)


def maximize(
    model: Structural,
    parameters: Parameters,
    fixed: dict[int, float] | None = None,
    iterations: int = 60,
    start: Array | None = None,
) -> tuple[Filtered, Array]:
    """Return the most likely blocks near the start, and their vector; entries in `fixed` stay at their values."""
    from scipy.optimize import minimize

    bounds = parameters.bounds
    start = parameters.start if start is None else np.clip(start, *np.array(bounds).T)
    for place, value in (fixed or {}).items():
        start[place], bounds[place] = value, (value, value)

    def with_slope(vector: Array) -> tuple[float, Array]:
        fit = Filtered(model, parameters.to_blocks(vector))
        try:
            value, slope = fit.log_likelihood, fit.slope(parameters, vector)
        except np.linalg.LinAlgError:
            return _IMPOSSIBLE, np.zeros(len(vector))
        if not (math.isfinite(value) and np.isfinite(slope).all()):
            return _IMPOSSIBLE, np.zeros(len(vector))
        slope[list(fixed or {})] = 0.0
        return -value, -slope

    if not len(start):
        return Filtered(model, parameters.blocks), start
    options = {"maxiter": iterations, "ftol": _TOLERANCE, "gtol": 1e-2}
    result = minimize(with_slope, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return Filtered(model, parameters.to_blocks(result.x)), result.x


def covariance(model: Structural, parameters: Parameters, vector: Array) -> Array:
    """Return the covariance of the estimates (k, k) by the curvature of the likelihood; entries at bounds are fixed."""
    low, high = np.array(parameters.bounds).T
    free = np.flatnonzero((vector > low + _CURVATURE_STEP) & (vector < high - _CURVATURE_STEP))
    steps = _CURVATURE_STEP * np.eye(len(vector))[free]

    def value(*moves: Array) -> float:
        return model.log_likelihood(parameters.to_blocks(np.sum([vector, *moves], axis=0)))

    middle, hessian = value(), np.zeros((len(free), len(free)))
    ahead, back = [value(step) for step in steps], [value(-step) for step in steps]
    for i in range(len(free)):
        hessian[i, i] = ahead[i] + back[i] - 2 * middle
        for j in range(i):
            both = value(steps[i], steps[j]) - ahead[i] - ahead[j] + 2 * middle
            hessian[i, j] = hessian[j, i] = (both - back[i] - back[j] + value(-steps[i], -steps[j])) / 2
    values, vectors = np.linalg.eigh(-np.nan_to_num(hessian, posinf=0.0, neginf=0.0) / _CURVATURE_STEP**2)
    inverse = (vectors / np.maximum(values, 1e-2)) @ vectors.T  # a flat direction is uncertain, not endless
    table = np.zeros((len(vector), len(vector)))
    table[np.ix_(free, free)] = inverse
    return table

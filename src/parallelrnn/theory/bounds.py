"""How wide and deep a ParaRNN has to be, and how much data it needs: Section 4 of arXiv 2605.02692 in numbers.

Everything is computed in natural logarithms, since widths have the factor 3^(input_size * lookback) and overflow
floating point even for short inputs. Widths and depths themselves are exact integers.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from math import inf, isfinite, isqrt, log
from typing import Any

from parallelrnn.errors import ArgumentError, ArgumentTypeError, InputError, check_integer, check_number

_MOST_INPUTS = 10_000  # for which the search takes seconds
_LOG_TOLERANCE = 1e-3  # no other integers lower the logarithm of the bound of `recommended` by more than this


@dataclass(frozen=True)
class HolderClass:
    """The functions to be learned: all derivatives below order `smoothness` exist, bounded by `radius`.

    They map a sequence of `lookback` inputs in [0, 1]^input_size to `output_size` numbers (Definition 1).
    """

    smoothness: float  # beta
    input_size: int
    lookback: int  # T
    output_size: int = 1
    radius: float = 1.0  # U: bounds the sum of a function, its derivatives and their Hoelder constants

    def __post_init__(self) -> None:
        _check_positive("smoothness", self.smoothness)
        _check_positive("radius", self.radius)
        for name in ("input_size", "lookback", "output_size"):
            _check_count(name, getattr(self, name))

    @property
    def dimension(self) -> int:
        """The number of values in one input sequence."""
        return self.input_size * self.lookback

    @property
    def derivatives(self) -> int:
        """The largest integer strictly below the smoothness: k in beta = k + omega, omega in (0, 1].

        The paper writes floor(beta) in its theorems; for an integer beta that is k + 1, against its own Definition 1.
        """
        return math.ceil(self.smoothness) - 1

    @property
    def rate(self) -> float:
        """The power of 1 / sample_size at which the error falls (Corollary 1), which is optimal (Stone, 1982)."""
        return 2 * self.smoothness / (self.dimension + 2 * self.smoothness)


@dataclass(frozen=True, repr=False)
class Approximation:
    """Theorem 3: for every function of the class, a ParaRNN of this width and depth is within exp(log_error) of it."""

    target: HolderClass
    depth_factor: int  # I
    width_factor: int  # J
    block_size: int = 2

    def __post_init__(self) -> None:
        for name in ("depth_factor", "width_factor", "block_size"):
            _check_count(name, getattr(self, name))

    def __repr__(self) -> str:
        factors = f"depth_factor={_shown(self.depth_factor)}, width_factor={_shown(self.width_factor)}"
        return f"Approximation({self.target}, {factors}, block_size={self.block_size})"

    @property
    def width(self) -> int:
        """The exact hidden_size, rounded up to whole blocks. It has about input_size * lookback / 2 digits."""
        k, sizes = self.target.derivatives, self.target
        inner = 76 * (k + 1) ** 2 * 3**sizes.dimension * sizes.input_size ** (k + 2) * sizes.lookback ** (k + 1)
        needed: int = inner * sizes.output_size * _times_log(self.width_factor) + self.block_size
        return -(-needed // self.block_size) * self.block_size

    @property
    def log_width(self) -> float:
        """The logarithm of the width, computed without the width."""
        k, sizes = self.target.derivatives, self.target
        inner = log(76) + 2 * log(k + 1) + sizes.dimension * log(3) + log(sizes.output_size)
        inner += (k + 2) * log(sizes.input_size) + (k + 1) * log(sizes.lookback) + log(_times_log(self.width_factor))
        # Two blocks more or less are invisible in double precision below one part in 2^53.
        return inner if inner > log(2**54 * self.block_size) else log(self.width)

    @property
    def depth(self) -> int:
        """The number of recurrent layers."""
        return 42 * (self.target.derivatives + 1) ** 2 * _times_log(self.depth_factor) + 6 * self.target.dimension

    @property
    def log_error(self) -> float:
        """The logarithm of the largest error over all inputs and outputs."""
        k, beta, n = self.target.derivatives, self.target.smoothness, self.target.dimension
        constant = log(19) + log(self.target.radius) + 2 * log(k + 1) + (k + max(beta, 1) / 2) * log(n)
        return constant - 2 * beta / n * (log(self.depth_factor) + log(self.width_factor))


@dataclass(frozen=True, kw_only=True)
class PredictionError:
    """Theorem 5: a bound on the expected squared error of the empirical risk minimiser, beyond the noise."""

    network: Approximation
    log_sample_size: float  # N
    log_estimation: float  # grows with the network, falls with the sample
    log_approximation: float  # falls with the network
    log_least_sample_size: float  # the theorem holds from here on, with the constant in its condition taken as 1

    @property
    def log_bound(self) -> float:
        """The logarithm of the sum of both terms."""
        return _log_sum(self.log_estimation, self.log_approximation)

    @property
    def holds(self) -> bool:
        """Whether the sample is as large as the theorem requires."""
        return self.log_sample_size >= self.log_least_sample_size

    @property
    def vacuous(self) -> bool:
        """Whether the bound says nothing, since no network with outputs in [-U, U] has a larger error."""
        return self.log_bound >= 2 * log(2 * self.network.target.radius)


def log_least_sample_size(width: int, depth: int) -> float:
    """Return log(d^2 L^2 log max(d, L)): Theorems 4 and 5 hold for samples larger than this times a constant."""
    _check_network(width, depth)
    return _log_least_sample_size(log(width), log(depth))


def log_estimation_error(
    width: int, depth: int, sample_size: int, *, radius: float = 1.0, constant: float = 1.0, block_size: int = 2
) -> float:
    """Return the logarithm of C U^5 (log N)^5 d^2 L^2 log max(d, L) / N, the estimation error of Theorem 4.

    Half of the approximation error comes on top. The response has to be sub-exponential (Assumption 1), which is a
    property of the data and cannot be checked here. The constant C depends on its distribution and on the lookback; the
    paper does not give it.
    """
    _check_network(width, depth)
    _check_count("block_size", block_size)
    if width % block_size:
        raise ArgumentError(argument="width", expected=f"a multiple of block_size {block_size}", got=width)
    _check_regression(radius, constant)
    log_n = _log_sample_size(sample_size)
    _check_sample(log_n, _log_least_sample_size(log(width), log(depth)))
    return _log_estimation(log(width), log(depth), log_n, radius, constant)


def prediction_error(network: Approximation, sample_size: int, *, constant: float = 1.0) -> PredictionError:
    """Apply Theorem 5 to a sample of this size, under Assumption 1 and with this constant C of Theorem 4."""
    error = _prediction_error(network, _log_sample_size(sample_size), constant)
    _check_sample(error.log_sample_size, error.log_least_sample_size)
    return error


def balanced(target: HolderClass, sample_size: int, eta: float, block_size: int = 2) -> Approximation:
    """Return the network of Corollary 1: width of order N^eta log N, and a depth that balances both error terms."""
    log_n = _log_sample_size(sample_size)
    total = target.dimension / (2 * target.dimension + 4 * target.smoothness)  # the powers of N in width and depth
    if not 0 <= eta <= total:
        expected = f"between 0 and d_in T / (2 d_in T + 4 beta) = {total:.6g} (Corollary 1)"
        raise ArgumentError(argument="eta", expected=expected, got=eta)
    return Approximation(target, _round(log_n * (total - eta)), _round(log_n * eta), block_size)


def log_rate(target: HolderClass, sample_size: int) -> float:
    """Return log(N^(-2 beta / (d_in T + 2 beta)) (log N)^10), the rate of Corollary 1 up to a constant."""
    log_n = _log_sample_size(sample_size)
    return -target.rate * log_n + 10 * log(log_n)


def recommended(
    target: HolderClass, sample_size: int, *, constant: float = 1.0, block_size: int = 2
) -> PredictionError:
    """Find the integers I and J with the least bound of Theorem 5 for this sample, by branch and bound, to 0.1 %.

    Samples that are too small for the theorem get an answer, too; `holds` and `vacuous` of the result say what it is
    worth.
    """
    return _recommended(target, _log_sample_size(sample_size), constant, block_size)


def log_informative_sample_size(target: HolderClass, *, constant: float = 1.0, block_size: int = 2) -> float:
    """Return the logarithm of the least sample for which Theorem 5, for the recommended network, holds and is useful.

    It is accurate to 0.1 % of itself, and far beyond any data: with C = 1 about 10^94 for Lipschitz functions of 24
    steps of one series.
    """
    if target.dimension > _MOST_INPUTS:
        expected = f"at most {_MOST_INPUTS} inputs to search for a network; the sample only grows with their number"
        raise ArgumentError(argument="target", expected=expected, got=target.dimension)

    def says_nothing(log_n: float) -> bool:
        error = _recommended(target, log_n, constant, block_size)
        return error.vacuous or not error.holds

    low = high = 5.0  # from exp(5) on, (log N)^5 / N falls
    while says_nothing(high):
        low, high = high, 2 * high
    while high - low > _LOG_TOLERANCE * high:
        middle = (low + high) / 2
        low, high = (middle, high) if says_nothing(middle) else (low, middle)
    return high


def _prediction_error(network: Approximation, log_n: float, constant: float) -> PredictionError:
    target = network.target
    if target.output_size != 1:
        hint = "bound each output by itself"
        raise ArgumentError(argument="output_size", expected="1 for Theorem 5", got=target.output_size, hint=hint)
    _check_regression(target.radius, constant)
    log_width, log_depth = network.log_width, log(network.depth)
    return PredictionError(
        network=network,
        log_sample_size=log_n,
        log_estimation=_log_estimation(log_width, log_depth, log_n, target.radius, constant),
        # Three halves of the squared error of Theorem 3: 1.5 * 19^2 = 541.5, which the paper rounds up.
        log_approximation=log(542) - 2 * log(19) + 2 * network.log_error,
        log_least_sample_size=_log_least_sample_size(log_width, log_depth),
    )


Factors = tuple[int, int]  # I and J


def _recommended(target: HolderClass, log_n: float, constant: float, block_size: int) -> PredictionError:
    """Search boxes of I and J by branch and bound, the most promising box first."""

    def at(factors: Factors) -> PredictionError:
        return _prediction_error(Approximation(target, *factors, block_size), log_n, constant)

    best = at((1, 1))
    depth = width = 2  # grow until the estimation error alone is larger
    while at((depth, 1)).log_estimation < best.log_bound:
        depth *= depth
    while at((1, width)).log_estimation < best.log_bound:
        width *= width
    boxes = [(-inf, (1, 1), (depth, width))]
    while True:
        least, low, high = heapq.heappop(boxes)
        if least >= best.log_bound - _LOG_TOLERANCE:
            return best
        for part in _halves(low, high):
            first, last = map(at, part)
            best = min(best, first, last, key=lambda error: error.log_bound)
            heapq.heappush(boxes, (_least(first, last), *part))


def _halves(low: Factors, high: Factors) -> tuple[tuple[Factors, Factors], ...]:
    """Cut a box in two across its longer side, on a logarithmic scale."""
    if low == high:
        return ((low, high),)
    if high[0] * low[1] >= high[1] * low[0]:
        middle = isqrt(low[0] * high[0])
        return (low, (middle, high[1])), ((middle + 1, low[1]), high)
    middle = isqrt(low[1] * high[1])
    return (low, (high[0], middle)), ((low[0], middle + 1), high)


def _least(first: PredictionError, last: PredictionError) -> float:
    """Return a lower bound of log_bound in the box between these two corners.

    From the lowest corner on, the estimation error grows at least like (IJ)^2, apart from the constants in width and
    depth, and the approximation error falls like (IJ)^-s. The least sum of two powers is known.
    """
    low, high, target = first.network, last.network, first.network.target
    constants = 6 * target.dimension / low.depth * (1 - low.depth_factor / high.depth_factor)
    if low.width_factor < high.width_factor:
        constants += 2 * low.block_size * math.exp(-low.log_width)  # one block, and less than one of rounding up
    if constants >= 1:
        return _log_sum(first.log_estimation, last.log_approximation)
    estimation = first.log_estimation + 2 * math.log1p(-constants)
    power = 4 * target.smoothness / target.dimension
    furthest = (first.log_approximation - last.log_approximation) / power  # log of IJ at the highest over the lowest
    best = (first.log_approximation - estimation + log(power / 2)) / (2 + power)
    product = min(max(best, 0), furthest)
    return _log_sum(estimation + 2 * product, first.log_approximation - power * product)


def _times_log(factor: int) -> int:
    """Return n ceil(log2(8 n)), exactly."""
    return factor * (3 + (factor - 1).bit_length())


def _log_estimation(log_width: float, log_depth: float, log_n: float, radius: float, constant: float) -> float:
    size = _log_least_sample_size(log_width, log_depth)
    return log(constant) + 5 * log(radius) + 5 * log(log_n) - log_n + size


def _log_least_sample_size(log_width: float, log_depth: float) -> float:
    return 2 * log_width + 2 * log_depth + log(max(log_width, log_depth))


def _log_sum(first: float, second: float) -> float:
    larger, smaller = max(first, second), min(first, second)
    return larger + math.log1p(math.exp(smaller - larger))


def _round(log_value: float) -> int:
    """Return the integer nearest to exp(log_value), with zero bits beyond double precision."""
    shift = max(0, int(log_value / log(2)) - 53)
    return round(math.exp(log_value - shift * log(2))) << shift


def _shown(number: int) -> str:
    """Return a short form, since Python refuses to print more than 4300 digits and nobody reads 20."""
    return str(number) if number < 10**15 else f"10^{log(number) / log(10):.1f}"


def _check_count(name: str, value: Any, least: int = 1) -> int:
    if not isinstance(value, int):  # an integer of NumPy would overflow
        raise ArgumentTypeError(argument=name, expected=f"an int of at least {least}", got=value)
    return check_integer(name, value, least)


def _log_sample_size(sample_size: Any) -> float:
    return log(_check_count("sample_size", sample_size, 2))  # the bounds are multiples of log N


def _check_positive(name: str, value: float) -> None:
    check_number(name, value, "a finite number above 0", lambda number: isfinite(number) and number > 0)


def _check_network(width: int, depth: int) -> None:
    if max(_check_count("width", width), _check_count("depth", depth)) == 1:
        raise InputError("for one unit in one layer log max(d, L) is 0, so Theorem 4 says nothing")


def _check_regression(radius: float, constant: float) -> None:
    expected = "a finite bound U >= 1 of the regression function, as in Theorems 4 and 5"
    check_number("radius", radius, expected, lambda number: isfinite(number) and number >= 1)
    _check_positive("constant", constant)


def _check_sample(log_n: float, log_least: float) -> None:
    if log_n < log_least:
        least, size = (f"10^{number / log(10):.1f}" for number in (log_least, log_n))
        expected = f"at least d^2 L^2 log max(d, L) = {least}, as in Theorems 4 and 5"
        hint = "use more data or a smaller network, or see `recommended`"
        raise ArgumentError(argument="sample_size", expected=expected, got=size, hint=hint)
